"""
Which trace and which spans a run, its steps and attempts have.

Ids need no agreement. The id of a trace is that of the caller's, or else the 128 bits of the run's
id; the id of a span is a hash of what it stands for. So each process can name a parent that is not
exported yet, and what is exported twice is one span. A run is a part of its caller's trace if it
began with its start; one that began later has a trace of its own, with a link. What the exporter
reads of attempts and runs that have ended becomes spans here. Inputs and outputs are in none. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from pgflowd.core.statuses import Outcome, RunStatus

MAX_TRACESTATE_CHARS = 512
MAX_TEXT_CHARS = 1000  # of an error
# Of the elements of a map that complete so many have a span: a trace with thousands of like spans
# can hardly be read, and costs as much as the work. Elements that fail all have one.
MAP_SPANS = 100
_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 1  # of the flags
_RATIO_BITS = 56  # the low seven bytes of the id of a trace, which are random
_FAILURES = {each.value for each in Outcome if each.is_failure or each is Outcome.STALLED}
_FAILED_PARTS = {RunStatus.FAILED.value, RunStatus.CANCELLED.value, RunStatus.EXPIRED.value}


class CallerTrace(NamedTuple):
    """The trace of who starts a run, as W3C writes it."""

    traceparent: str
    tracestate: str | None = None


class SpanName(NamedTuple):
    """What names a span."""

    trace_id: str  # 32 digits
    span_id: str  # 16 digits


class Trace(NamedTuple):
    """Where the spans of a run belong, and how the attempt before this one ended."""

    trace_id: str | None  # None: the run's own
    is_sampled: bool
    parent: str | None = None  # the span above the run's
    state: str | None = None
    link: SpanName | None = None
    previous: str | None = None

    def id_for(self, run_id: str) -> str:
        return self.trace_id or own_trace(run_id)


class TaskTrace(NamedTuple):
    """What a runner is told of the trace of its task."""

    trace_id: str | None  # None: the run's own
    state: str | None
    has_span: bool  # of the elements of a map only some have, and their handlers

    def caller(self, run_id: str, step: str, index: int, token: int) -> CallerTrace:
        """The span of this attempt, for what the handler calls."""
        span_id = attempt_span(run_id, step, index, token)
        trace_id = self.trace_id or own_trace(run_id)
        return CallerTrace(write_traceparent(trace_id, span_id, self.has_span), self.state)


# of nearly all runs, and what each runner takes for granted then
ORDINARY, ORDINARY_TASK = Trace(None, True), TaskTrace(None, None, True)
_UNSAMPLED = Trace(None, False)


def trace_of(run_id: str, told: Mapping[str, Any] | None, ratio: float) -> Trace:
    """The trace of a run: `told` is what the claim knows of its start (pgflowd._trace_of)."""
    if told is None:  # nearly all
        return ORDINARY if is_in_ratio(run_id, ratio) else _UNSAMPLED
    caller = read_traceparent(told.get("traceparent"))
    previous, undone = told.get("previous"), told.get("undo_of")
    if undone is not None:  # the link leads to the run that is undone
        trace_id = caller[0].trace_id if caller else own_trace(undone)
        caller = SpanName(trace_id, run_span(undone)), caller[1] if caller else None
    is_sampled = caller[1] if caller else None
    if is_sampled is None:
        is_sampled = is_in_ratio(run_id, ratio)
    if caller is None:
        return Trace(None, is_sampled, previous=previous)
    if told.get("is_later"):
        return Trace(None, is_sampled, link=caller[0], previous=previous)
    name, state = caller[0], told.get("tracestate")
    return Trace(name.trace_id, is_sampled, name.span_id, state, previous=previous)


def own_trace(run_id: str) -> str:
    """The trace of a run that is no part of its caller's."""
    return run_id.replace("-", "")


def read_traceparent(text: Any) -> tuple[SpanName, bool | None] | None:
    """The span that a traceparent names, and whether it is sampled."""
    found = _TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    return SpanName(found[1], found[2]), bool(int(found[3], 16) & _SAMPLED)


def span_of(trace_id: Any, span_id: Any) -> SpanName | None:
    """The span that somebody names, if these are ids."""
    read = read_traceparent(f"00-{trace_id}-{span_id}-01")
    return read[0] if read else None


def write_traceparent(trace_id: str, span_id: str, is_sampled: bool) -> str:
    return f"00-{trace_id}-{span_id}-0{int(is_sampled)}"


def is_in_ratio(run_id: str, ratio: float) -> bool:
    """Whether spans of a run that has no caller's trace are written; the same everywhere."""
    if ratio >= 1:
        return True
    return int(own_trace(run_id)[-_RATIO_BITS // 4 :], 16) < ratio * (1 << _RATIO_BITS)


def run_span(run_id: str) -> str:
    return _span_id(run_id)


def step_span(run_id: str, step: str) -> str:
    return _span_id(f"{run_id}/{step}")


def attempt_span(run_id: str, step: str, index: int, token: int) -> str:
    return _span_id(f"{run_id}/{step}/{index}/{token}")


@lru_cache(maxsize=4096)  # each is asked for several times, soon one after the other
def _span_id(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


# what the exporter reads


class EndedAttempt(NamedTuple):
    """An attempt of the history; moments are microseconds since 1970."""

    run_id: str
    step: str
    task_index: int
    token: int
    flow: str
    attempt: int
    began_us: int
    ended_us: int
    outcome: str
    error_type: str | None
    error: str | None
    exit_code: int | None
    exit_signal: int | None
    cpu_s: float | None
    peak_kb: int | None
    told: Mapping[str, Any] | None  # of its trace, as for `trace_of`
    ends_run: bool  # with its report


class EndedPart(NamedTuple):
    """A run that has ended, or a step of it."""

    run_id: str
    flow: str
    step: str | None
    status: str
    error: str | None
    began_us: int
    ended_us: int
    deps: Sequence[str] | None  # of a step
    told: Mapping[str, Any] | None  # of a run


class EndedSpan(NamedTuple):
    """A span as it is exported."""

    trace_id: str
    id: str
    parent: str | None
    name: str
    began_us: int
    ended_us: int
    attributes: Mapping[str, Any]
    error: str | None = None  # None: it has not failed
    state: str | None = None
    links: tuple[SpanName, ...] = ()
    is_run: bool = False


def spans_of_attempts(
    attempts: Iterable[EndedAttempt], ratio: float, hide: Callable[[str], str]
) -> list[EndedSpan]:
    """The spans of those whose runs are sampled; of a large map that completes, not of all."""
    found = []
    for each in attempts:
        trace, is_good = trace_of(each.run_id, each.told, ratio), each.outcome == Outcome.COMPLETED
        if not trace.is_sampled or (is_good and each.task_index >= MAP_SPANS):
            continue
        known = {
            "pgflow.flow": each.flow,
            "pgflow.run_id": each.run_id,
            "pgflow.step": each.step,
            "pgflow.task_index": each.task_index,
            "pgflow.attempt": each.attempt,
            "pgflow.outcome": each.outcome,
            "pgflow.previous": trace.previous,
            "pgflow.cpu_s": each.cpu_s,
            "pgflow.peak_kb": each.peak_kb,
            "pgflow.exit_code": each.exit_code,
            "pgflow.exit_signal": each.exit_signal,
            "error.type": each.error_type,
        }
        has_failed = each.outcome in _FAILURES
        span = EndedSpan(
            trace.id_for(each.run_id),
            attempt_span(each.run_id, each.step, each.task_index, each.token),
            step_span(each.run_id, each.step),
            f"attempt {each.attempt}",
            each.began_us,
            max(each.began_us, each.ended_us),
            known,
            _short(each.error, hide) if has_failed else None,
            trace.state,
        )
        found.append(span)
    return found


def spans_of_parts(
    parts: Iterable[EndedPart], ratio: float, hide: Callable[[str], str]
) -> list[EndedSpan]:
    """The spans of runs that are sampled, each before those of its steps."""
    found, trace = [], _UNSAMPLED
    for each in parts:
        if each.step is None:
            trace = trace_of(each.run_id, each.told, ratio)
        if not trace.is_sampled:
            continue
        trace_id, run = trace.id_for(each.run_id), run_span(each.run_id)
        has_failed = each.status in _FAILED_PARTS
        known = {
            "pgflow.flow": each.flow,
            "pgflow.run_id": each.run_id,
            "pgflow.step": each.step,
            "pgflow.status": each.status,
            "pgflow.reason": None if has_failed or not each.error else _short(each.error, hide),
        }
        names = [SpanName(trace_id, step_span(each.run_id, dep)) for dep in each.deps or ()]
        if each.step is None and trace.link:
            names = [trace.link]
        span = EndedSpan(
            trace_id,
            run if each.step is None else step_span(each.run_id, each.step),
            trace.parent if each.step is None else run,
            f"run {each.flow}" if each.step is None else each.step,
            each.began_us,
            max(each.began_us, each.ended_us),
            known,
            _short(each.error, hide) if has_failed else None,
            trace.state,
            tuple(names),
            is_run=each.step is None,
        )
        found.append(span)
    return found


def _short(error: str | None, hide: Callable[[str], str]) -> str:
    """An error without secrets; one that is cut first could show half of one."""
    return hide(error or "")[:MAX_TEXT_CHARS]
