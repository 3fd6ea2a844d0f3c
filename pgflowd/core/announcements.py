"""
What is said aloud of a run that somebody views: how it ended, and which of its steps failed. Pure.
"""

from __future__ import annotations

from pgflowd.core.documents.runs import RunWithStates
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import StepStatus
from pgflowd.core.text import short_id
from pgflowd.core.timeline import reason

MAX_STEPS = 3  # that are named
_MAX_TEXT = 200


def announcement(before: RunWithStates | None, now: RunWithStates) -> str:
    """What has happened in a run since it was read before; empty if that is nothing much."""
    if before is None:
        return ""
    if now.has_ended and now.status is not before.status:
        why = reason(now)
        status = str(now.status).replace("_", " ")
        text = f"run {short_id(now.run_id)} {status}{f': {why}' if why else ''}"
        return one_line(text, _MAX_TEXT)
    failed = [slug for slug in _failed(now) if slug not in _failed(before)]
    if not failed:
        return ""
    named = ", ".join(failed[:MAX_STEPS])
    more = f" and {len(failed) - MAX_STEPS} more" if len(failed) > MAX_STEPS else ""
    return one_line(f"failed: {named}{more}", _MAX_TEXT)


def _failed(run: RunWithStates) -> list[str]:
    return [slug for slug, step in run.steps.items() if step.status is StepStatus.FAILED]
