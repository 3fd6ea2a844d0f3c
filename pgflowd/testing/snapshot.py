"""
Snapshot: all that the tables would show of a run, for comparison. SQL nulls among outputs are
left out, since JSON's null is None.
"""

from __future__ import annotations

from typing import Any

from pgflowd.core.json.sql_null import SqlNull
from pgflowd.testing.rows import EngineRun, EngineStep


def snapshot_of(run: EngineRun) -> dict[str, Any]:
    """The run, its steps by slug, and their tasks in order."""
    return {
        "status": str(run.status),
        "remaining_steps": run.remaining_steps,
        **_output(run.output),
        "steps": {slug: _step_snapshot(state) for slug, state in run.states.items()},
    }


def _output(value: Any) -> dict[str, Any]:
    return {} if isinstance(value, SqlNull) else {"output": value}


def _step_snapshot(state: EngineStep) -> dict[str, Any]:
    return {
        "status": str(state.status),
        "remaining_deps": state.remaining_deps,
        "initial_tasks": state.initial_tasks,
        "remaining_tasks": state.remaining_tasks,
        "error_message": state.error,
        "skip_reason": state.skip_reason,
        **_output(state.output),
        "tasks": [
            {
                "status": str(task.status),
                "attempts_count": task.attempts,
                "error_message": task.error,
                "archived": task.message.archived,
                **_output(task.output),
            }
            for task in state.tasks
        ],
    }
