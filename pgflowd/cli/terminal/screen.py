"""
Colours, signs, paragraphs and tables, for terminals that are wide, narrow, plain or absent.

A `Screen` knows whether to colour (`--color`, `NO_COLOR`, a terminal at the other end), whether the
locale shows more than ASCII, and how wide the terminal is. Cells of a table go through `one_line`,
so text from elsewhere never tears a row.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple

import click

from pgflowd.core.redact import one_line, safe_lines
from pgflowd.core.statuses import Mark

NEXT = Mark("→", "->")
DASH = Mark("\N{EN DASH}", "-")  # no value
CUT = Mark("…", "...")  # more was cut off
BAR = (Mark("█", "#"), Mark("░", "."))  # what is done of something, and what is left

_MIN_CUT_WIDTH = 16  # columns; a text that is cut to fewer is of no use


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

    @property
    def is_narrow(self) -> bool:
        """Whether there is no room for columns beside each other."""
        return self.width is not None and self.width < 60

    def paint(self, text: str, colour: str | None, bold: bool = False) -> str:
        if not self.colour or not (colour or bold):
            return text
        return click.style(text, fg=colour, bold=bold or None)

    def sign(self, mark: Mark) -> str:
        return mark.sign if self.unicode else mark.ascii

    def marked(self, mark: Mark, text: str = "") -> str:
        """The sign and the text that belongs to it, in its colour."""
        return self.paint(f"{self.sign(mark)}{text}", mark.colour)

    def cell(self, mark: Mark, text: str = "") -> TableCell:
        """The same for a table."""
        return TableCell(f"{self.sign(mark)}{text}", mark.colour)

    @property
    def branches(self) -> tuple[str, str, str]:
        """The lines of a tree: to one of several, to the last one, past others."""
        return ("├─", "└─", "│") if self.unicode else ("|-", "`-", "|")

    def shown(self, text: str) -> str:
        """The text with the sign for a cut as this screen has it."""
        return text if self.unicode else text.replace(CUT.sign, CUT.ascii)

    def cut(self, text: str, width: int) -> str:
        """The text, cut with a sign to a number of columns."""
        if text_width(text) <= width:
            return text
        sign = self.sign(CUT)
        return _beginning(text, width - len(sign)) + sign

    def fits(self, text: str) -> bool:
        """Whether the text, which may be painted, fits on one line."""
        return self.width is None or columns(text) <= self.width

    def wrapped(
        self,
        text: str,
        *,
        head: str = "",
        indent: int = 0,
        width: int | None = None,
        whole: bool = False,
    ) -> list[str]:
        """
        The text behind its head on one line; where the terminal (or `width`) is too narrow, on
        several lines, which are indented. A head that is wider than the indent then stands alone on
        its line. With `whole` no word is broken.
        """
        width = width or self.width
        taken = columns(head)
        if width is None or taken + columns(text) <= width:
            return [f"{head}{text}".rstrip()]
        pad = " " * indent
        first, *rest = _wrapped(click.unstyle(text), max(width - indent, 20), whole)
        begin = [f"{head}{pad[taken:]}{first}"] if taken <= indent else [head.rstrip(), pad + first]
        return [*begin, *(pad + line for line in rest)]

    def folded(self, text: str) -> str:
        """The text on as many lines as it needs here, each as far in as the first one."""
        indent = len(text) - len(text.lstrip())
        return "\n".join(self.wrapped(text.lstrip(), head=" " * indent, indent=indent))

    def commands(self, label: str, listed: Sequence[tuple[str, str]]) -> list[str]:
        """Commands to type next, and why; each stays whole, so that it can be copied."""
        width = max(len(command) for command, _ in listed) + 3
        heads = [label, *[" " * len(label)] * (len(listed) - 1)]
        lines = [
            f"  {head}   {command:{width}}{why}".rstrip()
            for head, (command, why) in zip(heads, listed, strict=True)
        ]
        if self.width is None or max(map(text_width, lines)) <= self.width:
            return lines
        parts = [part for command, why in listed for part in (f"# {why}" if why else "", command)]
        return [f"  {label}", *(f"    {part}" for part in parts if part)]

    def table(
        self,
        titles: Sequence[str],
        rows: Iterable[Sequence[str | TableCell]],
        *,
        right: Collection[str] = (),
        losing: Iterable[str] = (),
        cutting: bool = False,
    ) -> str:
        """
        Lay out rows under titles. Columns in `right` are aligned to the right. Where the terminal
        is narrow, the columns in `losing` go, in this order; `cutting` shortens the last column
        as soon as what is left of it is of use.
        """
        cells = [[TableCell(title) for title in titles]]
        for row in rows:
            line = [each if isinstance(each, TableCell) else TableCell(each) for each in row]
            cells.append([TableCell(one_line(text), colour) for text, colour in line])
        columns = zip(*cells, strict=True)
        widths = [max(text_width(cell.text) for cell in column) for column in columns]
        keep, last = list(range(len(titles))), len(titles) - 1
        for title in (None, *losing):
            keep = [index for index in keep if titles[index] != title]
            excess = sum(widths[index] + 2 for index in keep) - 2 - (self.width or 0)
            if self.width is None or excess <= 0:
                break
            if cutting and keep[-1] == last and (room := widths[last] - excess) >= _MIN_CUT_WIDTH:
                for row in cells[1:]:
                    row[last] = row[last]._replace(text=self.cut(row[last].text, room))
                break
        lines = []
        for row in cells:
            parts = []
            for index in keep:
                text, colour = row[index]
                gap, painted = " " * (widths[index] - text_width(text)), self.paint(text, colour)
                parts.append(gap + painted if titles[index] in right else painted + gap)
            lines.append("  ".join(parts).rstrip())
        return "\n".join([self.paint(lines[0], None, bold=True), *lines[1:]])


def screen_for(stream: IO[str], color: str) -> Screen:
    """Return what a stream can show. `color` is auto, always or never."""
    terminal = stream.isatty()
    is_smart = terminal and os.environ.get("TERM") != "dumb"
    colour = color == "always" or (color == "auto" and is_smart and not os.environ.get("NO_COLOR"))
    width = shutil.get_terminal_size((80, 24)).columns if terminal else None
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "UTF-8")
    shows_unicode = encoding == "utf8" and locale not in {"C", "POSIX"}
    return Screen(colour, shows_unicode, width, is_smart)


def emit(text: str, stream: IO[str], *, is_painted: bool = False, cursor: str = "") -> None:
    """Write lines, and flush them: all that commands print. `cursor` moves the terminal before."""
    stream.write(f"{cursor}{safe_lines(text, is_painted=is_painted)}\n")
    stream.flush()


def text_width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def columns(text: str) -> int:
    """The width of a text that may be painted."""
    return text_width(click.unstyle(text))


def tolerate_any_stream() -> None:
    """
    Escape characters that the locale cannot encode, and replace closed streams by /dev/null.

    The descriptors 0 to 2 are taken first. Otherwise a file that we open could get the number of a
    closed stream, and a child would use it as its input. The stream does not own its descriptor:
    in a forked child, where it is dropped, its number may be another file's.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            opened = open(number, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, opened)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _beginning(text: str, width: int) -> str:
    """The beginning of the text that fits into a number of columns, at least one character."""
    taken = 0
    for index, char in enumerate(text):
        taken += _char_width(char)
        if taken > width and index:
            return text[:index]
    return text


def _wrapped(text: str, width: int, whole: bool) -> list[str]:
    """The text in lines of at most `width` columns; unless `whole`, longer words are broken."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if text_width(longer) <= width:
            lines[-1] = longer
            continue
        rest = word
        while rest:
            piece = rest if whole else _beginning(rest, width)
            lines.append(piece)
            rest = rest[len(piece) :]
    return [line.rstrip() for line in lines if line] or [""]
