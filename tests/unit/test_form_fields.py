"""What an action of the dashboard makes of the fields that it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.covers import covers

from pgflowd.errors import PgflowdError
from pgflowd.web.actions import Fields


@covers("E511")
@pytest.mark.parametrize(
    ("values", "read", "why"),
    [
        ({}, lambda fields: fields.required("name"), "the field 'name' is missing"),
        ({"name": ""}, lambda fields: fields.required("name"), "is missing"),
        ({"name": ["paid"]}, lambda fields: fields.text("name"), "must be a text"),
        ({"token": "x"}, lambda fields: fields.number("token", 99), "must be a whole number"),
        ({"payload": "{"}, lambda fields: fields.json("payload"), "is not JSON"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(
    values: dict[str, Any], read: Callable[[Fields], Any], why: str
) -> None:
    with pytest.raises(PgflowdError, match=f"E511 .*{why}"):
        read(Fields(values))


def test_what_is_empty_is_not_there_and_values_of_json_stay() -> None:
    form = Fields({"reason": "", "token": "", "payload": "", "all": "on"})
    document = Fields({"payload": 0, "all": False}, is_json=True)

    assert (form.text("reason"), form.number("token", 99), form.json("payload", 7)) == (
        None,
        None,
        7,
    )
    assert (form.is_set("all"), document.is_set("all")) == (True, False)
    assert document.json("payload", 7) == 0
