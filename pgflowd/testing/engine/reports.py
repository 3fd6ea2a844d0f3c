"""Applies a report to a task, its step and its run, as the SQL's complete_task and fail_task do."""

from __future__ import annotations

import math
from typing import Any

from pgflowd.core.failure import MAX_DELAY_S
from pgflowd.core.json import SqlNull
from pgflowd.core.statuses import RunStatus, StepStatus, TaskStatus
from pgflowd.testing.engine.progress import RunProgress
from pgflowd.testing.engine.state import EngineStep, TaskRow, json_null


class TaskReports(RunProgress):
    """One report, at one moment, and its effects."""

    def complete(self, state: EngineStep, task: TaskRow, output: Any) -> None:
        """A task completed, perhaps too late, perhaps with an output of the wrong type."""
        if self.run.status is RunStatus.FAILED:
            return
        if state.status is not StepStatus.STARTED:
            task.message.is_archived = True
        elif not isinstance(output, list) and (waiting := self._waiting_map(state)) is not None:
            self._violate_type(state, task, output, waiting)
        elif task.status is TaskStatus.STARTED:
            self._complete(state, task, output)

    def fail(
        self,
        state: EngineStep,
        task: TaskRow,
        message: str,
        *,
        retry: bool = True,
        delay_s: float | None = None,
    ) -> None:
        """An attempt failed, perhaps too late; with attempts left there will be another."""
        is_over = self.run.status is RunStatus.FAILED
        if is_over and task.status is TaskStatus.STARTED:
            task.become(TaskStatus.FAILED)
            task.error = message
        if is_over or state.status is not StepStatus.STARTED:
            task.message.is_archived = True
        elif task.status is TaskStatus.STARTED:
            if not retry:
                most = self.plan.steps[state.slug].options["max_attempts"]
                task.attempts = max(task.attempts, most)
            self._fail(state, task, message, delay_s)

    def _complete(self, state: EngineStep, task: TaskRow, output: Any) -> None:
        task.become(TaskStatus.COMPLETED)
        task.output = output
        task.message.is_archived = True
        state.remaining_tasks = (state.remaining_tasks or 0) - 1
        if state.remaining_tasks > 0:
            return
        is_map = self.plan.steps[state.slug].is_map
        state.output = [json_null(task.output) for task in state.tasks] if is_map else output
        self.complete_step(state)

    def _fail(self, state: EngineStep, task: TaskRow, message: str, delay_s: float | None) -> None:
        options = self.plan.steps[state.slug].options
        task.error = message
        if task.attempts < options["max_attempts"]:
            task.become(TaskStatus.QUEUED)
            if delay_s is None:
                delay_s = retry_delay_s(options["base_delay"], task.attempts)
            task.message.visible_at = self.now + delay_s
            return
        task.become(TaskStatus.FAILED)
        task.message.is_archived = True
        self.exhaust_step(state, message)

    def _violate_type(self, state: EngineStep, task: TaskRow, output: Any, map_slug: str) -> None:
        word = json_type(output)
        if task.status is TaskStatus.QUEUED:  # SQL fails an unclaimed task, too
            task.become(TaskStatus.STARTED)
        task.become(TaskStatus.FAILED)
        task.message.is_archived = True
        task.output = output
        task.error = f"[TYPE_VIOLATION] Produced {word} instead of array"
        state.error = (
            f"[TYPE_VIOLATION] Map step {map_slug} expects array input"
            f" but dependency {state.slug} produced {word}"
        )
        state.become(StepStatus.FAILED)
        self.fail_run(state.error)
        self._send("step:failed", state.slug, state.error)

    def _waiting_map(self, state: EngineStep) -> str | None:
        """A dependent map that waits for the list of this single step."""
        step = self.plan.steps[state.slug]
        if step.is_map:
            return None
        maps = (slug for slug in step.dependents if self.plan.steps[slug].is_map)
        return next((slug for slug in maps if self.run.states[slug].initial_tasks is None), None)


def retry_delay_s(base_delay_s: float, attempts: int) -> int:
    """floor(base * 2^attempts), the failed attempt counted, capped where SQL's int ends."""
    return min(math.floor(base_delay_s * 2.0 ** min(attempts, 64)), MAX_DELAY_S)


def json_type(value: Any) -> str:
    """The word of `jsonb_typeof`, and `null` for SQL null too."""
    if value is None or isinstance(value, SqlNull):
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else "number"
