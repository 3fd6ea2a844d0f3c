"""
Containment: does one JSON document contain another, as PostgreSQL's `jsonb @>` has it?

Conditions of steps are patterns, and a pattern is met by what contains it. An object
contains another when it has each of its keys with a value that contains the other's; an
array contains another when each element of the other is contained in some element of it;
order and repetition count for nothing. Numbers are equal by value, and true is not 1.
"""

from __future__ import annotations

from typing import Any


def contains(document: Any, pattern: Any) -> bool:
    """Return what `document @> pattern` gives for two containers or two scalars."""
    if isinstance(pattern, dict):
        return isinstance(document, dict) and all(
            key in document and contains(document[key], value) for key, value in pattern.items()
        )
    if isinstance(pattern, list):
        return isinstance(document, list) and all(
            any(contains(element, wanted) for element in document) for wanted in pattern
        )
    return _same_scalar(document, pattern)


def _same_scalar(one: Any, other: Any) -> bool:
    if isinstance(one, dict | list):
        return False
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)
