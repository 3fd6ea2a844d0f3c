"""
Shows lists on a terminal: runs, attempts, tasks, checkpoints, schedules.

The documents say what a column is called (`core.documents`); a list here says which columns
it has, which of them a narrow terminal loses first, and what it shows in place of a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgflowd.cli.app import App
from pgflowd.cli.terminal.screen import DASH, Screen, TableCell, text_width
from pgflowd.cli.terminal.texts import list_lines, on_one_line, print_list
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Marks, Outcome, RunStatus, TaskStatus
from pgflowd.core.text import ago, cut, duration, short_id

if TYPE_CHECKING:
    from pgflowd.core.documents.run_tasks import OpenTask, SavedCheckpoint, StepTask, StepTasksPage
    from pgflowd.core.documents.runs import ListedRun, Run, RunDetails
    from pgflowd.core.documents.schedules import ListedSchedule


def print_runs(app: App, runs: Sequence[ListedRun], now: datetime) -> None:
    """Runs as a table; with -v each error is below its run."""
    if not runs:
        app.note("there are no such runs")
        return
    is_below = app.verbose and app.out.width is not None
    lines = list_lines(
        app.out,
        runs,
        "run_id flow_slug title status started_at took_s steps_text" + " error" * (not is_below),
        "error took_s steps_text started_at title",
        now=now,
        hide=app.hide,
        whole_ids=app.verbose,
        whole_texts=app.verbose,
        cutting=not is_below,
        flow_slug=lambda run: f"undo of {short_id(run.undo_of)}" if run.undo_of else run.flow_slug,
        title=lambda run: on_one_line(run.title),
        started_at=lambda run: TableCell(begin_text(run, now)),
        steps_text=_steps_text,
        error=lambda run: on_one_line(run.error),
    )
    app.print(lines[0])
    for line, run in zip(lines[1:], runs, strict=True):
        app.print(line)
        if is_below and run.error:
            error = one_line(app.hide(on_one_line(run.error)))
            app.print(app.out.folded(f"  {app.out.shown(error)}"))


def begin_text(run: ListedRun | Run, now: datetime) -> str:
    """When a run has begun, or will begin; empty while others must end first."""
    if run.started_at is not None:
        return ago(run.started_at, now)
    if run.status is RunStatus.BLOCKED:
        return ""
    if run.start_at is None or run.has_ended:
        return "never"
    return until_text(run.start_at, now)


def until_text(moment: datetime, now: datetime) -> str:
    return f"in {duration(max(round((moment - now).total_seconds()), 0))}"


def _steps_text(run: ListedRun) -> str:
    """How many steps are done; of an open run also the share, where it tells more."""
    if run.has_ended or not run.share or run.share <= run.steps_share:
        return run.steps_text
    return f"{run.steps_text} {run.share:.0%}"


def print_attempts(app: App, details: RunDetails) -> None:
    from pgflowd.core.documents.runs import Attempt

    print_list(
        app,
        details.attempts or [],
        "step task attempt outcome started_at took_s error",
        "started_at error task took_s",
        kind=Attempt,
        now=details.now,
        outcome=lambda each: each.outcome or Outcome.STARTED,
        error=lambda each: on_one_line(each.error),
    )


def wait_lines(screen: Screen, head: str, text: str, command: str | None, indent: int) -> list[str]:
    """What a task waits for, and the command that ends it, if one does, which stays whole."""
    text, command = one_line(text), one_line(command or "")
    line = f"{head}{text}; `{command}` ends it"
    if command and screen.fits(line):
        return [line]
    below = [f"{' ' * indent}{command}"] if command else []
    return [*screen.wrapped(text, head=head, indent=indent), *below]


def print_tasks(app: App, tasks: Sequence[OpenTask], now: datetime) -> None:
    """Open tasks as a table; with -v whole ids. Who has a task is told where somebody has one."""
    from pgflowd.core.timeline import UNSERVED

    def until(task: OpenTask) -> datetime | str | None:
        """When the wait, the lease or the delay is over: `in 2h05m`, `due`; or nothing."""
        if task.until is None or task.status is TaskStatus.LAPSED:
            return task.until
        left_s = round((task.until - now).total_seconds())
        return f"in {duration(left_s)}" if left_s > 0 else "due"

    print_list(
        app,
        tasks,
        "key flow_slug title status waits_for worker since until",
        "flow_slug status since title until worker",
        now=now,
        waits_for=lambda task: cut(task.waits_for, 60) + UNSERVED * bool(task.is_unserved),
        since=lambda task: duration(round((now - task.since).total_seconds())),
        until=until,
    )


def print_checkpoints(app: App, saved: Sequence[SavedCheckpoint], now: datetime) -> None:
    """What the tasks of a run have saved."""
    if not saved:
        app.note("its tasks have saved nothing")
        return
    names = "place name version size saved_at data"
    print_list(app, saved, names, "data version size saved_at", now=now)


def print_step_tasks(app: App, page: StepTasksPage, now: datetime) -> None:
    """Tasks: the index, how each is, and what is known of its last attempt."""

    def took_s(task: StepTask) -> float | None:
        """Of one that runs, until now."""
        if task.status.is_end or task.started_at is None:
            return task.took_s
        return None if task.ended_at else (now - task.started_at).total_seconds()

    def error(task: StepTask) -> str:
        """What it waits for, else what its last attempt failed with."""
        if task.kind is not None:
            return task.why or f"{task.kind} {task.name or ''}".strip()
        return task.error or task.error_type or ""

    print_list(
        app,
        page.tasks,
        "task status attempts took_s worker error",
        "worker attempts took_s error",
        attempts=lambda task: (task.status.is_end and task.attempt) or task.attempts,
        took_s=took_s,
        error=error,
    )


def print_schedules(app: App, found: Sequence[ListedSchedule], now: datetime) -> None:
    """Schedules as a table, and below it why some start no runs."""

    def last(each: ListedSchedule) -> Any:
        if each.last_at is None or each.last_status is None:
            return each.last_at
        return app.out.cell(each.last_status.mark, f" {ago(each.last_at, now)}")

    def state(each: ListedSchedule) -> str | TableCell:
        if each.paused_at is not None:
            by = f" by {each.paused_by}" if each.paused_by else ""
            return app.out.cell(Marks.PAUSED, f" paused{by}")
        return app.out.cell(Marks.WARNING, " no run") if each.error else "on"

    print_list(
        app,
        found,
        "name flow_slug next_at last_at paused_at when",
        "flow_slug last_at",
        now=now,
        next_at=lambda each: _next(each, now),
        last_at=last,
        paused_at=state,
    )
    for each in found:
        if each.error:
            text = f"{one_line(each.name)}: {app.hide(one_line(each.error))}"
            app.print(app.out.folded(app.out.shown(text)))


def schedule_lines(app: App, found: Sequence[ListedSchedule], now: datetime) -> list[str]:
    """The schedules of a flow, each on a line."""
    names = [one_line(each.name) for each in found]
    width = max(map(text_width, names), default=0)
    coming = [_next(each, now) or app.out.sign(DASH) for each in found]
    return [
        f"schedule {name}{' ' * (width - text_width(name))}  {one_line(each.when)}, "
        + ("paused" if each.paused_at is not None else f"next {tick}")
        for name, each, tick in zip(names, found, coming, strict=True)
    ]


def _next(each: ListedSchedule, now: datetime) -> str | None:
    if each.paused_at is not None:
        return None
    return "now" if each.next_at is None else until_text(each.next_at, now)


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
        yield f"{shown:%a %Y-%m-%d %H:%M:%S %z}  {until_text(tick, now)}"


def next_text(tick: datetime, timezone: str, now: datetime) -> str:
    """When a tick comes: `in 5h12m`, and at what time."""
    from pgflowd.core.ticks import zone_of

    return f"{until_text(tick, now)}, at {tick.astimezone(zone_of(timezone)):%Y-%m-%d %H:%M:%S %z}"
