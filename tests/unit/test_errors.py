"""The registry of codes: each code that is raised is in it and is provoked by a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from pgflowd import errors
from pgflowd.errors import TITLES, Bug, ConfigError, PgflowdError, Problem, WaitTimeout

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"[EW]\d{3}\Z")
KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, PgflowdError) and not name.startswith("_")
}


def raised() -> Iterator[tuple[str, str]]:
    """Each code that the code base uses, and the file that does."""
    for path in sorted((ROOT / "pgflowd").rglob("*.py")):
        if path.name == "errors.py" and path.parent.name == "pgflowd":
            continue
        tree = ast.parse(path.read_text())
        tables = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        keys = {key for table in tables for key in table.keys}  # these look codes up
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node not in keys:
                if isinstance(node.value, str) and CODE.match(node.value):
                    yield node.value, path.name
            elif isinstance(node, ast.Call):
                yield from ((code, path.name) for code in default_code_of(node))


def default_code_of(call: ast.Call) -> list[str]:
    """The code of an error that is made without naming one."""
    name = getattr(call.func, "id", getattr(call.func, "attr", None))
    if name not in KINDS or issubclass(KINDS[name], ConfigError | errors.FlowError):
        return []  # these carry problems, which name their codes
    named = any(keyword.arg in {"code", None} for keyword in call.keywords)
    return [] if named else [KINDS[name].default_code]


def provoked() -> str:
    """The text of all tests but this one."""
    paths = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    return "\n".join(path.read_text() for path in paths)


def test_every_code_that_is_raised_is_in_the_registry() -> None:
    assert [(code, file) for code, file in raised() if code not in TITLES] == []


def test_every_code_that_is_raised_is_provoked_by_a_test() -> None:
    tests = provoked()
    used = {code: file for code, file in raised() if code in TITLES}

    assert {code: file for code, file in used.items() if not mentioned(code, tests)} == {}


def mentioned(code: str, tests: str) -> bool:
    kinds = [name for name, kind in KINDS.items() if kind.default_code == code]
    return code in tests or any(re.search(rf"\b{name}\b", tests) for name in kinds)


def test_every_default_code_is_in_the_registry() -> None:
    assert {name for name, kind in KINDS.items() if kind.default_code not in TITLES} == set()


def test_an_unknown_code_cannot_be_raised() -> None:
    with pytest.raises(KeyError):
        PgflowdError("what", code="E999")


def test_the_text_of_an_error_has_place_problem_and_next_step() -> None:
    error = PgflowdError("it broke", code="E302", next="run `pgflowd db migrate`", place="database")

    assert str(error) == "E302 database: it broke; run `pgflowd db migrate`"


def test_an_error_may_carry_several_problems() -> None:
    error = ConfigError([Problem("E102", "one", "x:1"), Problem("W110", "two")])

    assert str(error) == "E102 x:1: one\nW110 two"
    assert [problem.is_warning for problem in error.problems] == [False, True]
    assert error.code == "E102"


def test_an_error_without_a_problem_is_our_mistake() -> None:
    with pytest.raises(ValueError):
        ConfigError([])


def test_a_wait_timeout_is_a_timeout_error() -> None:
    assert isinstance(WaitTimeout("the run goes on"), TimeoutError)


def test_a_bug_has_a_code_of_its_own() -> None:
    assert Bug("what").code == "E901"


def test_an_error_may_be_extended_beside_other_classes() -> None:
    class Marked:
        def __init_subclass__(cls, mark: str = "", **more: Any) -> None:
            super().__init_subclass__(**more)
            cls.mark = mark

    class Mine(errors.RunError, Marked, Generic[T], code="E409", mark="red"):
        pass

    assert (Mine("gone").code, Mine.mark) == ("E409", "red")
    assert Mine[int]("gone").code == "E409"
