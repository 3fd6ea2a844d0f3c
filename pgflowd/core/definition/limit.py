"""
Limits: how many tasks may be at work at once in the whole fleet.

    limit=Limit(5)                                  five of this step
    limit=Limit(1, key="run.customer")              one for each value in the run's input
    limit=Limit(2, key="item.host", name="hosts")   shared by all steps, of any flow, with this name

In a shape a limit is `{"slots", "name", "path"}`, the latter two only if they are given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ROOTS = ("run", "item")
MAX_SLOTS = 1_000_000
MAX_KEY_CHARS = 500


@dataclass(frozen=True)
class Limit:
    """At most so many tasks at once; with a key, so many for each value of it."""

    slots: int
    key: str | None = None  # a path into the run's input, or, of a map, into its element
    name: str | None = None  # what steps with this name share; by default each step has its own

    @property
    def path(self) -> list[str] | None:
        return None if self.key is None else self.key.split(".")


def limit_fault(limit: object, *, is_map: bool) -> str | None:
    """What is wrong with the limit of a step."""
    if not isinstance(limit, Limit):
        return "must be a Limit, such as Limit(5)"
    slots, key, name = limit.slots, limit.key, limit.name
    is_whole = isinstance(slots, int) and not isinstance(slots, bool)
    if not is_whole or not 1 <= slots <= MAX_SLOTS:
        return f"must have 1 to {MAX_SLOTS} slots"
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        return "must have a name of 1 to 64 letters, digits, '_', '.' or '-'"
    if key is None:
        return None
    if not isinstance(key, str) or len(key) > MAX_KEY_CHARS or "\0" in key:
        return f"must have a key of at most {MAX_KEY_CHARS} characters"
    root, *rest = key.split(".")
    if root not in _ROOTS or not all(rest):
        return "must have a key that begins with 'run' or 'item', such as 'run.customer'"
    if root == "item" and not is_map:
        return "must have a key in the run's input: only a map has items"
    return None


def limit_json(limit: Limit) -> dict[str, Any]:
    """The limit in a shape."""
    whole = {"slots": limit.slots, "name": limit.name, "path": limit.path}
    return {key: value for key, value in whole.items() if value is not None}


def limit_text(limit: Mapping[str, Any] | None) -> str:
    """A limit of a shape in a few words: `2 per item.host as hosts`."""
    if not limit:
        return "unset"
    per = f" per {'.'.join(limit['path'])}" if limit.get("path") else ""
    name = f" as {limit['name']}" if limit.get("name") else ""
    return f"{limit['slots']}{per}{name}"
