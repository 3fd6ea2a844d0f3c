"""
What lists show of documents: a column is a field or property whose annotation has a `ListColumn`.

The terminal (`cli.terminal.list_view`) and the tables of the dashboard read the headings here. A
list chooses the columns, their order, and which of them a narrow terminal loses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
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
