"""
Typed values outside of handlers' arguments: those that clients send, and those that are read as a
type that the reader names.

A value is JSON as it is, or has objects in it: of a dataclass, of attrs, a Struct, a model. Only if
it is not JSON it is looked through for these.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from pgflowd.core.json import as_stored, encode
from pgflowd.core.typed.annotations import is_pydantic, is_struct, type_name
from pgflowd.core.typed.codec import Misfit, Undecodable, codec_of, decoded
from pgflowd.errors import FlowError, OutputError, Problem, TypeMismatch


def encode_value(value: Any, *, what: str) -> str:
    """The JSON text of a value with or without objects. Raises E403, E417, E216."""
    try:
        return encode(value, what=what)
    except OutputError:
        found = _plain(value, what)
        if found is value:
            raise
        return encode(found, what=what)


def stored_value(value: Any, *, what: str) -> Any:
    """The value as the database gives it back."""
    return as_stored(plain_value(value, what=what), what=what)


def plain_value(value: Any, *, what: str) -> Any:
    """The value with JSON in place of its objects; anything else in it stays."""
    try:
        encode(value, what=what)
    except OutputError:
        return _plain(value, what)
    return value


def read_as(value: Any, as_type: Any, what: str) -> Any:
    """A JSON value as this type, or as it is. Raises E417, and E216 if nothing can decode it."""
    if as_type is None:
        return value
    try:
        codec = codec_of(as_type)
    except Undecodable as error:
        raise _undecodable(error) from None
    return decoded(codec, value, what)


def _plain(value: Any, what: str) -> Any:
    cls = type(value)
    if is_dataclass(cls) or hasattr(cls, "__attrs_attrs__") or is_struct(cls) or is_pydantic(cls):
        try:
            return codec_of(cls).encode(value, what)
        except Undecodable as error:
            raise _undecodable(error) from None
        except Misfit as error:
            text = f"{error} ({what}: {type_name(cls)})"
            raise TypeMismatch(text, next="send what fits its class") from None
    if isinstance(value, dict):
        inside = {key: _plain(each, f"{what}.{key}") for key, each in value.items()}
        return inside if any(inside[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple):
        elements = [_plain(each, f"{what}[{at}]") for at, each in enumerate(value)]
        is_new = any(new is not old for new, old in zip(elements, value, strict=True))
        return elements if is_new else value
    return value


def _undecodable(error: Undecodable) -> FlowError:
    return FlowError([Problem("E216", error.text, next=error.remedy)])
