"""
Screen: colours, signs and tables, for terminals that are wide, narrow, plain or absent.

Knows whether to colour (`--color`, `NO_COLOR`, a terminal at the other end), whether the
locale can show more than ASCII, and how wide the terminal is. Text from strangers goes
through `one_line` here, so a table never has a torn row.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import click

from pgflowd.core.redact import one_line

SIGNS = {  # what it means: with UTF-8, without
    "done": ("✔", "+"),
    "failed": ("✖", "x"),
    "running": ("▶", ">"),
    "created": ("·", "."),
    "skipped": ("↷", "~"),
    "up": ("●", "*"),
    "changing": ("◐", "o"),
    "off": ("○", "-"),
    "look": ("⚠", "!"),
    "next": ("→", "->"),
    "dash": ("\N{EN DASH}", "-"),
    "cut": ("…", "..."),
}


_LEAST = 16  # columns of a text that is cut


class TableCell(NamedTuple):
    """A text of a table with a colour of its own."""

    text: str
    colour: str | None = None


@dataclass(frozen=True)
class Screen:
    """One stream of output and what it can show."""

    colour: bool
    unicode: bool
    width: int | None  # None: not a terminal, so lines are as long as they are
    redraws: bool = False  # a terminal whose cursor can be moved

    def paint(self, text: str, colour: str | None, bold: bool = False) -> str:
        if not self.colour or not (colour or bold):
            return text
        return click.style(text, fg=colour, bold=bold or None)

    def sign(self, name: str) -> str:
        return SIGNS[name][0 if self.unicode else 1]

    def folded(self, text: str) -> str:
        """The text on as many lines as it needs here, each as far in as the first one."""
        if self.width is None or text_width(text) <= self.width:
            return text
        indent = " " * (len(text) - len(text.lstrip()))
        return "\n".join(
            textwrap.wrap(
                text,
                max(self.width, len(indent) + 20),
                subsequent_indent=indent,
                break_on_hyphens=False,
            )
        )

    def commands(self, label: str, listed: Sequence[tuple[str, str]]) -> list[str]:
        """Commands one may type next, and why; each stays whole, so that it can be copied."""
        width = max(len(command) for command, _ in listed) + 3
        heads = [label, *[" " * len(label)] * (len(listed) - 1)]
        lines = [
            f"  {head}   {command:{width}}{why}".rstrip()
            for head, (command, why) in zip(heads, listed, strict=True)
        ]
        if self.width is None or max(map(text_width, lines)) <= self.width:
            return lines
        told = [line for command, why in listed for line in (f"# {why}" if why else "", command)]
        return [f"  {label}", *(f"    {line}" for line in told if line)]

    def table(
        self,
        titles: Sequence[str],
        rows: Iterable[Sequence[str | TableCell]],
        *,
        right: Collection[str] = (),
        losing: Iterable[str] = (),
        cutting: bool = False,
    ) -> str:
        """Lay out rows under titles. Columns in `right` are numbers. When the terminal is narrow,
        `cutting` shortens the last column as far as it is still of use; then those in `losing`
        go, in this order."""
        cells = [[_cell(value) for value in row] for row in rows]
        if cutting and self.width is not None:
            room = self.width - _width_of(_widths(titles, cells, range(len(titles) - 1))) - 2
            if room >= _LEAST:
                cut = self.sign("cut")
                cells = [[*row[:-1], _shortened(row[-1], room, cut)] for row in cells]
        keep = list(range(len(titles)))
        for title in losing:
            if self.width is None or _width_of(_widths(titles, cells, keep)) <= self.width:
                break
            keep = [index for index in keep if titles[index] != title]
        widths = _widths(titles, cells, keep)
        head = [TableCell(title) for title in titles]
        lines = [self.paint(self._row(head, keep, widths, titles, right), None, bold=True)]
        lines += [self._row(row, keep, widths, titles, right) for row in cells]
        return "\n".join(lines)

    def _row(
        self,
        row: Sequence[TableCell],
        keep: Sequence[int],
        widths: Sequence[int],
        titles: Sequence[str],
        right: Collection[str],
    ) -> str:
        parts = []
        for index, width in zip(keep, widths, strict=True):
            text, colour = row[index]
            gap = " " * (width - text_width(text))
            painted = self.paint(text, colour)
            parts.append(gap + painted if titles[index] in right else painted + gap)
        return "  ".join(parts).rstrip()


def screen_for(stream: IO[str], color: str) -> Screen:
    """Look at a stream: `color` is auto, always or never."""
    terminal = stream.isatty()
    obeys = terminal and os.environ.get("TERM") != "dumb"
    colour = color == "always" or (color == "auto" and obeys and not os.environ.get("NO_COLOR"))
    width = shutil.get_terminal_size((80, 24)).columns if terminal else None
    return Screen(colour, _shows_unicode(stream), width, obeys)


def emit(text: str, stream: IO[str]) -> None:
    """Write a line as it is, and let the reader have it now."""
    stream.write(f"{text}\n")
    stream.flush()


def text_width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def tolerate_any_stream() -> None:
    """Print what the locale cannot encode as escapes, and to a closed stream nothing at all.

    Whatever we open shall not get the number of a closed one, and become somebody's input.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(number)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _shows_unicode(stream: IO[str]) -> bool:
    if (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "") != "utf8":
        return False
    chosen = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "UTF-8")
    return chosen not in {"C", "POSIX"}


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _shortened(cell: TableCell, width: int, sign: str) -> TableCell:
    """The cell, or its beginning and a sign that there was more."""
    if text_width(cell.text) <= width:
        return cell
    text = cell.text[: width - len(sign)]
    while text_width(text) > width - len(sign):
        text = text[:-1]
    return TableCell(text + sign, cell.colour)


def _cell(value: str | TableCell) -> TableCell:
    cell = value if isinstance(value, TableCell) else TableCell(value)
    return TableCell(one_line(cell.text), cell.colour)


def _widths(titles: Sequence[str], rows: list[list[TableCell]], keep: Sequence[int]) -> list[int]:
    return [
        max([text_width(titles[index]), *(text_width(row[index].text) for row in rows)])
        for index in keep
    ]


def _width_of(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)
