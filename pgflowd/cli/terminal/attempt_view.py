"""Shows the attempts of a run, and what running ones have told of their progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgflowd.cli.app import App
from pgflowd.cli.terminal.labelled import print_labelled
from pgflowd.cli.terminal.screen import BAR, TableCell
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Outcome
from pgflowd.core.text import ago, between, counted, cut, duration, short_id

if TYPE_CHECKING:
    from pgflowd.core.documents.runs import RunDetails

MAX_ERROR_CHARS = 60  # of an error in a list
MAX_KEPT = 5  # steps of which is said that output is kept
OLD_S = 10.0  # a progress that was told so long ago has its age beside it


def print_kept_output(app: App, details: RunDetails) -> None:
    """Of which failed steps output is kept, and how to see it: of each step the last attempt."""
    last = {each.step_slug: each for each in details.failures if each.output_lines}
    run = short_id(details.run.run_id)
    for each in list(last.values())[-MAX_KEPT:]:
        command = f"pgflowd runs output {run} --step {each.step_slug}"
        lines = counted(each.output_lines or 0, "line")
        text = f"{lines} of {each.step_slug}#{each.task_index}, attempt {each.attempt}"
        print_labelled(app, "output kept", f"{text}; `{command}`")


def print_attempts(app: App, details: RunDetails) -> None:
    rows: list[list[str | TableCell]] = []
    for each in details.attempts or []:
        outcome = each.outcome or Outcome.STARTED
        took_s = between(each.started_at, each.ended_at or details.now) or 0.0
        rows.append([
            each.step, str(each.task), str(each.attempt),
            app.out.cell(outcome.mark, f" {outcome.replace('_', ' ')}"),
            ago(each.started_at, details.now), duration(took_s),
            app.out.shown(cut(app.hide(on_one_line(each.error)), MAX_ERROR_CHARS)),
        ])  # fmt: skip
    app.print_table(
        ("STEP", "TASK", "ATTEMPT", "OUTCOME", "STARTED", "TOOK", "ERROR"),
        rows,
        right={"TASK", "ATTEMPT", "TOOK"},
        losing=("STARTED", "ERROR", "TASK", "TOOK"),
        cutting=True,
    )


def print_progress(app: App, details: RunDetails) -> None:
    """What running tasks have told of their progress."""
    full, empty = map(app.out.sign, BAR)
    for step in details.steps:
        if step.progress is not None and step.running:
            at, text = step.progress.at, step.progress.shown(full, empty)
            if at is not None and (details.now - at).total_seconds() >= OLD_S:
                text += f", {ago(at, details.now)}"
            print_labelled(app, step.step_slug, app.hide(one_line(text)))


def on_one_line(error: str | None) -> str:
    """An error of several lines as one, for lists."""
    return " ".join((error or "").split("\n"))
