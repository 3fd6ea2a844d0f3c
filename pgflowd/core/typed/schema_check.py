"""
Finds where a value differs from a JSON Schema, as `runs start` does before it starts a run; and
makes an example of a schema, for a form to begin with.

It knows what msgspec and pydantic write into schemas, and passes over the rest: it refuses nothing
of which it is not sure. It needs no library, so a machine that only starts runs has none.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from typing import Any
from uuid import UUID

from pgflowd.core.redact import shown

_KINDS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_FORMATS: dict[str, Callable[[str], Any]] = {
    "uuid": UUID,
    "date": date.fromisoformat,
    "date-time": datetime.fromisoformat,
}


def _matches(value: str, pattern: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:  # of another dialect
        return True


def _has_format(value: str, name: str) -> bool:
    try:
        _FORMATS.get(name, str)(value)
    except ValueError:
        return False
    return True


# what a schema asks of a scalar or a length beyond its type: of which type, whether a value has it,
# and what was expected
_RULES: dict[str, tuple[str, Callable[[Any, Any], bool], str]] = {
    "minimum": ("number", operator.ge, "at least {}"),
    "maximum": ("number", operator.le, "at most {}"),
    "exclusiveMinimum": ("number", operator.gt, "more than {}"),
    "exclusiveMaximum": ("number", operator.lt, "less than {}"),
    "minLength": ("string", lambda value, least: len(value) >= least, "at least {} characters"),
    "maxLength": ("string", lambda value, most: len(value) <= most, "at most {} characters"),
    "minItems": ("array", lambda value, least: len(value) >= least, "at least {} elements"),
    "maxItems": ("array", lambda value, most: len(value) <= most, "at most {} elements"),
    "pattern": ("string", _matches, "what matches {}"),
    "format": ("string", _has_format, "a {}"),
}
_MAX_DEPTH = 8  # a schema may name itself
_EXAMPLES = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "uuid": "00000000-0000-0000-0000-000000000000",
}


def fault_of(schema: Any, value: Any, what: str) -> str | None:
    """The first place where the value does not fit, and why; None if it fits."""
    return next(_faults(schema, value, what, "", schema), None)


def _faults(schema: Any, value: Any, place: str, key: str, root: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping):  # true
        return

    def expected(what: str) -> str:
        return f"{place}: expected {what}, got {shown(value, key)}"

    if target := target_of(schema.get("$ref"), root):
        yield from _faults(target, value, place, key, root)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if schema.get("format") == "decimal":  # a number is decoded, too
        kinds = [*kinds, "number"]
    if kinds and not any(_KINDS[kind](value) for kind in kinds if kind in _KINDS):
        kind = next(name for name, is_of in _KINDS.items() if is_of(value) and name != "integer")
        yield f"{place}: expected {' or '.join(kinds)}, got {kind} {shown(value, key)}"
        return
    options = schema.get("enum", [schema["const"]] if "const" in schema else None)
    is_flag = isinstance(value, bool)
    same = [value == each and is_flag == isinstance(each, bool) for each in options or ()]
    if options is not None and not any(same):
        yield expected(" or ".join(map(repr, options)))
    for name, (kind, fits, words) in _RULES.items():
        if name in schema and _KINDS[kind](value) and not fits(value, schema[name]):
            yield expected(words.format(schema[name]))
    for each in schema.get("allOf", ()):
        yield from _faults(each, value, place, key, root)
    for choices in (schema.get("anyOf", ()), schema.get("oneOf", ())):
        faults = [next(_faults(each, value, place, key, root), None) for each in choices]
        if faults and None not in faults:
            deeper = [text for text in faults if text and not text.startswith(f"{place}: ")]
            several = f"{place}: fits none of {len(faults)} types, got {shown(value, key)}"
            yield deeper[0] if len(deeper) == 1 else several
    if isinstance(value, list):
        first = schema.get("prefixItems", ())
        for at, each in enumerate(value):
            inner = first[at] if at < len(first) else schema.get("items", True)
            if inner is False:
                yield f"{place}: expected at most {len(first)} elements, got {len(value)}"
                return
            yield from _faults(inner, each, f"{place}[{at}]", key, root)
    elif isinstance(value, dict):
        missing = (name for name in schema.get("required", ()) if name not in value)
        yield from (f"{place}: field '{name}' is missing" for name in missing)
        fields, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, each in value.items():
            if (inner := fields.get(name, others)) is False:
                yield f"{place}: field '{name}' is refused"
            yield from _faults(inner, each, f"{place}.{name}", name, root)


def target_of(ref: Any, root: Any) -> Any:
    """What a reference within the schema leads to."""
    if not isinstance(ref, str) or not ref.startswith("#/"):
        return None
    target = root
    for part in ref[2:].split("/"):
        target = target.get(part.replace("~1", "/").replace("~0", "~"), {})
    return target


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def example_of(schema: Any, whole: Any = None, depth: int = 0) -> Any:
    """Return a value that the schema describes, which is a part of the whole one."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None
    whole = schema if whole is None else whole
    if "$ref" in schema:
        return example_of(target_of(schema["$ref"], whole), whole, depth + 1)
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return example_of(schema[key][0], whole, depth + 1)
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            fields, required = schema.get("properties", {}), schema.get("required", ())
            return {name: example_of(fields.get(name), whole, depth + 1) for name in required}
        case "array":
            least = schema.get("minItems", 0)
            return [example_of(schema.get("items"), whole, depth + 1)] * least
        case "string":
            text = _EXAMPLES.get(schema.get("format", ""), "")
            return text.ljust(schema.get("minLength", 0), "x")
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        case "boolean":
            return False
    return None
