"""The record that a claim returns for a task, with its input, as from `pgflow.start_tasks`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgflowd.core.definition.plan import StepPlan
from pgflowd.core.json.sql_null import SQL_NULL
from pgflowd.testing.engine.state import EngineRun, TaskRow, completed_outputs

Key = tuple[str, str, int]  # run id, step slug, task index


@dataclass(frozen=True)
class ClaimedRecord:
    """What a claim returns for one task."""

    run_id: str
    step_slug: str
    task_index: int
    input: Any
    flow_input: Any  # the run's input for a root single step, else SQL_NULL
    attempt: int
    max_attempts: int
    timeout_s: int

    @property
    def key(self) -> Key:
        return (self.run_id, self.step_slug, self.task_index)


def record_of(run: EngineRun, step: StepPlan, task: TaskRow) -> ClaimedRecord:
    """The record of a task that has just been started."""
    if step.is_root_map:
        input = run.input[task.index]
    elif step.is_map:
        input = run.states[step.deps[0]].output[task.index]
    else:
        input = completed_outputs(run, step.deps)
    return ClaimedRecord(
        run_id=run.run_id,
        step_slug=step.slug,
        task_index=task.index,
        input=input,
        flow_input=run.input if not step.deps and not step.is_map else SQL_NULL,
        attempt=task.attempts,
        max_attempts=max(step.options["max_attempts"], 1),
        timeout_s=step.options["timeout"],
    )
