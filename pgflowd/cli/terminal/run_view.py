"""
Run screen: how lists of runs and single runs look, for people and for programs.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgflowd.cli.app import App
from pgflowd.cli.terminal.marks import mark, plain
from pgflowd.cli.terminal.run_graph import graph_of_run, last_error, painted
from pgflowd.cli.terminal.screen import TableCell
from pgflowd.cli.terminal.timeline import why
from pgflowd.core.redact import one_line
from pgflowd.core.text import ago, between, brief, cut, lasted, short_id, spoken

if TYPE_CHECKING:
    from pgflowd.cli.run_facts import RunFacts
    from pgflowd.db.overview import RunListRow, StepTasks
    from pgflowd.db.runs import Run, RunWithStates, StepState

SCHEMA_VERSION = 1
_ERROR = 60  # columns of an error in a list


def list_screen(app: App, rows: Sequence[RunListRow], now: datetime) -> None:
    """Runs as a table."""
    if not rows:
        app.note("there are no such runs")
        return
    titles = ("RUN", "FLOW", "STATUS", "STARTED", "TOOK", "STEPS", "ERROR")
    lines = [_line(app, row, now) for row in rows]
    losing = ("ERROR", "TOOK", "STEPS", "STARTED")
    if not app.verbose or app.out.width is None:
        app.print_table(titles, lines, right={"TOOK", "STEPS"}, losing=losing, cutting=True)
        return
    rest = [line[:-1] for line in lines]
    told = app.out.table(titles[:-1], rest, right={"TOOK", "STEPS"}, losing=losing)
    head, *body = told.splitlines()
    app.print(head)
    for shown, row in zip(body, rows, strict=True):
        app.print(shown)
        if row.error:  # whole, so on lines of its own
            app.print(app.out.folded(f"  {plain(app.out, one_line(app.hide(row.error)))}"))


def _line(app: App, row: RunListRow, now: datetime) -> list[str | TableCell]:
    sign = mark(app.out, row.status)
    took = between(row.started_at, row.ended_at or now) or 0.0
    error = app.hide(row.error or "")
    return [
        str(row.run_id) if app.verbose else short_id(row.run_id),
        row.flow_slug,
        sign.cell(f" {row.status}"),
        ago(row.started_at, now),
        lasted(took),
        f"{row.steps_done}/{row.steps}",
        plain(app.out, error if app.verbose else cut(error, _ERROR)),
    ]


def show_screen(app: App, view: RunFacts) -> None:
    """A run: what it is, its picture, its last error, and its attempts if asked for."""
    for line in _head(app, view):
        app.print(line)
    picture = painted(graph_of_run(view.run, view.steps, view.now), app.out)
    app.print(textwrap.indent(picture, " ") if app.out.width is None else picture)
    text, place = last_error(view.run, view.troubles, view.now) or ("", None)
    if view.run.status == "completed":
        _labelled(app, "output", brief(view.run.output, _room(app, "output")))
    elif view.run.has_ended and not _says(text, why(view.run)):
        _labelled(app, "why", why(view.run) or "")
    if text:
        is_new = place is not None and place not in text
        _labelled(app, "last error", f"{text}   {place}" if is_new else text)
    if view.attempts is not None:
        _attempts(app, view)


def _says(text: str, reason: str | None) -> bool:
    """Whether a text about a step tells this reason, `step: error`, too."""
    step, _, error = (reason or "").partition(": ")
    return text.startswith(step) and text.endswith(error)


def show_value(app: App, value: Any) -> None:
    """An input or output, whole, for people and programs alike."""
    app.print(json.dumps(value, indent=2, ensure_ascii=not app.out.unicode))


def ended_screen(app: App, ended: Sequence[RunWithStates]) -> None:
    """The outputs of completed runs, and why the others have none."""
    for run in ended:
        which = f"run {short_id(run.run_id)}  " if len(ended) > 1 else ""
        if run.status == "completed":
            app.print(f"{which}{json.dumps(run.output, ensure_ascii=not app.out.unicode)}")
        else:
            told = one_line(app.hide(why(run) or ""))
            sign = mark(app.out, run.status)
            head = f"run {short_id(run.run_id)}  "
            state = f" {run.status}"
            taken = len(head) + len(sign.text) + len(state)
            _say_wrapped(app, f"{head}{sign.painted(state)}", taken, told)


def run_json(run: Run) -> dict[str, Any]:
    """A run for programs."""
    return {
        "run_id": str(run.run_id),
        "flow": run.flow_slug,
        "status": run.status,
        "input": run.input,
        "output": run.output,
        "error": run.error,
        "started_at": run.started_at,
        "ended_at": run.completed_at or run.failed_at,
        "cancelled_by": run.cancelled_by,
        "cancel_reason": run.cancel_reason,
    }


def row_json(row: RunListRow) -> dict[str, Any]:
    """A run in a list, for programs."""
    return {
        "run_id": str(row.run_id),
        "flow": row.flow_slug,
        "status": row.status,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "steps": row.steps,
        "steps_done": row.steps_done,
        "error": row.error,
    }


def show_json(view: RunFacts) -> dict[str, Any]:
    """Everything of a run, for programs."""
    steps = [_step_json(step, view.run.steps.get(step.step_slug)) for step in view.steps]
    whole = {"schema_version": SCHEMA_VERSION, **run_json(view.run), "steps": steps}
    return whole if view.attempts is None else {**whole, "attempts": view.attempts}


def _step_json(step: StepTasks, state: StepState | None) -> dict[str, Any]:
    return {
        "step": step.step_slug,
        "type": step.step_type,
        "deps": step.deps,
        "status": state.status if state else "created",
        "output": state.output if state else None,
        "error": state.error if state else None,
        "skip_reason": state.skip_reason if state else None,
        "started_at": state.started_at if state else None,
        "ended_at": (state.completed_at or state.failed_at or state.skipped_at) if state else None,
        "tasks": step.tasks,
        "queued": step.queued,
        "running": step.running,
        "completed": step.completed,
        "failed": step.failed,
        "attempts": step.attempts,
        "max_attempts": step.max_attempts,
        "timeout_s": step.timeout_s,
        "next_at": step.next_at,
    }


def _head(app: App, view: RunFacts) -> list[str]:
    """Who the run is, how it is, and what it was given; on several lines where it is narrow."""
    run = view.run
    assert run.started_at is not None
    sign = mark(app.out, run.status)
    ended_at = run.completed_at or run.failed_at
    took = f" after {spoken(between(run.started_at, ended_at) or 0.0)}" if run.has_ended else ""
    state = f" {run.status}{took}, started {ago(run.started_at, view.now)}"
    if not run.has_ended:
        state = f" {run.status} {ago(run.started_at, view.now)}"
    parts = [f"run {run.run_id}", run.flow_slug, sign.text + state]
    told = one_line(app.hide(brief(run.input, 60)))
    whole = "   ".join([*parts, f"input {told}"])
    painted_parts = [*parts[:2], sign.painted(state)]
    if app.out.width is None or len(whole) <= app.out.width:
        return [plain(app.out, "   ".join([*painted_parts, f"input {told}"]))]
    told = one_line(app.hide(brief(run.input, _room(app, "input"))))
    lines = [painted_parts[0], "  ".join(painted_parts[1:]), plain(app.out, f"input {told}")]
    if len(f"{run.flow_slug}  {sign.text}{state}") > app.out.width:
        lines[1:2] = [run.flow_slug, sign.painted(state.partition(",")[0])]
    return lines


def _attempts(app: App, view: RunFacts) -> None:
    titles = ("STEP", "TASK", "ATTEMPT", "OUTCOME", "STARTED", "TOOK", "ERROR")
    lines = []
    for one in view.attempts or []:
        outcome = one["outcome"] or "started"
        took = between(one["started_at"], one["ended_at"] or view.now) or 0.0
        error = cut(app.hide(one["error"] or ""), _ERROR)
        lines.append([
            one["step"], str(one["task"]), str(one["attempt"]),
            mark(app.out, outcome).cell(f" {outcome.replace('_', ' ')}"),
            ago(one["started_at"], view.now), lasted(took), plain(app.out, error),
        ])  # fmt: skip
    app.print_table(
        titles,
        lines,
        right={"TASK", "ATTEMPT", "TOOK"},
        losing=("STARTED", "ERROR", "TASK", "TOOK"),
        cutting=True,
    )


def _labelled(app: App, label: str, text: str) -> None:
    """A text with its name before it, whole, wrapped under itself where it is long."""
    text = one_line(app.shorten_paths(app.hide(text)))
    _say_wrapped(app, f" {label}", len(label) + 1, text)


def _say_wrapped(app: App, head: str, taken: int, text: str) -> None:
    """A text behind its head, or below it where there is no room."""
    text = plain(app.out, text)
    if app.out.width is None or taken + 2 + len(text) <= app.out.width:
        app.print(f"{head}  {text}".rstrip())
        return
    app.print(head)
    for line in textwrap.wrap(text, max(app.out.width - 3, 20)):
        app.print(f"   {line}")


def _room(app: App, label: str) -> int:
    dots = len(app.out.sign("cut")) - 1  # where the sign for more is three dots
    return 200 if app.out.width is None else max(app.out.width - len(label) - 3 - dots, 10)
