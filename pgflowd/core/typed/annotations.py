"""
Reads annotations: resolves those that are texts, and finds what is in them.

An annotation names a shape if something in it is more than JSON has: a class with fields, an Enum,
a date, a set. `contents` says so, and which library can decode it, without importing any library.
"""

from __future__ import annotations

import collections.abc
import datetime
import decimal
import inspect
import pathlib
import re
import types
import typing
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin

NOTHING = inspect.Parameter.empty
JSON_LEAVES = (None, type(None), bool, int, float, str, Any, object, NOTHING)
SCALARS = (
    datetime.datetime, datetime.date, datetime.time, datetime.timedelta, uuid.UUID,
    decimal.Decimal, bytes, bytearray,
)  # fmt: skip
ARRAYS: tuple[Any, ...] = (
    list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Collection,
)  # fmt: skip
SETS: tuple[Any, ...] = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
MAPPINGS: tuple[Any, ...] = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
AWAITABLES = (collections.abc.Awaitable, collections.abc.Coroutine)
WRAPPERS = {"ClassVar", "Final", "InitVar", "NotRequired", "ReadOnly", "Required"}

_CONSTRAINTS = ("pydantic", "pydantic_core", "annotated_types", "msgspec")
_MODULES = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])|<locals>\.")


@dataclass
class Contents:
    """What is in an annotation."""

    has_shape: bool = False
    of_pydantic: list[str] = field(default_factory=list)  # names of what only pydantic decodes
    of_msgspec: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # what neither knows


def annotations_of(handler: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a handler, without those that cannot be resolved; `return`: its output."""
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # a builtin without a signature
        return {}
    raw = {each.name: each.annotation for each in signature.parameters.values()}
    raw["return"] = signature.return_annotation
    found = {}
    for name, annotation in raw.items():
        if annotation is not NOTHING and name != "ctx":
            with suppress(Exception):  # whatever the text evaluates to
                found[name] = _resolved(annotation, handler)
    if get_origin(output := found.get("return")) in AWAITABLES:  # of a handler that is not `async`
        found["return"] = get_args(output)[-1]
    return found


def _resolved(annotation: Any, handler: Callable[..., Any]) -> Any:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation
    names = _names_at(handler)
    holder = SimpleNamespace(__annotations__={"it": annotation})
    return typing.get_type_hints(holder, names, names, include_extras=True)["it"]


def _names_at(handler: Callable[..., Any]) -> dict[str, Any]:
    """The names that the module of a handler has, and those of the function around it."""
    function: Any = inspect.unwrap(handler)
    function = getattr(function, "func", function)  # of functools.partial
    if not hasattr(function, "__globals__"):
        function = getattr(type(function), "__call__", function)  # noqa: B004
    names = dict(getattr(function, "__globals__", {}))
    with_closure = getattr(function, "__closure__", None) and inspect.isfunction(function)
    return names | dict(inspect.getclosurevars(function).nonlocals if with_closure else {})


def contents(annotation: Any) -> Contents:
    """What is in an annotation, at any depth."""
    found = Contents()
    _walk(annotation, type_name(annotation), found, [])
    return found


def _walk(annotation: Any, place: str, found: Contents, above: list[Any]) -> None:
    annotation = plain_alias(annotation)
    if any(annotation is each for each in (*JSON_LEAVES, *above)) or isinstance(
        annotation, TypeVar
    ):
        return
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        for module in [_module(type(each)) for each in arguments[1:]]:
            if module in _CONSTRAINTS:
                of_library = found.of_msgspec if module == "msgspec" else found.of_pydantic
                of_library.append(f"the constraint of {place}")
                found.has_shape = True
        _walk(arguments[0], place, found, above)
    elif origin is Literal:
        found.has_shape = True
    elif origin in (Union, types.UnionType) or is_wrapper(annotation):
        for each in arguments:
            _walk(each, place, found, above)
    elif (container := origin or annotation) in (*ARRAYS, *MAPPINGS, *SETS, tuple):
        found.has_shape |= container in (*SETS, tuple)
        for each in arguments:
            if each is not ...:
                _walk(each, place, found, above)
    elif isinstance(container, type):
        _walk_class(container, place, found, [*above, annotation])
        for each in arguments:
            _walk(each, place, found, above)
    else:
        found.unknown.append(f"{place} is {type_name(annotation)}")


def _walk_class(cls: type, place: str, found: Contents, above: list[Any]) -> None:
    if cls in SCALARS or issubclass(cls, Enum | pathlib.PurePath):
        found.has_shape = True
        return
    if is_pydantic(cls):
        found.of_pydantic.append(cls.__name__)
    elif is_struct(cls) or _module(cls) == "msgspec":
        found.of_msgspec.append(cls.__name__)
    elif not has_fields(cls):
        found.unknown.append(f"{place} is {type_name(cls)}")
        return
    found.has_shape = True
    for name, annotation in hints_of(cls).items():
        _walk(annotation, f"{cls.__name__}.{name}", found, above)


def hints_of(cls: type) -> dict[str, Any]:
    """The annotations of the fields of a class; none if a name in them is unknown."""
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception:  # the library that decodes it says what is wrong
        return {}
    return {
        name: hint
        for name, hint in hints.items()
        if get_origin(hint) is not typing.ClassVar and hint is not typing.ClassVar
    }


def plain_alias(annotation: Any) -> Any:
    """What an alias or a `NewType` stands for."""
    while True:
        if isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation


def is_wrapper(annotation: Any) -> bool:
    """Whether it only says something about a field, such as `NotRequired[int]`."""
    name = getattr(get_origin(annotation), "_name", None)
    return name in WRAPPERS


def is_pydantic(cls: type) -> bool:
    """Whether only pydantic knows the class."""
    hooks = ("__get_pydantic_core_schema__", "__pydantic_core_schema__", "__pydantic_validator__")
    return _module(cls) == "pydantic" or any(hasattr(cls, hook) for hook in hooks)


def is_struct(cls: type) -> bool:
    return any(_module(base) == "msgspec" and base.__name__ == "Struct" for base in cls.__mro__[1:])


def is_typed_dict(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def is_named_tuple(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def has_fields(cls: Any) -> bool:
    """Whether a class names its fields in a way that both libraries or msgspec know."""
    is_attrs = hasattr(cls, "__attrs_attrs__")
    return is_dataclass(cls) or is_attrs or is_typed_dict(cls) or is_named_tuple(cls)


def _module(cls: type) -> str:
    return (getattr(cls, "__module__", None) or "").partition(".")[0]


def type_name(annotation: Any) -> str:
    """An annotation as people write it, without modules."""
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return _MODULES.sub("", repr(annotation))
