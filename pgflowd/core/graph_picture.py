"""
Computes the places of the boxes and lines of a picture, and draws it as characters.

Columns: a box is one column after its farthest dep; an edge that spans more than one column
passes those between in a lane. Rows: each column is stacked from the top, ordered by the
rows of the deps of its cells. Channels: between two columns, each source has a net of lines to all
its targets; a net that is not straight has a track, a vertical line of its own.

The picture must not show an edge that does not exist. So lines meet only where they lead to one
target: on an entry row of a box, all nets except one have no other target, and that one comes in
furthest left. Nets that cannot share get entry rows of their own, and boxes grow to have them.

Each cell of a grid has the directions of its lines, so lines that meet become corners and
junctions. Where two unrelated lines cross, only the vertical one is drawn: `─│─` does not look like
a junction.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
_CORNERS = {
    UP | DOWN: "│", LEFT | RIGHT: "─", DOWN | RIGHT: "┌", DOWN | LEFT: "┐", UP | RIGHT: "└",
    UP | LEFT: "┘", UP | DOWN | RIGHT: "├", UP | DOWN | LEFT: "┤", DOWN | LEFT | RIGHT: "┬",
    UP | LEFT | RIGHT: "┴", UP | DOWN | LEFT | RIGHT: "┼", UP: "│", DOWN: "│", LEFT: "─",
    RIGHT: "─",
}  # fmt: skip


@dataclass(frozen=True)
class Box:
    """A step in the picture, with one or two lines of text."""

    slug: str
    deps: tuple[str, ...]
    lines: tuple[str, ...]
    note: str = ""


@dataclass(eq=False)
class LayoutCell:
    """A place in a column: a box, or a lane that an edge passes through."""

    name: str
    sources: list[LayoutCell]  # in the column before
    box: Box | None = None
    top: int = 0
    height: int = 0
    leaves_at: int = 0  # the row on which lines go out
    entries: dict[int, int] = field(default_factory=dict)  # id of a source: row it comes in on


@dataclass(eq=False)
class Net:
    """All lines from one source to its targets in the next column."""

    source: LayoutCell
    targets: list[LayoutCell]
    track: int | None = None  # None: straight ahead only

    @property
    def entry_rows(self) -> list[int]:
        return [target.entries[id(self.source)] for target in self.targets]

    @property
    def rows(self) -> list[int]:
        return [self.source.leaves_at, *self.entry_rows]

    @property
    def has_many(self) -> bool:
        return len(self.targets) > 1


@dataclass
class LayoutChannel:
    """The room between two columns."""

    nets: list[Net]
    tracks: int


def picture(boxes: Sequence[Box]) -> str:
    """Draw boxes, given in topological order, with the arrows between them."""
    columns, channels = _layout_of(boxes)
    canvas = _Canvas()
    left = 0
    for index, column in enumerate(columns):
        width = max((_width(cell) for cell in column), default=0)
        for cell in column:
            canvas.cell(cell, left, width)
        left += width
        if index < len(channels):
            canvas.channel(channels[index], left)
            left += _room(channels[index])
    return canvas.text(_notes(columns), left)


def columns_of(deps: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The column of each name; `deps` is in topological order."""
    columns: dict[str, int] = {}
    for name, ups in deps.items():
        columns[name] = 1 + max((columns[up] for up in ups if up in columns), default=-1)
    return columns


def _layout_of(boxes: Sequence[Box]) -> tuple[list[list[LayoutCell]], list[LayoutChannel]]:
    """Place all boxes in columns; the first channel leads from the first column to the second."""
    columns = _cells(boxes)
    channels = []
    for left, column in zip([[], *columns], columns, strict=False):
        nets = _nets(left, column)
        _stack(column, left, nets)
        channels.append(_channel(nets))
    return columns, channels[1:]


def _cells(boxes: Sequence[Box]) -> list[list[LayoutCell]]:
    at = columns_of({box.slug: box.deps for box in boxes})
    columns: list[list[LayoutCell]] = [[] for _ in range(max(at.values(), default=-1) + 1)]
    cells: dict[tuple[str, int], LayoutCell] = {}  # of a slug: its box, then its lanes
    for box in boxes:
        column = at[box.slug]
        sources = [_reach(dep, column - 1, at, cells, columns) for dep in box.deps if dep in at]
        cell = LayoutCell(box.slug, sources, box)
        cells[box.slug, column] = cell
        columns[column].append(cell)
    return columns


def _reach(
    slug: str,
    column: int,
    at: Mapping[str, int],
    cells: dict[tuple[str, int], LayoutCell],
    columns: list[list[LayoutCell]],
) -> LayoutCell:
    """The cell from which an edge of `slug` leaves this column; adds the lanes on its way."""
    for here in range(at[slug] + 1, column + 1):
        if (slug, here) not in cells:
            cells[slug, here] = LayoutCell(slug, [cells[slug, here - 1]])
            columns[here].append(cells[slug, here])
    return cells[slug, column]


def _nets(left: list[LayoutCell], right: list[LayoutCell]) -> list[Net]:
    nets = []
    for source in left:
        targets = [cell for cell in right if any(one is source for one in cell.sources)]
        if targets:
            nets.append(Net(source, targets))
    return nets


def _stack(column: list[LayoutCell], left: list[LayoutCell], nets: list[Net]) -> None:
    """Order the cells by the middle of their sources, then stack them from the top."""
    rows_before = {id(cell): row for row, cell in enumerate(left)}
    leaving = {net.source.leaves_at: net for net in nets}

    def middle(cell: LayoutCell) -> float:
        rows = [rows_before[id(source)] for source in cell.sources]
        return sum(rows) / len(rows) if rows else len(left)

    column.sort(key=middle)
    top = 0
    for cell in column:
        cell.top = top
        cell.entries = _entries(cell, [net for net in nets if cell in net.targets], leaving)
        last_row = max(cell.entries.values(), default=top + 1)
        cell.leaves_at = top + 1 if cell.box else last_row
        lines = len(cell.box.lines) if cell.box else 0
        cell.height = max(lines, last_row - top) + (2 if cell.box else 1)
        top += cell.height


def _entries(cell: LayoutCell, nets: list[Net], leaving: Mapping[int, Net]) -> dict[int, int]:
    """The row on which each net comes in; rows on which other nets leave are skipped."""
    free = (
        row
        for row in itertools.count(cell.top + 1)
        if row not in leaving or any(leaving[row] is net for net in nets)
    )
    shared = next(free, cell.top + 1)
    entries = {id(net.source): shared for net in nets if not net.has_many}
    waiting = [net for net in nets if net.has_many]
    owner = leaving.get(shared)  # comes straight in from the left, so no net is left of it
    first = next((net for net in waiting if owner is None or net is owner), None)
    if first is not None:
        entries[id(first.source)] = shared
        waiting.remove(first)
    for net in waiting:
        rows = (row for row in free if row not in leaving or leaving[row] is net)
        entries[id(net.source)] = next(rows)
    return entries


def _channel(nets: list[Net]) -> LayoutChannel:
    """Give tracks to the nets that need one, from left to right.

    A net may take the next track when no net with many targets, which must be left of it on a
    row they share, still waits for one. Those wait for no other, so there is always an order.
    """
    waiting = [net for net in nets if len(set(net.rows)) > 1]
    tracks = 0
    while waiting:
        net = next(net for net in waiting if not any(_precedes(o, net) for o in waiting))
        net.track, tracks = tracks, tracks + 1
        waiting.remove(net)
    return LayoutChannel(nets, tracks)


def _precedes(one: Net, other: Net) -> bool:
    return one is not other and one.has_many and bool(set(one.entry_rows) & set(other.entry_rows))


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
