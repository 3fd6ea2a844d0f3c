"""
Lists the settings and their keys as `pgflowd config` prints them.

`rows` lists every key with its origin and its value as written in a file; a reference is shown as
such, and a URL without its password. `variables` lists the environment variables. Both are made
from the fields of `core.settings.sections`. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from pgflowd.core.redact import one_line
from pgflowd.core.settings.given_values import variable
from pgflowd.core.settings.keys import Key, KeyKind, keys_of
from pgflowd.core.settings.sections import SECTIONS, FlowSettings, Origin, Settings
from pgflowd.core.settings.values import format_duration, format_size, parse_duration


class Row(NamedTuple):
    """One key of the effective settings."""

    section: tuple[str, ...]  # ("worker",) or ("flows", "send_email")
    key: str
    value: Any  # as written in the file: text, number, switch, list or table
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
    if key.kind is KeyKind.LEVELS:
        return dict(value)
    return list(value) if key.kind.is_list else value


def toml_key(name: str) -> str:
    """Write a key or a part of a section's name for TOML."""
    bare = name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()
    return name if bare else toml_value(name)


def toml_value(value: Any) -> str:
    """Write a value of a key for TOML, on one line."""
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        pairs = ", ".join(f"{toml_key(name)} = {toml_value(each)}" for name, each in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
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
