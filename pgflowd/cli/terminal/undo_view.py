"""Shows how far the undo of a run is."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pgflowd.cli.app import App
from pgflowd.cli.terminal.labelled import print_labelled
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import ago, between, duration, short_id

if TYPE_CHECKING:
    from pgflowd.core.documents.runs import Run, RunDetails


def print_undo(app: App, details: RunDetails) -> None:
    """Who asked for the undo of a run, how far it is, and what failed of it; or what it undoes."""
    run = details.run
    if run.undo_of is not None:
        print_labelled(app, "undoes", f"run {short_id(run.undo_of)}")
    if run.undo_wanted_at is None:
        return
    print_labelled(app, "undo", f"{_progress(details)}{_asked(run, details.now)}")
    for step in details.undos.values():
        if step.failed:
            text = f"{step.step_slug}: {step.error or 'its undo was not finished'}"
            print_labelled(app, "not undone", app.hide(text))
    if run.status is RunStatus.UNDO_FAILED:
        word = short_id(run.run_id)
        print_labelled(app, "next", f"`pgflowd runs undo {word} --again` undoes what is left")


def _progress(details: RunDetails) -> str:
    run, undo = details.run, details.undo
    tasks, undone = (sum(getattr(each, name) for each in details.undos.values())
                     for name in ("tasks", "undone"))  # fmt: skip
    if undo is None:
        is_over = run.status is RunStatus.UNDONE
        return "there was nothing to undo" if is_over else "begins when none of its tasks runs"
    took_s = between(run.undo_wanted_at, undo.ended_at) if run.has_ended else None
    within = "" if took_s is None else f" in {duration(took_s)}"
    return f"{undone} of {tasks} undone{within}, by run {short_id(undo.run_id)}"


def _asked(run: Run, now: datetime) -> str:
    if run.undo_by is None or run.undo_wanted_at is None:
        return ""
    why = f": {run.undo_reason}" if run.undo_reason else ""
    return one_line(f"; asked for {ago(run.undo_wanted_at, now)} by {run.undo_by}{why}")
