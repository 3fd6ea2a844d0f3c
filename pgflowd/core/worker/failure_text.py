"""
What a person reads of a task whose runner was killed or ended by itself.

The text says where the handler was, which signal or exit code ended it, and how much memory it
had, as far as these are known: `timed out after 5 s; it was at flows/analyze.py:31 in summary`.
The stack is what `faulthandler` wrote as the runner got SIGTERM, and what the task of an async
handler awaited. A status is a number as `wait` returns it.
"""

from __future__ import annotations

import signal
from dataclasses import replace

from pgflowd.core.failure import MAX_MESSAGE_CHARS, clean, place_of, without_the_runner
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.events import Reaped
from pgflowd.core.worker.task import Task, TaskReport

MAX_TRACEBACK_CHARS = 16_000


def timed_out(task: Task, end: Reaped) -> TaskReport:
    """The report of a task that was killed at its deadline."""
    text = f"timed out after {task.timeout_s:g} s{_at(end.stack)}"
    return _report(task, Outcome.TIMED_OUT, "Timeout", text, end)


def blocked(task: Task, limit_s: float, end: Reaped) -> TaskReport:
    """The report of a task that blocked the event loop which it shared with others."""
    text = f"timed out: it blocked the event loop of its runner for {limit_s:g} s{_at(end.stack)}"
    return _report(task, Outcome.TIMED_OUT, "Blocked", text, end)


def cancelled(task: Task, end: Reaped) -> TaskReport:
    """The report of a task whose run or step ended before it."""
    text = f"killed, since its run or step had ended{_at(end.stack)}"
    return _report(task, Outcome.FAILED, "Cancelled", text, end)


def crashed(task: Task, end: Reaped, because: str = "") -> TaskReport:
    """The report of a task whose runner ended by itself."""
    how = because or _how(end.status)
    text = f"the runner crashed: {how}{_memory(end.peak_kb)}{_at(end.stack)}"
    return _report(task, Outcome.CRASHED, "Crash", text, end)


def bad_frame(task: Task, code: str, why: str, end: Reaped) -> TaskReport:
    """The report of a task whose runner sent a bad frame, or an output over the limit."""
    outcome = Outcome.FAILED if code == "E404" else Outcome.CRASHED
    return _report(task, outcome, "Garbage", f"{code} {why}", replace(end, stack=""))


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def exit_of(status: int | None) -> tuple[int | None, int | None]:
    """The exit code and the signal in a wait status; one of them is None, or both without it."""
    if status is None:
        return None, None
    number = status & 0x7F
    return (status >> 8 & 0xFF, None) if number == 0 else (None, number)


def _at(stack: str) -> str:
    place = place_of(stack)
    return f"; it was at {place}" if place else ""


def _how(status: int | None) -> str:
    code, number = exit_of(status)
    if number is None:
        return f"it exited with code {code} before its outcome was whole"
    hint = " (out of memory?)" if number == signal.SIGKILL else ""
    return f"killed by signal {number}, {signal_name(number)}{hint}"


def _memory(peak_kb: int) -> str:
    if not peak_kb:
        return ""
    mib = peak_kb / 1024
    return f", peak {mib / 1024:.1f} GiB" if mib >= 1024 else f", peak {mib:.0f} MiB"


def _report(task: Task, outcome: Outcome, error_type: str, text: str, end: Reaped) -> TaskReport:
    code, number = exit_of(end.status)
    return TaskReport(
        task,
        outcome,
        error_message=clean(text, MAX_MESSAGE_CHARS),
        error_type=error_type,
        traceback=clean(without_the_runner(end.stack), MAX_TRACEBACK_CHARS) or None,
        cpu_s=None if end.cpu_s is None else round(end.cpu_s, 6),
        peak_kb=end.peak_kb,
        exit_code=code,
        exit_signal=number,
    )
