"""
Draws the picture of a graph as characters.

Each cell of a grid has the directions of its lines, so lines that meet become corners and
junctions. Where two unrelated lines cross, only the vertical one is drawn: `─│─` does not look like
a junction.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pgflowd.core.graph_geometry import Box, LayoutCell, LayoutChannel, Net, layout_of

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
_CORNERS = {
    UP | DOWN: "│", LEFT | RIGHT: "─", DOWN | RIGHT: "┌", DOWN | LEFT: "┐", UP | RIGHT: "└",
    UP | LEFT: "┘", UP | DOWN | RIGHT: "├", UP | DOWN | LEFT: "┤", DOWN | LEFT | RIGHT: "┬",
    UP | LEFT | RIGHT: "┴", UP | DOWN | LEFT | RIGHT: "┼", UP: "│", DOWN: "│", LEFT: "─",
    RIGHT: "─",
}  # fmt: skip


def picture(boxes: Sequence[Box]) -> str:
    """Draw boxes, given in topological order, with the arrows between them."""
    layout = layout_of(boxes)
    channels = layout.channels
    canvas = _Canvas()
    left = 0
    for index, column in enumerate(layout.columns):
        width = max((_width(cell) for cell in column), default=0)
        for cell in column:
            canvas.cell(cell, left, width)
        left += width
        if index < len(channels):
            canvas.channel(channels[index], left)
            left += _room(channels[index])
    return canvas.text(_notes(layout.columns), left)


def _width(cell: LayoutCell) -> int:
    return max(len(line) for line in cell.box.lines) + 4 if cell.box else 0


def _room(channel: LayoutChannel) -> int:
    """Columns: one before each track, and at the end a line and the head of the arrow."""
    return 2 * max(channel.tracks, 1) + 2


def _notes(columns: list[list[LayoutCell]]) -> dict[int, str]:
    notes: dict[int, str] = {}
    for cell in itertools.chain.from_iterable(columns):
        if cell.box and cell.box.note:
            row = cell.leaves_at
            notes[row] = "   ".join(filter(None, (notes.get(row), cell.box.note)))
    return notes


class _Canvas:
    """A grid that grows while it is drawn."""

    def __init__(self) -> None:
        self.signs: dict[tuple[int, int], str] = {}  # (row, column)
        self.lines: dict[tuple[int, int], int] = {}

    def cell(self, cell: LayoutCell, left: int, width: int) -> None:
        if cell.box is None:
            self._horizontal(cell.leaves_at, left, left + width - 1)
            return
        inner = width - 2
        blank = ("",) * (cell.height - 2 - len(cell.box.lines))
        rows = ["┌" + "─" * inner + "┐"]
        rows += [f"│ {line.ljust(inner - 1)}│" for line in (*cell.box.lines, *blank)]
        rows += ["└" + "─" * inner + "┘"]
        for row, text in enumerate(rows, cell.top):
            for column, sign in enumerate(text, left):
                self.signs[row, column] = sign

    def channel(self, channel: LayoutChannel, left: int) -> None:
        right = left + _room(channel) - 1
        for net in channel.nets:
            if net.source.box:
                self.signs[net.source.leaves_at, left - 1] = "├"
            self._ends(net, left, right)
        for net in channel.nets:  # the verticals last: they pass over
            if net.track is not None:
                self._vertical(net, left + 1 + 2 * net.track)

    def text(self, notes: dict[int, str], right: int) -> str:
        height = 1 + max((row for row, _ in (*self.signs, *self.lines)), default=-1)
        rows = []
        for row in range(height):
            line = "".join(self._sign(row, column) for column in range(right)).rstrip()
            rows.append(f"{line.ljust(right)}  {notes[row]}" if row in notes else line)
        return "\n".join(rows)

    def _sign(self, row: int, column: int) -> str:
        sign = self.signs.get((row, column))
        return sign or _CORNERS.get(self.lines.get((row, column), 0), " ")

    def _ends(self, net: Net, left: int, right: int) -> None:
        """The horizontal lines: from the source to the track, and on to each target."""
        track = left + 1 + 2 * net.track if net.track is not None else right
        self._horizontal(net.source.leaves_at, left, track, ends=LEFT)
        start = track if net.track is not None else left
        for target, row in zip(net.targets, net.entry_rows, strict=True):
            self._horizontal(row, start, right, ends=RIGHT)
            if target.box:
                self.signs[row, right] = "▶"

    def _horizontal(self, row: int, start: int, end: int, ends: int = 0) -> None:
        for column in range(start, end + 1):
            sides = (LEFT if column > start else 0) | (RIGHT if column < end else 0)
            sides |= ends & LEFT if column == start else 0
            sides |= ends & RIGHT if column == end else 0
            self._add(row, column, sides or LEFT | RIGHT)

    def _vertical(self, net: Net, column: int) -> None:
        top, bottom = min(net.rows), max(net.rows)
        for row in range(top, bottom + 1):
            if row in net.rows:
                self._add(row, column, (UP if row > top else 0) | (DOWN if row < bottom else 0))
            else:
                self.lines[row, column] = UP | DOWN

    def _add(self, row: int, column: int, sides: int) -> None:
        self.lines[row, column] = self.lines.get((row, column), 0) | sides
