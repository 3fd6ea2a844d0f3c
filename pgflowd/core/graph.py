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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import Annotated, Any, Literal, NamedTuple

from pgflowd.core.documents import Named, Presence
from pgflowd.core.statuses import RunStatus, Status, StepStatus


@dataclass(frozen=True)
class Node:
    """A step; of a run with its status, a detail behind it, and a note next to the picture."""

    slug: str
    deps: tuple[str, ...] = ()
    is_map: bool = False
    status: Status | None = None
    detail: str = ""
    note: str = ""

    @property
    def title(self) -> str:
        return f"{self.slug} []" if self.is_map else self.slug

    @property
    def state(self) -> str:
        """The sign of its status, and what is behind it."""
        if self.status is None:
            return self.detail
        return f"{self.status.mark.sign} {self.detail or self.status}"

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.title, self.state)))


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


def graph_of(shape: Mapping[str, Any]) -> Graph:
    """The graph of a flow."""
    return Graph(
        tuple(
            Node(step["slug"], tuple(step.get("dependencies") or ()), step.get("stepType") == "map")
            for step in shape["steps"]
        )
    )


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
@dataclass(eq=False)
class LayoutCell:
    """A place in a column: the box of a step, or a lane that its edges pass through."""

    name: str
    sources: Sequence[LayoutCell]  # in the column before
    node: Node | None = None  # None: it is a lane
    targets: list[LayoutCell] = field(default_factory=list)  # in the column behind
    track: int | None = None  # of the lines to them; None: straight ahead only
    top: int = 0
    height: int = 0
    leaves_at: int = 0  # the row on which lines go out
    entries: dict[LayoutCell, int] = field(default_factory=dict)  # the row of each source

    def __post_init__(self) -> None:
        for source in self.sources:
            source.targets.append(self)

    @property
    def has_many(self) -> bool:
        return len(self.targets) > 1

    @property
    def entry_rows(self) -> list[int]:
        """The rows on which its lines come in."""
        return [target.entries[self] for target in self.targets]

    @property
    def rows(self) -> list[int]:
        return [self.leaves_at, *self.entry_rows]


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


class Layout(NamedTuple):
    """A whole picture: its columns, and how many tracks each channel between two of them has."""

    columns: list[list[LayoutCell]]
    tracks: list[int]

    def edges(self) -> Iterator[EdgeLine]:
        """All edges, each as one line."""
        cells = [(index, cell) for index, column in enumerate(self.columns) for cell in column]
        for column, cell in cells:
            for source in cell.sources if cell.node else ():
                bends: list[Bend] = []
                at, target = source, cell
                for channel in range(column - 1, -1, -1):
                    bends.append(Bend(channel, at.track, target.entries[at]))
                    if at.node:
                        break
                    at, target = at.sources[0], at
                yield EdgeLine(at.name, cell.name, at.leaves_at, tuple(reversed(bends)))


def layout_of(
    nodes: Sequence[Node], lines_of: Callable[[Node], int], *, is_narrow: bool = False
) -> Layout:
    """
    Place nodes, which are given in topological order; each has so many lines of text.

    `is_narrow`: nets share a track where nobody can take one for the other.
    """
    columns, tracks, left = _cells(nodes), list[int](), list[LayoutCell]()
    for column in columns:
        _stack(column, left, lines_of)
        if left:
            tracks.append(_give_tracks(left, is_narrow))
        left = column
    return Layout(columns, tracks)


def columns_of(nodes: Sequence[Node]) -> dict[str, int]:
    """The column of each node; they are in topological order."""
    columns: dict[str, int] = {}
    for node in nodes:
        columns[node.slug] = 1 + max((columns[up] for up in node.deps if up in columns), default=-1)
    return columns


def _cells(nodes: Sequence[Node]) -> list[list[LayoutCell]]:
    at = columns_of(nodes)
    columns: list[list[LayoutCell]] = [[] for _ in range(max(at.values(), default=-1) + 1)]
    ways: dict[str, list[LayoutCell]] = {}  # of a slug: its box, then its lanes
    for node in nodes:
        deps = [dep for dep in dict.fromkeys(node.deps) if dep in at]
        for way in (ways[dep] for dep in deps):
            for column in range(at[way[0].name] + len(way), at[node.slug]):
                way.append(LayoutCell(way[0].name, [way[-1]]))
                columns[column].append(way[-1])
        sources = [ways[dep][at[node.slug] - 1 - at[dep]] for dep in deps]
        ways[node.slug] = [LayoutCell(node.slug, sources, node)]
        columns[at[node.slug]] += ways[node.slug]
    return columns


def _stack(
    column: list[LayoutCell], left: Sequence[LayoutCell], lines_of: Callable[[Node], int]
) -> None:
    """Order the cells by the middle of their sources, then stack them from the top."""
    rows = {cell: row for row, cell in enumerate(left)}
    leaving = {cell.leaves_at: cell for cell in left if cell.targets}

    def middle(cell: LayoutCell) -> float:
        found = [rows[source] for source in cell.sources]
        return sum(found) / len(found) if found else len(left)

    column.sort(key=middle)
    top = 0
    for cell in column:
        cell.top = top
        cell.entries = _entries(cell, sorted(cell.sources, key=rows.__getitem__), leaving)
        last_row = max(cell.entries.values(), default=top + 1)
        cell.leaves_at = top + 1 if cell.node else last_row
        lines = lines_of(cell.node) if cell.node else 0
        cell.height = max(lines, last_row - top) + (2 if cell.node else 1)
        top += cell.height


def _entries(
    cell: LayoutCell, sources: Sequence[LayoutCell], leaving: Mapping[int, LayoutCell]
) -> dict[LayoutCell, int]:
    """The row on which each net comes in; rows on which other nets leave are skipped."""
    own = {None, *sources}
    free = (row for row in itertools.count(cell.top + 1) if leaving.get(row) in own)
    shared = next(free)
    owner = leaving.get(shared)  # comes straight in from the left, so no net is left of it
    first = next((each for each in sources if each.has_many and owner in (None, each)), None)
    entries = {each: shared for each in sources if each is first or not each.has_many}
    for source in sources:
        if source not in entries:
            entries[source] = next(row for row in free if leaving.get(row) in (None, source))
    return entries


def _give_tracks(sources: Sequence[LayoutCell], is_narrow: bool) -> int:
    """Give tracks to the nets that need one, from left to right; return how many there are.

    A net may take the next track when no net with many targets, which must be left of it on a
    row they share, still waits for one. Those wait for no other, so there is always an order.
    """
    bent = [cell for cell in sources if len(set(cell.rows)) > 1]
    with_many: defaultdict[int, set[int]] = defaultdict(set)  # by an entry row
    for index, cell in enumerate(bent):
        for row in cell.entry_rows if cell.has_many else ():
            with_many[row].add(index)
    before = {
        index: set[int]().union(*(with_many[row] for row in cell.entry_rows)) - {index}
        for index, cell in enumerate(bent)
    }
    sorter, ready = TopologicalSorter(before), list[int]()
    sorter.prepare()
    # the rows that each track has given away: the first, the last, and for whom
    tracks: list[list[tuple[int, int, LayoutCell | None]]] = []
    while sorter.is_active():
        for index in sorter.get_ready():
            heapq.heappush(ready, index)
        index = heapq.heappop(ready)
        cell = bent[index]
        least = max((bent[other].track or 0 for other in before[index]), default=-1) + 1
        top, bottom = min(cell.rows), max(cell.rows)
        only = None if cell.has_many else cell.targets[0]  # lines to one target may meet
        cell.track = next(
            (
                track
                for track in range(least if is_narrow else len(tracks), len(tracks))
                if all(
                    last < top or bottom < begin or (only is not None and other is only)
                    for begin, last, other in tracks[track]
                )
            ),
            len(tracks),
        )
        tracks += [[]] if cell.track == len(tracks) else []
        tracks[cell.track].append((top, bottom, only))
        sorter.done(index)
    return len(tracks)


# Draws the picture of a graph as characters.
#
# A place of the grid has the directions of its lines, so lines that meet become corners and
# junctions. Where two unrelated lines cross, only the vertical one is drawn: `─│─` does not look
# like a junction.
UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
_CORNERS = {
    UP | DOWN: "│", LEFT | RIGHT: "─", DOWN | RIGHT: "┌", DOWN | LEFT: "┐", UP | RIGHT: "└",
    UP | LEFT: "┘", UP | DOWN | RIGHT: "├", UP | DOWN | LEFT: "┤", DOWN | LEFT | RIGHT: "┬",
    UP | LEFT | RIGHT: "┴", UP | DOWN | LEFT | RIGHT: "┼",
}  # fmt: skip


def _picture(nodes: Sequence[Node]) -> str:
    """Draw nodes, given in topological order, as boxes with the arrows between them."""
    layout = layout_of(nodes, lambda node: len(node.lines))
    signs: dict[tuple[int, int], str] = {}  # (row, column)
    spans: list[tuple[int, int]] = []  # of each column: where it begins, and where it ends
    notes: dict[int, str] = {}
    left = 0
    for column, tracks in zip(layout.columns, [*layout.tracks, 0], strict=False):
        boxes = [(cell, cell.node) for cell in column if cell.node]
        width = max((len(line) + 4 for _, node in boxes for line in node.lines), default=0)
        for cell, node in boxes:
            rows = ["┌" + "─" * (width - 2) + "┐"]
            blank = ("",) * (cell.height - 2 - len(node.lines))
            rows += [f"│ {line.ljust(width - 3)}│" for line in (*node.lines, *blank)]
            rows += ["└" + "─" * (width - 2) + "┘"]
            for row, text in enumerate(rows, cell.top):
                signs |= {(row, at): sign for at, sign in enumerate(text, left)}
            if node.note:
                told = filter(None, (notes.get(cell.leaves_at), node.note))
                notes[cell.leaves_at] = "   ".join(told)
        spans.append((left, left + width))
        # one place before each track, and at the end a line and the head of the arrow
        left += width + 2 * max(tracks, 1) + 2
    width = spans[-1][1] if spans else 0
    signs |= _arrows(layout, spans)
    lines = []
    for row in range(1 + max((row for row, _ in signs), default=-1)):
        line = "".join(signs.get((row, at), " ") for at in range(width)).rstrip()
        lines.append(f"{line.ljust(width)}  {notes[row]}" if row in notes else line)
    return "\n".join(lines)


def _arrows(layout: Layout, spans: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """The signs of all edges."""
    lines: defaultdict[tuple[int, int], int] = defaultdict(int)  # their directions
    turns: defaultdict[tuple[int, int], int] = defaultdict(int)  # those where lines turn
    tracks: dict[int, tuple[int, int]] = {}  # by their place: the first row, and the last
    ends: dict[tuple[int, int], str] = {}
    for edge in layout.edges():
        row, at = edge.row, spans[edge.bends[0].channel][1]
        ends[row, at - 1] = "├"
        for channel, track, next_row in edge.bends:
            if track is None or next_row == row:
                continue
            turn = spans[channel][1] + 1 + 2 * track
            lines |= dict.fromkeys(((row, place) for place in range(at, turn)), LEFT | RIGHT)
            turns[row, turn] |= LEFT | (DOWN if row < next_row else UP)
            turns[next_row, turn] |= RIGHT | (UP if row < next_row else DOWN)
            top, bottom = tracks.get(turn, (row, row))
            tracks[turn] = min(top, row, next_row), max(bottom, row, next_row)
            row, at = next_row, turn + 1
        end = spans[edge.bends[-1].channel + 1][0]
        lines |= dict.fromkeys(((row, place) for place in range(at, end)), LEFT | RIGHT)
        ends[row, end - 1] = "▶"
    for turn, (top, bottom) in tracks.items():
        for row in range(top + 1, bottom):
            lines[row, turn] = UP | DOWN | (lines[row, turn] if (row, turn) in turns else 0)
    for place, sides in turns.items():
        lines[place] |= sides
    return {place: _CORNERS[sides] for place, sides in lines.items()} | ends


MERMAID_WORDS = {
    "call", "class", "classdef", "click", "default", "direction", "end", "flowchart", "graph",
    "href", "linkstyle", "style", "subgraph",
}  # fmt: skip
_ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│▶…", "+++++++++-|>.") | str.maketrans(
    {status.mark.sign: status.mark.ascii for status in (*StepStatus, *RunStatus)}
)  # each of one character, so the picture keeps its shape


def draw(graph: Graph, *, width: int | None = None, utf8: bool = True) -> str:
    """Boxes and arrows; a list where `width` columns are too few."""
    text = _picture(graph.nodes)
    if width is not None and any(len(line) > width for line in text.splitlines()):
        longest, lines = max((len(node.title) for node in graph.nodes), default=0), []
        for node in graph.nodes:
            after = f"after {', '.join(node.deps)}" if node.deps else ""
            parts = [node.title.ljust(longest), node.state, node.note, after]
            line = "  ".join(filter(None, parts)).rstrip()
            lines.append(line if len(line) <= width else line[: width - 1] + "…")
        text = "\n".join(lines)
    return text if utf8 else text.translate(_ASCII).encode("ascii", "replace").decode()


def mermaid(graph: Graph) -> str:
    """The graph in the language of mermaid; a word of that language gets an underscore."""
    names = {
        node.slug: f"{node.slug}_" if node.slug.lower() in MERMAID_WORDS else node.slug
        for node in graph.nodes
    }
    lines = ["flowchart LR"]
    for node in graph.nodes:
        label = "<br/>".join(node.lines).replace('"', "#quot;")
        left, right = ("[[", "]]") if node.is_map else ("[", "]")
        lines.append(f'    {names[node.slug]}{left}"{label}"{right}')
    lines += [f"    {names[dep]} --> {names[slug]}" for dep, slug in graph.edges]
    return "\n".join(lines)


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
    columns, rows = columns_of(graph.nodes), Counter[int]()
    nodes = []
    for node in graph.nodes:
        column = columns[node.slug]
        row, status = rows[column], None if node.status is None else StepStatus(node.status)
        nodes.append(PlacedNode(node.slug, "map" if node.is_map else "single", column, row, status))
        rows[column] += 1
    return FlowGraph(nodes, [GraphEdge(*edge) for edge in graph.edges])
