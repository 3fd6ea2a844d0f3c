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
from contextlib import suppress
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
_LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool], str]] = {
    "minimum": ("number", operator.ge, "at least {}"),
    "maximum": ("number", operator.le, "at most {}"),
    "exclusiveMinimum": ("number", operator.gt, "more than {}"),
    "exclusiveMaximum": ("number", operator.lt, "less than {}"),
    "minLength": ("string", operator.ge, "at least {} characters"),
    "maxLength": ("string", operator.le, "at most {} characters"),
    "minItems": ("array", operator.ge, "at least {} elements"),
    "maxItems": ("array", operator.le, "at most {} elements"),
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
    if target := target_of(schema.get("$ref"), root):
        yield from _faults(target, value, place, key, root)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if schema.get("format") == "decimal":  # a number is decoded, too
        kinds = [*kinds, "number"]
    if kinds and not any(_KINDS[kind](value) for kind in kinds if kind in _KINDS):
        expected = " or ".join(kinds)
        kind = next(name for name, is_of in _KINDS.items() if is_of(value) and name != "integer")
        yield f"{place}: expected {expected}, got {kind} {shown(value, key)}"
        return
    options = schema.get("enum", [schema["const"]] if "const" in schema else None)
    is_flag = isinstance(value, bool)
    same = [value == each and is_flag == isinstance(each, bool) for each in options or ()]
    if options is not None and not any(same):
        yield f"{place}: expected {' or '.join(map(repr, options))}, got {shown(value, key)}"
    for text in _limits(schema, value):
        yield f"{place}: expected {text}, got {shown(value, key)}"
    for each in schema.get("allOf", ()):
        yield from _faults(each, value, place, key, root)
    for choice in ("anyOf", "oneOf"):
        yield from _of_choice(schema.get(choice, ()), value, place, key, root)
    if isinstance(value, list):
        yield from _of_list(schema, value, place, key, root)
    elif isinstance(value, dict):
        yield from _of_object(schema, value, place, root)


def _of_choice(choices: Any, value: Any, place: str, key: str, root: Any) -> Iterator[str]:
    faults = [next(_faults(each, value, place, key, root), None) for each in choices]
    if faults and None not in faults:
        deeper = [text for text in faults if text and not text.startswith(f"{place}: ")]
        several = f"{place}: fits none of {len(faults)} types, got {shown(value, key)}"
        yield deeper[0] if len(deeper) == 1 else several


def _of_list(
    schema: Mapping[str, Any], value: list[Any], place: str, key: str, root: Any
) -> Iterator[str]:
    first = schema.get("prefixItems", ())
    for at, each in enumerate(value):
        item = first[at] if at < len(first) else schema.get("items", True)
        if item is False:
            yield f"{place}: expected at most {len(first)} elements, got {len(value)}"
            return
        yield from _faults(item, each, f"{place}[{at}]", key, root)


def _of_object(
    schema: Mapping[str, Any], value: dict[str, Any], place: str, root: Any
) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place}: field '{name}' is missing"
    fields = schema.get("properties", {})
    for name, each in value.items():
        inner = fields.get(name, schema.get("additionalProperties", True))
        if inner is False:
            yield f"{place}: field '{name}' is refused"
        yield from _faults(inner, each, f"{place}.{name}", name, root)


def _limits(schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    """What the schema asks of a scalar or a length beyond its type, where the value differs."""
    for name, (kind, is_within, words) in _LIMITS.items():
        if name in schema and _KINDS[kind](value):
            number = value if kind == "number" else len(value)
            if not is_within(number, schema[name]):
                yield words.format(schema[name])
    if isinstance(value, str):
        with suppress(re.error):  # of another dialect
            if schema.get("pattern") and not re.search(schema["pattern"], value):
                yield f"what matches {schema['pattern']}"
        form = schema.get("format", "")
        try:
            _FORMATS.get(form, str)(value)
        except ValueError:
            yield f"a {form}"


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
    if kind == "string":
        text = _EXAMPLES.get(schema.get("format", ""), "")
        return text.ljust(schema.get("minLength", 0), "x")
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    return False if kind == "boolean" else None
