"""
Computes the places of the boxes and lines of a picture.

Columns: a box is one column after its farthest dep; an edge that spans more than one column
passes those between in a lane. Rows: each column is stacked from the top, ordered by the
rows of the deps of its cells. Channels: between two columns, each source has a net of lines to all
its targets; a net that is not straight has a track, a vertical line of its own.

The picture must not show an edge that does not exist. So lines meet only where they lead to one
target: on an entry row of a box, all nets except one have no other target, and that one comes in
furthest left. Nets that cannot share get entry rows of their own, and boxes grow to have them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


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


@dataclass
class Layout:
    columns: list[list[LayoutCell]]
    channels: list[LayoutChannel]  # channels[i] leads from column i to i + 1


def columns_of(deps: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The column of each name; `deps` is in topological order."""
    columns: dict[str, int] = {}
    for name, ups in deps.items():
        columns[name] = 1 + max((columns[up] for up in ups if up in columns), default=-1)
    return columns


def layout_of(boxes: Sequence[Box]) -> Layout:
    """Place all boxes, which come in topological order."""
    columns = _cells(boxes)
    channels = []
    for left, column in zip([[], *columns], columns, strict=False):
        nets = _nets(left, column)
        _stack(column, left, nets)
        channels.append(_channel(nets))
    return Layout(columns, channels[1:])


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
