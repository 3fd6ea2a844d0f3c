"""Shows schedules and their ticks on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pgflowd.cli.app import App
from pgflowd.cli.terminal.screen import DASH, TableCell, text_width
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Marks
from pgflowd.core.text import ago, duration

if TYPE_CHECKING:
    from pgflowd.core.documents.schedules import ListedSchedule

_TITLES = ("NAME", "FLOW", "NEXT", "LAST", "STATE", "WHEN")


def print_schedules(app: App, found: Sequence[ListedSchedule], now: datetime) -> None:
    """Schedules as a table, and below it why some start no runs."""
    rows = [_row(app, each, now) for each in found]
    app.print_table(_TITLES, rows, losing=("FLOW", "LAST"), cutting=True)
    for each in found:
        if each.error:
            text = f"{one_line(each.name)}: {app.hide(one_line(each.error))}"
            app.print(app.out.folded(app.out.shown(text)))


def schedule_lines(app: App, found: Sequence[ListedSchedule], now: datetime) -> list[str]:
    """The schedules of a flow, each on a line."""
    names = [one_line(each.name) for each in found]
    width = max(map(text_width, names), default=0)
    return [
        f"schedule {name}{' ' * (width - text_width(name))}  {one_line(each.when)}, "
        + ("paused" if each.paused_at is not None else f"next {_next(app, each, now)}")
        for name, each in zip(names, found, strict=True)
    ]


def tick_lines(ticks: Sequence[datetime], schedule: ListedSchedule, now: datetime) -> Iterator[str]:
    """Ticks as the clock of their zone shows them; between two of them how it was changed."""
    from pgflowd.core.ticks import zone_of

    zone, before = zone_of(schedule.timezone), None
    for tick in ticks:
        shown = tick.astimezone(zone)
        offset = shown.utcoffset()
        if before is not None and offset is not None and offset != before:
            change = "forward" if offset > before else "back"
            by = duration(abs(offset - before).total_seconds())
            yield f"{'':25}  the clock is put {change} by {by}"
        before = offset
        coming = next_text(tick, schedule.timezone, now, brief=True)
        yield f"{shown:%a %Y-%m-%d %H:%M:%S %z}  {coming}"


def next_text(tick: datetime, timezone: str, now: datetime, *, brief: bool = False) -> str:
    """When a tick comes: `in 5h12m`, and unless in brief, at what time."""
    from pgflowd.core.ticks import zone_of

    after = f"in {duration(max(round((tick - now).total_seconds()), 0))}"
    return (
        after if brief else f"{after}, at {tick.astimezone(zone_of(timezone)):%Y-%m-%d %H:%M:%S %z}"
    )


def _row(app: App, each: ListedSchedule, now: datetime) -> list[str | TableCell]:
    last: str | TableCell = app.out.sign(DASH)
    if each.last_at is not None and each.last_status is not None:
        last = app.out.cell(each.last_status.mark, f" {ago(each.last_at, now)}")
    elif each.last_at is not None:
        last = ago(each.last_at, now)
    return [each.name, each.flow_slug, _next(app, each, now), last, _state(app, each), each.when]


def _next(app: App, each: ListedSchedule, now: datetime) -> str:
    if each.paused_at is not None:
        return app.out.sign(DASH)
    return "now" if each.next_at is None else next_text(each.next_at, "UTC", now, brief=True)


def _state(app: App, each: ListedSchedule) -> str | TableCell:
    if each.paused_at is not None:
        by = f" by {each.paused_by}" if each.paused_by else ""
        return app.out.cell(Marks.PAUSED, f" paused{by}")
    if each.error:
        return app.out.cell(Marks.WARNING, " no run")
    return "on"
