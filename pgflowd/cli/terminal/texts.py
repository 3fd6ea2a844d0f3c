"""
Texts of handlers on a terminal: errors, where a handler failed, and texts behind a label; and
documents as the rows of a table.

Secrets are hidden and control characters escaped. Each line of a text of several lines stays a line
of its own, behind an indent. `core.documents` has what the columns of documents are called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pgflowd.cli.terminal.screen import DASH, Screen, TableCell
from pgflowd.core.documents import ListColumn, columns_of
from pgflowd.core.failure import UserCall
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Status
from pgflowd.core.text import ago, cut, duration, short_id, task_name

if TYPE_CHECKING:
    from pgflowd.cli.app import App

MOST_LINES = 20  # of an error; a page of HTML has more
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # colours, mostly
_MARKS = re.compile(r"[ ~^|]+")  # below a line of code: the part that raised
_CALL = re.compile(r'^[ |]*File "', re.M)


def safe_lines(app: App, text: str) -> list[str]:
    """The lines of a text that may be printed, without those that are empty; at least one."""
    hidden = app.shorten_paths(app.hide(_ANSI.sub("", text)))
    lines = [one_line(line.rstrip().expandtabs()) for line in hidden.split("\n")]
    return [line for line in lines if line] or [""]


def error_lines(app: App, text: str) -> list[str]:
    """The same of an error; of very many, the first ones and the last."""
    lines = safe_lines(app, text)
    if len(lines) <= MOST_LINES:
        return lines
    left_out = app.out.shown(f"… {len(lines) - MOST_LINES + 1} more lines")
    return [*lines[: MOST_LINES - 2], left_out, lines[-1]]


def folded_lines(app: App, text: str, indent: int = 0, width: int | None = None) -> list[str]:
    """The same behind an indent, each folded to a width, by default what is left of the screen's,
    as far in as it begins."""
    width = width or (app.out.width and max(app.out.width - indent, 20))
    lines: list[str] = []
    shown: list[str] = []  # of the last line
    for line in safe_lines(app, text):
        inner = len(line) - len(line.lstrip())
        if _MARKS.fullmatch(line) and len(shown) > 1:
            continue  # they would not stand below what they mark
        shown = app.out.wrapped(line[inner:], head=line[:inner], indent=inner, width=width)
        lines += shown
    return [f"{' ' * indent}{line}" for line in lines]


def call_lines(app: App, calls: Sequence[UserCall], indent: int) -> list[str]:
    """Each call with its code; where one is too long, all have their code below them."""
    shown = [
        (safe_lines(app, each.place)[0], safe_lines(app, each.code or "")[0]) for each in calls
    ]
    pad, width = " " * indent, max((len(place) for place, _ in shown), default=0)
    lines = [f"{pad}{place:{width}}   {code}".rstrip() for place, code in shown]
    if all(map(app.out.fits, lines)):
        return lines
    below = [line for place, code in shown for line in (place, code and f"  {code}") if line]
    return [line for each in below for line in folded_lines(app, each, indent)]


def traceback_lines(app: App, traceback: str | None, indent: int) -> list[str]:
    """The whole traceback, if it has any calls."""
    return folded_lines(app, traceback, indent) if traceback and _CALL.search(traceback) else []


def on_one_line(text: str | None) -> str:
    """A text of several lines as one, for lists."""
    return (text or "").replace("\n", " ")


def print_labelled(app: App, label: str, text: str) -> None:
    first, *others = error_lines(app, text)
    print_wrapped(app, f" {label}", first)
    for line in others:
        print_wrapped(app, " ", line.lstrip())


def print_wrapped(app: App, head: str, text: str) -> None:
    """A text behind its head, or below it where there is no room."""
    app.print_lines(app.out.wrapped(app.out.shown(text), head=f"{head}  ", indent=3))


Shown = Callable[[Any], Any]  # what a list has in a column in place of the value


def list_lines(
    screen: Screen,
    rows: Sequence[Any],
    names: str,
    losing: str = "",
    *,
    kind: Any = None,
    now: datetime | None = None,
    hide: Callable[[str], str] = str,
    whole_ids: bool = False,
    whole_texts: bool = False,
    cutting: bool = True,
    **shown: Shown,
) -> list[str]:
    """
    Documents of one kind, by default their class, as a table of the columns with these names, in
    this order; a narrow terminal loses those in `losing`. What `shown` has for a column stands in
    place of its value.
    """
    kind = kind or type(rows[0])
    columns = {name: columns_of(kind)[name] for name in names.split()}
    values = [{name: _value(row, name, now, shown) for name in columns} for row in rows]
    kept = [
        name
        for name, column in columns.items()
        if not column.is_rare or any(each[name] for each in values)
    ]

    def cell(column: ListColumn, value: Any) -> str | TableCell:
        text = _text(screen, column, value, now, whole_ids)
        if isinstance(text, TableCell):
            return text
        text = hide(one_line(text))
        return screen.shown(text if whole_texts or not column.width else cut(text, column.width))

    table = screen.table(
        [columns[name].heading for name in kept],
        [[cell(columns[name], row[name]) for name in kept] for row in values],
        right=[column.heading for column in columns.values() if column.is_number],
        losing=[columns[name].heading for name in losing.split() if name in columns],
        cutting=cutting,
    )
    return table.splitlines()


def print_list(app: App, rows: Sequence[Any], names: str, losing: str = "", **options: Any) -> None:
    """Print what `list_lines` makes."""
    options = {"hide": app.hide, "whole_ids": app.verbose, **options}
    app.print("\n".join(list_lines(app.out, rows, names, losing, **options)))


def _value(row: Any, name: str, now: datetime | None, shown: Mapping[str, Shown]) -> Any:
    if name in shown:
        return shown[name](row)
    value = row.get(name) if isinstance(row, Mapping) else getattr(row, name)
    return value(now) if callable(value) else value


def _text(
    screen: Screen, column: ListColumn, value: Any, now: datetime | None, whole_ids: bool
) -> str | TableCell:
    """A value as its type is shown."""
    if column.show is not None and value is not None:
        return column.show(value)
    match value:
        case TableCell():
            return value
        case None | "":
            return screen.sign(DASH) if column.absent is None else column.absent
        case Status():
            return screen.cell(value.mark, f" {value.replace('_', ' ')}")
        case tuple():  # the key of a task
            return "{}/{}#{}".format(*value) if whole_ids else task_name(*value)
        case UUID():
            return str(value) if whole_ids else short_id(value)
        case datetime() if now is not None:
            return ago(value, now)
        case float():
            return duration(value)
    return str(value)
