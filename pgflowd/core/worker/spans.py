"""
The spans that a worker writes: of its attempts, and of steps and runs that its reports have ended.

A span is a document: what `processes.exporter` makes a span of OpenTelemetry from. Times are
seconds since 1970. What was printed, inputs and outputs are in no span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pgflowd.core.statuses import RunStatus, StepStatus
from pgflowd.core.traces import (
    SpanName,
    Trace,
    attempt_span,
    run_span,
    step_span,
    write_traceparent,
)
from pgflowd.core.worker.events import RunChange, Verdict
from pgflowd.core.worker.task import Task, TaskReport

MAX_TEXT_CHARS = 1000  # of an error
_FAILED = (RunStatus.FAILED, StepStatus.FAILED)
_BEGUN = (RunStatus.STARTED, StepStatus.STARTED)

Document = dict[str, Any]


class EndedAttempt(NamedTuple):
    """An attempt that was reported, of a run whose spans are written."""

    report: TaskReport
    verdict: Verdict


class EndedPart(NamedTuple):
    """A step or run that a report has ended, and a task of that run."""

    change: RunChange
    task: Task
    not_before: float | None  # when its last attempt of these reports has ended


def is_traced(task: Task) -> bool:
    return task.trace is not None and task.trace.is_sampled


def name_of(task: Task) -> SpanName | None:
    """The span of an attempt, if those of its run are written."""
    trace = task.trace
    if trace is None or not trace.is_sampled:
        return None
    return SpanName(trace.trace_id, _attempt_id(task))


def traceparent_of(task: Task, map_spans: int) -> str | None:
    """What the handler is told; None while there are no traces. The handler of an element whose
    attempt gets no span writes none either."""
    trace = task.trace
    if trace is None:
        return None
    is_sampled = trace.is_sampled and task.task_index < map_spans
    return write_traceparent(trace.trace_id, _attempt_id(task), is_sampled)


def ended_attempts(
    reports: Iterable[tuple[TaskReport, Verdict]], map_spans: int
) -> tuple[EndedAttempt, ...]:
    """Those of which a span is written: of the elements of a map that complete only some."""
    return tuple(
        [
            EndedAttempt(report, verdict)
            for report, verdict in reports
            if report.began_at is not None
            and (report.task.task_index < map_spans or verdict is not Verdict.COMPLETED)
        ]
    )


def ended_parts(
    reports: Iterable[TaskReport], changes: Iterable[RunChange]
) -> tuple[EndedPart, ...]:
    """The steps and runs that have ended, of runs whose spans are written. Who completes a task in
    a transaction of its own has its step end with that transaction's begin, before the attempt."""
    tasks: dict[str, Task] = {}
    last: dict[tuple[str, str | None], float] = {}
    for each in reports:
        task = each.task
        if is_traced(task) and each.ended_at is not None:
            tasks[task.run_id] = task
            for part in ((task.run_id, task.step), (task.run_id, None)):
                last[part] = max(last.get(part, 0.0), each.ended_at)
    return tuple(
        [
            EndedPart(change, tasks[change.run_id], last.get((change.run_id, change.step)))
            for change in changes
            if change.run_id in tasks
            and change.ended_at is not None
            and change.status not in _BEGUN
        ]
    )


def attempt_document(
    ended: EndedAttempt, flow: str, since: float, hide: Callable[[str], str]
) -> Document:
    """The span of an attempt; `since`: when the worker's clock was 0."""
    report, task = ended.report, ended.report.task
    trace = task.trace
    assert trace is not None and report.began_at is not None and report.ended_at is not None
    known = {
        "pgflow.flow": flow,
        "pgflow.run_id": task.run_id,
        "pgflow.step": task.step,
        "pgflow.task_index": task.task_index,
        "pgflow.attempt": task.attempt,
        "pgflow.outcome": report.outcome.value,
        "pgflow.verdict": ended.verdict.value,
        "pgflow.previous": trace.previous,
        "pgflow.wait_s": task.waited_s,
        "pgflow.cpu_s": report.cpu_s,
        "pgflow.peak_kb": report.peak_kb,
        "pgflow.exit_code": report.exit_code,
        "pgflow.exit_signal": report.exit_signal,
        "process.pid": report.pid,
        "error.type": report.error_type,
    }
    error = None
    if report.outcome.is_failure:
        error = hide((report.error_message or "")[:MAX_TEXT_CHARS])
    return _document(
        trace,
        f"attempt {task.attempt}",
        _attempt_id(task),
        step_span(task.run_id, task.step),
        (since + report.began_at, since + report.ended_at),
        known,
        error,
    )


def part_document(
    ended: EndedPart,
    flow: str,
    since: float,
    deps: Mapping[str, Sequence[str]],
    hide: Callable[[str], str],
) -> Document:
    """The span of a step or run that has ended; `since`: when the worker's clock was 0."""
    change, trace = ended.change, ended.task.trace
    assert trace is not None and change.ended_at is not None
    run_id, step = change.run_id, change.step
    known = {
        "pgflow.flow": flow,
        "pgflow.run_id": run_id,
        "pgflow.step": step,
        "pgflow.status": change.status.value,
    }
    began_at, ended_at = change.ended_at - (change.took_s or 0.0), change.ended_at
    if ended.not_before is not None:
        ended_at = max(ended_at, since + ended.not_before)
    times = began_at, ended_at
    error = None
    if change.status in _FAILED:
        error = hide((change.error or "")[:MAX_TEXT_CHARS])
    elif change.error:
        known["pgflow.reason"] = hide(change.error[:MAX_TEXT_CHARS])
    if step is None:
        links = [trace.link] if trace.link else []
        name = f"run {flow}"
        document = _document(trace, name, run_span(run_id), trace.parent, times, known, error)
        return document | {"kind": "consumer", "links": links}
    links = [SpanName(trace.trace_id, step_span(run_id, dep)) for dep in deps.get(step, ())]
    span_id, parent = step_span(run_id, step), run_span(run_id)
    return _document(trace, step, span_id, parent, times, known, error) | {"links": links}


def _document(
    trace: Trace,
    name: str,
    span_id: str,
    parent: str | None,
    times: tuple[float, float],
    attributes: Mapping[str, Any],
    error: str | None,
) -> Document:
    return {
        "trace": trace.trace_id,
        "id": span_id,
        "parent": parent,
        "state": trace.state,
        "name": name,
        "start": int(times[0] * 1e9),
        "end": int(times[1] * 1e9),
        "attributes": {key: value for key, value in attributes.items() if value is not None},
        "error": error,
    }


def _attempt_id(task: Task) -> str:
    return attempt_span(task.run_id, task.step, task.task_index, task.token)
