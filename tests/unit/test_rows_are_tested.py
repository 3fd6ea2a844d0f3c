"""
Every row of the design page "Failures" is named by the docstring of a test that shows it.

The form is `Row 12.`, `Rows 45 and 46.` or `Rows 76 to 79.`, anywhere in the docstring. What the
daemon promises from outside (P1 to P25) may stand in the name of a test, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

LATER = {106}  # the web pages, which have a page of the design and a wave of their own
ROWS = set(range(1, 110)) - LATER
PROMISES = set(range(1, 26))
TESTS = Path(__file__).parent.parent
ROOMS = [path for path in TESTS.iterdir() if path.is_dir() and path.name != "npm"]


def all_tests() -> Iterator[tuple[str, str]]:
    """Name and docstring of every test."""
    for path in (path for room in ROOMS for path in room.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield node.name, ast.get_docstring(node) or ""


def rows_in(docstring: str) -> set[int]:
    """The rows that a docstring names."""
    found: set[int] = set()
    for numbers in re.findall(r"\bRows?\s+(\d[\d,\s]*(?:(?:and|to)\s+\d+[\d,\s]*)*)", docstring):
        found |= {int(number) for number in re.findall(r"\d+", numbers)}
        for first, last in re.findall(r"(\d+)\s+to\s+(\d+)", numbers):
            found |= set(range(int(first), int(last) + 1))
    return found


def promises_in(name: str, docstring: str) -> set[int]:
    """The promises that a test's name or docstring names."""
    found = {int(number) for number in re.findall(r"\bP(\d+)\b", docstring)}
    return found | {int(number) for number in re.findall(r"(?<=_)p(\d+)(?=_)", name)}


@pytest.mark.parametrize(
    ("docstring", "rows"),
    [
        ("Row 12.", {12}),
        ("It ends. Rows 45 and 46.", {45, 46}),
        ("Rows 1, 2 and 3. P5.", {1, 2, 3}),
        ("Rows 76 to 79 and 81.", {76, 77, 78, 79, 81}),
        ("Row 3.\n\nRow 9.", {3, 9}),
        ("Rows of 3 tables; row 4, Rowing 5", set()),
    ],
)
def test_rows_are_read_from_docstrings(docstring: str, rows: set[int]) -> None:
    assert rows_in(docstring) == rows


def test_every_row_is_named_by_a_test() -> None:
    named = set().union(*(rows_in(docstring) for _, docstring in all_tests()))

    assert sorted(ROWS - named) == []


def test_every_promise_of_the_daemon_is_named_by_a_test() -> None:
    named = set().union(*(promises_in(*each) for each in all_tests()))

    assert sorted(PROMISES - named) == []
