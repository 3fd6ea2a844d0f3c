"""
Reads the status document of a row of `pgflowd.daemons`, which any worker's role may write.

It may come from another version, or from somebody who wants to do harm. What is returned has each
key that pages and screens use, with a value of its type and of a bounded size, and no other. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from pgflowd.core.documents import (
    SCHEMA_VERSION,
    DocumentField,
    Presence,
    Words,
    fields_of,
    is_document,
)
from pgflowd.core.documents.daemon import DaemonStatus
from pgflowd.core.metrics.counters import is_number
from pgflowd.core.statuses import DaemonState, DatabaseState
from pgflowd.core.supervision.tree import ChildState

_MOST_CHARS = 1000  # of a text; SQL cuts those of problems before they travel
_MOST_MEMBERS = 100  # of an object with any keys, and of a list of texts
_MOST = 1e15  # of a number: what is more cannot be meant
_ODD: Mapping[Any, str] = {DaemonState: DaemonState.DEGRADED, DatabaseState: DatabaseState.UNKNOWN}


def told_status(document: Any) -> dict[str, Any]:
    """
    The document as `status --json` has it, but for the id and the start, which the row knows.

    What is odd in it is left out, null, zero or empty; an odd state is degraded or disabled.
    """
    return {"schema_version": SCHEMA_VERSION, **_object(DaemonStatus, document)}


def _object(kind: Any, value: Any) -> dict[str, Any]:
    given = value if isinstance(value, Mapping) else {}
    read: dict[str, Any] = {}
    for field in fields_of(kind):
        if field.mark is Presence.INLINE:
            read |= _object(field.type, given)
        else:
            read[field.key] = _field(field, given.get(field.key))
    return read


def _field(field: DocumentField, value: Any) -> Any:
    for note in field.notes:
        if isinstance(note, Words):
            known = isinstance(value, str) and value in note
            return value if known else ChildState.DISABLED.value
    if "uuid" in field.notes:
        return _id(value)
    return _value(field.type, value)


def _value(kind: Any, value: Any) -> Any:
    """The value as one of this type."""
    if get_origin(kind) in (Union, UnionType):
        (inner,) = [each for each in get_args(kind) if each is not NoneType]
        return _value(inner, value) if _may_be(inner, value) else None
    if is_document(kind):
        return _object(kind, value)
    if kind is UUID:
        return _id(value)
    if kind in (str, datetime):
        return value[:_MOST_CHARS] if isinstance(value, str) else ""
    if kind is int:
        return int(_number(value) or 0)
    if kind is float:
        return float(_number(value) or 0)
    if isinstance(kind, type) and issubclass(kind, Enum):
        known = isinstance(value, str) and value in [str(word) for word in kind]
        return value if known else _ODD[kind]
    (item,) = get_args(kind)[-1:]
    if get_origin(kind) is dict:  # numbers, by what they count
        found = list(value.items())[:_MOST_MEMBERS] if isinstance(value, Mapping) else []
        return {_value(str, key)[:40]: _value(item, one) for key, one in found}
    found = value if isinstance(value, list) else []
    if item is str:
        return [_value(str, one) for one in found[-_MOST_MEMBERS:] if isinstance(one, str)]
    return [_value(item, one) for one in found if isinstance(one, Mapping)]


def _may_be(kind: Any, value: Any) -> bool:
    """Whether a value is more than nothing, as one of this type."""
    if kind in (int, float):
        return _number(value) is not None
    return isinstance(value, str if kind is str else Mapping)


def _number(value: Any) -> int | float | None:
    return value if is_number(value) and abs(value) < _MOST and isfinite(value) else None


def _id(value: Any) -> str | None:
    try:
        return str(UUID(value)) if isinstance(value, str) else None
    except ValueError:
        return None
