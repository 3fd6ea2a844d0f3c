"""
Draws the graph of a flow, or of a run of it, as SVG.

Steps are links in topological order, each in a group with an id, so that live updates replace one
at a time. The size of a box depends on its name and on its flow alone, so a replaced one fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from pgflowd.core.documents.runs import RunDetails, StepTasks
from pgflowd.core.graph import Box, EdgeLine, Graph, Layout, LayoutCell, Node, graph_of, layout_of
from pgflowd.core.run_graph import graph_of_run, step_words
from pgflowd.core.statuses import Marks, RunStatus, StepStatus
from pgflowd.core.text import cut
from pgflowd.web.svg import Picture, element, picture_of
from pgflowd.web.text import as_id, iso, number, status_class, status_word

# of a larger graph only a step and its neighbours are shown: the one that the page's parameter
# `step` names, else one that failed or goes on
MAX_STEPS = 300

# in pixels
_ROW = 18  # of the geometry; a box has two lines, so it takes four rows
_GAP = 12  # between two boxes of a column
_MARGIN = 6  # beside all boxes
_TRACK = 12  # between two vertical lines
_BEFORE_TRACKS, _AFTER_TRACKS = 16, 22  # the arrow head is in the latter
_CORNER = 7
_NAME_X, _PADDING = 36, 14  # of a text in its box
_NAME_WIDTH, _WORDS_WIDTH = 7.9, 6.9  # of one character
_MIN_WIDTH, _MAX_WIDTH, _MIN_MAP_WIDTH = 160, 300, 226
_MAX_NAMED = 5  # deps of a step; a join may have very many


@dataclass(frozen=True)
class StepLook:
    """What is shown of a step of a run, besides what the graph has of it."""

    words: Sequence[str]
    since: datetime | None = None  # the first of the words is how long it takes since then
    share: float | None = None  # how much of it is done, while it runs
    more: Sequence[str] = ()  # for those who hear the page


def run_graph(details: RunDetails, link: str, selected: str | None = None) -> Picture:
    """The graph of a run; the address of a step is `link` and its slug."""
    graph = graph_of_run(details.run, details.steps, details.now)
    steps = {step.step_slug: step for step in details.steps}
    looks = {node.slug: _look(node, steps[node.slug], details) for node in graph.nodes}
    return _Drawing(graph, looks, link, selected).picture()


def flow_graph(shape: Mapping[str, Any], link: str, selected: str | None = None) -> Picture:
    """The graph of a flow."""
    return _Drawing(graph_of(shape), {}, link, selected).picture()


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


def _look(node: Node, step: StepTasks, details: RunDetails) -> StepLook:
    state = details.run.steps.get(node.slug)
    assert node.status is not None
    now = details.run.ended_at or details.now
    words = step_words(step, state, node.status, now, number)
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


class _Drawing:
    """One picture while it is drawn."""

    def __init__(
        self, graph: Graph, looks: Mapping[str, StepLook], link: str, selected: str | None
    ) -> None:
        self._centre, self._all = _centre(graph, selected), len(graph.nodes)
        graph = graph if self._centre is None else graph.around(self._centre, MAX_STEPS)
        self._graph, self._looks, self._link, self._selected = graph, looks, link, selected
        boxes = [Box(node.slug, node.deps, (node.slug, "")) for node in graph.nodes]
        self._layout: Layout = layout_of(boxes, is_narrow=True)
        self._is_map = {node.slug: node.is_map for node in graph.nodes}
        self._lefts: list[int] = []  # of each column
        self._widths: list[int] = []
        self._place_columns()

    def _place_columns(self) -> None:
        left = _MARGIN
        for index, column in enumerate(self._layout.columns):
            width = max((self._width(cell) for cell in column if cell.box), default=0)
            self._lefts.append(left)
            self._widths.append(width)
            left += width
            if index < len(self._layout.channels):
                tracks = self._layout.channels[index].tracks
                left += _BEFORE_TRACKS + _TRACK * max(tracks - 1, 0) + _AFTER_TRACKS

    def _width(self, cell: LayoutCell) -> int:
        least = _MIN_MAP_WIDTH if self._is_map[cell.name] else _MIN_WIDTH
        needed = _NAME_X + _NAME_WIDTH * len(cell.name) + _PADDING
        return min(max(least, ceil(needed)), _MAX_WIDTH)

    def picture(self) -> Picture:
        cells = {
            cell.name: (index, cell)
            for index, column in enumerate(self._layout.columns)
            for cell in column
            if cell.box
        }
        steps = {_id(node): self._step(node, *cells[node.slug]) for node in self._graph.nodes}
        rows = max((cell.top + cell.height for _, cell in cells.values()), default=0)
        lanes = [cell.leaves_at + 1 for column in self._layout.columns for cell in column]
        width = self._lefts[-1] + self._widths[-1] + _MARGIN if cells else 0
        height = max([rows, *lanes]) * _ROW if cells else 0
        edges = element("g", *self._edges(), class_="edges", aria_hidden="true")
        markup = picture_of("graph", width, height, "Steps", edges, *steps.values())
        if self._centre is None:
            return Picture(markup, steps)
        text = f"Of {number(self._all)} steps {self._centre} and its neighbours; the table has all."
        # another part may be shown next time, so it has no fragments
        return Picture(element("div", markup, element("p", text, class_="quiet")))

    def _edges(self) -> Iterable[Markup]:
        """One path for all edges of a step, so that what they share is drawn once."""
        ways: dict[str, list[str]] = {}
        selected, heads = [], set()
        for line in self._layout.edges():
            path = self._path(line)
            ways.setdefault(line.start, []).append(path)
            heads.add((line.bends[-1].channel, line.bends[-1].row))
            if self._selected in (line.start, line.end):
                selected.append(path)
        for paths in ways.values():
            yield element("path", class_="edge", d="".join(paths))
        if selected:
            yield element("path", class_="edge selected", d="".join(selected))
        for channel, row in sorted(heads):
            x, y = self._lefts[channel + 1], _y(row)
            yield element("path", class_="arrow", d=f"M{x:g} {y:g}l-8 -4.5v9z")

    def _path(self, line: EdgeLine) -> str:
        """Straight lines, with round corners where they turn."""
        y = _y(line.row)
        first = line.bends[0].channel
        path = [f"M{self._lefts[first] + self._widths[first]:g} {y:g}"]
        for channel, track, row in line.bends:
            next_y = _y(row)
            if track is not None and next_y != y:
                left = self._lefts[channel] + self._widths[channel]
                x = left + _BEFORE_TRACKS + _TRACK * track
                down = 1 if next_y > y else -1
                path.append(
                    f"H{x - _CORNER:g}q{_CORNER} 0 {_CORNER} {down * _CORNER}"
                    f"V{next_y - down * _CORNER:g}q0 {down * _CORNER} {_CORNER} {down * _CORNER}"
                )
            y = next_y
        path.append(f"H{self._lefts[line.bends[-1].channel + 1] - 6:g}")
        return "".join(path)

    def _step(self, node: Node, column: int, cell: LayoutCell) -> Markup:
        x, y = self._lefts[column], cell.top * _ROW + _GAP / 2
        width, height = self._widths[column], cell.height * _ROW - _GAP
        look = self._looks.get(node.slug)
        is_selected = node.slug == self._selected
        classes = [
            "step",
            status_class(node.status) if node.status else "plain",
            *(["selected"] if is_selected else []),
        ]
        name = cut(node.slug, int((width - _NAME_X - _PADDING) / _NAME_WIDTH))
        parts = [
            *([_box(x + 4, y + 4, width, height, "box behind")] if node.is_map else []),
            _box(x, y, width, height, "box"),
            element("text", name, class_="name", x=x + _NAME_X, y=y + 26 - (0 if look else -9)),
        ]
        if node.status and look:
            parts.append(element("text", node.status.mark.sign, class_="sign", x=x + 18, y=y + 35))
            parts.append(_words(node, look, x + _NAME_X, y + 44, width - _NAME_X - _PADDING))
            if look.share is not None:
                parts += _bar(x + _NAME_X, y + height - 9, width - _NAME_X - _PADDING, look.share)
        else:
            sign = "[]" if node.is_map else Marks.OFF.sign
            parts.append(element("text", sign, class_="sign", x=x + 18, y=y + 35))
        link = element(
            "a",
            element("title", _title(node)),
            *parts,
            href=self._address(node),
            aria_label=_label(node, look),
            aria_current="true" if is_selected else None,
        )
        return element(
            "g",
            link,
            id=_id(node),
            class_=" ".join(classes),
            data_fragment="",
        )

    def _address(self, node: Node) -> str:
        """Of a step; of a neighbour the page with that one and its neighbours."""
        is_neighbour = self._centre is not None and node.slug != self._centre
        return f"{'?step=' if is_neighbour else self._link}{quote(node.slug, safe='')}"


def _id(node: Node) -> str:
    return f"node-{as_id(node.slug)}"


def _y(row: int) -> float:
    return row * _ROW + _ROW / 2


def _box(x: float, y: float, width: float, height: float, class_: str) -> Markup:
    return element("rect", class_=class_, x=x, y=y, width=width, height=height, rx=8)


def _bar(x: float, y: float, width: float, share: float) -> list[Markup]:
    return [
        element("rect", class_="whole", x=x, y=y, width=width, height=4, rx=2),
        element("rect", class_="done", x=x, y=y, width=width * share, height=4, rx=2),
    ]


def _words(node: Node, look: StepLook, x: float, y: float, width: float) -> Markup:
    """The words that fit; the first to go is the status, which the sign shows too."""
    assert node.status is not None
    words = list(look.words)
    word = status_word(node.status)
    room = int(width / _WORDS_WIDTH)
    if words[0] in (node.status, word):
        words[0] = word
    elif words[0] != "waits" and len(" ".join([word, *words])) <= room:
        words.insert(0, word)
    spans = []
    for index, each in enumerate(words):
        since = iso(look.since) if look.since and each == look.words[0] else None
        spans.append(
            element(
                "tspan",
                cut(each, max(room - sum(map(len, words[:index])) - index, 1)),
                dx=6 if index else None,
                datetime=since,
                data_since=since and "",
            )
        )
    return element("text", *spans, class_="words", x=x, y=y)


def _label(node: Node, look: StepLook | None) -> str:
    """Such as `summary, running, attempt 2 of 3`."""
    parts = [node.slug, *(["map"] if node.is_map else [])]
    if node.status is not None:
        parts.append(status_word(node.status))
    return ", ".join([*parts, *(look.more if look else ())])


def _title(node: Node) -> str:
    names = ", ".join(node.deps[:_MAX_NAMED])
    more = f" and {len(node.deps) - _MAX_NAMED} more" if len(node.deps) > _MAX_NAMED else ""
    deps = f"after {names}{more}" if node.deps else "at the beginning"
    return f"{node.slug}: {node.note}; {deps}" if node.note else f"{node.slug}: {deps}"
