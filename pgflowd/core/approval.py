"""
What an approval is: the output of its step, or the failure that a rejection is. Pure.

An approval is a signal with the name of its step. Its payload is {"approved", "by", "note"}. The
SQL sees an ordinary signal and an ordinary step.
"""

from __future__ import annotations

from typing import Any

from pgflowd.core.failure import Fail
from pgflowd.core.text import brief

APPROVAL = "approval"  # why its task waits


def output_of(payload: Any, step: str) -> dict[str, Any]:
    """The output of the step; `Fail` for a rejection, and for what is no answer."""
    is_approved = payload.get("approved") if isinstance(payload, dict) else None
    if not isinstance(is_approved, bool):
        given = brief(payload, 60)
        raise Fail(
            f"the signal {step} was {given}: approve or reject it, as `pgflowd runs approve`"
        )
    by, note = payload.get("by"), payload.get("note") or ""
    if not is_approved:
        raise Fail(": ".join(filter(None, [f"rejected by {by or 'somebody'}", str(note)])))
    return {"approved": True, "by": by, "note": note}
