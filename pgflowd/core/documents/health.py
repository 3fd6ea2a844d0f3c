"""
Whether the daemon lives and is ready, by its status document: what `/livez`, `/readyz` and the
metrics tell. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgflowd.core.documents import versioned
from pgflowd.core.statuses import DaemonState, DatabaseState
from pgflowd.core.supervision.tree import ChildState

SILENT = "unknown"  # the state of a daemon that has not answered
_READY_STATES = (DaemonState.HEALTHY, DaemonState.DEGRADED)
_SERVING = (ChildState.UP, ChildState.ASLEEP)


def is_ready(status: Mapping[str, Any]) -> bool:
    """Whether a worker is up or asleep, the database is reachable, and nothing ends or starts."""
    return (
        status["state"] in _READY_STATES
        and status["database"]["state"] == DatabaseState.UP
        and any(flow["state"] in _SERVING for flow in status["flows"])
    )


def health_of(status: Mapping[str, Any] | None, *, with_reasons: bool) -> dict[str, Any]:
    """The body of a health check; no status: the supervisor has not answered."""
    reasons = [_NO_ANSWER] if status is None else status["problems"]
    state = SILENT if status is None else status["state"]
    return versioned({"state": state, **({"reasons": reasons} if with_reasons else {})})


_NO_ANSWER = {
    "code": "E414",
    "flow": None,
    "text": "the supervisor has not answered in time",
    "next": "read its log; a service manager with a watchdog replaces it",
}
