"""
Lists the settings and their keys as `pgflowd config` prints them.

`rows` lists every key with its origin and its value as written in a file; a reference is shown as
such, and a URL without its password. `variables` lists the environment variables. `json_schema`
describes the file for editors. All are made from the fields of `core.settings.sections`. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from pgflowd.core.redact import one_line
from pgflowd.core.settings.given_values import variable
from pgflowd.core.settings.keys import Key, KeyKind, keys_of
from pgflowd.core.settings.sections import SECTIONS, FlowSettings, Origin, Settings
from pgflowd.core.settings.values import (
    DURATION_PATTERN,
    SCHEMES,
    SIZE_PATTERN,
    format_duration,
    format_size,
    parse_duration,
)


class Row(NamedTuple):
    """One key of the effective settings."""

    section: tuple[str, ...]  # ("worker",) or ("flows", "send_email")
    key: str
    value: Any  # as written in the file: text, number, switch or list
    origin: Origin


class Variable(NamedTuple):
    """One environment variable."""

    name: str
    section: str
    key: str
    default: Any
    takes_file: bool


def rows(settings: Settings) -> Iterator[Row]:
    """List all keys; of a flow only those that were set."""
    for section, kind in SECTIONS.items():
        for key, (field, meta) in keys_of(kind).items():
            origin = settings.origin_of(section, key)
            value = as_written(meta, getattr(getattr(settings, section), field))
            yield Row((section,), key, origin.reference or value, origin)
    for lower, flow in settings.flows.items():
        given = {"enabled": flow.enabled, **flow.worker}
        for key, (field, meta) in keys_of(FlowSettings).items():
            if ("flows", lower, key) in settings.origins:
                origin = settings.origin_of("flows", lower, key)
                value = origin.reference or as_written(meta, given[field])
                yield Row(("flows", flow.slug), key, value, origin)


def as_written(key: Key, value: Any) -> Any:
    """Return a value as written in the file, without secrets."""
    if key.kind is KeyKind.DURATION:
        return key.default if value == parse_duration(key.default) else format_duration(value)
    if key.kind is KeyKind.SIZE:
        return format_size(value)
    if key.kind is KeyKind.SECRET:
        return value.shown
    return list(value) if key.kind.is_list else value


def toml_key(name: str) -> str:
    """Write a key or a part of a section's name for TOML."""
    bare = name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()
    return name if bare else toml_value(name)


def toml_value(value: Any) -> str:
    """Write a value of a key for TOML, on one line."""
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return one_line(json.dumps(value, ensure_ascii=False))


def variables() -> Iterator[Variable]:
    """List the environment variable of each key."""
    for section, kind in SECTIONS.items():
        for key, (_, meta) in keys_of(kind).items():
            name = variable(section, key)
            yield Variable(name, section, key, meta.default, meta.kind.is_text)
    for key, (_, meta) in keys_of(FlowSettings).items():
        name = variable("flows", "<SLUG>", key)
        yield Variable(name, "flows.<slug>", key, meta.default, meta.kind.is_text)


def json_schema() -> dict[str, Any]:
    """Return a JSON Schema (draft 7) of pgflowd.toml."""
    sections = {name: _section_schema(kind) for name, kind in SECTIONS.items()}
    flows = {
        "type": "object",
        "description": "One table for each flow whose worker differs from [worker].",
        "additionalProperties": _section_schema(FlowSettings, with_defaults=False),
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "pgflowd.toml",
        "description": "The configuration of pgflowd.",
        "type": "object",
        "additionalProperties": False,
        "properties": {**sections, "flows": flows},
    }


def _section_schema(section: type, with_defaults: bool = True) -> dict[str, Any]:
    keys = {}
    for name, (_, meta) in keys_of(section).items():
        keys[name] = {"description": _description(meta), **_type_schema(meta)}
        if with_defaults:
            keys[name]["default"] = meta.default
    return {
        "type": "object",
        "description": (section.__doc__ or "").strip(),
        "additionalProperties": False,
        "properties": keys,
    }


def _description(key: Key) -> str:
    low, high = key.limits
    between = f" ({low} to {high})" if low else ""
    return f"{key.doc}{between}"


def _type_schema(key: Key) -> dict[str, Any]:
    if key.kind is KeyKind.WHOLE:
        return {"type": "integer", "minimum": key.low, "maximum": key.high}
    if key.kind is KeyKind.SHARE:
        return {"type": "number", "minimum": key.low, "maximum": key.high}
    if key.kind is KeyKind.SWITCH:
        return {"type": "boolean"}
    if key.kind is KeyKind.DURATION:
        return {"type": "string", "pattern": DURATION_PATTERN}
    if key.kind is KeyKind.SIZE:
        return {"type": "string", "pattern": SIZE_PATTERN}
    if key.kind.is_list:
        return {"type": "array", "items": {"type": "string"}}
    reference = {"type": "string", "pattern": f"^({'|'.join(SCHEMES)}):"}
    if key.kind is KeyKind.CHOICE:
        return {"anyOf": [{"enum": list(key.choices)}, reference]}
    if key.kind is KeyKind.NAME:
        least = "{0,32}" if key.may_be_empty else "{1,32}"
        return {"anyOf": [{"type": "string", "pattern": f"^[A-Za-z0-9_-]{least}$"}, reference]}
    return {"type": "string"}
