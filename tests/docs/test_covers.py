"""Each rule, row, property and code is covered by a test, and each marker names one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.error_examples import executed
from support.references.log_fields import events

from pgflowd.errors import TITLES

ROOT = Path(__file__).parents[2]
PAGES = {
    "rule": "docs/background/supervision.md",
    "row": "docs/background/failures.md",
    "P": "docs/background/failures.md",
    "D": "docs/background/failures.md",
    "trap": "docs/background/runners.md",
    "G": "docs/reference/guarantees.md",
    "database": "docs/background/findings.md",
    "newcomer": "docs/background/findings.md",
    "outside": "docs/background/findings.md",
    "attack": "docs/background/findings.md",
    "promise": "docs/background/findings.md",
    "use": "docs/background/findings.md",
    "friction": "docs/background/findings.md",
}
COVERED = ("rule", "row", "P")  # each of these has a test; the others may be named by one
NOT_COVERED: dict[str, str] = {}  # a reference, and why no test can show it


def anchors_of(kind: str) -> list[str]:
    """The references of a kind that its page explains."""
    text = (ROOT / PAGES[kind]).read_text("utf-8")
    if kind == "G":
        return re.findall(r"^\*\*(G\d+) ", text, re.MULTILINE)
    separator = "-" if len(kind) > 1 else ""
    found = re.findall(rf'<a id="{kind.lower()}{separator}(\d+)"></a>', text)
    return [f"{kind}{' ' if separator else ''}{number}" for number in found]


ALL = {kind: set(anchors_of(kind)) for kind in PAGES}
KNOWN = set(TITLES).union(*ALL.values())


def references_in(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each argument of a marker `covers`."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "covers"
        ):
            for argument in node.args:
                assert isinstance(argument, ast.Constant)
                yield node.lineno, str(argument.value)


@cache  # and not while tests are collected, which each process of pytest-xdist does
def marked() -> list[tuple[Path, int, str]]:
    """Each argument of a marker in all tests: its file, its line, and its text."""
    return [
        (path, line, reference)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "node_modules" not in path.parts
        for line, reference in references_in(path)
    ]


@pytest.mark.parametrize("kind", PAGES)
def test_no_number_of_a_page_is_used_twice(kind: str) -> None:
    anchors = anchors_of(kind)

    assert anchors
    assert sorted(anchors) == sorted(set(anchors))


def test_each_marker_names_something_that_its_page_explains() -> None:
    unknown = [
        f"{path.relative_to(ROOT)}:{line} covers {reference!r}"
        for path, line, reference in marked()
        if reference not in KNOWN
    ]

    assert unknown == []


@pytest.mark.parametrize("kind", COVERED)
def test_each_rule_row_and_property_is_covered_by_a_test(kind: str) -> None:
    missing = ALL[kind] - {reference for _, _, reference in marked()}

    assert sorted(missing - NOT_COVERED.keys()) == []


def test_each_code_is_provoked_by_the_example_of_its_page_or_by_a_test_that_says_so() -> None:
    provoked = {example.code for example in executed()} | {
        reference for _, _, reference in marked()
    }

    assert sorted(TITLES.keys() - provoked) == []


def test_what_is_listed_as_not_covered_is_known_and_has_no_test() -> None:
    assert NOT_COVERED.keys() <= KNOWN - {reference for _, _, reference in marked()}


def test_no_test_has_a_number_of_the_design_in_its_name() -> None:
    number = re.compile(r"def test_(?:(?:rule|row|trap)s?_\d|[pgd]\d+_)\w*")
    texts = {path: path.read_text("utf-8") for path, _, _ in marked()}

    assert [name for text in texts.values() for name in number.findall(text)] == []


@pytest.mark.parametrize("event", events())
def test_each_event_of_the_log_is_expected_by_a_test_of_real_processes(event: str) -> None:
    quoted = re.compile(f"[\"']{re.escape(event)}[\"']")
    rooms = [ROOT / "tests" / room for room in ("worker", "process", "cli", "web")]
    tests = [path for room in rooms for path in room.glob("test_*.py")]

    assert any(quoted.search(path.read_text("utf-8")) for path in tests)
