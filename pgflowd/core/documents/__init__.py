"""
Documents about runs, flows and daemons, for programs and screens; and how they become JSON.

A dataclass, a named tuple or a typed dict is a document: `encoded` makes its JSON, and
`core.documents.documentation` its JSON Schema, from its fields. What a field means stands in its
annotation, where it says more than the name: `took_s: Annotated[float, "how long it took"]`. Beside
it stand a `Named`, if JSON has the field under another one, and a `Presence`. A property that
belongs to the document is `shown`.

`--json` prints these and nothing else; the screens draw from the same objects. Rows of the database
are read into them in `db`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from functools import cache
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

SCHEMA_VERSION = 1
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Named(str):
    """The key under which JSON has a field."""

    __slots__ = ()


class Format(str):
    """The format of a text, in the words of JSON Schema."""

    __slots__ = ()


class Words(tuple[str, ...]):
    """The texts that a field may have."""

    __slots__ = ()


class TaskKey(NamedTuple):
    """The identity of a task."""

    run_id: UUID
    step_slug: StepSlug
    task_index: TaskIndex


class DocumentOf(NamedTuple):
    """The value is the JSON of this whole document."""

    type: Any


class Presence(Enum):
    """What JSON has of a field."""

    HIDDEN = auto()  # nothing
    INLINE = auto()  # its keys in place of it
    OPTIONAL = auto()  # nothing while it is None
    UNKNOWN = auto()  # nothing where nobody knows it; only typed dicts can have this


Hidden = Annotated[T, Presence.HIDDEN]
Inline = Annotated[T, Presence.INLINE]
FlowSlug = Annotated[str, Named("flow")]
StepSlug = Annotated[str, Named("step")]
TaskIndex = Annotated[int, Named("task")]


class DocumentField(NamedTuple):
    """A field or a property of a document."""

    name: str
    key: str
    type: Any  # without what is said about it
    meaning: str  # empty: what the key says
    mark: Presence | None
    notes: Sequence[Any]  # all that is said about it
    is_json: bool  # its values are JSON as they are, and may be large or deep


def shown(function: F) -> F:
    """Make the property of this function a part of the document."""
    function.__dict__["is_shown"] = True
    return function


def versioned(document: Any) -> dict[str, Any]:
    """A whole document as JSON: its keys after the version of their format."""
    return {"schema_version": SCHEMA_VERSION, **encoded(document)}


def encoded(value: Any) -> Any:
    """The value as JSON has it: moments in ISO 8601 and UTC, durations in seconds, ids as text."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(key): encoded(each) for key, each in value.items()}
    if is_document(type(value)):
        kind, made = cast(Any, type(value)), dict[str, Any]()
        for field in fields_of(kind):
            each = getattr(value, field.name)
            if field.mark is Presence.INLINE:
                made.update(encoded(each))
            elif each is not None or field.mark is not Presence.OPTIONAL:
                made[field.key] = each if field.is_json else encoded(each)
        return made
    if isinstance(value, list | tuple):
        return [encoded(each) for each in value]
    return value.total_seconds() if isinstance(value, timedelta) else str(value)


def is_document(kind: Any) -> bool:
    """Whether values of this type become objects with the keys of its fields."""
    if not isinstance(kind, type):
        return False
    is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return is_named_tuple or dataclasses.is_dataclass(kind) or is_typeddict(kind)


@cache
def fields_of(kind: Any) -> tuple[DocumentField, ...]:
    """The fields and shown properties of a document, but for those that JSON does not have."""
    hints = get_type_hints(kind, include_extras=True)
    if dataclasses.is_dataclass(kind):
        found = [(field.name, hints[field.name]) for field in dataclasses.fields(kind)]
    else:
        found = [(name, hints[name]) for name in getattr(kind, "_fields", hints)]
    for base in reversed(kind.__mro__):
        for name, each in vars(base).items():
            if isinstance(each, property) and hasattr(each.fget, "is_shown"):
                found.append((name, get_type_hints(each.fget, include_extras=True)["return"]))
    fields = [_field(name, hint) for name, hint in dict(found).items()]
    return tuple(field for field in fields if field.mark is not Presence.HIDDEN)


def _field(name: str, hint: Any) -> DocumentField:
    kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    said: dict[type, Any] = {type(note): note for note in notes}  # the last of each
    key, meaning, mark = said.get(Named, name), said.get(str, ""), said.get(Presence)
    is_container = get_origin(kind) in (dict, Mapping, list)
    is_json = kind is Any or (is_container and get_args(kind)[-1] is Any)
    return DocumentField(name, key, kind, meaning, mark, notes, is_json)


# What lists show of documents: a column is a field or property whose annotation has a `ListColumn`.
# A list chooses the columns, their order, and which of them a narrow terminal loses.
@dataclasses.dataclass(frozen=True)
class ListColumn:
    """The heading of a field in lists, and how its values are shown."""

    heading: str  # in capitals on a terminal
    width: int | None = None  # characters of a text, of which more are cut
    page: str = ""  # the heading in the dashboard, where it is another one
    absent: str | None = None  # what stands for no value; None: a dash
    is_number: bool = False  # aligned to the right
    is_rare: bool = False  # left out where no row has a value
    show: Callable[[Any], str] | None = None  # the text of a value; None: as its type has it


def number(heading: str, **more: Any) -> ListColumn:
    """A column of numbers."""
    return ListColumn(heading, is_number=True, **more)


@cache
def columns_of(kind: Any) -> Mapping[str, ListColumn]:
    """The columns of a document, by the names of their fields and properties."""
    hints = get_type_hints(kind, include_extras=True)
    for base in kind.__mro__:
        for name, each in vars(base).items():
            getter = getattr(each, "fget", each)
            if "return" in getattr(getter, "__annotations__", {}):
                hints[name] = get_type_hints(getter, include_extras=True)["return"]
    return {
        name: note
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
        for note in get_args(hint)[1:]
        if isinstance(note, ListColumn)
    }


def headings(kind: Any) -> dict[str, str]:
    """What the dashboard calls the columns of a document."""
    found = columns_of(kind).items()
    return {name: column.page or column.heading.capitalize() for name, column in found}
