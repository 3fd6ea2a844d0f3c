"""
What an approval is: the output of its step, or the failure that a rejection is. Pure.

An approval is a signal with the name of its step. Its payload is {"approved", "by", "note"}. The
SQL sees an ordinary signal and an ordinary step.
"""

from __future__ import annotations

from typing import Any

from pgflowd.core.failure import Fail

APPROVAL = "approval"  # why its task waits


def is_answer(payload: Any) -> bool:
    """Whether a signal approves or rejects; somebody may have sent another one by this name."""
    return isinstance(payload, dict) and isinstance(payload.get("approved"), bool)


def output_of(answer: dict[str, Any]) -> dict[str, Any]:
    """The output of the step; `Fail` for a rejection."""
    by, note = answer.get("by"), answer.get("note") or ""
    if not answer["approved"]:
        raise Fail(": ".join(filter(None, [f"rejected by {by or 'somebody'}", str(note)])))
    return {"approved": True, "by": by, "note": note}
