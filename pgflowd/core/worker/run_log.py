"""
What is logged of tasks, steps and runs.

The database returns, with the answers to reports, what became of their runs and steps. It is
asked for that where the log wants it: at level debug of every run, else of those in which
something went wrong, and of all if conditions may end steps and runs without any failure. So a
worker whose tasks succeed pays nothing and logs nothing at level info. A run counts as started
when its first task is claimed, as cancelled when a renewal of leases says so.

Inputs and outputs are logged where `logging.payloads` asks for them: parsed, so that the log can
hide the keys that `logging.redact` names; of what is large, only the size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pgflowd.core.json import decode
from pgflowd.core.metrics.definitions import RUNS
from pgflowd.core.statuses import Outcome, RunStatus
from pgflowd.core.traces import run_span, step_span
from pgflowd.core.worker.actions import WorkerTransition
from pgflowd.core.worker.events import LeftBehind, ReportAnswer, RunCancelled, RunChange, Verdict
from pgflowd.core.worker.state import WorkerOptions
from pgflowd.core.worker.task import Task, TaskReport

MAX_SHOWN_BYTES = 4000  # bytes of an input or output; a record has no room for more
WRONG_TYPE = "the output is not a list, and a map step after it needs one"
TOO_LARGE = "the output of the run would be larger than 256 MB, the most that jsonb holds"
_LEVELS = {
    "run.completed": "debug",
    "run.failed": "warning",
    "step.started": "debug",
    "step.completed": "debug",
    "step.skipped": "info",
}
_CODES = {Outcome.TIMED_OUT: "E401", Outcome.CRASHED: "E402"}


def naming(task: Task) -> dict[str, Any]:
    """The fields by which a log record names a task."""
    fields = {
        "run": task.run_id,
        "step": task.step,
        "task": f"{task.step}#{task.task_index}",
        "attempt": task.attempt,
    }
    if span := task.span:
        fields |= span._asdict()
    return fields


# tasks


def task_started(transition: WorkerTransition, task: Task) -> None:
    options = transition.state.options
    if options.is_debug:
        given = {"input": input_of(task)} if options.may_log_payloads else {}
        event = "task.started" if task.attempt == 1 else "task.retried"
        transition.log("debug", event, **naming(task), **given)


def lease_lost(transition: WorkerTransition, task: Task, text: str) -> None:
    transition.log_problem("warning", text, code="E407", **naming(task))


def dropped(transition: WorkerTransition, report: TaskReport, text: str) -> None:
    """Its lease has ended. If its runner may have completed the task, that is no warning."""
    if report.may_be_recorded:
        fields = {"verdict": Verdict.LOST.value, "error": report.error_message}
        transition.log("debug", f"task.{report.outcome}", **naming(report.task), **fields)
    else:
        lease_lost(transition, report.task, text)


def left_behind(transition: WorkerTransition, task: Task, left: LeftBehind) -> None:
    """A task, or several that shared a runner, left something behind."""
    what = f"child processes ({', '.join(left.children)[:100]})" if left.children else ""
    what = what or ", ".join(left.reset)[:100]
    if left.tasks:
        names = ", ".join(left.tasks)[:1000]
        text = f"tasks that shared a runner left {what} behind; it is ended. It had {names}"
        transition.log_problem("warning", text)
    else:
        text = f"the task left {what} behind; they are killed with its runner"
        transition.log_problem("warning", text, **naming(task))


def is_wrong_type(report: TaskReport, verdict: Verdict) -> bool:
    """Whether a map waits for this output, which is not an array; then its run has failed."""
    return verdict is Verdict.FAILED and report.outcome is Outcome.COMPLETED


def error_of_completion(report: TaskReport, answer: ReportAnswer) -> str | None:
    """Why a run has failed although the report says that its task was completed."""
    if is_wrong_type(report, answer.verdict):
        return WRONG_TYPE
    is_failed = answer.run_status is RunStatus.FAILED and report.outcome is Outcome.COMPLETED
    return TOO_LARGE if is_failed else None


def recorded(transition: WorkerTransition, report: TaskReport, verdict: Verdict) -> None:
    """The database has recorded a report."""
    outcome, options = report.outcome, transition.state.options
    wait = report.wait
    is_good = outcome is Outcome.COMPLETED or (wait is not None and not wait.why)
    is_good = is_good and verdict is not Verdict.FAILED
    if is_good and not options.is_debug:
        return
    error, code = report.error_message or (wait and wait.why), _CODES.get(outcome)
    if is_wrong_type(report, verdict):
        outcome, error, code = Outcome.FAILED, WRONG_TYPE, "E416"
    if outcome.is_failure:
        then = "it will be retried" if verdict is Verdict.QUEUED else "it is not retried"
        which = f"attempt {report.task.attempt} of {report.task.max_attempts}"
        error = f"{error} ({which}); {then}"
    fields = {"verdict": verdict.value, "code": code, "took_s": report.took_s, "error": error}
    fields |= {"traceback": report.traceback, "wait": wait and wait.checkpoint}
    if options.may_log_payloads:
        fields |= {"input": input_of(report.task), "output": shown(report.output)}
    level = "warning" if verdict is Verdict.FAILED else "info"
    level = "debug" if is_good else level
    transition.log(level, f"task.{outcome}", **naming(report.task), **fields)


def input_of(task: Task) -> Any:
    """What the handler gets: the run's input as `run`, with the deps; or a map's element."""
    if task.flow_input is None:
        return shown(task.input)
    deps = shown(task.input)
    run = {"run": shown(task.flow_input)}
    return {**run, **deps} if isinstance(deps, dict) else run


def shown(body: bytes | None) -> Any:
    """A JSON text as a value, or its size."""
    if body is None:
        return None
    if len(body) <= MAX_SHOWN_BYTES:
        try:
            return decode(body)
        except (ValueError, RecursionError):
            pass
    return f"({len(body)} bytes)"


# runs and steps


def runs_of_interest(options: WorkerOptions, reports: Iterable[TaskReport]) -> tuple[str, ...]:
    """The runs whose changes by these reports the log wants."""
    wants_all = options.is_debug or options.has_conditions
    runs = [
        report.task.run_id
        for report in reports
        if report.may_end_run and (wants_all or report.outcome is not Outcome.COMPLETED)
    ]
    return tuple(dict.fromkeys(runs)) if runs else ()


def changes(
    transition: WorkerTransition, found: tuple[RunChange, ...], tasks: Iterable[Task] = ()
) -> None:
    """Log each run and step that ended or began; what is for debug only at debug. `tasks` are
    some of these runs, which tell where their spans belong."""
    if not found:
        return
    traces = {task.run_id: span.trace_id for task in tasks if (span := task.span)}
    failed = {each.run_id for each in found if _is_failed_run(each)}
    for each in found:
        event = f"{'run' if each.step is None else 'step'}.{each.status}"
        level = "warning" if each.run_id in failed else "info"  # or the run goes on
        fields = {"run": each.run_id, "step": each.step, "took_s": each.took_s}
        if each.run_id in traces:
            span_id = step_span(each.run_id, each.step) if each.step else run_span(each.run_id)
            fields |= {"trace_id": traces[each.run_id], "span_id": span_id}
        transition.log(_LEVELS.get(event, level), event, **fields, error=each.error)


def run_failed(
    transition: WorkerTransition, run_id: str, found: tuple[RunChange, ...], error: str
) -> None:
    """A run has failed without a failed report, so its changes were perhaps not read."""
    if not any(each.run_id == run_id and _is_failed_run(each) for each in found):
        transition.log("warning", "run.failed", run=run_id, error=error)


def _is_failed_run(change: RunChange) -> bool:
    return change.step is None and change.status is RunStatus.FAILED


def runs_started(transition: WorkerTransition, tasks: tuple[Task, ...]) -> None:
    options = transition.state.options
    if not options.is_debug:
        return
    for task in tasks:
        if task.step in options.roots and task.attempt == 1 and task.task_index == 0:
            if transition.is_first(f"{task.run_id} started"):
                transition.log("debug", "run.started", run=task.run_id)
            if transition.is_first(f"{task.run_id} {task.step} started"):
                transition.log("debug", "step.started", run=task.run_id, step=task.step)


def runs_cancelled(transition: WorkerTransition, runs: tuple[RunCancelled, ...]) -> None:
    for each in runs:
        if transition.is_first(f"{each.run_id} cancelled"):
            transition.count(RUNS, RunStatus.CANCELLED)
            why = f"cancelled by {each.by or 'an unknown user'}" + (
                f": {each.why}" if each.why else ""
            )
            transition.log("info", "run.cancelled", run=each.run_id, error=why)
