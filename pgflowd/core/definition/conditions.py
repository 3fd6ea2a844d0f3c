"""
The condition of a step: whether a JSON document contains a pattern, as in PostgreSQL's `jsonb @>`.

An object contains another if it has each key of the other, with a value that contains the other's
value. An array contains another if each element of the other is contained in one of its elements;
order and repetition do not count. Numbers are equal by value, and true is not 1.
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
