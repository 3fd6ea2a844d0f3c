"""Every rule of the design page "Supervision" is named by at least one test."""

from __future__ import annotations

import re
from pathlib import Path

RULES = set(range(1, 50))
TESTS = Path(__file__).parent.parent


def named_in(text: str) -> set[int]:
    """The rules that names and docstrings of tests mention."""
    found: set[int] = set()
    for phrase in re.findall(r'def test_\w+|"""[^"]*"""', text):
        for numbers in re.findall(r"[Rr]ules?[_ ]([0-9](?:[0-9_, ]|and|to)*)", phrase):
            found |= {int(number) for number in re.findall(r"\d+", numbers)}
            for first, last in re.findall(r"(\d+)[_ ]to[_ ](\d+)", numbers):
                found |= set(range(int(first), int(last) + 1))
    return found


def test_every_rule_is_named_by_a_test():
    rooms = [path for path in TESTS.iterdir() if path.is_dir() and path.name != "npm"]
    named = set().union(
        *(named_in(path.read_text()) for room in rooms for path in room.rglob("test_*.py"))
    )

    assert sorted(RULES - named) == []
