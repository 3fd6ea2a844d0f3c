"""
The spans that a worker writes: of its attempts, and of steps and runs that its reports have ended.

A worker does little for them, since it is busy where there are many: what its reports of some turns
have ended is one `Portion`, of which the exporter makes spans (`core.traces`). What was
printed, inputs and outputs are in no portion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pgflowd.core.statuses import Outcome, RunStatus, StepStatus
from pgflowd.core.traces import ORDINARY, SpanName, TaskTrace, Trace, attempt_span, own_trace
from pgflowd.core.worker.actions import SendSpans
from pgflowd.core.worker.events import EndedParts, RunChange, Verdict
from pgflowd.core.worker.task import Task, TaskReport

MAX_TEXT_CHARS = 1000  # of an error
# Of the elements of a map that complete so many have a span: a trace with thousands of like spans
# can hardly be read, and costs as much as the work. Elements that fail all have one.
MAP_SPANS = 100
_BEGUN = (RunStatus.STARTED, StepStatus.STARTED)

Row = tuple[Any, ...]


class Portion(NamedTuple):
    """What has ended. A row of an attempt has its run, step, index, token and number, then outcome,
    verdict, begin and end in nanoseconds, wait, CPU, memory and pid, and what few have: other
    attributes and the error. One of parts is an `EndedParts` with the steps before it."""

    attempts: Sequence[Row]
    parts: Sequence[Row]
    traces: Mapping[str, Row]  # of runs whose callers have one: id, parent, state, link

    @property
    def spans(self) -> int:
        """The number of spans."""
        return len(self.attempts) + sum([_count(each) for each in self.parts])

    def halves(self) -> tuple[Portion, Portion] | None:
        """The same as two, each with its traces; None: there is one span only."""
        attempts, parts = self.attempts, self.parts
        if attempts and parts:
            return self._part(attempts, ()), self._part((), parts)
        if len(attempts) > 1:
            half = len(attempts) // 2
            return self._part(attempts[:half], ()), self._part(attempts[half:], ())
        if len(parts) == 1 and (count := _count(parts[0])) > 1:
            *known, runs, deps = parts[0]
            words, half = runs.split(" "), count // 2 * 2
            parts = [(*known, " ".join(some), deps) for some in (words[:half], words[half:])]
        if len(parts) > 1:
            half = len(parts) // 2
            return self._part((), parts[:half]), self._part((), parts[half:])
        return None

    def _part(self, attempts: Sequence[Row], parts: Sequence[Row]) -> Portion:
        runs = {row[0] for row in attempts}.union(*(row[-2].split(" ") for row in parts))
        traces = {run: trace for run, trace in self.traces.items() if run in runs}
        return Portion(attempts, parts, traces)


def _count(parts: Row) -> int:
    return (str(parts[-2]).count(" ") + 1) // 2


def have_spans(reports: Iterable[TaskReport]) -> bool:
    """Whether there are spans of some."""
    return any(each.began_at is not None for each in reports)


def is_traced(task: Task) -> bool:
    return task.trace is not None and task.trace.is_sampled


def name_of(task: Task) -> SpanName | None:
    """The span of an attempt, if those of its run are written."""
    trace = task.trace
    if trace is None or not trace.is_sampled:
        return None
    trace_id = trace.trace_id or own_trace(task.run_id)
    return SpanName(trace_id, attempt_span(*task.key, task.token))


def trace_for_runner(task: Task) -> TaskTrace | None:
    """What the runner is told, unless it is what each runner takes for granted. The handler of an
    element whose attempt gets no span writes none either."""
    trace, is_first = task.trace, task.task_index < MAP_SPANS
    if trace is None or (trace is ORDINARY and is_first):
        return None
    has_span = trace.is_sampled and is_first
    return TaskTrace(trace.trace_id, trace.state, trace.is_sampled, has_span)


def runs_of_interest(reports: Iterable[TaskReport]) -> tuple[str, ...]:
    """The runs whose spans, and those of their steps, these reports may end."""
    runs = [each.task.run_id for each in reports if each.began_at is not None and each.may_end_run]
    return tuple(dict.fromkeys(runs)) if runs else ()


def parts_of(changes: Iterable[RunChange]) -> tuple[EndedParts, ...]:
    """The steps and runs that have ended by these changes, each by itself."""
    return tuple(
        [
            EndedParts(
                each.step,
                each.status.value,
                each.error,
                each.ended_at,
                f"{each.run_id} {each.ended_at - (each.took_s or 0.0)}",
            )
            for each in changes
            if each.ended_at is not None and each.status not in _BEGUN
        ]
    )


def portion_of(
    ended: Iterable[SendSpans],
    since: float,
    deps: Mapping[str, Sequence[str]],
    hide: Callable[[str], str],
) -> Portion:
    """What the exporter is told; `since`: when the worker's clock was 0."""
    attempts: list[Row] = []
    parts: list[Row] = []
    traces: dict[str, Row] = {}
    for each in ended:
        shown: list[TaskReport] = []
        for report, answer in zip(each.reports, each.answers, strict=True):
            trace, verdict = report.task.trace, answer.verdict
            if trace is None or report.began_at is None or verdict is Verdict.ERROR:
                continue
            if trace.parent is not None or trace.link is not None:
                traces[report.task.run_id] = trace.trace_id, trace.parent, trace.state, trace.link
            if report.task.task_index < MAP_SPANS or verdict is not Verdict.COMPLETED:
                attempts.append(_row(report, trace, verdict, since, hide))
                shown.append(report)
        last = since + max([report.ended_at or 0.0 for report in shown], default=-since)
        for part in each.parts:
            error = part.error and hide(part.error[:MAX_TEXT_CHARS])
            row = part._replace(error=error)
            rows = [row] if last <= part.ended_at else _not_before(row, shown, since)
            parts += [(*some, deps.get(part.step, ()) if part.step else ()) for some in rows]
    return Portion(attempts, parts, traces)


def _row(
    report: TaskReport, trace: Trace, verdict: Verdict, since: float, hide: Callable[[str], str]
) -> Row:
    task, began_at, ended_at = report.task, report.began_at, report.ended_at
    assert began_at is not None and ended_at is not None
    more: dict[str, Any] | None = None
    error = None
    if trace.previous is not None or report.outcome is not Outcome.COMPLETED:
        more = {
            "pgflow.previous": trace.previous,
            "pgflow.exit_code": report.exit_code,
            "pgflow.exit_signal": report.exit_signal,
            "error.type": report.error_type,
        }
        if report.outcome.is_failure:
            error = hide((report.error_message or "")[:MAX_TEXT_CHARS])
    return (
        task.run_id,
        task.step,
        task.task_index,
        task.token,
        task.attempt,
        report.outcome,
        verdict,
        int((since + began_at) * 1e9),
        int((since + ended_at) * 1e9),
        task.waited_s,
        report.cpu_s,
        report.peak_kb,
        report.pid,
        more and (more, error),
    )


def _not_before(parts: EndedParts, reports: Iterable[TaskReport], since: float) -> list[EndedParts]:
    """Let parts end with the last of these attempts in them. Who completes a task in a transaction
    of its own has its step end with that transaction's begin, before the attempt."""
    last: dict[str, float] = {}
    for report in reports:
        if parts.step in (None, report.task.step) and report.ended_at is not None:
            last[report.task.run_id] = max(last.get(report.task.run_id, 0.0), report.ended_at)
    words, at = parts.runs.split(" "), parts.ended_at
    return [
        parts._replace(ended_at=max(at, since + last.get(run, -since)), runs=f"{run} {began_at}")
        for run, began_at in zip(words[::2], words[1::2], strict=True)
    ]
