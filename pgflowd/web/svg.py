"""
What pictures show, in pixels; the macros of `pictures.html` draw it.

The size of a box in a graph depends on its name and on its flow alone, so a box that live updates
put in the place of another one fits there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any, NamedTuple

from pgflowd.core import run_graph as run_graphs
from pgflowd.core.documents.flows import FlowGrid, GridRun, RunBucket
from pgflowd.core.documents.run_tasks import StripCell
from pgflowd.core.documents.runs import RunDetails, StepTasks
from pgflowd.core.graph import EdgeLine, Graph, Node, graph_of, layout_of
from pgflowd.core.run_graph import BarMark, StepBar, bars_of, graph_of_run
from pgflowd.core.statuses import RunStatus, StepStatus, TaskStatus
from pgflowd.core.text import cut, duration, short_id
from pgflowd.web.text import number, status_word

LETTER = 7.9  # the width of a letter of a name

# How runs ended lately, as a small chart that stands beside its numbers.
SPARK_HEIGHT = 24
_LEAST = 2  # the height of a bar that is not zero


def spark_heights(buckets: Sequence[RunBucket]) -> list[tuple[float, float]]:
    """For each bucket how high the bar of completed runs is, and that of failed ones above it."""
    most = max((bucket.ok + bucket.failed for bucket in buckets), default=0)

    def height(count: int) -> float:
        return round(max((SPARK_HEIGHT - _LEAST) * count / most, _LEAST), 1) if count else 0

    return [(height(bucket.ok), height(bucket.failed)) for bucket in buckets]


# The tasks of a map as a strip of cells. Each leads to its tasks, and has the colour of the one
# that needs most attention. Whoever uses the keyboard comes to the cells that failed or go on; the
# others are in the table, too.
DULL = (TaskStatus.COMPLETED, TaskStatus.SKIPPED, TaskStatus.QUEUED, TaskStatus.READY, None)


def cell_title(cell: StripCell) -> str:
    """The tasks of a cell, and how many of them have each status."""
    is_one = cell.first == cell.last
    tasks = f"task {number(cell.first)}" if is_one else (
        f"tasks {number(cell.first)}\N{EN DASH}{number(cell.last)}"
    )  # fmt: skip
    told = [
        status_word(status) if is_one else f"{number(cell.counts[status])} {status_word(status)}"
        for status in TaskStatus
        if cell.counts.get(status)
    ]
    return f"{tasks}: {', '.join(told)}" if told else tasks


# The newest runs of a flow as a grid: a row for each step, a column for each run, the newest on the
# right. So one sees whether runs fail, and where. A version of the flow may lack some steps.
_NAME_LETTERS = 28  # the longest name that is not cut
_MAX_ROWS = 100  # further steps are on the pages of the runs


@dataclass(frozen=True)
class GridPicture:
    """The rows and columns of the grid."""

    steps: Sequence[str]
    names: Sequence[str]  # of the steps; long ones are cut
    runs: Sequence[GridRun]
    left: int  # where the first column begins


def grid_picture(grid: FlowGrid) -> GridPicture:
    steps = grid.steps[:_MAX_ROWS]
    names = [cut(step, _NAME_LETTERS) for step in steps]
    left = round(LETTER * max(map(len, names), default=0)) + 14
    return GridPicture(steps, names, grid.runs[::-1], left)


def run_label(run: GridRun) -> str:
    """Such as `run 7f3a9c12, failed after 2s: charge`."""
    took = ""
    if run.ended_at is not None:
        took = f" after {duration((run.ended_at - run.started_at).total_seconds())}"
    failed = [step for step, status in run.steps.items() if status is StepStatus.FAILED]
    where = f": {', '.join(failed)}" if failed else ""
    return f"run {short_id(run.run_id)}, {status_word(run.status)}{took}{where}"


# The time of a run: a bar for each step, light where it waited and full where it was executed, with
# a mark at the end of each attempt that did not complete.
#
# Places are percentages, so the picture is as wide as the page. The script lets open bars grow: the
# width of one is the seconds since `data-start` (in milliseconds of Unix time) times `data-scale`.
MAX_BARS = 500
_MAX_MARKS = 100  # of a bar; a map may have very many, so those close together become one


@dataclass(frozen=True)
class TimelinePicture:
    """The bars of a run, and the times above them."""

    bars: Sequence[StepBar]
    left_out: int
    start: datetime
    scale: float  # percent for a second
    ticks: Sequence[tuple[float, str]]

    def marks(self, bar: StepBar) -> Iterable[BarMark]:
        """The marks of a bar; of very many some."""
        if len(bar.marks) <= _MAX_MARKS:
            return bar.marks
        per_mark = 100 / _MAX_MARKS
        places = {
            (int(each.at_s * self.scale / per_mark), each.outcome): each for each in bar.marks
        }
        return places.values()

    def began_at(self, bar: StepBar) -> datetime:
        return self.start + timedelta(seconds=bar.parts[0].start_s)

    def ends(self, bar: StepBar) -> str:
        """How often attempts ended badly, and how: `2 failed, 1 timed out`."""
        ends = Counter(mark.outcome for mark in bar.marks)
        return ", ".join(f"{number(count)} {status_word(end)}" for end, count in ends.items())


def timeline_picture(details: RunDetails) -> TimelinePicture | None:
    """
    The picture of a run; None if it has not begun.

    Of too many steps those that failed or go on are shown, then those that began first.
    """
    start, bars = details.run.started_at, bars_of(details)
    if start is None:
        return None

    def rank(bar: StepBar) -> tuple[bool, bool, float]:
        begin = bar.parts[0].start_s if bar.parts else float("inf")
        return (bar.status != StepStatus.FAILED, not bar.is_open, begin)

    chosen = {bar.slug for bar in sorted(bars, key=rank)[:MAX_BARS]}
    shown = [bar for bar in bars if bar.slug in chosen]
    length = run_graphs.length_s(details, shown)
    return TimelinePicture(
        shown, len(bars) - len(shown), start, 100 / length, run_graphs.ticks_of(length)
    )


def rate(per_second: float) -> str:
    """How many tasks a map completes in a second."""
    return f"{per_second:.2g}" if per_second < 10 else number(round(per_second))


def percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"


# The graph of a flow, or of a run of it. Its steps are links in topological order.
#
# Of a larger graph than this only a step and its neighbours are shown: the step that the page's
# parameter `step` names, else one that failed or goes on.
MAX_STEPS = 300

_ROW = 18  # of the geometry; a box has two lines, so it takes four rows
_GAP = 12  # between two boxes of a column
_MARGIN = 6  # beside all boxes
_TRACK = 12  # between two vertical lines
_BEFORE_TRACKS, _AFTER_TRACKS = 16, 22  # the arrow head is in the latter
_CORNER = 7
NAME_X, _PADDING = 36, 14  # of a text in its box
_WORDS_LETTER = 6.9
_MIN_WIDTH, _MAX_WIDTH, _MIN_MAP_WIDTH = 160, 300, 226
_MAX_NAMED = 5  # deps of a step; a join may have very many


class StepLook(NamedTuple):
    """What is shown of a step of a run, besides what the graph has of it."""

    words: Sequence[str]
    since: datetime | None = None  # the first of the words is how long it takes since then
    share: float | None = None  # how much of it is done, while it runs
    more: Sequence[str] = ()  # for those who hear the page


@dataclass(frozen=True)
class StepBox:
    """A step at its place in the picture."""

    node: Node
    look: StepLook | None
    x: int
    y: int
    width: int
    height: int

    @property
    def room(self) -> int:
        """How wide a text may be."""
        return self.width - NAME_X - _PADDING

    @property
    def name(self) -> str:
        return cut(self.node.slug, int(self.room / LETTER))

    @property
    def label(self) -> str:
        """Such as `summary, running, attempt 2 of 3`."""
        parts = [self.node.slug, *(["map"] if self.node.is_map else [])]
        parts += [status_word(self.node.status)] if self.node.status is not None else []
        return ", ".join([*parts, *(self.look.more if self.look else ())])

    @property
    def title(self) -> str:
        node = self.node
        more = len(node.deps) - _MAX_NAMED
        names = ", ".join(node.deps[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        deps = f"after {names}" if node.deps else "at the beginning"
        return f"{node.slug}: {node.note}; {deps}" if node.note else f"{node.slug}: {deps}"

    def words(self) -> list[tuple[str, datetime | None]]:
        """The words that fit; the first to go is the status, which the sign shows too."""
        assert self.node.status is not None and self.look is not None
        words, word = list(self.look.words), status_word(self.node.status)
        room, found = int(self.room / _WORDS_LETTER), list[tuple[str, datetime | None]]()
        if words[0] in (self.node.status, word):
            words[0] = word
        elif words[0] != "waits" and len(" ".join([word, *words])) <= room:
            words.insert(0, word)
        for each in words:
            since = self.look.since if each == self.look.words[0] else None
            found.append((cut(each, max(room, 1)), since))
            room -= len(each) + 1
        return found


@dataclass(frozen=True)
class GraphPicture:
    """A graph with the places of its boxes and lines."""

    boxes: Sequence[StepBox]
    edges: Sequence[str]  # one path for all edges of a step: what they share is drawn once
    selected_edges: str
    arrows: Sequence[tuple[int, int]]
    width: int
    height: int
    selected: str | None
    centre: str | None  # the step of which only the neighbours are shown
    steps: int  # of the whole graph


def run_graph(details: RunDetails, selected: str | None = None) -> GraphPicture:
    """The graph of a run."""
    graph = graph_of_run(details.run, details.steps, details.now)
    steps = {step.step_slug: step for step in details.steps}
    looks = {node.slug: _look(node, steps[node.slug], details) for node in graph.nodes}
    return _placed(graph, looks, selected)


def flow_graph(shape: Mapping[str, Any], selected: str | None = None) -> GraphPicture:
    """The graph of a flow."""
    return _placed(graph_of(shape), {}, selected)


def _look(node: Node, step: StepTasks, details: RunDetails) -> StepLook:
    state = details.run.steps.get(node.slug)
    assert node.status is not None
    now = details.run.ended_at or details.now
    words = run_graphs.step_words(step, state, node.status, now, number)
    is_open = state is not None and state.status is StepStatus.STARTED and not node.status.is_end
    since = state.started_at if state and is_open and words[0] != "waits" else None
    more = []
    if step.tasks > 1:
        more.append(f"{number(step.completed)} of {number(step.tasks)} tasks completed")
        more += [f"{number(step.failed)} failed"] if step.failed else []
    elif step.attempts > 1:
        more.append(f"attempt {step.attempts} of {step.max_attempts}")
    undo = details.undos.get(node.slug)
    if undo is not None:
        words, more = [*words, undo.text], [*more, undo.text]
    has_share = is_open and step.share is not None and (step.tasks > 1 or step.progress is not None)
    return StepLook(words, since, step.share if has_share else None, more)


def _centre(graph: Graph, selected: str | None) -> str | None:
    """The step whose neighbours are shown, if the graph is too large; else None."""
    if len(graph.nodes) <= MAX_STEPS:
        return None
    if any(node.slug == selected for node in graph.nodes):
        return selected
    for status in (StepStatus.FAILED, StepStatus.STARTED, RunStatus.WAITING):
        for node in graph.nodes:
            if node.status == status:
                return node.slug
    return graph.nodes[0].slug


def _placed(graph: Graph, looks: Mapping[str, StepLook], selected: str | None) -> GraphPicture:
    """Give each box and line of a graph its place."""
    centre, steps = _centre(graph, selected), len(graph.nodes)
    graph = graph if centre is None else graph.around(centre, MAX_STEPS)
    layout = layout_of(graph.nodes, lambda node: 2, is_narrow=True)
    boxes: dict[str, StepBox] = {}
    spans: list[tuple[int, int]] = []  # of each column: where it begins, and where it ends
    left, bottom = _MARGIN, 0
    for index, column in enumerate(layout.columns):
        width = 0
        for node in (cell.node for cell in column if cell.node):
            needed = ceil(NAME_X + LETTER * len(node.slug) + _PADDING)
            needed = max(_MIN_MAP_WIDTH if node.is_map else _MIN_WIDTH, needed)
            width = max(width, min(needed, _MAX_WIDTH))
        for cell in column:
            bottom = max(bottom, cell.top + cell.height if cell.node else cell.leaves_at + 1)
            if cell.node:
                boxes[cell.name] = StepBox(
                    cell.node, looks.get(cell.name), left, cell.top * _ROW + _GAP // 2,
                    width, cell.height * _ROW - _GAP,
                )  # fmt: skip
        spans.append((left, left + width))
        left += width
        if index < len(layout.tracks):
            left += _BEFORE_TRACKS + _TRACK * max(layout.tracks[index] - 1, 0) + _AFTER_TRACKS
    edges, selected_edges, arrows = dict[str, str](), "", set[tuple[int, int]]()
    for line in layout.edges():
        path, last = _path(line, spans), line.bends[-1]
        edges[line.start] = edges.get(line.start, "") + path
        arrows.add((spans[last.channel + 1][0], _middle(last.row)))
        if selected in (line.start, line.end):
            selected_edges += path
    return GraphPicture(
        [boxes[node.slug] for node in graph.nodes], list(edges.values()), selected_edges,
        sorted(arrows), left + _MARGIN, bottom * _ROW, selected, centre, steps,
    )  # fmt: skip


def _path(line: EdgeLine, spans: Sequence[tuple[int, int]]) -> str:
    """Straight lines, with round corners where they turn."""
    y = _middle(line.row)
    path = f"M{spans[line.bends[0].channel][1]} {y}"
    for channel, track, row in line.bends:
        next_y = _middle(row)
        if track is not None and next_y != y:
            x = spans[channel][1] + _BEFORE_TRACKS + _TRACK * track
            down = _CORNER if next_y > y else -_CORNER
            path += f"H{x - _CORNER}q{_CORNER} 0 {_CORNER} {down}"
            path += f"V{next_y - down}q0 {down} {_CORNER} {down}"
        y = next_y
    return f"{path}H{spans[line.bends[-1].channel + 1][0] - 6}"


def _middle(row: int) -> int:
    return row * _ROW + _ROW // 2
