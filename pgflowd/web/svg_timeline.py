"""
Draws the time of a run: a bar for each step, light where it waited and full where it was executed,
with a mark at the end of each attempt that did not complete.

Places are percentages, so the picture is as wide as the page. The script lets open bars grow: the
width of one is the seconds since `data-start` (in milliseconds of Unix time) times `data-scale`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from urllib.parse import quote

from markupsafe import Markup

from pgflowd.core.documents.runs import RunDetails
from pgflowd.core.run_graph import BarMark, BarPart, StepBar, bars_of, length_s, ticks_of
from pgflowd.core.statuses import StepStatus
from pgflowd.core.text import duration
from pgflowd.web.svg_element import Picture, element
from pgflowd.web.text import as_id, iso, number, status_class, status_word

MAX_BARS = 500
_HEIGHT = 24  # of a row, in pixels
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
        element("svg", *drawn, width="100%", height=_HEIGHT, aria_hidden="true"),
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
        y=(_HEIGHT - height) / 2,
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
    place, middle = _percent(100 * mark.at_s / length), _HEIGHT / 2
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
