"""
Which trace and which spans a run, its steps and attempts have.

Ids need no agreement. The id of a trace is that of the caller's, or else the 128 bits of the run's
id; the id of a span is a hash of what it stands for. So each process can name a parent that is not
written yet, and who reports twice writes one span. A run is a part of its caller's trace if it
began with its start; one that began later has a trace of its own, with a link. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Any, NamedTuple

from pgflowd.core.statuses import RunStatus, StepStatus

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


# Spans of attempts, steps and runs in the bytes of OTLP, from what `core.worker.spans` tells of
# them.
#
# Such a span is a message of Protocol Buffers: fields in any order, each with its tag. What many
# have in common is encoded once. Whoever is our user may send anything: what is no span is counted.
_FAILED = (RunStatus.FAILED.value, StepStatus.FAILED.value)
_INTERNAL, _CONSUMER = b"\x30\x01", b"\x30\x05"  # field 6, the kind
_ERROR = b"\x18\x02"  # field 3 of a status
_TRACE, _ID, _PARENT = b"\x0a\x10", b"\x12\x08", b"\x22\x08"
_BEGIN, _END = b"\x39", b"\x41"
_SPAN = 2  # the field of the message that holds those of a scope
_RUN_CHARS = 36
_pack_top = Struct("<2s8scQcQ").pack  # the id of a span, its begin and its end
_pack_below = Struct("<2s8s2s8scQcQ").pack  # the same with the span above it
_pack_double = Struct("<d").pack
_NS = 1e9
MAX_PORTION_BYTES = 4_000_000  # of its spans; a datagram full of attempts makes a tenth of that
_UINT64 = (1 << 64) - 1


class EncodedSpans(NamedTuple):
    """Spans, each as a field of the message that holds those of a scope."""

    data: bytes
    number: int
    wrong: int = 0  # the number of what came as a span, and is none
    why: str = ""  # of the first


class _Spans:
    """The spans of a portion, as they are made."""

    def __init__(self) -> None:
        self.fields: list[bytes] = []
        self.wrong, self.why = 0, ""
        self._room = MAX_PORTION_BYTES

    def add(self, span: bytes) -> None:
        self.fields += head(_SPAN, len(span)), span
        self._room -= len(span)
        if self._room < 0:
            raise _TooMuch(f"what came at once has spans of more than {MAX_PORTION_BYTES} bytes")

    def refuse(self, error: Exception) -> None:
        """Count what is no span; go no further if there is too much."""
        if isinstance(error, _TooMuch):
            raise error
        self.wrong += 1
        self.why = self.why or f"{type(error).__name__}: {error}"


class _TooMuch(ValueError):
    """A portion with larger spans than any worker tells."""


def encode_portion(portion: Mapping[str, Any]) -> EncodedSpans:
    """The spans of a portion. Raises for what is none."""
    flow, of_runs, ids, spans = portion["flow"], _OfRuns(portion["traces"]), _Ids(), _Spans()
    for row in portion["attempts"]:
        try:
            spans.add(_attempt(flow, of_runs, ids, row))
        except Exception as error:
            spans.refuse(error)
    for row in portion["parts"]:
        try:
            _add_parts(spans, flow, of_runs, ids, row)
        except Exception as error:
            spans.refuse(error)
    return EncodedSpans(b"".join(spans.fields), len(spans.fields) // 2, spans.wrong, spans.why)


def _add_parts(spans: _Spans, flow: str, of_runs: _OfRuns, ids: _Ids, row: Sequence[Any]) -> None:
    step, status, reason, ended_at, runs, deps = row
    words, ended_ns = runs.split(" "), int(ended_at * _NS)
    common = _of_parts(flow, step, status, reason)
    for run_id, began_at in zip(words[::2], words[1::2], strict=True):
        try:
            of_run, run, trace, above = of_runs[run_id]
            began_ns = int(float(began_at) * _NS)
            if step is None:
                times = _pack_top(_ID, run, _BEGIN, began_ns, _END, ended_ns)
                spans.add(of_run + times + common + above)
            else:
                own = ids[f"{run_id}/{step}"]
                times = _pack_below(_ID, own, _PARENT, run, _BEGIN, began_ns, _END, ended_ns)
                span = of_run + times + common
                if deps:
                    links = [_link(trace, ids[f"{run_id}/{dep}"]) for dep in deps]
                    span += b"".join(links)
                spans.add(span)
        except Exception as error:
            spans.refuse(error)


def _attempt(flow: str, of_runs: _OfRuns, ids: _Ids, row: Sequence[Any]) -> bytes:
    (run_id, step, index, token, attempt, outcome, verdict,
     began_ns, ended_ns, wait_s, cpu_s, peak_kb, pid, more) = row  # fmt: skip
    name = f"{run_id}/{step}"
    own = id_of(f"{name}/{index}/{token}")
    found = b"".join(
        (
            of_runs[run_id][0],
            _pack_below(_ID, own, _PARENT, ids[name], _BEGIN, began_ns, _END, ended_ns),
            _of_attempts(flow, step, index, attempt, outcome, verdict, pid),
            b"" if wait_s is None else _WAIT + _pack_double(wait_s),
            b"" if cpu_s is None else _CPU + _pack_double(cpu_s),
            b"" if peak_kb is None else _attribute("pgflow.peak_kb", peak_kb),
        )
    )
    if more is not None:
        known, error = more
        found += _attributes(known)
        if error is not None:
            found += _status(error)
    return found


# what many spans have in common


@lru_cache(maxsize=4096, typed=True)
def _of_attempts(
    flow: str, step: str, index: int, attempt: int, outcome: str, verdict: str, pid: int | None
) -> bytes:
    known = {
        "pgflow.flow": flow,
        "pgflow.step": step,
        "pgflow.task_index": index,
        "pgflow.attempt": attempt,
        "pgflow.outcome": outcome,
        "pgflow.verdict": verdict,
        "process.pid": pid,
    }
    return field(5, _utf8(f"attempt {attempt}")) + _INTERNAL + _attributes(known)


@lru_cache(maxsize=512)
def _of_parts(flow: str, step: str | None, status: str, error: str | None) -> bytes:
    known = {"pgflow.flow": flow, "pgflow.status": status}
    if step is not None:
        known["pgflow.step"] = step
    if status not in _FAILED and error:
        known["pgflow.reason"] = error
    name, kind = (f"run {flow}", _CONSUMER) if step is None else (step, _INTERNAL)
    found = field(5, _utf8(name)) + kind + _attributes(known)
    return found + _status(error or "") if status in _FAILED else found


class _Ids(dict[str, bytes]):
    """The ids of steps, each made once."""

    def __missing__(self, name: str) -> bytes:
        found = self[name] = id_of(name)
        return found


# of a run, in bytes: the fields that all its spans have; the id of its own span, and that of its
# trace; the fields by which its own span belongs to its caller's
_OfRun = tuple[bytes, bytes, bytes, bytes]


class _OfRuns(dict[str, _OfRun]):
    """What the spans of a run have in common."""

    def __init__(self, traces: Mapping[str, Sequence[Any]]) -> None:
        self._traces = traces  # of those that do not have their own

    def __missing__(self, run_id: str) -> _OfRun:
        trace_id, parent, state, link = self._traces.get(run_id, _OWN)
        known, trace = run_id.encode(), _id(trace_id or own_trace(run_id), 16)
        if len(known) != _RUN_CHARS:
            raise ValueError(f"{run_id[:50]!r} is no id of a run")
        common, above = _TRACE + trace + _RUN + known, b""
        if state:
            common += field(3, _utf8(state))
        if parent is not None:
            above = _PARENT + _id(parent, 8)
        if link is not None:
            above += _link(_id(link[0], 16), _id(link[1], 8))
        found = self[run_id] = common, id_of(run_id), trace, above
        return found


_OWN = (None, None, None, None)


def _id(digits: str, size: int) -> bytes:
    found = bytes.fromhex(digits)
    if len(found) != size:
        raise ValueError(f"an id has {len(found)} bytes, not {size}")
    return found


def _link(trace: bytes, span: bytes) -> bytes:
    return field(13, _TRACE + trace + _ID + span)


def _status(error: str) -> bytes:
    return field(15, field(2, _utf8(error)) + _ERROR)


# attributes


def _attributes(known: Mapping[str, Any]) -> bytes:
    pairs = known.items()
    return b"".join([_attribute(key, value) for key, value in pairs if value is not None])


@lru_cache(maxsize=4096, typed=True)
def _attribute(key: str, value: str | int) -> bytes:
    if isinstance(value, str):
        any_value = field(1, _utf8(value))
    elif isinstance(value, int) and 0 <= value + (1 << 63) <= _UINT64:
        any_value = b"\x18" + _varint(value & _UINT64)
    else:
        raise ValueError(f"{key} is neither a text nor a whole number")
    return field(9, field(1, _utf8(key)) + field(2, any_value))


def _opening(key: str, size: int, tag: bytes) -> bytes:
    """An attribute whose value, of so many bytes, is to follow."""
    name = field(1, key.encode())
    value = tag + bytes(size)
    return field(9, name + field(2, value))[:-size]


def _utf8(text: str) -> bytes:
    """Without halves of characters, which UTF-8 does not have."""
    return text.encode("utf-8", "replace")


# fields


@lru_cache(maxsize=4096)
def head(number: int, size: int) -> bytes:
    """What is before a field of so many bytes: a text or a message."""
    return _varint(number << 3 | 2) + _varint(size)


def field(number: int, data: bytes) -> bytes:
    return head(number, len(data)) + data


@lru_cache(maxsize=4096)
def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


_RUN = _opening("pgflow.run_id", _RUN_CHARS, bytes([0x0A, _RUN_CHARS]))
_WAIT, _CPU = (_opening(key, 8, b"\x21") for key in ("pgflow.wait_s", "pgflow.cpu_s"))
