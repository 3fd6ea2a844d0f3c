"""
A flow, or a run of it, as a picture for terminals, in the language of mermaid, and as JSON.

A graph is made of a shape (`graph_of`) or of a run with its states. All forms use one layout: a
step is in the column after its farthest dep. Where the picture is too wide for the terminal,
`draw` lists the steps instead, one per line with its deps. Durations come from the caller, as text.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, NamedTuple

from pgflowd.core.documents import Named, Presence
from pgflowd.core.statuses import RunStatus, Status, StepStatus


# Computes the places of the boxes and lines of a picture of a graph. Pure, and without any unit:
# the terminal draws characters from it, the dashboard SVG.
#
# Columns: a box is one column after its farthest dep; an edge that spans more than one column
# passes those between in a lane. Rows: each column is stacked from the top, ordered by the rows of
# the deps of its cells. Channels: between two columns, each source has a net of lines to all its
# targets; a net that is not straight has a track, a vertical line of its own.
#
# The picture must not show an edge that does not exist. So lines meet only where they lead to one
# target: on an entry row of a box, all nets except one have no other target, and that one comes in
# furthest left. Nets that cannot share get entry rows of their own, and boxes grow to have them.
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


# Draws the picture of a graph as characters.
#
# Each cell of a grid has the directions of its lines, so lines that meet become corners and
# junctions. Where two unrelated lines cross, only the vertical one is drawn: `─│─` does not look
# like a junction.
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


MERMAID_WORDS = {
    "call", "class", "classdef", "click", "default", "direction", "end", "flowchart", "graph",
    "href", "linkstyle", "style", "subgraph",
}  # fmt: skip
_ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│▶…", "+++++++++-|>.") | str.maketrans(
    {status.mark.sign: status.mark.ascii for status in (*StepStatus, *RunStatus)}
)  # each of one character, so the picture keeps its shape


@dataclass(frozen=True)
class Node:
    """A step; of a run with its status, a detail behind it, and a note next to the picture."""

    slug: str
    deps: tuple[str, ...] = ()
    is_map: bool = False
    status: Status | None = None
    detail: str = ""
    note: str = ""


@dataclass(frozen=True)
class Graph:
    nodes: tuple[Node, ...]  # in topological order

    @property
    def edges(self) -> list[tuple[str, str]]:
        return [(dep, node.slug) for node in self.nodes for dep in node.deps]

    def around(self, slug: str, most: int) -> Graph:
        """A step, its deps and the steps that depend on it, at most so many, and their edges."""
        by_slug = {node.slug: node for node in self.nodes}
        ups = list(by_slug[slug].deps)
        downs = [node.slug for node in self.nodes if slug in node.deps]
        room = most - 1
        ups = ups[: max(room - len(downs), room // 2)]
        kept = {slug, *ups, *downs[: room - len(ups)]}
        return Graph(
            tuple(
                replace(node, deps=tuple(dep for dep in node.deps if dep in kept))
                for node in self.nodes
                if node.slug in kept
            )
        )


class PlacedNode(NamedTuple):
    """A step at its place in the picture."""

    slug: Annotated[str, "the slug of the step"]
    kind: Literal["single", "map"]
    column: Annotated[int, "its place, from left to right"]
    row: Annotated[int, "its place, from top to bottom"]
    status: Annotated[StepStatus | None, Presence.OPTIONAL, "with `--run`: how it does there"]


class GraphEdge(NamedTuple):
    start: Annotated[str, Named("from"), "the step that comes first"]
    end: Annotated[str, Named("to"), "the step that depends on it"]


class FlowGraph(NamedTuple):
    """A graph for programs."""

    nodes: Annotated[list[PlacedNode], "its steps"]
    edges: Annotated[list[GraphEdge], "its deps"]


def placed(graph: Graph) -> FlowGraph:
    """Nodes with their column and row, and edges."""
    columns = columns_of({node.slug: node.deps for node in graph.nodes})
    rows: Counter[int] = Counter()
    nodes = []
    for node in graph.nodes:
        column, status = columns[node.slug], node.status
        kind: Literal["single", "map"] = "map" if node.is_map else "single"
        shown = None if status is None else StepStatus(status)
        nodes.append(PlacedNode(node.slug, kind, column, rows[column], shown))
        rows[column] += 1
    return FlowGraph(nodes, [GraphEdge(*edge) for edge in graph.edges])


def graph_of(shape: Mapping[str, Any]) -> Graph:
    """The graph of a flow."""
    return Graph(
        tuple(
            Node(
                slug=step["slug"],
                deps=tuple(step.get("dependencies") or ()),
                is_map=step.get("stepType") == "map",
            )
            for step in shape["steps"]
        )
    )


def draw(graph: Graph, *, width: int | None = None, utf8: bool = True) -> str:
    """Boxes and arrows; a list where `width` columns are too few."""
    boxes = [Box(node.slug, node.deps, _lines(node), node.note) for node in graph.nodes]
    text = picture(boxes)
    if width is not None and any(len(line) > width for line in text.splitlines()):
        text = _list(graph, width)
    return text if utf8 else text.translate(_ASCII).encode("ascii", "replace").decode()


def mermaid(graph: Graph) -> str:
    """The graph in the language of mermaid."""
    lines = ["flowchart LR"]
    for node in graph.nodes:
        label = "<br/>".join(_lines(node)).replace('"', "#quot;")
        left, right = ("[[", "]]") if node.is_map else ("[", "]")
        lines.append(f'    {_id(node.slug)}{left}"{label}"{right}')
    lines += [f"    {_id(dep)} --> {_id(slug)}" for dep, slug in graph.edges]
    return "\n".join(lines)


def _lines(node: Node) -> tuple[str, ...]:
    state = _state(node)
    return (node.slug + _mark(node), state) if state else (node.slug + _mark(node),)


def _mark(node: Node) -> str:
    return " []" if node.is_map else ""


def _state(node: Node) -> str:
    if node.status is None:
        return node.detail
    return f"{node.status.mark.sign} {node.detail or node.status}"


def _list(graph: Graph, width: int) -> str:
    longest = max((len(node.slug + _mark(node)) for node in graph.nodes), default=0)
    lines = []
    for node in graph.nodes:
        after = f"after {', '.join(node.deps)}" if node.deps else ""
        parts = [(node.slug + _mark(node)).ljust(longest), _state(node), node.note, after]
        line = "  ".join(part for part in parts if part).rstrip()
        lines.append(line if len(line) <= width else line[: width - 1] + "…")
    return "\n".join(lines)


def _id(slug: str) -> str:
    """The slug; a word of mermaid's language gets an underscore."""
    return f"{slug}_" if slug.lower() in MERMAID_WORDS else slug
