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
from pgflowd.core.traces import id_of

_FAILED = (RunStatus.FAILED.value, StepStatus.FAILED.value)
_INTERNAL, _CONSUMER = b"\x30\x01", b"\x30\x05"  # field 6, the kind
_ERROR = b"\x18\x02"  # field 3 of a status
_PARENT = b"\x22\x08"
_RUN_CHARS = 36
_BEGIN, _END = b"\x39", b"\x41"
_pack_times = Struct("<cQcQ").pack
_pack_double = Struct("<d").pack
_NS = 1e9
_UINT64 = (1 << 64) - 1

EncodeSpan = Callable[[], bytes]


def spans_in(portion: Mapping[str, Any]) -> list[EncodeSpan]:
    """The spans of a portion, to be encoded when it is their turn."""
    flow, of_runs = portion["flow"], _OfRuns(portion["traces"])
    found: list[EncodeSpan] = [partial(_attempt, flow, of_runs, row) for row in portion["attempts"]]
    for step, status, error, ended_at, runs, deps in portion["parts"]:
        words = runs.split(" ")
        common = _of_parts(flow, step, status, error)
        for run_id, began_at in zip(words[::2], words[1::2], strict=True):
            if step is None:
                found.append(partial(_run, common, of_runs, run_id, began_at, ended_at))
            else:
                of_step = run_id, step, began_at, ended_at, deps
                found.append(partial(_step, common, of_runs, *of_step))
    return found


def _attempt(flow: str, of_runs: _OfRuns, row: Sequence[Any]) -> bytes:
    (run_id, step, index, token, attempt, outcome, verdict,
     began_ns, ended_ns, wait_s, cpu_s, peak_kb, pid, more) = row  # fmt: skip
    ids, of_run = of_runs[run_id][:2]
    name = f"{run_id}/{step}"
    found = ids + id_of(f"{name}/{index}/{token}") + _pack_times(_BEGIN, began_ns, _END, ended_ns)
    found += of_run + _PARENT + id_of(name)
    found += _of_attempts(flow, step, index, attempt, outcome, verdict, pid)
    if wait_s is not None:
        found += _WAIT + _pack_double(wait_s)
    if cpu_s is not None:
        found += _CPU + _pack_double(cpu_s)
    if peak_kb is not None:
        found += _attribute("pgflow.peak_kb", peak_kb)
    if more is not None:
        known, error = more
        found += _attributes(known)
        if error is not None:
            found += _status(error)
    return found


def _step(
    common: bytes,
    of_runs: _OfRuns,
    run_id: str,
    step: str,
    began_at: str,
    ended_at: float,
    deps: Sequence[str],
) -> bytes:
    ids, of_run, run, _ = of_runs[run_id]
    found = ids + id_of(f"{run_id}/{step}") + _times(began_at, ended_at)
    found += of_run + _PARENT + run + common
    for dep in deps:
        found += field(13, ids + id_of(f"{run_id}/{dep}"))
    return found


def _run(common: bytes, of_runs: _OfRuns, run_id: str, began_at: str, ended_at: float) -> bytes:
    ids, of_run, run, above = of_runs[run_id]
    return ids + run + _times(began_at, ended_at) + of_run + common + above


def _times(began_at: str, ended_at: float) -> bytes:
    return _pack_times(_BEGIN, int(float(began_at) * _NS), _END, int(ended_at * _NS))


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


class _OfRuns(dict[str, tuple[bytes, bytes, bytes, bytes]]):
    """By the id of a run: the id of the trace, before that of a span; which run it is; the id of
    the run's span, and what is above it."""

    def __init__(self, traces: Mapping[str, Sequence[Any]]) -> None:
        self._traces = traces  # of those that do not have their own

    def __missing__(self, run_id: str) -> tuple[bytes, bytes, bytes, bytes]:
        own = run_id.replace("-", "")
        trace_id, parent, state, link = self._traces.get(run_id, (own, None, None, None))
        known = run_id.encode()
        if len(known) != _RUN_CHARS:
            raise ValueError(f"{run_id[:50]!r} is no id of a run")
        of_run = _RUN + known
        if state:
            of_run += field(3, _utf8(state))
        above = b"" if parent is None else _PARENT + _id(parent, 8)
        if link is not None:
            above += _link(*link)
        found = self[run_id] = (
            b"\x0a\x10" + _id(trace_id, 16) + b"\x12\x08", of_run, id_of(run_id), above
        )  # fmt: skip
        return found


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
