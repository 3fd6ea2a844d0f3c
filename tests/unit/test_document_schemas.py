"""Documents: how they become JSON, what their JSON Schemas say, and which keys clients rely on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator, ValidationError
from support import documents

from pgflowd.cli.commands import docs
from pgflowd.core.documents import FlowSlug, Format, Hidden, Inline, Named, Presence, encoded, shown
from pgflowd.core.documents.documentation import schema_of
from pgflowd.core.statuses import StepStatus

SIGNAL = {
    "schema_version": 1, "signal_id": 2**63 - 1, "run_id": "0195f3a0-0000-7000-8000-000000000001",
    "name": "paid", "payload": 2**70, "dedup": None, "sent_by": "jane",
    "sent_at": "2026-11-19T10:00:00Z", "step": None, "task": None, "consumed_at": None,
    "session_role": "app",
}  # fmt: skip
ID = UUID(int=1)
TEXT = {"type": "string"}


class Wheel(NamedTuple):
    size: float | None


@dataclass(frozen=True)
class Place:
    """Where a cart is."""

    town: str
    street: Hidden[str] = ""


@dataclass(frozen=True)
class Cart:
    """A cart with wheels."""

    id: UUID
    made_at: Annotated[datetime, Named("at"), "when it was made"]
    status: StepStatus | None
    load: Any
    flow_slug: FlowSlug
    labels: Mapping[str, str]
    wheels: Sequence[Wheel]
    place: Inline[Place]
    kind: Literal["hand", "horse"] | None = None
    owner: Annotated[str | None, Presence.OPTIONAL] = None
    code: Annotated[str, Format("uuid")] = str(ID)
    age: timedelta = timedelta(seconds=90)

    @property
    @shown
    def count(self) -> Annotated[int, "how many wheels it has"]:
        return len(self.wheels)

    @property
    def is_whole(self) -> bool:
        return self.count == 4


CART = Cart(
    ID, datetime(2026, 1, 1, tzinfo=UTC), StepStatus.FAILED, {"deep": [1]}, "mail", {"a": "b"},
    [Wheel(1.5)], Place("Ulm", "Gasse"),
)  # fmt: skip


def test_a_document_becomes_json_by_its_fields():
    assert encoded(CART) == {
        "id": str(ID), "at": "2026-01-01T00:00:00Z", "status": "failed", "load": {"deep": [1]},
        "flow": "mail", "labels": {"a": "b"}, "wheels": [{"size": 1.5}], "town": "Ulm",
        "kind": None, "code": str(ID), "age": 90.0, "count": 1,
    }  # fmt: skip


def test_values_of_users_are_json_already_however_deep_they_are():
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    assert encoded(Cart(ID, CART.made_at, None, deep, "m", {}, [], Place("Ulm")))["load"] is deep


def test_the_schema_of_a_document_has_what_it_may_have():
    schema = schema_of(Cart)

    assert schema["description"] == "A cart with wheels."
    assert schema["properties"] == {
        "schema_version": {"description": "the version of the format, which is 1", "const": 1},
        "id": {**TEXT, "format": "uuid"},
        "at": {"description": "when it was made", **TEXT, "format": "date-time"},
        "status": {"anyOf": [{"$ref": "#/$defs/StepStatus"}, {"type": "null"}]},
        "load": {},
        "flow": {"description": "the slug of the flow", **TEXT},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "wheels": {"type": "array", "items": {"$ref": "#/$defs/Wheel"}},
        "town": TEXT,
        "kind": {"enum": ["hand", "horse", None]},
        "owner": TEXT,
        "code": {"description": "the code of an error or warning", **TEXT, "format": "uuid"},
        "age": {"type": "number"},
        "count": {"description": "how many wheels it has", "type": "integer"},
    }
    assert set(schema["properties"]) - set(schema["required"]) == {"owner"}
    assert schema["$defs"]["Wheel"]["properties"] == {"size": {"type": ["number", "null"]}}
    assert documents.validator(Cart).is_valid({"schema_version": 1, **encoded(CART)})


def test_the_keys_that_clients_rely_on_are_those_that_were_promised():
    text = documents.KEYS.read_text("utf-8")

    assert text == documents.keys(), "renew it: .venv/bin/python tests/support/documents.py"


@pytest.mark.parametrize("name", docs.documents())
def test_each_document_has_a_schema(name: str):
    Draft202012Validator.check_schema(schema_of(docs.documents()[name]))


def test_the_command_prints_the_schema_of_a_document(pgflowd_docs):
    assert pgflowd_docs("--schema", "runs-log-follow") == schema_of(
        docs.documents()["runs-log-follow"]
    )
    assert pgflowd_docs("--schema") == list(docs.documents())


def test_large_integers_are_integers():
    documents.check(["runs", "signal", "--json"], json.dumps(SIGNAL), "")


@pytest.mark.parametrize(
    "change",
    [{"task": "0"}, {"signal_id": None}, {"sent_at": "2026-11-19 10:00"}, {"run_id": "7"},
     {"extra": 1}, {"schema_version": 2}],
)  # fmt: skip
def test_another_type_or_an_unknown_key_is_found_by_tests(change):
    with pytest.raises(ValidationError):
        documents.check(["runs", "signal", "--json"], json.dumps({**SIGNAL, **change}), "")


def test_a_missing_key_is_found_and_users_may_meet_new_ones():
    lacking = {key: value for key, value in SIGNAL.items() if key != "dedup"}
    printed = Draft202012Validator(schema_of(docs.documents()["runs-signal"]))

    with pytest.raises(ValidationError):
        documents.check(["runs", "signal", "--json"], json.dumps(lacking), "")
    printed.validate({**SIGNAL, "extra": 1})
    with pytest.raises(ValidationError):
        printed.validate({**SIGNAL, "signal_id": "7", "run_id": 7})


@pytest.fixture
def pgflowd_docs(capsys: pytest.CaptureFixture[str]):
    """Run `pgflowd docs --json`; return what it prints."""
    from pgflowd.cli.main import run

    def printed(*args: str) -> Any:
        assert run(["docs", *args, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return printed
