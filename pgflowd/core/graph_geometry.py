"""
Computes the places of the boxes and lines of a picture of a graph. Pure, and without any unit: the
terminal draws characters from it, the dashboard SVG.

Columns: a box is one column after its farthest dep; an edge that spans more than one column
passes those between in a lane. Rows: each column is stacked from the top, ordered by the
rows of the deps of its cells. Channels: between two columns, each source has a net of lines to all
its targets; a net that is not straight has a track, a vertical line of its own.

The picture must not show an edge that does not exist. So lines meet only where they lead to one
target: on an entry row of a box, all nets except one have no other target, and that one comes in
furthest left. Nets that cannot share get entry rows of their own, and boxes grow to have them.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


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


class Bend(NamedTuple):
    """Where an edge goes from one row to another: in a channel, on a track if it has to."""

    channel: int
    track: int | None
    row: int  # on which it goes on


class EdgeLine(NamedTuple):
    """The way of an edge from one box to another."""

    start: str
    end: str
    row: int  # on which it begins
    bends: tuple[Bend, ...]  # one in each channel that it passes


@dataclass
class Layout:
    """A whole picture: its columns, and the channels between them."""

    columns: list[list[LayoutCell]]
    channels: list[LayoutChannel]

    def edges(self) -> Iterator[EdgeLine]:
        """All edges, each as one line."""
        nets = {id(net.source): net for channel in self.channels for net in channel.nets}
        cells = [(index, cell) for index, column in enumerate(self.columns) for cell in column]
        for column, cell in cells:
            for source in cell.sources if cell.box else ():
                bends: list[Bend] = []
                at, target = source, cell
                for channel in range(column - 1, -1, -1):
                    bends.append(Bend(channel, nets[id(at)].track, target.entries[id(at)]))
                    if at.box:
                        break
                    at, target = at.sources[0], at
                yield EdgeLine(at.name, cell.name, at.leaves_at, tuple(reversed(bends)))


def layout_of(boxes: Sequence[Box], *, is_narrow: bool = False) -> Layout:
    """
    Place boxes, which are given in topological order.

    `is_narrow`: nets share a track where nobody can take one for the other.
    """
    columns, channels = _cells(boxes), []
    for left, column in zip([[], *columns], columns, strict=False):
        nets = _nets(left, column)
        _stack(column, left, nets)
        channels.append(_channel(nets, is_narrow))
    return Layout(columns, channels[1:])


def columns_of(deps: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The column of each name; `deps` is in topological order."""
    columns: dict[str, int] = {}
    for name, ups in deps.items():
        columns[name] = 1 + max((columns[up] for up in ups if up in columns), default=-1)
    return columns


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
    targets: defaultdict[int, list[LayoutCell]] = defaultdict(list)
    for cell in right:
        for source in {id(source): source for source in cell.sources}:
            targets[source].append(cell)
    return [Net(source, targets[id(source)]) for source in left if id(source) in targets]


def _stack(column: list[LayoutCell], left: list[LayoutCell], nets: list[Net]) -> None:
    """Order the cells by the middle of their sources, then stack them from the top."""
    rows_before = {id(cell): row for row, cell in enumerate(left)}
    leaving = {net.source.leaves_at: net for net in nets}
    coming: defaultdict[int, list[Net]] = defaultdict(list)
    for net in nets:
        for target in net.targets:
            coming[id(target)].append(net)

    def middle(cell: LayoutCell) -> float:
        rows = [rows_before[id(source)] for source in cell.sources]
        return sum(rows) / len(rows) if rows else len(left)

    column.sort(key=middle)
    top = 0
    for cell in column:
        cell.top = top
        cell.entries = _entries(cell, coming[id(cell)], leaving)
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


def _channel(nets: list[Net], is_narrow: bool) -> LayoutChannel:
    """Give tracks to the nets that need one, from left to right.

    A net may take the next track when no net with many targets, which must be left of it on a
    row they share, still waits for one. Those wait for no other, so there is always an order.
    """
    bent = [net for net in nets if len(set(net.rows)) > 1]
    with_many: defaultdict[int, set[int]] = defaultdict(set)  # by an entry row
    for index, net in enumerate(bent):
        for row in net.entry_rows if net.has_many else ():
            with_many[row].add(index)
    before = [
        set[int]().union(*(with_many[row] for row in net.entry_rows)) - {index}
        for index, net in enumerate(bent)
    ]
    after: defaultdict[int, list[int]] = defaultdict(list)
    for index, others in enumerate(before):
        for other in others:
            after[other].append(index)
    open_before = [len(others) for others in before]
    ready = [index for index, number in enumerate(open_before) if not number]
    tracks = _Tracks(is_narrow)
    while ready:
        index = heapq.heappop(ready)
        first = max((bent[other].track or 0 for other in before[index]), default=-1) + 1
        bent[index].track = tracks.place(bent[index], first)
        for other in after[index]:
            open_before[other] -= 1
            if not open_before[other]:
                heapq.heappush(ready, other)
    return LayoutChannel(nets, len(tracks.rows))


class _Tracks:
    """The tracks of a channel, and the rows that each takes: the first, the last, and for whom."""

    def __init__(self, may_share: bool) -> None:
        self.rows: list[list[tuple[int, int, LayoutCell | None]]] = []
        self._may_share = may_share

    def place(self, net: Net, first: int) -> int:
        """The track of a net, from this one on."""
        top, bottom = min(net.rows), max(net.rows)
        only = None if net.has_many else net.targets[0]  # lines to one target may meet
        for track in range(first if self._may_share else len(self.rows), len(self.rows)):
            if all(
                last < top or bottom < begin or (only is not None and other is only)
                for begin, last, other in self.rows[track]
            ):
                break
        else:
            track = len(self.rows)
            self.rows.append([])
        self.rows[track].append((top, bottom, only))
        return track
