"""
Writes elements of SVG, and of the little HTML around it.

Every text and every value of an attribute is escaped here, so the modules that draw pass on what
users, handlers and databases say as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import quote

from markupsafe import Markup, escape

from pgflowd.core.documents.flows import FlowGrid, GridRun, RunBucket
from pgflowd.core.documents.run_tasks import StepStrip, StripCell
from pgflowd.core.documents.runs import RunDetails
from pgflowd.core.run_graph import BarMark, BarPart, StepBar, bars_of, length_s, ticks_of
from pgflowd.core.statuses import StepStatus, TaskStatus
from pgflowd.core.text import cut, duration, short_id
from pgflowd.web.text import as_id, iso, number, shown, status_class, status_word

Value = str | float | None


@dataclass(frozen=True)
class Picture:
    """A picture for a page, and those of its elements that live updates replace, by their ids."""

    markup: Markup
    fragments: Mapping[str, Markup] = field(default_factory=dict)

    def __html__(self) -> str:
        return self.markup


def element(name: str, *children: str, **attributes: Value) -> Markup:
    """
    An element. Children are text, unless they are elements; attributes that are None are left out.

    `data_start` is the attribute `data-start`; `class_` is `class`.
    """
    written = Markup().join(
        Markup(' {}="{}"').format(_attribute(key), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup().join(
        child if isinstance(child, Markup) else escape(shown(child)) for child in children
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, inner)


def picture_of(class_: str, width: float, height: float, label: str, *parts: str) -> Markup:
    """A picture of this size in pixels, with links in it."""
    return element(
        "svg",
        *parts,
        class_=class_,
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {width:g} {height:g}",
        role="group",
        aria_label=label,
    )


def _attribute(key: str) -> str:
    """The names of SVG with a capital, such as `viewBox`, are as they are."""
    return key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    """A number with at most two digits behind the point, which is a hundredth of a pixel."""
    if isinstance(value, str):
        return shown(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")


# Draws how runs ended lately, as a small chart that stands beside its numbers.
_BAR, _GAP, _HEIGHT = 5, 1, 24
_LEAST = 2  # the height of a bar that is not zero


def spark(buckets: Sequence[RunBucket]) -> Picture:
    """A bar for each bucket, the oldest first: failures on top of what completed."""
    most = max((bucket.ok + bucket.failed for bucket in buckets), default=0)
    drawn = []
    for index, bucket in enumerate(buckets):
        x, bottom = index * (_BAR + _GAP), float(_HEIGHT)
        for class_, count in (("ok", bucket.ok), ("failed", bucket.failed)):
            if count:
                height = round(max((_HEIGHT - _LEAST) * count / most, _LEAST), 1)
                bottom -= height
                drawn.append(
                    element("rect", class_=class_, x=x, y=bottom, width=_BAR, height=height)
                )
        if bottom == _HEIGHT:
            drawn.append(element("rect", class_="none", x=x, y=_HEIGHT - 1, width=_BAR, height=1))
    ok, failed = (sum(each) for each in zip(*buckets, strict=True)) if buckets else (0, 0)
    width = max(len(buckets) * (_BAR + _GAP) - _GAP, 1)
    markup = element(
        "svg",
        *drawn,
        class_="spark",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{number(ok)} runs completed, {number(failed)} failed",
    )
    return Picture(markup)


# Draws the tasks of a map as a strip of cells. Each leads to its tasks, and has the colour of the
# one that needs most attention.
_FEW = 100  # with so many there is room between cells
_DULL = (TaskStatus.COMPLETED, TaskStatus.SKIPPED, TaskStatus.QUEUED, TaskStatus.READY, None)


def task_strip(strip: StepStrip, link: str) -> Picture:
    """
    The strip of a map. The address of a cell is `link` and the index before its first task.

    Who uses the keyboard comes to the cells that failed or go on. The others are in the table, too.
    """
    count = len(strip.cells)
    cells = [_cell(cell, index, count, link) for index, cell in enumerate(strip.cells)]
    markup = element(
        "svg",
        *cells,
        class_="strip",
        xmlns="http://www.w3.org/2000/svg",
        width="100%",
        height=32,
        role="group",
        aria_label=f"Tasks of {strip.step}",
    )
    return Picture(markup)


def _cell(cell: StripCell, index: int, count: int, link: str) -> Markup:
    worst, title = cell.worst, title_of(cell)
    colour = status_class(worst) if worst else "plain"
    rect = element(
        "rect",
        element("title", title),
        class_=f"{colour} few" if count <= _FEW else colour,
        x=f"{100 * index / count:.5f}%",
        width=f"{100 / count:.5f}%",
        height="100%",
    )
    return element(
        "a",
        rect,
        href=f"{link}{cell.first - 1}",
        aria_label=title,
        tabindex=-1 if worst in _DULL else None,
    )


def title_of(cell: StripCell) -> str:
    """The tasks, and how many of them have each status."""
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


# Draws the newest runs of a flow as a grid: a row for each step, a column for each run, the newest
# on the right. So one sees whether runs fail, and where.
# in pixels
_CELL = 24  # as large as a target must be
_BOX = 18  # what is seen of a cell
_LETTER = 7.9  # of a name
_NAME_LETTERS = 28  # the longest name that is not cut
MAX_STEPS = 100  # of a flow; further ones are on the pages of its runs


def run_grid(grid: FlowGrid, link: str) -> Picture:
    """The grid; the address of a run is `link` and its id."""
    steps = grid.steps[:MAX_STEPS]
    left = round(_LETTER * max((min(len(step), _NAME_LETTERS) for step in steps), default=0)) + 14
    names = [
        element(
            "text", cut(step, _NAME_LETTERS), element("title", step), class_="name", x=2,
            y=row * _CELL + 16,
        )
        for row, step in enumerate(steps)
    ]  # fmt: skip
    runs = [
        _column(run, steps, left + column * _CELL) for column, run in enumerate(reversed(grid.runs))
    ]
    links = [
        element("a", *cells, href=f"{link}{run.run_id}", aria_label=_label(run))
        for run, cells in zip(reversed(grid.runs), runs, strict=True)
    ]
    width, height = left + len(runs) * _CELL, len(steps) * _CELL
    head = element("g", *names, aria_hidden="true")
    return Picture(picture_of("run-grid", width, height, "Newest runs", head, *links))


def _column(run: GridRun, steps: list[str], x: int) -> list[Markup]:
    """The steps of a run, below each other; a version of the flow may lack some."""
    cells = [
        element("title", _label(run)),
        element("rect", class_="whole", x=x, width=_CELL, height=len(steps) * _CELL, rx=4),
    ]
    for row, step in enumerate(steps):
        status = run.steps.get(step)
        if status is None:
            continue
        y, inset = row * _CELL, (_CELL - _BOX) / 2
        box = element("rect", x=x + inset, y=y + inset, width=_BOX, height=_BOX, rx=4)
        sign = element("text", status.mark.sign, x=x + _CELL / 2, y=y + _CELL / 2 + 4)
        title = element("title", f"{step}: {status_word(status)}")
        cells.append(element("g", title, box, sign, class_=status_class(status)))
    return cells


def _label(run: GridRun) -> str:
    """Such as `run 7f3a9c12, failed after 2s: charge`."""
    took = ""
    if run.ended_at is not None:
        took = f" after {duration((run.ended_at - run.started_at).total_seconds())}"
    failed = [step for step, status in run.steps.items() if status is StepStatus.FAILED]
    where = f": {', '.join(failed)}" if failed else ""
    return f"run {short_id(run.run_id)}, {status_word(run.status)}{took}{where}"


# Draws the time of a run: a bar for each step, light where it waited and full where it was
# executed, with a mark at the end of each attempt that did not complete.
#
# Places are percentages, so the picture is as wide as the page. The script lets open bars grow: the
# width of one is the seconds since `data-start` (in milliseconds of Unix time) times `data-scale`.
MAX_BARS = 500
_TIMELINE_HEIGHT = 24  # of a row, in pixels
_MIN_WIDTH = 0.3  # of a bar, in percent: what took no time is seen, too
_MAX_MARKS = 100  # of a bar; a map may have very many, so those close together become one
_NEAR_END = 96  # percent; a text further right ends at its place


def run_timeline(details: RunDetails, link: str) -> Picture:
    """The timeline of a run; the address of a step is `link` and its slug."""
    bars = bars_of(details)
    start = details.run.started_at
    if start is None:
        return Picture(Markup())
    shown = _shown(bars)
    length = length_s(details, shown)
    axis = _axis(length)
    rows = {f"bar-{as_id(bar.slug)}": _row(bar, start, length, link) for bar in shown}
    parts = [axis, element("ol", *rows.values())]
    if len(shown) < len(bars):
        text = f"{number(len(bars) - len(shown))} more steps are in the table."
        parts.append(element("p", text, class_="quiet"))
    markup = element("div", *parts, class_="timeline", role="group", aria_label="Timeline")
    return Picture(markup, {"timeline-axis": axis, **rows} if len(shown) == len(bars) else {})


def _shown(bars: Sequence[StepBar]) -> list[StepBar]:
    """Of too many steps those that failed or go on, then those that began first, in their order."""
    if len(bars) <= MAX_BARS:
        return list(bars)

    def rank(bar: StepBar) -> tuple[bool, bool, float]:
        start = bar.parts[0].start_s if bar.parts else float("inf")
        return (bar.status != StepStatus.FAILED, not bar.is_open, start)

    chosen = {bar.slug for bar in sorted(bars, key=rank)[:MAX_BARS]}
    return [bar for bar in bars if bar.slug in chosen]


def _axis(length: float) -> Markup:
    """The times on top, and lines behind all rows; a narrow page has every second time."""
    found: list[Markup] = []
    for index, (at_s, text) in enumerate(ticks_of(length)):
        x = 100 * at_s / length
        anchor = "start" if index == 0 else "end" if x > _NEAR_END else "middle"
        class_ = "tick second" if index % 2 else "tick"
        place = _percent(x)
        found.append(element("line", class_=class_, x1=place, x2=place, y1=20, y2="100%"))
        found.append(element("text", text, class_=class_, x=place, y=13, text_anchor=anchor))
    return element(
        "svg", *found, class_="axis", id="timeline-axis", data_fragment="", aria_hidden="true"
    )


def _row(bar: StepBar, start: datetime, length: float, link: str) -> Markup:
    drawn = [_part(part, start, length) for part in bar.parts]
    for mark in _marks(bar.marks, length):
        drawn += _mark(mark, length)
    children = [
        element(
            "a",
            element("span", bar.status.mark.sign, class_="sign", aria_hidden="true"),
            bar.slug,
            class_="name",
            href=link + quote(bar.slug, safe=""),
            aria_label=f"{bar.slug}, {status_word(bar.status)}",
        ),
        element("svg", *drawn, width="100%", height=_TIMELINE_HEIGHT, aria_hidden="true"),
        element("span", *_note(bar, start), class_="note"),
    ]
    return element(
        "li",
        *children,
        id=f"bar-{as_id(bar.slug)}",
        class_=status_class(bar.status),
        data_fragment="",
    )


def _part(part: BarPart, start: datetime, length: float) -> Markup:
    height = 14 if part.is_executed else 6
    scale = 100 / length
    began = start + timedelta(seconds=part.start_s)
    return element(
        "rect",
        class_="executed" if part.is_executed else "waited",
        x=_percent(part.start_s * scale),
        y=(_TIMELINE_HEIGHT - height) / 2,
        width=_percent(max((part.end_s - part.start_s) * scale, _MIN_WIDTH)),
        height=height,
        rx=2,
        data_start=round(began.timestamp() * 1000) if part.is_open else None,
        data_scale=f"{scale:.6g}" if part.is_open else None,
    )


def _marks(marks: Sequence[BarMark], length: float) -> Iterable[BarMark]:
    if len(marks) <= _MAX_MARKS:
        return marks
    places = {(int(_MAX_MARKS * mark.at_s / length), mark.outcome): mark for mark in marks}
    return places.values()


def _mark(mark: BarMark, length: float) -> list[Markup]:
    place, middle = _percent(100 * mark.at_s / length), _TIMELINE_HEIGHT / 2
    sign = mark.outcome.mark.sign
    return [
        element("circle", class_=status_class(mark.outcome), cx=place, cy=middle, r=6.5),
        element("text", sign, class_=status_class(mark.outcome), x=place, y=middle + 3.5),
    ]


def _note(bar: StepBar, start: datetime) -> list[str]:
    """How long it took, and what happened on the way."""
    if bar.took_s is None:
        return [status_word(bar.status)]
    words: list[str] = [duration(bar.took_s)]
    if bar.is_open:
        began = iso(start + timedelta(seconds=bar.parts[0].start_s))
        words = [element("time", duration(round(bar.took_s)), datetime=began, data_since="")]
    if bar.is_map:
        tasks = bar.tasks
        words.append(f", {number(tasks.completed)} of {number(tasks.tasks)}")
        if bar.per_second is not None and bar.left_s is not None:
            words.append(f", {_rate(bar.per_second)}/s, about {duration(round(bar.left_s))} left")
    ends = Counter(mark.outcome for mark in bar.marks)
    told = ", ".join(f"{number(count)} {status_word(end)}" for end, count in ends.items())
    return [*words, f" ({told})"] if told else words


def _rate(per_second: float) -> str:
    return f"{per_second:.2g}" if per_second < 10 else number(round(per_second))


def _percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"
