"""Says what a task waits for, and what would end that. Pure."""

from __future__ import annotations

import shlex
from datetime import datetime

from pgflowd.core.documents.waits import PAUSED, QUARANTINED, OpenTask
from pgflowd.core.text import duration, short_id, task_name
from pgflowd.core.waiting import WaitKind

UNSERVED = " (no living worker has that)"


def ends_by(task: OpenTask) -> str | None:
    """The command that ends the wait of a task; None if only workers do."""
    if task.kind in (WaitKind.NEED, WaitKind.LIMIT):
        return None
    run = short_id(task.run_id)
    if task.kind == PAUSED:
        return f"pgflowd runs resume {run}"
    if task.kind == QUARANTINED:
        return f"pgflowd stalled requeue {task_name(*task.key)}"
    if task.is_approval:
        return f"pgflowd runs approve {run} {task.step_slug}"
    if task.kind == WaitKind.SIGNAL:
        return f"pgflowd runs signal {run} {shlex.quote(task.name or '')}"
    return f"pgflowd tasks wake {task_name(*task.key)}"


def wait_text(task: OpenTask, moment: datetime) -> str:
    """What a task waits for, and how long from this moment: `waits for signal paid, at most 7d`."""
    left_s = None if task.until is None else (task.until - moment).total_seconds()
    if left_s is not None and left_s <= 0:
        return "waits no longer: it is due"
    time = "" if left_s is None else duration(left_s)
    if task.kind == PAUSED or (task.kind == WaitKind.SLEEP and left_s is None):
        return "waits for the resume of its run"
    if task.kind == QUARANTINED:
        return f"is quarantined: {task.why}"
    if task.kind in (WaitKind.SIGNAL, WaitKind.RUNS):
        return f"waits for {task.waits_for}{f', at most {time}' if time else ''}"
    if task.kind == WaitKind.LIMIT:
        return f"waits for {task.waits_for}"
    if task.kind == WaitKind.NEED:
        return f"{task.waits_for}{UNSERVED if task.is_unserved else ''}"
    return f"waits {time}: {task.why}" if task.why else f"sleeps {time}"
