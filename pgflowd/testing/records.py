"""
Records: what a claim returns for a task, and how its input is made (section 11.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgflowd.core.definition.plan import StepPlan
from pgflowd.core.json.sql_null import SQL_NULL
from pgflowd.core.statuses import StepStatus
from pgflowd.testing.rows import EngineRun, TaskRow, json_null

Key = tuple[str, str, int]  # run id, step slug, task index


@dataclass(frozen=True)
class ClaimedRecord:
    """What a claim returns for one task."""

    run_id: str
    step_slug: str
    task_index: int
    input: Any
    flow_input: Any  # the run's input for a root single step, else ABSENT
    attempt: int
    max_attempts: int
    timeout_s: int

    @property
    def key(self) -> Key:
        return (self.run_id, self.step_slug, self.task_index)


def record_of(run: EngineRun, step: StepPlan, task: TaskRow) -> ClaimedRecord:
    """The record of a task that has just been started."""
    return ClaimedRecord(
        run_id=run.run_id,
        step_slug=step.slug,
        task_index=task.index,
        input=_task_input(run, step, task.index),
        flow_input=run.input if not step.deps and not step.is_map else SQL_NULL,
        attempt=task.attempts,
        max_attempts=max(step.max_attempts, 1),
        timeout_s=step.timeout_s,
    )


def _task_input(run: EngineRun, step: StepPlan, index: int) -> Any:
    if step.is_root_map:
        return run.input[index]
    if step.is_map:
        return run.states[step.deps[0]].output[index]
    return {
        dep: json_null(run.states[dep].output)
        for dep in step.deps
        if run.states[dep].status is StepStatus.COMPLETED
    }
