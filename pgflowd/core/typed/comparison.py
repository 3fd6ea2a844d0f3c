"""
Whether what one step returns can be what another one takes, by the JSON of both types.

A class is read as its library encodes or decodes it: with aliases, tags and fields that may be
missing. What can change that in ways that are not read here, such as a serializer, may be anything,
and is no misfit. No library is imported that the annotations do not have.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import pathlib
import types
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from pgflowd.core.typed.annotations import (
    ARRAYS,
    MAPPINGS,
    SETS,
    contents,
    has_fields,
    hints_of,
    is_named_tuple,
    is_pydantic,
    is_struct,
    is_typed_dict,
    is_wrapper,
    plain_alias,
    type_name,
)

_SCALARS = {
    type(None): "null", None: "null", bool: "bool", int: "int", float: "float", str: "str",
    datetime.datetime: "datetime", datetime.date: "date", datetime.time: "time",
    datetime.timedelta: "timedelta", uuid.UUID: "uuid", decimal.Decimal: "decimal",
    bytes: "bytes", bytearray: "bytes",
}  # fmt: skip
_TEXTS = {"str", "datetime", "date", "time", "timedelta", "uuid", "decimal", "bytes", "path"}
_NUMBERS_FIT = {("float", "int"), ("decimal", "int"), ("decimal", "float")}
# settings of a model that change neither what it accepts nor how it is encoded
_HARMLESS = {
    "alias_generator", "arbitrary_types_allowed", "extra", "from_attributes", "frozen",
    "populate_by_name", "strict", "title", "use_attribute_docstrings", "validate_assignment",
    "validate_by_alias", "validate_by_name", "validate_default",
}  # fmt: skip
_VALIDATORS = ("validators", "field_validators", "root_validators", "model_validators")


class Side(NamedTuple):
    """An end of the comparison: what is encoded or what is decoded, and whether by pydantic."""

    is_output: bool
    by_pydantic: bool


@dataclass(frozen=True)
class Scalar:
    """A scalar of one of these kinds, or one of these values of JSON, with their types."""

    kinds: set[str]
    values: Mapping[tuple[type, Any], None] | None = None
    is_open: bool = False  # others may become one of them


@dataclass(frozen=True)
class Array:
    """An array of any length, or one whose elements have types of their own."""

    elements: Sequence[Any]
    required: int | None = None  # None: any length


class Member(NamedTuple):
    """A field of a record."""

    annotation: Any
    names: tuple[str, ...]  # in JSON, of which one is enough
    is_required: bool  # of what is decoded
    may_be_missing: bool = False  # from what is encoded


@dataclass(frozen=True)
class Record:
    """An object with fields, or with any keys."""

    members: Sequence[Member]
    has_more: bool = False  # than its fields, perhaps
    is_closed: bool = False  # further fields are refused
    tag: str | None = None  # the field that names the class


@dataclass(frozen=True)
class Table:
    """An object with any keys."""

    values: Any


@dataclass(frozen=True)
class OneOf:
    annotations: Sequence[Any]


Structure = Scalar | Array | Record | Table | OneOf | None  # None: not known


def misfit(consumer: Any, producer: Any) -> str | None:
    """Return why values of the producer's annotation cannot be the consumer's; None: they may."""
    taker = Side(False, bool(contents(consumer).of_pydantic))
    giver = Side(True, bool(contents(producer).of_pydantic))
    return _Comparison(taker, giver, []).misfit(consumer, producer)


class _Comparison(NamedTuple):
    taker: Side
    giver: Side
    above: list[tuple[Any, Any]]  # the pairs that are being compared, of recursive types

    def misfit(self, taken: Any, given: Any) -> str | None:
        if (taken, given) in self.above:  # it is decided further up
            return None
        inside = self._replace(above=[*self.above, (taken, given)])
        consumer, producer = _structure(taken, self.taker), _structure(given, self.giver)
        if consumer is None or producer is None:
            return None
        words = producer.values if isinstance(producer, Scalar) else None
        if isinstance(consumer, OneOf) and words and len(words) > 1:
            producer = OneOf([Literal[value] for _, value in words])
        if isinstance(producer, OneOf):
            return _first(inside.misfit(taken, each) for each in producer.annotations)
        if isinstance(consumer, OneOf):
            whys = [inside.misfit(each, given) for each in consumer.annotations]
            return None if None in whys else next((w for w in whys if w and "field" in w), whys[0])
        match consumer, producer:
            case Scalar(), Scalar() if not _is_other(consumer, producer, self.taker.by_pydantic):
                return None
            case Record(), Record():
                return inside._misfit_of_records(consumer, producer)
            case Table(), Table():
                return inside.misfit(consumer.values, producer.values)
            case Table(), Record():
                types = (each.annotation for each in producer.members)
                return _first(inside.misfit(consumer.values, each) for each in types)
            case Array(elements=[element], required=None), Array():
                why = _first(inside.misfit(element, each) for each in producer.elements)
                return why and f"an element: {why}"
            case Array(required=int(least)), Array(required=int()):
                if least <= len(producer.elements) <= len(consumer.elements):
                    return _first(map(inside.misfit, consumer.elements, producer.elements))
            case (Array(), Array()) | (Record(), Table()):
                return None
        return f"{type_name(given)} is not {type_name(taken)}"

    def _misfit_of_records(self, consumer: Record, producer: Record) -> str | None:
        offered = {name: each for each in producer.members for name in each.names}
        for taken in consumer.members:
            name = next((each for each in taken.names if each in offered), None)
            if name is None:
                if taken.is_required and not (producer.has_more or producer.tag in taken.names):
                    return f"field '{taken.names[0]}' is missing"
            elif offered[name].may_be_missing and taken.is_required:
                return f"field '{name}' may be missing"
            elif why := self.misfit(taken.annotation, offered[name].annotation):
                return f"field '{name}': {why}"
        known = {consumer.tag, *(name for each in consumer.members for name in each.names)}
        more = [name for name in offered if name not in known] if consumer.is_closed else []
        if more and not offered[more[0]].may_be_missing:
            return f"field '{more[0]}' is refused"
        return None


def _first(whys: Iterable[str | None]) -> str | None:
    return next(filter(None, whys), None)


def _is_other(consumer: Scalar, producer: Scalar, may_convert: bool) -> bool:
    """Whether a scalar cannot be decoded as another; pydantic may convert: an int from "3"."""
    if consumer.values is None:
        [taken] = consumer.kinds
        for given in producer.kinds:
            are_texts = {taken, given} <= _TEXTS and {taken, given} & {"str", "path", "bytes"}
            is_fit = taken == given or (taken, given) in _NUMBERS_FIT
            if not is_fit and ("null" in (taken, given) or not (may_convert or are_texts)):
                return True
        return False
    if producer.values is not None:
        is_known = producer.values.keys() <= consumer.values.keys()
    else:
        is_text = "str" in consumer.kinds and producer.kinds <= _TEXTS
        is_known = is_text or producer.kinds <= consumer.kinds
    return not (is_known or consumer.is_open or may_convert)


def _structure(annotation: Any, side: Side) -> Structure:
    """The JSON of a type, one level deep."""
    annotation = plain_alias(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any or annotation is object:
        return None
    if origin is Annotated or is_wrapper(annotation):
        modules = {(type(each).__module__ or "").partition(".")[0] for each in arguments[1:]}
        may_be_serialized = side.is_output and origin is Annotated and "pydantic" in modules
        return None if may_be_serialized else _structure(arguments[0], side)
    if origin in (Union, types.UnionType):
        return OneOf(arguments)
    if origin is Literal:
        return _values(each.value if isinstance(each, Enum) else each for each in arguments)
    if kind := _SCALARS.get(annotation) if isinstance(annotation, type | None) else None:
        return Scalar({kind})
    container = origin or annotation
    if container is tuple and (len(arguments) != 2 or arguments[1] is not ...) and arguments:
        return Array(arguments, len(arguments))
    if container in (*ARRAYS, *SETS, tuple):
        return Array(arguments[:1] or (Any,))
    if container in MAPPINGS:
        return Table(arguments[1] if arguments else Any)
    return _of_class(annotation, container, side) if isinstance(container, type) else None


def _values(values: Iterable[Any], *, is_open: bool = False) -> Scalar:
    found = dict.fromkeys((type(value), value) for value in values)
    return Scalar({_SCALARS.get(kind, "other") for kind, _ in found}, found, is_open)


def _of_class(annotation: Any, cls: Any, side: Side) -> Structure:
    if issubclass(cls, Enum):
        values = [member.value for member in cls]
        is_open = cls._missing_.__func__ is not Enum._missing_.__func__  # type: ignore[attr-defined]
        is_plain = all(isinstance(value, str | int) for value in values)
        return _values(values, is_open=is_open) if is_plain else None
    if issubclass(cls, pathlib.PurePath):
        return Scalar({"path"})
    if is_named_tuple(cls):
        hints = hints_of(cls)
        elements = [hints.get(name, Any) for name in cls._fields]
        return Array(elements, len(elements) - len(getattr(cls, "_field_defaults", ())))
    if hasattr(cls, "model_fields"):
        return _model(cls, side)
    if is_struct(cls):
        return _struct(cls, _hints(annotation, cls))
    if has_fields(cls) and (not is_pydantic(cls) or dataclasses.is_dataclass(cls)):
        return _record(cls, _hints(annotation, cls), side)
    return None


def _record(cls: Any, hints: Mapping[str, Any], side: Side) -> Structure:
    """A dataclass, TypedDict or class of attrs."""
    members, is_odd = [], is_pydantic(cls) and _has_hooks(cls)
    if is_typed_dict(cls):
        fields = {name: name in cls.__required_keys__ for name in {**cls.__annotations__, **hints}}
    elif dataclasses.is_dataclass(cls):
        found, missing = dataclasses.fields(cls), dataclasses.MISSING
        fields = {each.name: each.default is each.default_factory is missing for each in found}
        is_odd |= not all(each.init for each in found) or len(found) < len(hints)  # InitVar
    else:
        given = cls.__attrs_attrs__
        fields = {each.name: "NOTHING" in repr(each.default) for each in given}
        is_odd |= any(each.validator or each.converter or not each.init for each in given)
    for name, is_required in fields.items():
        is_private = name.startswith("_")  # msgspec decodes it, and does not encode it
        is_odd |= name not in hints or (is_private and side.by_pydantic)
        may_be_missing = is_private or (is_typed_dict(cls) and not is_required)
        members.append(Member(hints.get(name), (name,), is_required, may_be_missing))
    return None if is_odd else Record(members)


def _struct(cls: Any, hints: Mapping[str, Any]) -> Structure:
    import msgspec

    config = cls.__struct_config__
    if config.array_like:
        return None
    members = [
        Member(
            hints.get(each.name, each.type),
            (each.encode_name,),
            each.required,
            may_be_missing=config.omit_defaults and not each.required,
        )
        for each in msgspec.structs.fields(cls)
    ]
    tag = config.tag_field if config.tag is not None else None
    return Record(members, is_closed=config.forbid_unknown_fields, tag=tag)


def _model(cls: Any, side: Side) -> Structure:
    config, own = getattr(cls, "model_config", {}), cls.__pydantic_decorators__
    is_odd = bool(set(config) - _HARMLESS) or getattr(cls, "__pydantic_root_model__", False)
    has_serializers = own.field_serializers or own.model_serializers
    if is_odd or (has_serializers if side.is_output else _has_hooks(cls)):
        return None
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    members = []
    for name, each in cls.model_fields.items():
        alias = each.serialization_alias if side.is_output else each.validation_alias
        alias = alias or each.alias or name
        if not isinstance(alias, str):
            return None
        if side.is_output and (each.exclude or getattr(each, "exclude_if", None)):
            continue
        names = (alias, name) if by_name and not side.is_output else (alias,)
        annotation = (
            Annotated[(each.annotation, *each.metadata)] if each.metadata else each.annotation
        )
        members.append(Member(annotation, names, each.is_required()))
    extra = config.get("extra")
    has_more = extra == "allow" or bool(own.computed_fields)
    return Record(members, has_more, is_closed=extra == "forbid")


def _has_hooks(cls: Any) -> bool:
    """Whether a class of pydantic has functions of its own that validate or encode it."""
    found = getattr(cls, "__pydantic_decorators__", None)
    own = any("__get_pydantic_core_schema__" in vars(base) for base in cls.__mro__[:-2])
    is_model = hasattr(cls, "model_fields")
    return any(getattr(found, kind, None) for kind in _VALIDATORS) or (own and not is_model)


def _hints(annotation: Any, cls: Any) -> dict[str, Any]:
    """The annotations of the fields, with what stands for the parameters of a generic class."""
    hints, arguments = hints_of(cls), get_args(annotation)
    parameters = getattr(cls, "__parameters__", ())
    if not arguments or len(arguments) != len(parameters):
        return hints
    given = dict(zip(parameters, arguments, strict=True))

    def filled(hint: Any) -> Any:
        if isinstance(hint, TypeVar):
            return given.get(hint, hint)
        inside = () if isinstance(hint, type) else getattr(hint, "__parameters__", ())
        return hint[tuple(given.get(each, each) for each in inside)] if inside else hint

    return {name: filled(hint) for name, hint in hints.items()}
