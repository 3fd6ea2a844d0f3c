"""
Lists the settings and their keys as `pgflowd config` prints them.

`rows` lists every key with its origin and its value as written in a file; a reference is shown as
such, and a URL without its password. `variables` lists the environment variables. `json_schema`
describes the file for editors: it refuses what a file alone shows to be wrong. What depends on
another key or place it leaves to `pgflowd check`, since the environment may have that. Each key's
description names the codes of what is refused, for `pgflowd explain`. All are made from the keys of
`core.settings.sections`. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from pgflowd.core.redact import one_line
from pgflowd.core.settings.keys import Key, Number, Origin, keys_of
from pgflowd.core.settings.load import variable
from pgflowd.core.settings.sections import SECTIONS, DaemonSettings, FlowSettings, Settings

_DIALECT = "http://json-schema.org/draft-07/schema#"  # which every editor knows
_OTHERS = "Another key is refused as `E102`, another type as `E103`: see `pgflowd explain`."


class Row(NamedTuple):
    """One key of the effective settings."""

    section: tuple[str, ...]  # ("worker",) or ("flows", "send_email")
    key: str
    value: Any  # as written in the file: text, number, switch, list or table
    origin: Origin


class Variable(NamedTuple):
    """One environment variable."""

    name: str
    section: Annotated[str, "of the key"]
    key: str
    default: Any
    takes_file: Annotated[
        bool, "whether the variable with `_FILE` at its end names a file that has the value"
    ]


def rows(settings: Settings) -> Iterator[Row]:
    """List all keys; of a flow only those that were set."""
    for section, kind in SECTIONS.items():
        for key, (field, meta) in keys_of(kind).items():
            origin = settings.origin_of(section, key)
            value = meta.written(getattr(getattr(settings, section), field))
            yield Row((section,), key, origin.reference or value, origin)
    for lower, flow in settings.flows.items():
        given = {"enabled": flow.enabled, **flow.worker}
        for key, (field, meta) in keys_of(FlowSettings).items():
            if ("flows", lower, key) in settings.origins:
                origin = settings.origin_of("flows", lower, key)
                value = origin.reference or meta.written(given[field])
                yield Row(("flows", flow.slug), key, value, origin)


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
            yield Variable(name, section, key, meta.default, meta.is_text)
    for key, (_, meta) in keys_of(FlowSettings).items():
        name = variable("flows", "<SLUG>", key)
        yield Variable(name, "flows.<slug>", key, meta.default, meta.is_text)


def json_schema() -> dict[str, Any]:
    """Return a JSON Schema (draft 7) of pgflowd.toml."""
    about = "The configuration of pgflowd."
    return {"$schema": _DIALECT, "title": "pgflowd.toml", **_table(about, _sections())}


def pyproject_schema() -> dict[str, Any]:
    """Return a JSON Schema (draft 7) of [tool.pgflowd], which has keys of [pgflowd] itself, too."""
    about = "The configuration of pgflowd, unless there is a pgflowd.toml."
    inside, sections = _keys(DaemonSettings), _sections()
    flows = {"anyOf": [inside["flows"], sections["flows"]]}  # a list, or tables of flows
    keys = {**inside, **sections, "flows": flows}
    return {"$schema": _DIALECT, "title": "[tool.pgflowd]", **_table(about, keys)}


def _sections() -> dict[str, Any]:
    sections = {
        name: _table((kind.__doc__ or "").strip(), _keys(kind)) for name, kind in SECTIONS.items()
    }
    about = (FlowSettings.__doc__ or "").strip()
    flow = {name: {**key} for name, key in _keys(FlowSettings).items()}
    for name in keys_of(SECTIONS["worker"]):
        del flow[name]["default"]  # it is that of [worker], whatever this says
    about_flows = "A table for each flow whose worker differs from [worker]."
    flows = {**_table(about_flows, {}), "additionalProperties": _table(about, flow)}
    return {**sections, "flows": flows}


def _table(about: str, keys: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": f"{about} {_OTHERS}",
        "additionalProperties": False,
        "properties": keys,
    }


def _keys(section: type) -> dict[str, Any]:
    return {
        name: {"description": _description(key), **key.schema(), "default": key.default}
        for name, (_, key) in keys_of(section).items()
    }


def _description(key: Key) -> str:
    between = f" ({key.range})" if isinstance(key, Number) else ""
    codes = ", ".join(f"`{code}`" for code in key.codes)
    return f"{key.doc}{between}. Refused as {codes}: see `pgflowd explain`."
