"""
Spans of attempts, steps and runs in the bytes of OTLP, from what `core.worker.spans` tells of them.

Such a span is a message of Protocol Buffers: fields in any order, each with its tag. What many
have in common is encoded once. Whoever is our user may send anything: what is no span raises an
Exception of some kind. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import Any

from pgflowd.core.statuses import RunStatus, StepStatus
from pgflowd.core.traces import id_of, step_span

_FAILED = (RunStatus.FAILED.value, StepStatus.FAILED.value)
_INTERNAL, _CONSUMER = b"\x30\x01", b"\x30\x05"  # field 6, the kind
_ERROR = b"\x18\x02"  # field 3 of a status
_PARENT = b"\x22\x08"
_TRACE_BYTES, _RUN_CHARS = 16, 36
_pack_span = Struct("<2s16s2s8scQcQ").pack  # its trace, its id, its begin and its end
_pack_double = Struct("<d").pack
_NS = 1e9
_UINT64 = (1 << 64) - 1

EncodeSpan = Callable[[], bytes]


def spans_in(portion: Mapping[str, Any]) -> list[EncodeSpan]:
    """The spans of a portion, to be encoded when it is their turn."""
    flow, traces = portion["flow"], portion["traces"]
    found: list[EncodeSpan] = [
        partial(_attempt, flow, traces.get(row[0]), row) for row in portion["attempts"]
    ]
    for step, status, error, ended_at, runs, deps in portion["parts"]:
        words = runs.split(" ")
        common = _of_parts(flow, step, status, error)
        for run_id, began_at in zip(words[::2], words[1::2], strict=True):
            of_run = traces.get(run_id), run_id, began_at
            found.append(partial(_part, common, step, ended_at, deps, *of_run))
    return found


def _attempt(flow: str, trace: Sequence[Any] | None, row: Sequence[Any]) -> bytes:
    (run_id, step, index, token, attempt, outcome, verdict,
     began_at, ended_at, wait_s, cpu_s, peak_kb, pid, more) = row  # fmt: skip
    name = f"{run_id}/{step}"
    pieces = [
        _span(trace, run_id, id_of(f"{name}/{index}/{token}"), began_at, ended_at),
        _PARENT,
        id_of(name),
        _of_attempts(flow, step, index, attempt, outcome, verdict, pid),
    ]
    if wait_s is not None:
        pieces.append(_WAIT + _pack_double(wait_s))
    if cpu_s is not None:
        pieces.append(_CPU + _pack_double(cpu_s))
    if peak_kb is not None:
        pieces.append(_attribute("pgflow.peak_kb", peak_kb))
    if more is not None:
        known, error = more
        pieces.append(_attributes(known))
        if error is not None:
            pieces.append(_status(error))
    return b"".join(pieces)


def _part(
    common: bytes,
    step: str | None,
    ended_at: float,
    deps: Sequence[str],
    trace: Sequence[Any] | None,
    run_id: str,
    began_at: str,
) -> bytes:
    run = id_of(run_id)
    if step is not None:
        span_id = id_of(f"{run_id}/{step}")
        found = _span(trace, run_id, span_id, float(began_at), ended_at) + _PARENT + run + common
        if deps:
            trace_id = trace[0] if trace else run_id.replace("-", "")
            found += b"".join([_link(trace_id, step_span(run_id, dep)) for dep in deps])
        return found
    found = _span(trace, run_id, run, float(began_at), ended_at) + common
    if trace:
        _, parent, _, link = trace
        if parent is not None:
            found += _PARENT + _id(parent, 8)
        if link is not None:
            found += _link(*link)
    return found


# what many spans have in common


@lru_cache(maxsize=4096)
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


def _span(
    trace: Sequence[Any] | None, run_id: str, span_id: bytes, began_at: float, ended_at: float
) -> bytes:
    """The ids, the times, the run, and the state of the trace."""
    trace_id = bytes.fromhex(run_id.replace("-", "") if trace is None else trace[0])
    known, begin, end = run_id.encode(), int(began_at * _NS), int(ended_at * _NS)
    if len(trace_id) != _TRACE_BYTES or len(known) != _RUN_CHARS:
        raise ValueError(f"{run_id[:50]!r} is no id of a run, or that of its trace is none")
    found = _pack_span(b"\x0a\x10", trace_id, b"\x12\x08", span_id, b"\x39", begin, b"\x41", end)
    if trace and trace[2]:
        found += field(3, _utf8(trace[2]))
    return found + _RUN + known


def _id(digits: str, size: int) -> bytes:
    found = bytes.fromhex(digits)
    if len(found) != size:
        raise ValueError(f"an id has {len(found)} bytes, not {size}")
    return found


def _link(trace_id: str, span_id: str) -> bytes:
    return field(13, field(1, _id(trace_id, 16)) + field(2, _id(span_id, 8)))


def _status(error: str) -> bytes:
    return field(15, field(2, _utf8(error)) + _ERROR)


# attributes


def _attributes(known: Mapping[str, Any]) -> bytes:
    pairs = known.items()
    return b"".join([_attribute(key, value) for key, value in pairs if value is not None])


@lru_cache(maxsize=4096)
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


def field(number: int, data: bytes) -> bytes:
    """A field of bytes, a text or a message."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def fields(number: int, all_data: Sequence[bytes]) -> bytes:
    """A field that is repeated."""
    tag = _varint(number << 3 | 2)
    pieces: list[bytes] = []
    for data in all_data:
        pieces += tag, _varint(len(data)), data
    return b"".join(pieces)


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
