"""
Options: what a flow's and a step's options may be.

Unset options are absent and reach the database as NULL, so that its defaults rule. The
numbers are whole seconds or counts that fit into an SQL int.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pgflowd.core.json.values import encode
from pgflowd.core.suggest import did_you_mean
from pgflowd.errors import OutputError, Problem

LEAST = {"max_attempts": 1, "base_delay": 0, "timeout": 1, "start_delay": 0}
GREATEST = 2**31 - 1
MODES = ("fail", "skip", "skip-cascade")


def option_problems(
    options: Mapping[str, Any], known: Iterable[str], who: str, place: str
) -> Iterator[Problem]:
    """All that is wrong with the options that are set, one by one and together."""
    known = tuple(known)
    for name, value in options.items():
        if name not in known:
            text = f"{who}: there is no option '{name}'"
            yield Problem("E209", text, place, did_you_mean(name, known))
        elif name in LEAST:
            yield from _number_problems(name, value, who, place)
        elif name in ("when_unmet", "when_exhausted"):
            yield from _mode_problems(name, value, who, place)
        elif name in ("if_", "if_not"):
            yield from _pattern_problems(name, value, who, place)
    if "when_unmet" in options and not {"if_", "if_not"} & options.keys():
        text = f"{who}: when_unmet without a condition says nothing"
        yield Problem("E215", text, place, "add if_= or if_not=, or leave it out")


def _number_problems(name: str, value: Any, who: str, place: str) -> Iterator[Problem]:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not LEAST[name] <= value <= GREATEST:
        unit = "" if name == "max_attempts" else " of seconds"
        rule = f"it must be a whole number{unit}, {LEAST[name]} or more"
        if is_whole and value > GREATEST:
            rule = f"it must be at most {GREATEST}"
        yield Problem("E209", f"{who}: {name} is {value!r}; {rule}", place)


def _mode_problems(name: str, value: Any, who: str, place: str) -> Iterator[Problem]:
    if value not in MODES:
        rule = "it must be 'fail', 'skip' or 'skip-cascade'"
        remedy = did_you_mean(value, MODES) if isinstance(value, str) else None
        yield Problem("E209", f"{who}: {name} is {value!r}; {rule}", place, remedy)


def _pattern_problems(name: str, value: Any, who: str, place: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        kind = type(value).__name__
        text = f"{who}: {name} is a {kind}; a pattern is a JSON object, such as {{'a': 1}}"
        yield Problem("E214", text, place)
        return
    try:
        encode(value, what=name)
    except OutputError as error:
        yield Problem("E214", f"{who}: {error.text}", place, error.next)
