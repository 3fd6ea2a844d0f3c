"""
Makes an example of a JSON Schema, for a form to begin with.

It is as small as the schema lets it be, and fills in what is required. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgflowd.core.typed.schema_check import target_of

_MAX_DEPTH = 8  # a schema may name itself
_PLAIN: Mapping[str, Any] = {
    "string": "", "integer": 0, "number": 0, "boolean": False, "null": None, "array": [],
    "object": {},
}  # fmt: skip
_FORMATS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "uuid": "00000000-0000-0000-0000-000000000000",
}


def example_of(schema: Any) -> Any:
    """Return a value that the schema describes."""
    return _example(schema, schema, 0)


def _example(schema: Any, whole: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None
    if "$ref" in schema:
        return _example(target_of(schema["$ref"], whole), whole, depth + 1)
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _example(schema[key][0], whole, depth + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        fields = schema.get("properties", {})
        return {
            name: _example(fields.get(name), whole, depth + 1)
            for name in schema.get("required", ())
        }
    if kind == "array":
        least = schema.get("minItems", 0)
        return [_example(schema.get("items"), whole, depth + 1)] * least
    return _plain(kind, schema)


def _plain(kind: Any, schema: Mapping[str, Any]) -> Any:
    if kind == "string":
        text = _FORMATS.get(schema.get("format", ""), "")
        return text.ljust(schema.get("minLength", 0), "x")
    if kind in ("integer", "number"):
        if "minimum" in schema:
            return schema["minimum"]
        return schema["exclusiveMinimum"] + 1 if "exclusiveMinimum" in schema else 0
    return _PLAIN.get(kind)
