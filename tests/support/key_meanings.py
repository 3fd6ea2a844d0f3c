"""
What the keys of JSON documents mean: reads `key_meanings.toml`, and describes schemas by it.

A key has its meaning in the table of its object, such as `check.flows`, in that of the last parts
of this name, or in `all`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.document_types import Schema

FILE = Path(__file__).with_suffix(".toml")
TABLES: Mapping[str, dict[str, Any]] = tomllib.loads(FILE.read_text("utf-8"))
_ABOUT = {"about", "see", "like"}


def about(name: str) -> str:
    """The text about a whole document or type, on one line."""
    return " ".join(TABLES.get(name, {}).get("about", "").split())


def pages_about(name: str) -> list[str]:
    return list(TABLES.get(name, {}).get("see", []))


def described(schema: Schema, place: str, used: set[tuple[str, str]] | None = None) -> Schema:
    """The schema with a description of each of its keys; `used` gets the meanings."""
    used = set() if used is None else used
    made = {key: inner for key, inner in schema.items() if key != "properties"}
    if "properties" in schema:
        made["properties"] = {
            key: {
                "description": _meaning(place, key, used),
                **described(one, f"{place}.{key}", used),
            }
            for key, one in schema["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = described(made[key], place, used)
    if "anyOf" in made:
        made["anyOf"] = [described(one, place, used) for one in made["anyOf"]]
    return made


def words_of(name: str, enum: Schema, used: set[tuple[str, str]] | None = None) -> dict[str, str]:
    """The words of an enum with their meanings."""
    used = set() if used is None else used
    return {word: _meaning(name, word, used) for word in enum["enum"]}


def unused(used: set[tuple[str, str]]) -> list[str]:
    """Meanings that nothing has."""
    every = [(name, key) for name, table in TABLES.items() for key in {*table} - _ABOUT]
    return [f"[{name}] {key}" for name, key in every if (name, key) not in used]


def _meaning(place: str, key: str, used: set[tuple[str, str]]) -> str:
    parts = place.split(".")
    names = [".".join(parts[start:]) for start in range(len(parts))]
    likes = [TABLES[name]["like"] for name in names if "like" in TABLES.get(name, {})]
    for name in [*names, *likes, "all"]:
        if key in TABLES.get(name, {}):
            used.add((name, key))
            return " ".join(TABLES[name][key].split())
    raise KeyError(f"{FILE.name}: say what {key!r} of {place} means")
