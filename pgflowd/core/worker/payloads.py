"""
Payloads: inputs and outputs of tasks in log records, where `logging.payloads` asks for them.

They are parsed, so that the log can hide the keys that `logging.redact` names; what is large is
told by its size alone. Pure.
"""

from __future__ import annotations

from typing import Any

from pgflowd.core.json.values import decode
from pgflowd.core.worker.state import Task

MOST_SHOWN = 4000  # bytes; a record has no room for more


def of_input(task: Task) -> Any:
    """What the handler gets: the run's input as `run`, with the deps; or a map's element."""
    if task.flow_input is None:
        return shown(task.input)
    deps = shown(task.input)
    run = {"run": shown(task.flow_input)}
    return {**run, **deps} if isinstance(deps, dict) else run


def shown(body: bytes | None) -> Any:
    """A JSON text as a value, or how long it is."""
    if body is None:
        return None
    if len(body) <= MOST_SHOWN:
        try:
            return decode(body)
        except (ValueError, RecursionError):
            pass
    return f"({len(body)} bytes)"
