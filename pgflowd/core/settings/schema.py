"""
Describes the config file as a JSON Schema, for editors.

It refuses what a file alone shows to be wrong. What depends on another key or place it leaves to
`pgflowd check`, since the environment may have that. Each key's description names the codes of what
is refused, for `pgflowd explain`. Pure.
"""

from __future__ import annotations

from typing import Any

from pgflowd.core.settings.forms import CONTROL_PATTERN, REFERENCE_PATTERN, ZERO_PATTERN
from pgflowd.core.settings.keys import Key, KeyKind, keys_of
from pgflowd.core.settings.sections import SECTIONS, DaemonSettings, FlowSettings
from pgflowd.core.settings.values import DURATION_PATTERN, SIZE_PATTERN

_DIALECT = "http://json-schema.org/draft-07/schema#"  # which every editor knows
_OTHERS = "Another key is refused as `E102`, another type as `E103`: see `pgflowd explain`."
_UNITS = {KeyKind.DURATION: DURATION_PATTERN, KeyKind.SIZE: SIZE_PATTERN}
_NO_CONTROL = {"not": {"pattern": CONTROL_PATTERN}}


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


def codes_of(key: Key) -> list[str]:
    """The codes of what may be wrong with the value of a key alone."""
    codes = ["E103"]
    if key.kind in _UNITS:
        codes.append("E104")
    if key.kind is not KeyKind.SWITCH:
        codes.append("E105")
    if key.kind.is_text:
        codes.append("E107")
    if key.kind is KeyKind.FLOWS:
        codes.append("E213")
    return codes


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
        name: {"description": _description(key), **_type(key), "default": key.default}
        for name, (_, key) in keys_of(section).items()
    }


def _description(key: Key) -> str:
    low, high = key.limits
    between = f" ({'0, or ' if key.may_be_zero else ''}{low} to {high})" if low else ""
    codes = ", ".join(f"`{code}`" for code in codes_of(key))
    return f"{key.doc}{between}. Refused as {codes}: see `pgflowd explain`."


def _type(key: Key) -> dict[str, Any]:
    """What a value of this key is, without its description and default."""
    if key.kind is KeyKind.WHOLE and key.may_be_zero:
        either = [{"const": 0}, {"minimum": key.low}]
        return {"type": "integer", "anyOf": either, "maximum": key.high}
    if key.kind is KeyKind.WHOLE:
        return {"type": "integer", "minimum": key.low, "maximum": key.high}
    if key.kind is KeyKind.SHARE:
        return {"type": "number", "minimum": key.low, "maximum": key.high}
    if key.kind is KeyKind.SWITCH:
        return {"type": "boolean"}
    if key.kind in _UNITS:
        more = {"not": {"pattern": ZERO_PATTERN}} if key.low else {}
        return {"type": "string", "pattern": _UNITS[key.kind], **more}
    if key.kind is KeyKind.LEVELS:
        names = {"pattern": key.form.pattern} if key.form else {}
        level = {"type": "string", "enum": list(key.choices)}
        return {"type": "object", "propertyNames": names, "additionalProperties": level}
    if key.kind.is_list:
        form = {"pattern": key.form.pattern} if key.form else {}
        only_once = {"uniqueItems": True} if key.kind is KeyKind.FLOWS else {}
        return {"type": "array", "items": {"type": "string", **form, **_NO_CONTROL}, **only_once}
    return {"type": "string", **_text(key), **_NO_CONTROL}


def _text(key: Key) -> dict[str, Any]:
    """The form of a text, which may be a reference instead."""
    if key.kind is KeyKind.CHOICE:
        return {"anyOf": [{"enum": list(key.choices)}, {"pattern": REFERENCE_PATTERN}]}
    if key.form is None:
        return {}
    patterns = ["^$"] if key.may_be_empty else []
    return {"pattern": "|".join([*patterns, key.form.pattern, REFERENCE_PATTERN])}
