"""
The head of `done` for a task whose handler wrote something over `ctx.conn()`.

The runner asks the database to complete the task in the handler's transaction. Of its answer this
module makes what the worker is told. Where the head is not `recorded` all was rolled back, and the
worker reports the task as usual; where it is, the worker reports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pgflowd.core.failure import MAX_MESSAGE_CHARS, clean
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.events import ReportAnswer, RunChange, Verdict
from pgflowd.core.worker.run_log import MAX_SHOWN_BYTES

Head = Mapping[str, Any]

AS_USUAL: Head = {"outcome": Outcome.COMPLETED}  # the worker reports it
BUSY = "55P03"  # another transaction has the run
HOPELESS_CLASSES = ("22", "54")  # of SQLSTATE: another execution brings the same
MAX_CHANGES = 40  # a head has room for no more; the run is the last of them
MAX_ERROR_CHARS = 300  # of a change
_RECORDED = (Verdict.COMPLETED, Verdict.REPEATED)


def is_busy(answer: ReportAnswer) -> bool:
    """Whether to ask again, since the run is locked."""
    return answer.verdict is Verdict.ERROR and answer.sqlstate == BUSY


def is_recorded(answer: ReportAnswer) -> bool:
    """Whether to commit."""
    return answer.verdict in _RECORDED


def recorded(answer: ReportAnswer, changes: Sequence[RunChange]) -> Head:
    """After the commit."""
    rows = [
        [each.step, each.status, each.took_s, error]
        for each in changes[-MAX_CHANGES:]
        for error in [each.error and clean(each.error, MAX_ERROR_CHARS)]
    ]
    return {
        "outcome": Outcome.COMPLETED,
        "recorded": True,
        "verdict": answer.verdict,
        "run_status": answer.run_status,
        "changes": rows,
    }


def refused(answer: ReportAnswer) -> Head:
    """After the rollback."""
    if answer.verdict is Verdict.FAILED:  # the output breaks a type: its report fails the run
        return AS_USUAL
    if answer.verdict is Verdict.LATE:
        text = "its run or step had ended; what it wrote over ctx.conn() was rolled back"
        return _failed("Cancelled", text)
    reason = f"{answer.message or 'no reason given'} ({answer.sqlstate})"
    if answer.verdict is Verdict.LOST:
        text = f"E407 what it wrote over ctx.conn() was rolled back: {reason}"
        return _failed("LeaseLost", text)
    sqlstate = answer.sqlstate or ""
    code = "E404 " if sqlstate.startswith("54") else ""
    head = _failed("Refused", f"{code}the database refused the completion: {reason}")
    return {**head, "retry": not sqlstate.startswith(HOPELESS_CLASSES)}


def body_of(head: Head, output: bytes) -> bytes:
    """The body of `done`: the output, or of a recorded one what the log may show of it."""
    if not head.get("recorded"):
        return output if head["outcome"] == Outcome.COMPLETED else b""
    return output if len(output) <= MAX_SHOWN_BYTES else f'"({len(output)} bytes)"'.encode()


def given_back(why: str) -> Head:
    """After a deadlock: no attempt is spent."""
    text = clean(why, MAX_MESSAGE_CHARS)
    return {"outcome": Outcome.RELEASED, "error_message": text, "delay_s": 0.0}


def _failed(error_type: str, text: str) -> Head:
    return {
        "outcome": Outcome.FAILED,
        "error_type": error_type,
        "error_message": clean(text, MAX_MESSAGE_CHARS),
    }
