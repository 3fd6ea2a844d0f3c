"""docs/reference/python-api.md lists all public names, and each of them says what it is."""

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
NAMES = {*pgflowd.__all__, *pgflowd.testing.__all__} - {*ERRORS, "__version__"}


@covers("newcomer 22")
@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_page_lists_each_public_name_and_says_what_it_is(name: str) -> None:
    assert re.search(
        rf"^### {name}\n\n(```text\n{name}\([^`]*```\n\n)?[A-Z]|^- `{name}(\([^`]*)?`:\s+[A-Z]",
        PAGE,
        re.MULTILINE,
    )


@pytest.mark.parametrize("name", [name for name in vars(pgflowd.Client) if name[0] != "_"])
def test_the_page_lists_each_method_of_a_client_which_the_async_one_has_too(name: str) -> None:
    assert f"- `{name}(" in PAGE
    assert inspect.getdoc(getattr(pgflowd.AsyncClient, name))


@covers("newcomer 22")
@pytest.mark.parametrize("name", ERRORS)
def test_each_error_is_imported_from_the_package_and_listed_with_its_code(name: str) -> None:
    assert getattr(pgflowd, name) is ERRORS[name]
    ((codes, text),) = re.findall(rf"^\| `{name}` \| (.*?) ?\|.*\| (.*?) \|$", PAGE, re.MULTILINE)
    assert re.match(codes.replace("x", r"\d")[:4], ERRORS[name].default_code)
    assert text
