"""
Which trace and which spans a run, its steps and attempts have.

Ids need no agreement. The id of a trace is that of the caller's, or else the 128 bits of the run's
id; the id of a span is a hash of what it stands for. So each process can name a parent that is not
written yet, and who reports twice writes one span. A run is a part of its caller's trace if it
began with its start; one that began later has a trace of its own, with a link. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

MAX_TRACESTATE_CHARS = 512
_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 1  # of the flags
_RATIO_BITS = 56  # the low seven bytes of the id of a trace, which are random


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


class TaskTrace(NamedTuple):
    """What a runner is told of the trace of its task."""

    trace_id: str | None  # None: the run's own
    state: str | None
    is_sampled: bool
    has_span: bool  # of the elements of a map only some have, and their handlers

    def caller(self, run_id: str, step: str, index: int, token: int) -> CallerTrace:
        """The span of this attempt, for what the handler calls."""
        span_id = attempt_span(run_id, step, index, token)
        trace_id = self.trace_id or own_trace(run_id)
        return CallerTrace(write_traceparent(trace_id, span_id, self.has_span), self.state)


# of nearly all runs, and what each runner takes for granted then
ORDINARY, ORDINARY_TASK = Trace(None, True), TaskTrace(None, None, True, True)
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
    return id_of(text).hex()


def id_of(text: str) -> bytes:
    """The id of a span: of a run, of RUN/STEP, or of the attempt RUN/STEP/INDEX/TOKEN."""
    return blake2b(text.encode(), digest_size=8).digest()
