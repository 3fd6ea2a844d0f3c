"""
What the JSON of a type looks like, one level deep, for those who compare types.

A class is read as its library encodes it (`of_output`) or decodes it: with aliases, tags and fields
that may be missing. What can change that in ways that are not read here, such as a serializer,
makes it `Opaque`, or it `may_refuse` what looks right.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import pathlib
import types
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from pgflowd.core.typed.annotations import (
    ARRAYS,
    MAPPINGS,
    SETS,
    has_fields,
    hints_of,
    is_named_tuple,
    is_pydantic,
    is_struct,
    is_typed_dict,
    is_wrapper,
    plain_alias,
)

_SCALARS = {
    type(None): "null", None: "null", bool: "bool", int: "int", float: "float", str: "str",
    datetime.datetime: "datetime", datetime.date: "date", datetime.time: "time",
    datetime.timedelta: "timedelta", uuid.UUID: "uuid", decimal.Decimal: "decimal",
    bytes: "bytes", bytearray: "bytes",
}  # fmt: skip
# settings of a model that change neither what it accepts nor how it is encoded
_HARMLESS = {
    "alias_generator", "arbitrary_types_allowed", "extra", "from_attributes", "frozen",
    "populate_by_name", "strict", "title", "use_attribute_docstrings", "validate_assignment",
    "validate_by_alias", "validate_by_name", "validate_default",
}  # fmt: skip


@dataclass(frozen=True)
class Typed:
    """An annotation, or a part of one, and which library has the whole of it."""

    annotation: Any
    by_pydantic: bool

    def part(self, annotation: Any) -> Typed:
        return Typed(annotation, self.by_pydantic)


@dataclass(frozen=True)
class Anything:
    pass


@dataclass(frozen=True)
class Opaque:
    """Nothing is known of it."""


@dataclass(frozen=True)
class Scalar:
    kind: str


@dataclass(frozen=True)
class Values:
    """One of these values of JSON."""

    values: tuple[Any, ...]
    is_open: bool = False  # others may become one of them


@dataclass(frozen=True)
class Array:
    element: Typed
    is_set: bool = False


@dataclass(frozen=True)
class Tuple:
    """An array whose elements have types of their own."""

    elements: tuple[Typed, ...]
    required: int


@dataclass(frozen=True)
class Table:
    key: Typed
    value: Typed


@dataclass(frozen=True)
class Member:
    """A field of a record."""

    type: Typed
    names: tuple[str, ...]  # in JSON, of which one is enough
    is_required: bool = True  # of what is decoded
    may_be_missing: bool = False  # from what is encoded


@dataclass(frozen=True)
class Record:
    """An object with fields."""

    members: tuple[Member, ...]
    may_refuse: bool = False  # what has all fields, with their types
    may_accept: bool = False  # what has not
    has_more: bool = False  # than its fields, perhaps
    is_closed: bool = False  # further fields are refused
    tag: tuple[str, Any] | None = None


@dataclass(frozen=True)
class Limited:
    """A type whose values are limited further."""

    type: Typed


@dataclass(frozen=True)
class OneOf:
    types: tuple[Typed, ...]


Structure = Anything | Opaque | Scalar | Values | Array | Tuple | Table | Record | Limited | OneOf


def structure_of(typed: Typed, *, of_output: bool) -> Structure:
    """The JSON of a type; of what it encodes, or of what it decodes."""
    annotation = plain_alias(typed.annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any or annotation is object:
        return Anything()
    if origin is Annotated:
        return _limited(typed.part(arguments[0]), arguments[1:], of_output=of_output)
    if is_wrapper(annotation):
        return structure_of(typed.part(arguments[0]), of_output=of_output)
    if origin in (Union, types.UnionType):
        return OneOf(tuple(map(typed.part, arguments)))
    if origin is Literal:
        return Values(tuple(each.value if isinstance(each, Enum) else each for each in arguments))
    if kind := _SCALARS.get(annotation) if isinstance(annotation, type | None) else None:
        return Scalar(kind)
    container = origin or annotation
    if container is tuple and (len(arguments) != 2 or arguments[1] is not ...) and arguments:
        return Tuple(tuple(map(typed.part, arguments)), len(arguments))
    if container in (*ARRAYS, *SETS, tuple):
        element = arguments[0] if arguments else Any
        return Array(typed.part(element), container in SETS)
    if container in MAPPINGS:
        key, value = arguments or (Any, Any)
        return Table(typed.part(key), typed.part(value))
    return _of_class(typed, container, of_output=of_output)


def _limited(inner: Typed, metadata: tuple[Any, ...], *, of_output: bool) -> Structure:
    """A type with constraints, which what it encodes keeps."""
    modules = {(type(each).__module__ or "").partition(".")[0] for each in metadata if each}
    if not of_output:
        return Limited(inner) if metadata else structure_of(inner, of_output=False)
    if "pydantic" in modules:  # may be a serializer
        return Opaque()
    return structure_of(inner, of_output=True)


def _of_class(typed: Typed, cls: Any, *, of_output: bool) -> Structure:
    if isinstance(cls, TypeVar) or not isinstance(cls, type):
        return Opaque()
    if issubclass(cls, Enum):
        values = tuple(member.value for member in cls)
        is_open = cls._missing_.__func__ is not Enum._missing_.__func__  # type: ignore[attr-defined]
        plain = all(isinstance(value, str | int) for value in values)
        return Values(values, is_open) if plain else Opaque()
    if issubclass(cls, pathlib.PurePath):
        return Scalar("path")
    if is_named_tuple(cls):
        hints, defaults = hints_of(cls), getattr(cls, "_field_defaults", {})
        names: tuple[str, ...] = getattr(cls, "_fields", ())
        elements = tuple(typed.part(hints.get(name, Any)) for name in names)
        return Tuple(elements, len(elements) - len(defaults))
    if hasattr(cls, "model_fields"):
        return _model(typed, cls, of_output=of_output)
    if is_struct(cls):
        return _struct(typed, cls)
    if has_fields(cls) and (not is_pydantic(cls) or dataclasses.is_dataclass(cls)):
        return _record(typed, cls)
    return Opaque()


def _record(typed: Typed, cls: type) -> Structure:
    """A dataclass, TypedDict or class of attrs."""
    members, is_odd = [], False
    hints = _hints(typed, cls)
    for name, is_required, is_odd_field in _fields(cls):
        is_odd |= is_odd_field or name not in hints
        if name.startswith("_"):  # msgspec decodes it, and does not encode it
            is_odd |= typed.by_pydantic
        annotation = hints.get(name, Any)
        may_be_missing = name.startswith("_") or (is_typed_dict(cls) and not is_required)
        members.append(Member(typed.part(annotation), (name,), is_required, may_be_missing))
    if is_odd or (is_pydantic(cls) and _has_hooks(cls)):
        return Opaque()
    checks = hasattr(cls, "__post_init__") or hasattr(cls, "__attrs_post_init__")
    return Record(tuple(members), may_refuse=checks or is_pydantic(cls))


def _fields(cls: type[Any]) -> Iterator[tuple[str, bool, bool]]:
    """The fields of a class, whether each is required, and whether it is treated in its own way."""
    if is_typed_dict(cls):
        for name in cls.__annotations__ | hints_of(cls):
            yield name, name in cls.__required_keys__, False
    elif dataclasses.is_dataclass(cls):
        for each in dataclasses.fields(cls):
            missing = dataclasses.MISSING
            is_required = each.default is missing and each.default_factory is missing
            yield each.name, is_required, not each.init
        if len(dataclasses.fields(cls)) < len(hints_of(cast(type, cls))):  # InitVar
            yield "", False, True
    else:
        for each in cls.__attrs_attrs__:
            is_odd = bool(each.validator or each.converter) or not each.init
            yield each.name, "NOTHING" in repr(each.default), is_odd


def _struct(typed: Typed, cls: Any) -> Structure:
    import msgspec

    config = cls.__struct_config__
    if config.array_like:
        return Opaque()
    members = []
    hints = _hints(typed, cls)
    for each in msgspec.structs.fields(cls):
        is_dropped = config.omit_defaults and not each.required
        type_ = typed.part(hints.get(each.name, each.type))
        members.append(Member(type_, (each.encode_name,), each.required, is_dropped))
    return Record(
        tuple(members),
        may_refuse=hasattr(cls, "__post_init__"),
        is_closed=config.forbid_unknown_fields,
        tag=(config.tag_field, config.tag) if config.tag is not None else None,
    )


def _model(typed: Typed, cls: Any, *, of_output: bool) -> Structure:
    config = getattr(cls, "model_config", {})
    is_odd = bool(set(config) - _HARMLESS) or getattr(cls, "__pydantic_root_model__", False)
    found, by_name = (
        cls.__pydantic_decorators__,
        bool(config.get("populate_by_name") or config.get("validate_by_name")),
    )
    if is_odd or (of_output and (found.field_serializers or found.model_serializers)):
        return Opaque()
    members = []
    for name, each in cls.model_fields.items():
        alias = (each.serialization_alias if of_output else each.validation_alias) or each.alias
        if not isinstance(alias, str | None):
            return Opaque()
        names = (alias or name, name) if by_name and not of_output else (alias or name,)
        if of_output and (each.exclude or getattr(each, "exclude_if", None)):
            continue
        type_ = typed.part(each.annotation)
        if each.metadata:
            type_ = typed.part(Annotated[(each.annotation, *each.metadata)])
        members.append(Member(type_, names, each.is_required()))
    checks = _has_hooks(cls)
    extra = config.get("extra")
    return Record(
        tuple(members),
        may_refuse=checks or "model_post_init" in vars(cls),
        may_accept=checks,
        has_more=extra == "allow" or bool(found.computed_fields),
        is_closed=extra == "forbid",
    )


def _has_hooks(cls: Any) -> bool:
    """Whether a class of pydantic has functions of its own that validate or encode it."""
    found = getattr(cls, "__pydantic_decorators__", None)
    kinds = ("validators", "field_validators", "root_validators", "model_validators")
    own = any("__get_pydantic_core_schema__" in vars(base) for base in cls.__mro__[:-2])
    is_model = hasattr(cls, "model_fields")
    return any(getattr(found, kind, None) for kind in kinds) or (own and not is_model)


def _hints(typed: Typed, cls: Any) -> dict[str, Any]:
    """The annotations of the fields, with what stands for the parameters of a generic class."""
    hints, arguments = hints_of(cls), get_args(typed.annotation)
    parameters = getattr(cls, "__parameters__", ())
    if not arguments or len(arguments) != len(parameters):
        return hints
    given = dict(zip(parameters, arguments, strict=True))
    return {name: _filled(hint, given) for name, hint in hints.items()}


def _filled(hint: Any, given: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return given.get(hint, hint)
    inside = getattr(hint, "__parameters__", ())
    if not inside or isinstance(hint, type):
        return hint
    return hint[tuple(given.get(each, each) for each in inside)]
