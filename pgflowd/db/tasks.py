"""
Claims tasks, renews their leases and reports them, by the functions of schema `pgflowd`.

Each function here returns a `Query`. A worker reports finished tasks and claims others by
`execute_together(conn, [report(…), claim(…)])`: one round trip and one commit. A claim returns a
token for each task, and every report must show it, so a worker that has lost a task cannot
finish it. Inputs and outputs are JSON as bytes, never parsed here. Rows become the types of the
worker's engine.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from pgflowd.core.statuses import Outcome, RunStatus, StepStatus
from pgflowd.core.traces import trace_of
from pgflowd.core.worker.events import (
    LeaseVerdict,
    ReportAnswer,
    RunCancelled,
    RunChange,
    TaskNotStarted,
    Verdict,
)
from pgflowd.core.worker.task import MAX_REPORTS, Task, TaskReport
from pgflowd.db.query import Query, Rows, Texts, document

_VERDICTS = {each.value: each for each in Verdict}  # faster than to call an enum
_LEASE_VERDICTS = {each.value: each for each in LeaseVerdict}
_RUN_STATUSES = {each.value: each for each in RunStatus}
_STEP_STATUSES = {each.value: each for each in StepStatus}


@dataclass(frozen=True, slots=True)
class Swept:
    """The numbers of stalled tasks that are queued again, and that have failed for good."""

    recovered: int
    given_up: int


class Resent(NamedTuple):
    """The number of new messages for tasks that had none, and before which page to look next."""

    sent: int
    next_page: int | None


def claim(
    flow_slug: str,
    worker_id: UUID,
    max_tasks: int,
    lease_s: float | None = 30.0,
    with_run: Sequence[str] = (),
    caps: Sequence[str] = (),
    ratio: float | None = None,
) -> Query[list[Task]]:
    """Take up to `max_tasks` tasks; `lease_s` None is for a worker that will not renew leases.

    Tasks of steps `with_run` have the run's input, unless it is large. `caps`: what the worker has.
    `ratio`: of the runs without a caller's trace so many are traced; None: there are no traces.
    """
    params = (flow_slug, worker_id, max_tasks, lease_s, list(with_run) or None, list(caps) or None)
    if ratio is None:
        return Query(_CLAIM, params, lambda rows: _claimed(rows, with_run))
    return Query(_CLAIM_TRACED, params, lambda rows: _claimed(_traced(rows, ratio), with_run))


def report(reports: Sequence[TaskReport]) -> Query[list[ReportAnswer]]:
    """Report up to `MAX_REPORTS` attempts of any runs; the answers are in the same order."""
    if len(reports) > MAX_REPORTS:
        raise ValueError(f"one call takes up to {MAX_REPORTS} reports, not {len(reports)}")
    elements = json.dumps([_element(one) for one in reports], separators=(",", ":"))
    outputs = Texts(one.output for one in reports)
    return Query(_REPORT, (elements, outputs), lambda rows: [
        ReportAnswer(_VERDICTS[verdict], sqlstate, message, _RUN_STATUSES.get(run_status))
        for verdict, sqlstate, message, run_status in rows
    ])  # fmt: skip


def write_progress(worker_id: UUID, values: Mapping[int, bytes]) -> Query[tuple[int, ...]]:
    """Store what handlers have told of their progress, by the tokens of their attempts; return the
    tokens of what is stored."""
    query = "select token from pgflowd.progress(%s, %s::bigint[], %b::text[]::jsonb[])"
    params = (worker_id, list(values), Texts(values.values()))
    return Query(query, params, lambda rows: tuple(row[0] for row in rows))


def keep_last(worker_id: UUID, reports: Sequence[TaskReport]) -> Query[None]:
    """Keep the last progress and the output of attempts that have just been reported."""
    texts = [one.printed.text() if one.printed else (None, None) for one in reports]
    params = (
        worker_id,
        [one.task.token for one in reports],
        Texts(one.progress for one in reports),
        Texts(None if text is None else text.encode("utf-8", "replace") for text, _ in texts),
        [lines for _, lines in texts],
    )
    return Query(_KEEP_LAST, params, lambda rows: None)


def not_started(detail: str) -> TaskNotStarted:
    """Read the detail of a claim's notice that a task could not be started."""
    told = json.loads(detail)
    about = itemgetter("run", "step", "task_index", "token", "attempt", "max_attempts")
    task = Task(*(*about(told), 0, b"{}", None))
    report = TaskReport(task, Outcome.FAILED, error_message=told["error"], error_type="Refused")
    status = _RUN_STATUSES.get(told["run_status"])
    return TaskNotStarted(report, ReportAnswer(_VERDICTS[told["verdict"]], run_status=status))


def run_changes(run_ids: Sequence[str]) -> Query[list[RunChange]]:
    """Return the changes of these runs by a report, in its transaction."""
    return Query(_RUN_CHANGES, (f"{{{','.join(run_ids)}}}",), lambda rows: [
        RunChange(run, step, (_STEP_STATUSES if step else _RUN_STATUSES)[status], *rest)
        for run, step, status, *rest in rows
    ])  # fmt: skip


def cancellations(tokens: Sequence[int]) -> Query[list[RunCancelled]]:
    """Return which runs of these attempts were cancelled."""
    query = "select run_id::text, cancelled_by, cancel_reason from pgflowd.cancellations(%s)"
    return Query(query, (list(tokens),), lambda rows: [RunCancelled(*row) for row in rows])


def heartbeat(
    worker_id: UUID, tokens: Sequence[int], lease_s: float = 30.0
) -> Query[list[tuple[int, LeaseVerdict]]]:
    """Renew the leases with these tokens; return each token with its verdict."""
    params = (worker_id, list(tokens), lease_s)
    query = "select token, verdict from pgflowd.heartbeat(%s, %s, make_interval(secs => %s))"
    return Query(query, params, lambda rows: [(nr, _LEASE_VERDICTS[word]) for nr, word in rows])


def sweep_dead(worker_id: UUID, reason: str, max_tasks: int = 500) -> Query[Swept]:
    """Give back the tasks of a worker that has ended; fail those that stalled too often."""
    return document(Swept, "pgflowd.sweep_dead(%s, %s, %s)", (worker_id, reason, max_tasks))


def sweep(stale_threshold_s: float = 60.0, max_tasks: int = 500) -> Query[Swept]:
    """Give back tasks that no worker works on any more; fail those that stalled too often."""
    source, params = "pgflowd.sweep(make_interval(secs => %s), %s)", (stale_threshold_s, max_tasks)
    return document(Swept, source, params)


def sweep_attempts(before_page: int | None, max_tasks: int) -> Query[tuple[Swept, int | None]]:
    """Give back tasks whose lease lapsed and whose message is gone, and close attempts of ended
    runs, in a part of the table; return before which page to look next."""
    query = "select recovered, given_up, next_page from pgflowd.sweep_attempts(%s, %s)"
    params = (before_page, max_tasks)
    return Query(query, params, lambda rows: (Swept(*rows[0][:2]), rows[0][2]))


def postpone_stalled(why: str) -> Query[None]:
    """Lengthen the lease of the first task that `sweep` could not give back; a notice names it."""
    return Query("select pgflowd.postpone_stalled(%s)", (why,), lambda rows: None)


def resend(before_page: int | None, max_tasks: int = 500) -> Query[Resent]:
    """Send new messages for queued tasks whose message is gone, in some runs; None: the last."""
    return document(Resent, "pgflowd.resend(%s, %s)", (before_page, max_tasks), sent="resent")


def _traced(rows: Rows, ratio: float) -> Rows:
    """Read where the spans of claimed tasks belong."""
    return [(*row[:-1], trace_of(row[0], row[-1] and json.loads(row[-1]), ratio)) for row in rows]


def _claimed(rows: Rows, with_run: Collection[str]) -> list[Task]:
    """Read tasks. The input of a run came with one of them, and others of its run share it."""
    claimed = [Task(*row) for row in rows]
    if not with_run:
        return claimed
    inputs = {task.run_id: task.flow_input for task in claimed if task.flow_input is not None}
    return [
        task._replace(flow_input=inputs.get(task.run_id)) if task.step in with_run else task
        for task in claimed
    ]


def _element(one: TaskReport) -> dict[str, Any]:
    """Write a report as the SQL reads it, without absent values."""
    task = one.task
    element: dict[str, Any] = {
        "run_id": task.run_id,
        "step_slug": task.step,
        "task_index": task.task_index,
        "token": task.token,
        "outcome": one.outcome.value,
    }
    usage: dict[str, Any] = {"cpu_s": one.cpu_s, "peak_kb": one.peak_kb}
    if one.outcome is not Outcome.COMPLETED:
        element["error_message"] = one.error_message
        element["error_type"] = one.error_type
        element["traceback"] = one.traceback
        element["retry"] = None if one.retry else False
        element["delay"] = None if one.delay_s is None else f"{one.delay_s:f} s"
        element["wait"] = one.wait and one.wait.as_json()
        if one.at_most_s is not None:
            element["wait"] = {"at_most_s": one.at_most_s}
        usage |= {"exit_code": one.exit_code, "exit_signal": one.exit_signal}
        element = {key: value for key, value in element.items() if value is not None}
    if used := {key: value for key, value in usage.items() if value is not None}:
        element["usage"] = used
    return element


_COLUMNS = """
run_id::text, step_slug, task_index, token, attempt, max_attempts, timeout, input, flow_input,
waited_s
"""
_OF_CLAIM = "%s, %s, %s, make_interval(secs => %s), %s::text[], %s::text[]"
_CLAIM = f"select {_COLUMNS} from pgflowd.claim({_OF_CLAIM})"
_CLAIM_TRACED = f"select {_COLUMNS}, trace from pgflowd.claim({_OF_CLAIM}, with_trace => true)"
_REPORT = """
select verdict, sqlstate, message, run_status from pgflowd.report(%s::jsonb, %b::text[])
"""
_KEEP_LAST = "select pgflowd.keep_last(%s, %s::bigint[], %b::text[], %b::text[], %s::int[])"
_RUN_CHANGES = """
select run_id::text, step_slug, status, took_s, error from pgflowd.news(%s::uuid[])
 order by run_id, step_slug is null, status = 'started', step_slug
"""
