"""docs/reference/python-api.md lists all public names, and what it says of errors is true."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from support.covers import covers

import pgflowd
import pgflowd.errors
import pgflowd.testing

PAGE = (Path(__file__).parents[2] / "docs/reference/python-api.md").read_text("utf-8")
ERRORS = {
    name: value
    for name, value in vars(pgflowd.errors).items()
    if inspect.isclass(value)
    and issubclass(value, pgflowd.errors.PgflowdError)
    and not name.startswith("_")
    and name != "Bug"  # is not for applications to catch
}


@covers("newcomer 22")
@pytest.mark.parametrize(
    "name", [*pgflowd.__all__, *pgflowd.testing.__all__, *vars(pgflowd.Client)]
)
def test_the_page_lists_each_public_name(name: str) -> None:
    assert name.startswith("_") or re.search(rf"`\.?{name}\b", PAGE)


@covers("newcomer 22")
@pytest.mark.parametrize("name", ERRORS)
def test_each_error_is_imported_from_the_package_and_listed_with_its_code(name: str) -> None:
    assert getattr(pgflowd, name) is ERRORS[name]
    (codes,) = re.findall(rf"^\| `{name}` \| (.*?) \|", PAGE, re.MULTILINE)
    assert re.match(codes.replace("x", r"\d")[:4], ERRORS[name].default_code)
