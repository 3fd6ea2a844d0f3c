"""Shows the tasks of one step of a run."""

from __future__ import annotations

from datetime import datetime

from pgflowd.cli.app import App
from pgflowd.cli.terminal.screen import DASH, TableCell
from pgflowd.core.documents.run_tasks import StepTask, StepTasksPage
from pgflowd.core.redact import one_line
from pgflowd.core.text import cut, duration

_NAME = 30  # characters of the name of a worker
_LONG = 200  # characters of an error, before the table cuts it


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
            app.out.shown(cut(app.hide(one_line(_told(task))), _LONG)) or dash,
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
