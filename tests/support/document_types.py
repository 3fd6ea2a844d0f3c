"""
JSON Schemas of types, read from what their `to_json` makes of examples.

The annotations of a dataclass say which values its fields may have, and `to_json` says under which
keys they are printed. So neither is written down again: `schema_of` makes examples of all fields,
with each part that may be missing also without it, and describes what comes out.

Documents that commands put together themselves are described in the same words: a type, `[one]`
for a list of it, a dict for an object by its keys, `Maybe(one)` for a key that may be missing,
`either(...)` for one of several.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, EnumType
from typing import Any, get_args, get_origin
from uuid import UUID

Schema = dict[str, Any]

KEY = "a key or a text"  # an object whose only key this is, is a mapping
MOMENT = datetime(2000, 1, 1, tzinfo=UTC)
ID = UUID(int=1)
_FORMATS = {"2000-01-01T00:00:00Z": "date-time", str(ID): "uuid"}
_PLAIN: dict[Any, Sequence[Any]] = {
    str: [KEY], int: [0, 1], float: [0.5], bool: [False, True], datetime: [MOMENT], UUID: [ID],
    None: [None], type(None): [None],
}  # fmt: skip


class _Anything(str):
    """Stands for a value of any type."""


ANYTHING = _Anything(KEY)


class Keys:
    """As a key: with all keys of that type."""


@dataclass(frozen=True)
class Maybe:
    """Of a key that may be missing."""

    type: Any


@dataclass(frozen=True)
class Either:
    """One of several; words stand for themselves."""

    types: tuple[Any, ...]


def either(*types: Any) -> Either:
    return Either(types)


class Types:
    """The named types; where one of them is part of another schema, that refers to it."""

    def __init__(self, place: str) -> None:
        self.place = place  # of their schemas, for references
        self.schemas: dict[str, Schema] = {}
        self._names: dict[str, str] = {}  # by their schemas, as text

    def add(self, name: str, annotation: Any) -> None:
        """Name a type; those that are parts of it come first."""
        self._put(name, self._plain_schema(annotation))

    def schema_of(self, annotation: Any) -> Schema:
        """The schema of a type, in the words of this module."""
        schema = self._plain_schema(annotation)
        name = self._names.get(_text(schema))
        return schema if name is None else self._reference(name)

    def document(self, annotation: Any) -> Schema:
        """The schema of a whole document: the type, after the version of its format."""
        if isinstance(annotation, Either):
            return _joined([self.document(one) for one in annotation.types])
        fields = annotation if isinstance(annotation, dict) else {Keys: annotation}
        return self._based(self._declared({"schema_version": int, **fields}))

    def keys_of(self, record: Any) -> Schema:
        """The schema of a document, with its keys."""
        return self._seen(list(documents_of(record)), is_named=False)

    def _plain_schema(self, annotation: Any) -> Schema:
        match annotation:
            case dict():
                return self._declared(annotation)
            case [one]:
                return {"type": "array", "items": self.schema_of(one)}
            case Either():
                return _joined([self.schema_of(one) for one in annotation.types])
            case str():  # a word
                return {"const": str(annotation)}
        if _is_record(annotation):
            return self.keys_of(annotation)
        return self._seen(examples(annotation))

    def _declared(self, fields: Mapping[Any, Any]) -> Schema:
        keys: dict[str, Schema] = {}
        needed: list[str] = []
        for key, each in fields.items():
            if key is Keys:
                inner = self.keys_of(each)
                keys |= inner["properties"]
                needed += [key for key in inner["required"] if key not in needed]
            else:
                keys[key] = self.schema_of(_bare(each))
                needed += [] if isinstance(each, Maybe) or key in needed else [key]
        return self._object(keys, needed)

    def _based(self, schema: Schema) -> Schema:
        """The schema, with a reference to the largest type of which it has all keys."""
        keys, required = schema["properties"], schema["required"]
        bases = {
            name: set(known["properties"])
            for name, known in self.schemas.items()
            if "required" in known and known["properties"].items() <= keys.items()
        }
        name = max(bases, key=lambda name: len(bases[name]), default=None)
        if name is None or not bases[name] <= set(required):
            return schema
        own = {key: one for key, one in keys.items() if key not in bases[name]}
        return {
            **self._reference(name),
            **self._object(own, [key for key in own if key in required]),
        }

    def _seen(self, values: Sequence[Any], *, is_named: bool = True) -> Schema:
        """The schema of all these values."""
        if any(value is ANYTHING for value in values) or not values:
            return {}
        found: list[Schema] = []
        objects = [value for value in values if isinstance(value, Mapping)]
        arrays = [value for value in values if isinstance(value, list | tuple)]
        for value in values:
            if not isinstance(value, Mapping | list | tuple):
                found.append(self._enum(value) or _json_type(value))
        if {"type": "number"} in found and {"type": "integer"} in found:
            found = [one for one in found if one != {"type": "integer"}]
        if arrays:
            items = [item for array in arrays for item in array]
            found.append({"type": "array", **({"items": self._seen(items)} if items else {})})
        if objects:
            found.append(self._of_objects(objects, is_named=is_named))
        return _joined(found)

    def _of_objects(self, objects: Sequence[Mapping[str, Any]], *, is_named: bool) -> Schema:
        keys = list(dict.fromkeys(key for each in objects for key in each))
        seen = {key: self._seen([each[key] for each in objects if key in each]) for key in keys}
        if not set(keys) - {KEY}:
            values = seen.get(KEY)
            return {"type": "object", **({"additionalProperties": values} if values else {})}
        schema = self._object(seen, [key for key in keys if all(key in each for each in objects)])
        name = self._names.get(_text(schema)) if is_named else None
        return schema if name is None else self._reference(name)

    def _object(self, keys: dict[str, Schema], required: list[str]) -> Schema:
        if "schema_version" in keys:
            keys = {**keys, "schema_version": {"const": 1}}
        return {"type": "object", "required": required, "properties": keys}

    def _enum(self, value: Any) -> Schema | None:
        if not isinstance(value, Enum):
            return None
        name = type(value).__name__
        if name not in self.schemas:
            words = [member.value for member in type(value)]
            self._put(name, {"type": "string", "enum": words})
        return self._reference(name)

    def _put(self, name: str, schema: Schema) -> None:
        self.schemas[name] = schema
        self._names[_text(schema)] = name

    def _reference(self, name: str) -> Schema:
        return {"$ref": f"{self.place}#/$defs/{name}"}


def examples(annotation: Any) -> Sequence[Any]:
    """Values of an annotation: together they show all that it may be."""
    if annotation is Any:
        return [ANYTHING]
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return sorted([each for one in args for each in examples(one)], key=lambda one: one is None)
    if origin in (dict, Mapping):
        return [{}, *({KEY: value} for value in examples(args[1]))]
    if origin in (list, Sequence, tuple):
        return [[*examples(args[0])]]
    if isinstance(annotation, EnumType):
        return [next(iter(annotation))]
    if annotation in (dict, Mapping):
        return [{}]
    return [*records(annotation)]


def records(cls: Any) -> Sequence[Any]:
    """Instances of a dataclass or a named tuple: each field has each of its examples once."""
    return [cls(**values) for values in _combined(_fields(cls))]


def documents_of(cls: Any) -> Sequence[dict[str, Any]]:
    """What these print, with each of the arguments that `to_json` may have; else their fields."""
    made = records(cls)
    to_json = getattr(cls, "to_json", None)
    if to_json is None:
        return [_plain(each) for each in made]
    hints = typing.get_type_hints(to_json)
    names = [name for name in inspect.signature(to_json).parameters if name != "self"]
    arguments = _combined({name: hints[name] for name in names}) or [{}]
    return [each.to_json(**more) for each in made for more in arguments]


def _combined(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    values = {name: examples(type) for name, type in fields.items()}
    most = max(map(len, values.values()), default=0)
    return [
        {name: found[min(number, len(found) - 1)] for name, found in values.items()}
        for number in range(most)
    ]


def _fields(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    if dataclasses.is_dataclass(cls):
        return {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    return {name: hints[name] for name in cls._fields}


def _plain(record: Any) -> dict[str, Any]:
    from pgflowd.core.documents import plain

    return plain(vars(record) if dataclasses.is_dataclass(record) else record._asdict())


def _is_record(annotation: Any) -> bool:
    if not isinstance(annotation, type):
        return False
    return dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields")


def _bare(type: Any) -> Any:
    return type.type if isinstance(type, Maybe) else type


def _json_type(value: Any) -> Schema:
    match value:
        case None:
            return {"type": "null"}
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case float():
            return {"type": "number"}
        case datetime():
            return {"type": "string", "format": "date-time"}
        case UUID():
            return {"type": "string", "format": "uuid"}
        case str():
            form = _FORMATS.get(value)
            return {"type": "string", **({"format": form} if form else {})}
    raise TypeError(f"JSON has no {value!r}: use the words of this module")


def _joined(schemas: Sequence[Schema]) -> Schema:
    """One of these; types alone are listed, with what the text is."""
    different = [one for number, one in enumerate(schemas) if one not in schemas[:number]]
    different.sort(key=lambda one: one == {"type": "null"})
    if len(different) == 1:
        return different[0]
    if {} in different:
        return {}
    if all(set(one) <= {"const"} for one in different):
        return {"enum": [one["const"] for one in different]}
    if all(set(one) <= {"type", "format"} and isinstance(one["type"], str) for one in different):
        forms = [one["format"] for one in different if "format" in one]
        texts = [one for one in different if one["type"] == "string"]
        if len(texts) <= 1:
            kinds = [one["type"] for one in different]
            return {"type": kinds, **({"format": forms[0]} if forms else {})}
    return {"anyOf": different}


def _text(schema: Schema) -> str:
    return json.dumps(schema, sort_keys=True)
