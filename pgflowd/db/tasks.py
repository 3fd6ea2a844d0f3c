"""
Tasks: claiming work, keeping it, and reporting it, as calls of the functions in `pgflowd`.

Each function here returns a `Call`, which `db.query` performs: a worker reports what it
finished and claims what is free by `all_together(conn, [report(…), claim(…)])`, one round trip and
one commit. A claim returns a token for each task, and every report must show it: whoever
lost a task cannot finish it. Inputs and outputs are JSON as bytes, never parsed here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pgflowd.core.worker.state import Task
from pgflowd.db.query import Query, Rows, only

MAX_REPORTS = 200  # in one call


@dataclass(frozen=True, slots=True)
class ReportRow:
    """What became of an attempt. `outcome`: completed, failed, timed_out, crashed, released."""

    run_id: str
    step_slug: str
    task_index: int
    token: int
    outcome: str
    output: bytes | None = None
    error_message: str | None = None  # of a release: the reason
    error_type: str | None = None
    traceback: str | None = None
    retry: bool = True
    delay_s: float | None = None
    cpu_s: float | None = None
    peak_kb: int | None = None
    exit_code: int | None = None
    exit_signal: int | None = None


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """What the database made of a report: completed, queued, failed, repeated, late, lost, error.

    `sqlstate` and `message` say why for the last two. `run_status` is the status in which the
    call ended the run of the attempt, None if it did not.
    """

    token: int | None
    verdict: str
    sqlstate: str | None
    message: str | None
    run_status: str | None


@dataclass(frozen=True, slots=True)
class RunChangeRow:
    """A run (no step) or a step was started, completed, failed or skipped by a transaction."""

    run_id: UUID
    step_slug: str | None
    status: str
    took_s: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A cancelled run."""

    run_id: UUID
    by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class LeaseVerdict:
    """What a heartbeat says of a token: `ok`, `cancel`, `lost`."""

    token: int
    verdict: str


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep made of stalled tasks: so many are queued again, so many failed for good."""

    recovered: int
    given_up: int


def claim(
    flow_slug: str, worker_id: UUID, max_tasks: int, lease_s: float | None = 30.0
) -> Query[list[Task]]:
    """Take up to `max_tasks` tasks; `lease_s` None is for a worker that will not beat."""
    params = (flow_slug, worker_id, max_tasks, lease_s)
    return Query(_CLAIM, params, lambda rows: [Task(*row) for row in rows])


def report(reports: Sequence[ReportRow]) -> Query[list[AnswerRow]]:
    """Report up to `MAX_REPORTS` attempts of any runs; the answers are in the same order."""
    if len(reports) > MAX_REPORTS:
        raise ValueError(f"one call takes up to {MAX_REPORTS} reports, not {len(reports)}")
    elements = json.dumps([_element(one) for one in reports], separators=(",", ":"))
    outputs = [None if one.output is None else one.output.decode() for one in reports]
    return Query(_REPORT, (elements, outputs), lambda rows: [AnswerRow(*row) for row in rows])


def news(run_ids: Sequence[str]) -> Query[list[RunChangeRow]]:
    """Ask, after a report and in its transaction, what it has changed in these runs."""
    return Query(_NEWS, (_array(run_ids),), lambda rows: [RunChangeRow(*row) for row in rows])


def cancellations(tokens: Sequence[int]) -> Query[list[Cancellation]]:
    """Ask which runs of these attempts were cancelled."""
    return Query(_CANCELLATIONS, (list(tokens),), lambda rows: [Cancellation(*row) for row in rows])


def completed_by(worker_id: UUID, run_ids: Sequence[str]) -> Query[int]:
    """Ask how many of these runs a report of this worker has completed."""
    return Query(_COMPLETED_BY, (worker_id, _array(run_ids)), only)


def heartbeat(
    worker_id: UUID, tokens: Sequence[int], lease_s: float = 30.0
) -> Query[list[LeaseVerdict]]:
    """Say that the worker lives and holds these tokens."""
    params = (worker_id, list(tokens), lease_s)
    return Query(_HEARTBEAT, params, lambda rows: [LeaseVerdict(*row) for row in rows])


def sweep_dead(worker_id: UUID, reason: str, max_tasks: int = 500) -> Query[Swept]:
    """Give back what a dead worker held, and give up what stalled too often."""
    return Query(_SWEEP_DEAD, (worker_id, reason, max_tasks), _swept)


def sweep(stale_threshold_s: float = 60.0, max_tasks: int = 500) -> Query[Swept]:
    """Give back what nobody works on any more, and give up what stalled too often."""
    return Query(_SWEEP, (stale_threshold_s, max_tasks), _swept)


def _array(ids: Sequence[str]) -> str:
    """Write ids as an array at once; there may be thousands."""
    return f"{{{','.join(ids)}}}"


def _swept(rows: Rows) -> Swept:
    return Swept(*rows[0])


def _element(one: ReportRow) -> dict[str, Any]:
    """Write a report as the SQL reads it, without what it does not say."""
    usage = {
        "cpu_s": one.cpu_s,
        "peak_kb": one.peak_kb,
        "exit_code": one.exit_code,
        "exit_signal": one.exit_signal,
    }
    said = {
        "run_id": one.run_id,
        "step_slug": one.step_slug,
        "task_index": one.task_index,
        "token": one.token,
        "outcome": one.outcome,
        "error_message": one.error_message,
        "error_type": one.error_type,
        "traceback": one.traceback,
        "retry": None if one.retry else False,
        "delay": None if one.delay_s is None else f"{one.delay_s:f} s",
        "usage": {key: value for key, value in usage.items() if value is not None} or None,
    }
    return {key: value for key, value in said.items() if value is not None}


_CLAIM = """
select run_id::text, step_slug, task_index, token, attempt, max_attempts, timeout, input,
       flow_input, waited_s
  from pgflowd.claim(%s, %s, %s, make_interval(secs => %s))
"""
_REPORT = """
select token, verdict, sqlstate, message, run_status from pgflowd.report(%s::jsonb, %b::text[])
"""
_NEWS = "select run_id, step_slug, status, took_s, error from pgflowd.news(%s::uuid[])"
_CANCELLATIONS = "select run_id, cancelled_by, cancel_reason from pgflowd.cancellations(%s)"
_COMPLETED_BY = "select pgflowd.completed_by(%s, %s::uuid[])"
_HEARTBEAT = "select token, verdict from pgflowd.heartbeat(%s, %s, make_interval(secs => %s))"
_SWEEP = "select recovered, given_up from pgflowd.sweep(make_interval(secs => %s), %s)"
_SWEEP_DEAD = "select recovered, given_up from pgflowd.sweep_dead(%s, %s, %s)"
