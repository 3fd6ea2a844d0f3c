"""Shows open tasks and what would end their waits, the tasks of a step, signals, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pgflowd.cli.app import App
from pgflowd.cli.terminal.screen import DASH, Screen, TableCell
from pgflowd.core.documents.run_tasks import StepTask, StepTasksPage
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import TaskStatus
from pgflowd.core.text import ago, brief, cut, duration, short_id, size, task_name
from pgflowd.core.timeline import UNSERVED

if TYPE_CHECKING:
    from pgflowd.core.documents.waits import ListedSignal, OpenTask, SavedCheckpoint

_NAME = 30  # characters of the name of a signal or worker in a list
_LONG = 60  # characters of a payload or of a reason in a list
_ERROR_LENGTH = 200  # characters of an error, before the table cuts it


def wait_lines(screen: Screen, head: str, text: str, command: str | None, indent: int) -> list[str]:
    """What a task waits for, and the command that ends it, if one does, which stays whole."""
    if command is None:
        return screen.wrapped(one_line(text), head=head, indent=indent)
    text, command = one_line(text), one_line(command)
    line = f"{head}{text}; `{command}` ends it"
    if screen.fits(line):
        return [line]
    return [*screen.wrapped(text, head=head, indent=indent), f"{' ' * indent}{command}"]


def time_left(task: OpenTask, now: datetime) -> str:
    """When the wait, the lease or the delay of a task is over: `in 2h05m`, `due`; or nothing."""
    if task.until is None:
        return ""
    left_s = round((task.until - now).total_seconds())
    if task.status is TaskStatus.LAPSED:
        return ago(task.until, now)
    return f"in {duration(left_s)}" if left_s > 0 else "due"


def print_tasks(app: App, tasks: Sequence[OpenTask], now: datetime) -> None:
    """Open tasks as a table; with -v whole ids. Who has a task is told where somebody has one."""
    dash = app.out.sign(DASH)
    are_held = any(task.worker for task in tasks)
    have_titles = any(task.title for task in tasks)
    rows: list[list[str | TableCell]] = [
        [
            f"{task.run_id}/{task.step_slug}#{task.task_index}"
            if app.verbose
            else task_name(*task.key),
            task.flow_slug,
            *[app.out.shown(cut(app.hide(one_line(task.title or "")), _NAME))] * have_titles,
            app.out.cell(task.status.mark, f" {task.status}"),
            app.out.shown(cut(app.hide(task.waits_for), _LONG) + UNSERVED * bool(task.is_unserved))
            or dash,
            *[app.out.shown(cut(task.worker or dash, _NAME))] * are_held,
            duration(round((now - task.since).total_seconds())),
            time_left(task, now) or dash,
        ]
        for task in tasks
    ]
    app.print_table(
        (
            "TASK",
            "FLOW",
            *["TITLE"] * have_titles,
            "STATUS",
            "WAITS FOR",
            *["BY"] * are_held,
            "SINCE",
            "UNTIL",
        ),
        rows,
        losing=("FLOW", "STATUS", "SINCE", "TITLE", "UNTIL", "BY"),
    )


def print_signals(app: App, signals: Sequence[ListedSignal], now: datetime) -> None:
    """Signals as a table."""
    dash = app.out.sign(DASH)
    rows: list[list[str | TableCell]] = [
        [
            str(signal.run_id) if app.verbose else short_id(signal.run_id),
            app.out.shown(cut(signal.name, _NAME)),
            ago(signal.sent_at, now),
            signal.sender or dash,
            receiver(signal) or dash,
            app.out.shown(app.hide(brief(signal.payload, _LONG))),
        ]
        for signal in signals
    ]
    app.print_table(
        ("RUN", "SIGNAL", "SENT", "BY", "GIVEN TO", "PAYLOAD"),
        rows,
        losing=("PAYLOAD", "BY", "SENT", "GIVEN TO"),
        cutting=True,
    )


def receiver(signal: ListedSignal) -> str:
    """The task that got a signal, within its run; empty if none did."""
    return "" if signal.step_slug is None else f"{signal.step_slug}#{signal.task_index}"


def print_checkpoints(app: App, saved: Sequence[SavedCheckpoint], now: datetime) -> None:
    """What the tasks of a run have saved, as a table."""
    if not saved:
        app.note("its tasks have saved nothing")
        return
    rows = [
        [
            f"{each.step_slug}#{each.task_index}",
            each.name,
            str(each.version),
            size(each.size),
            ago(each.saved_at, now),
            app.out.shown(app.hide(brief(each.data, _LONG))),
        ]
        for each in saved
    ]
    app.print_table(
        ("TASK", "CHECKPOINT", "VERSION", "SIZE", "SAVED", "VALUE"),
        rows,
        right={"VERSION", "SIZE"},
        losing=("VALUE", "VERSION", "SIZE", "SAVED"),
        cutting=True,
    )


def print_step_tasks(app: App, page: StepTasksPage, now: datetime) -> None:
    """Tasks as a table: the index, how each is, and what is known of its last attempt."""
    dash = app.out.sign(DASH)
    rows: list[list[str | TableCell]] = [
        [
            f"#{task.task}",
            app.out.cell(task.status.mark, f" {task.status}"),
            str(task.attempt or task.attempts) if task.status.is_end else str(task.attempts),
            _time(task, now) or dash,
            app.out.shown(cut(task.worker or dash, _NAME)),
            app.out.shown(cut(app.hide(one_line(_told(task))), _ERROR_LENGTH)) or dash,
        ]
        for task in page.tasks
    ]
    app.print_table(
        ("TASK", "STATUS", "ATTEMPTS", "TOOK", "WORKER", "ERROR"),
        rows,
        right={"ATTEMPTS", "TOOK"},
        losing=("WORKER", "ATTEMPTS", "TOOK", "ERROR"),
        cutting=True,
    )


def _time(task: StepTask, now: datetime) -> str:
    """How long the last attempt took; of one that runs, until now."""
    if task.status.is_end or task.started_at is None:
        return "" if task.took_s is None else duration(task.took_s)
    is_running = task.ended_at is None
    return duration((now - task.started_at).total_seconds()) if is_running else ""


def _told(task: StepTask) -> str:
    """What it waits for, else what its last attempt failed with."""
    if task.kind is not None:
        return task.why or f"{task.kind} {task.name or ''}".strip()
    return task.error or task.error_type or ""
