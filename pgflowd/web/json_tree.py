"""
A JSON value in pieces, as a page shows it: a tree of at most so many levels and members.

What is left out has the path at which it is found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pgflowd.core.documents.run_tasks import ValueMember, ValuePart
from pgflowd.core.text import size
from pgflowd.errors import PgflowdError

MAX_LEVELS = 4
MAX_MEMBERS = 200  # of the whole tree
MAX_TEXT = 2000  # characters of a string
MAX_PATH_CHARS = 2000

Path = tuple[str, ...]


@dataclass(frozen=True)
class JsonBranch:
    """A value, with the values in it as far as they are shown."""

    kind: str  # object, array, string, number, boolean, null
    text: str  # of a leaf its value
    path: Path
    length: int = 0  # how many members it has
    members: Sequence[tuple[str, JsonBranch]] = ()
    is_cut: bool = False  # there is more of it at its path
    next: int | None = None  # the first member, or character, that is not shown

    @property
    def is_leaf(self) -> bool:
        return self.kind not in ("object", "array")

    @property
    def pointer(self) -> str:
        """Its path as a JSON pointer, which addresses have."""
        return pointer_of(self.path)


def tree_of(part: ValuePart) -> JsonBranch:
    """The tree of a part of a value."""
    path, budget = tuple(part.path), [MAX_MEMBERS]
    if part.type == "string" and len(part.value) > MAX_TEXT:
        text = json.dumps(part.value[:MAX_TEXT], ensure_ascii=False)
        return JsonBranch("string", text, path, is_cut=True, next=part.start + MAX_TEXT)
    if part.type not in ("object", "array"):
        text = json.dumps(part.value, ensure_ascii=False)
        return JsonBranch(part.type, text, path, is_cut=not part.is_whole, next=part.next)
    budget[0] -= len(part.members)
    members = [(member.name, _member(member, path, budget)) for member in part.members]
    return JsonBranch(part.type, "", path, part.length or 0, members, next=part.next)


def _member(member: ValueMember, above: Path, budget: list[int]) -> JsonBranch:
    path = (*above, member.name)
    if member.is_whole:
        return _branch(member.value, path, len(above) + MAX_LEVELS, budget)
    text = "" if member.value is None else json.dumps(member.value, ensure_ascii=False)
    return JsonBranch(member.type, text, path, member.length or 0, is_cut=True)


def _branch(value: Any, path: Path, deepest: int, budget: list[int]) -> JsonBranch:
    if not isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False)
        if len(text) > MAX_TEXT:
            return JsonBranch(
                "string", f"{text[:MAX_TEXT]} … {size(len(value))}", path, is_cut=True
            )
        return JsonBranch(_kind(value), text, path)
    kind = "object" if isinstance(value, dict) else "array"
    room = 0 if len(path) >= deepest else budget[0]
    budget[0] -= min(room, len(value))
    members = [
        (name, _branch(member, (*path, name), deepest, budget))
        for name, member in _some(value, room)
    ]
    return JsonBranch(kind, "", path, len(value), members, len(members) < len(value))


def _some(value: dict[str, Any] | list[Any], most: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return islice(value.items(), most)
    return islice(((str(index), each) for index, each in enumerate(value)), most)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def pointer_of(path: Sequence[str]) -> str:
    """A path as a JSON pointer (RFC 6901)."""
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in path)


def path_of(pointer: str) -> Path:
    """The path that a JSON pointer says."""
    if (pointer and not pointer.startswith("/")) or len(pointer) > MAX_PATH_CHARS:
        raise PgflowdError("this path is no JSON pointer", code="E506", next="begin it with /")
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:])
