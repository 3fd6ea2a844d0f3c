"""
Texts of handlers on a terminal: errors, where a handler failed, and texts behind a label.

Secrets are hidden and control characters escaped. Each line of a text of several lines stays a line
of its own, behind an indent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgflowd.core.failure import UserCall
from pgflowd.core.redact import one_line

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


def folded_lines(app: App, text: str, width: int | None = None) -> list[str]:
    """The same, each folded to a width, by default the screen's, as far in as it begins."""
    lines: list[str] = []
    shown: list[str] = []  # of the last line
    for line in safe_lines(app, text):
        inner = len(line) - len(line.lstrip())
        if _MARKS.fullmatch(line) and len(shown) > 1:
            continue  # they would not stand below what they mark
        shown = app.out.wrapped(line[inner:], head=line[:inner], indent=inner, width=width)
        lines += shown
    return lines


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
    room = app.out.width and max(app.out.width - indent, 20)
    return [f"{pad}{line}" for each in below for line in folded_lines(app, each, room)]


def traceback_lines(app: App, traceback: str | None, indent: int) -> list[str]:
    """The whole traceback, if it has any calls."""
    if not _CALL.search(traceback or ""):
        return []
    room = app.out.width and max(app.out.width - indent, 20)
    return [f"{' ' * indent}{line}" for line in folded_lines(app, traceback or "", room)]


def print_labelled(app: App, label: str, text: str) -> None:
    first, *others = error_lines(app, text)
    print_wrapped(app, f" {label}", first)
    for line in others:
        print_wrapped(app, " ", line.lstrip())


def print_wrapped(app: App, head: str, text: str) -> None:
    """A text behind its head, or below it where there is no room."""
    for line in app.out.wrapped(app.out.shown(text), head=f"{head}  ", indent=3):
        app.print(line)
