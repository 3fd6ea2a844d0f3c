"""
A JSON value in pieces, as a page shows it: a tree of at most so many levels and members.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pgflowd.core.text import brief, size

MAX_LEVELS = 4
MAX_MEMBERS = 200  # of the whole tree
MAX_TEXT = 2000  # characters of a string


@dataclass(frozen=True)
class JsonBranch:
    """A value, with the values in it as far as they are shown."""

    kind: str  # object, array, string, number, boolean, null
    text: str  # of a leaf its value; of others a summary
    members: Sequence[tuple[str, JsonBranch]] = ()
    left_out: int = 0  # members that are not shown
    path: Sequence[str | int] = field(default=())


def tree_of(value: Any) -> JsonBranch:
    """The tree of a value; what is too deep, or too much, is left out and counted."""
    return _branch(value, (), [MAX_MEMBERS])


def _branch(value: Any, path: tuple[str | int, ...], budget: list[int]) -> JsonBranch:
    if not isinstance(value, dict | list):
        return JsonBranch(_kind(value), _leaf(value), path=path)
    kind = "object" if isinstance(value, dict) else "array"
    text = f"{brief(value, 80)}"
    room = 0 if len(path) >= MAX_LEVELS else budget[0]
    budget[0] -= min(room, len(value))
    members = [
        (str(key), _branch(member, (*path, key), budget)) for key, member in _some(value, room)
    ]
    return JsonBranch(kind, text, members, len(value) - len(members), path)


def _some(value: dict[str, Any] | list[Any], most: int) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return islice(value.items(), most)
    return islice(enumerate(value), most)


def _leaf(value: Any) -> str:
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"{json.dumps(value[:MAX_TEXT], ensure_ascii=False)} … {size(len(value))}"
    return json.dumps(value, ensure_ascii=False)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"
