"""
Engine: the SQL state machine in pure Python, for runs in this process and for comparison.

It follows sections 5 to 13 of the SQL contract with the improvements of section 23 that our
SQL takes (conditions and empty maps alternate until nothing changes; tasks of a skipped step
become `skipped`). It has no clock: `now` is a number that `advance` moves, and a message is
visible or not by it. It knows no workers, leases, recovery or cancelling.

    engine = Engine(flow.shape())
    run = engine.start({"url": "x"})             MapInput where the SQL raises P0001
    engine.claimable()                           tasks whose messages a worker would read now
    record = engine.start_tasks([task])[0]       as `start_tasks`, visible or not; or engine.claim()
    engine.complete(record.key, output)          as `complete_task`; ABSENT is SQL null
    engine.fail(record.key, "text")              as `fail_task`; retry=False, delay_s= as ours
    engine.advance_to_next()                     to when the next message becomes visible
    engine.snapshot(run.run_id)                  statuses, counters, outputs, errors, tasks
    run.events                                   type, step and error of each event, in order

A key is (run id, step slug, task index). Reports may be late, repeated or about tasks that
nobody claimed: they do here what they do there. Every call either happens or raises.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pgflowd.core.absent import ABSENT, Absent
from pgflowd.core.plan import Plan, StepPlan, plan_of
from pgflowd.errors import MapInput
from pgflowd.testing.pipeline import Pipeline
from pgflowd.testing.rows import (
    Event,
    RunRow,
    RunStatus,
    StepState,
    StepStatus,
    TaskRow,
    TaskStatus,
)

Key = tuple[str, str, int]
LONGEST_DELAY_S = 2**31 - 1


@dataclass(frozen=True)
class Record:
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


class Engine:
    """One flow with its runs."""

    def __init__(self, shape: Mapping[str, Any], flow_slug: str = "flow") -> None:
        self.flow_slug = flow_slug
        self.plan: Plan = plan_of(shape)
        self.now = 0.0
        self.runs: dict[str, RunRow] = {}

    # -- starting ------------------------------------------------------------------------

    def start(self, input: Any, run_id: str | None = None) -> RunRow:
        """Start a run and everything that is ready in it."""
        if self.plan.has_root_map and not isinstance(input, list):
            raise MapInput(
                f"Flow {self.flow_slug} has root map steps but input is not an array"
                f" (got {json_type(input)})"
            )
        run_id = run_id or f"run-{len(self.runs) + 1}"
        states = {step.slug: _new_state(step, input) for step in self.plan.steps.values()}
        run = RunRow(run_id, input, remaining_steps=len(states), states=states)
        run.events.append(Event(run_id, "run:started"))
        self._pipeline(run).advance()
        self.runs[run_id] = run
        return run

    # -- claiming ------------------------------------------------------------------------

    def claimable(self) -> list[TaskRow]:
        """The tasks a worker could claim now, those first whose messages waited longest."""
        due = [task for task in self._waiting() if task.message.visible_at <= self.now]
        return sorted(due, key=self._reading_order)

    def claim(self, limit: int | None = None) -> list[Record]:
        """Start up to `limit` claimable tasks, all without one."""
        return self.start_tasks(self.claimable()[:limit])

    def start_tasks(self, tasks: Iterable[TaskRow]) -> list[Record]:
        """Start those of the tasks that are queued under a started step and run."""
        return [self._start(task) for task in tasks if self._may_start(task)]

    def next_visible_at(self) -> float | None:
        """When the next message of a task that could then be claimed becomes visible."""
        return min((task.message.visible_at for task in self._waiting()), default=None)

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def advance_to_next(self) -> bool:
        """Move `now` to `next_visible_at`; False if there is nothing to wait for."""
        due = self.next_visible_at()
        if due is not None:
            self.now = max(self.now, due)
        return due is not None

    # -- reporting -----------------------------------------------------------------------

    def complete(self, key: Key, output: Any) -> TaskRow | None:
        """Report a task completed. Returns its row as it is afterwards, None if unknown."""
        run, state, task = self._find(key)
        if task is None or run.status is RunStatus.FAILED:
            return task
        if state.status is not StepStatus.STARTED:
            task.message.archived = True
            return task
        if not isinstance(output, list) and self._starved_map(run, state) is not None:
            self._violate_type(run, state, task, output)
        elif task.status is TaskStatus.STARTED:
            self._complete(run, state, task, output)
        return task

    def fail(
        self, key: Key, message: str, *, retry: bool = True, delay_s: float | None = None
    ) -> TaskRow | None:
        """Report a task failed; `retry` and `delay_s` are the wishes of `pgflowd.fail`."""
        run, state, task = self._find(key)
        if task is None:
            return None
        if run.status is RunStatus.FAILED or state.status is not StepStatus.STARTED:
            if run.status is RunStatus.FAILED and task.status is TaskStatus.STARTED:
                task.become(TaskStatus.FAILED)
                task.error = message
            task.message.archived = True
        elif task.status is TaskStatus.STARTED:
            self._fail(run, state, task, message, retry=retry, delay_s=delay_s)
        return task

    # -- looking -------------------------------------------------------------------------

    def snapshot(self, run_id: str) -> dict[str, Any]:
        """All that the tables would show. SQL nulls among outputs are left out."""
        run = self.runs[run_id]
        return {
            "status": str(run.status),
            "remaining_steps": run.remaining_steps,
            **_output(run.output),
            "steps": {slug: _step_snapshot(state) for slug, state in run.states.items()},
        }

    # -- inside --------------------------------------------------------------------------

    def _pipeline(self, run: RunRow) -> Pipeline:
        return Pipeline(self.plan, run, self.now)

    def _find(self, key: Key) -> tuple[RunRow, StepState, TaskRow | None]:
        run_id, slug, index = key
        run = self.runs[run_id]
        state = run.states[slug]
        return run, state, state.tasks[index] if index < len(state.tasks) else None

    def _waiting(self) -> list[TaskRow]:
        return [
            task
            for run in self.runs.values()
            if run.status is RunStatus.STARTED
            for state in run.states.values()
            if state.status is StepStatus.STARTED
            for task in state.tasks
            if task.status is TaskStatus.QUEUED and not task.message.archived
        ]

    def _reading_order(self, task: TaskRow) -> tuple[float, int, int]:
        return (task.message.visible_at, self.plan.steps[task.step_slug].index, task.index)

    def _may_start(self, task: TaskRow) -> bool:
        run = self.runs[task.run_id]
        return (
            task.status is TaskStatus.QUEUED
            and run.status is RunStatus.STARTED
            and run.states[task.step_slug].status is StepStatus.STARTED
        )

    def _start(self, task: TaskRow) -> Record:
        run, step = self.runs[task.run_id], self.plan.steps[task.step_slug]
        task.become(TaskStatus.STARTED)
        task.attempts += 1
        task.claims += 1
        task.message.visible_at = self.now + step.timeout_s + 2
        return Record(
            run_id=run.run_id,
            step_slug=step.slug,
            task_index=task.index,
            input=_task_input(run, step, task.index),
            flow_input=run.input if not step.deps and not step.is_map else ABSENT,
            attempt=task.attempts,
            max_attempts=max(step.max_attempts, 1),
            timeout_s=step.timeout_s,
        )

    def _starved_map(self, run: RunRow, state: StepState) -> str | None:
        """A dependent map that waits for this single step's array."""
        step = self.plan.steps[state.slug]
        if step.is_map:
            return None
        maps = (slug for slug in step.dependents if self.plan.steps[slug].is_map)
        return next((slug for slug in maps if run.states[slug].initial_tasks is None), None)

    def _violate_type(self, run: RunRow, state: StepState, task: TaskRow, output: Any) -> None:
        word = json_type(output)
        if task.status is TaskStatus.QUEUED:  # nobody had claimed it, which does not help
            task.become(TaskStatus.STARTED)
        task.become(TaskStatus.FAILED)
        task.output = output
        task.error = f"[TYPE_VIOLATION] Produced {word} instead of array"
        state.error = (
            f"[TYPE_VIOLATION] Map step {self._starved_map(run, state)} expects array input"
            f" but dependency {state.slug} produced {word}"
        )
        state.become(StepStatus.FAILED)
        pipeline = self._pipeline(run)
        pipeline.fail_run(state.error)
        run.events.append(Event(run.run_id, "step:failed", state.slug, state.error))
        task.message.archived = True

    def _complete(self, run: RunRow, state: StepState, task: TaskRow, output: Any) -> None:
        task.become(TaskStatus.COMPLETED)
        task.output = output
        task.message.archived = True
        state.remaining_tasks = (state.remaining_tasks or 0) - 1
        if state.remaining_tasks > 0:
            return
        is_map = self.plan.steps[state.slug].is_map
        state.output = [_null(task.output) for task in state.tasks] if is_map else output
        self._pipeline(run).complete_step(state)

    def _fail(
        self,
        run: RunRow,
        state: StepState,
        task: TaskRow,
        message: str,
        *,
        retry: bool,
        delay_s: float | None,
    ) -> None:
        step = self.plan.steps[state.slug]
        if not retry:
            task.attempts = max(task.attempts, step.max_attempts)
        task.error = message
        if task.attempts < step.max_attempts:
            task.become(TaskStatus.QUEUED)
            delay = retry_delay_s(step.base_delay_s, task.attempts) if delay_s is None else delay_s
            task.message.visible_at = self.now + delay
            return
        task.become(TaskStatus.FAILED)
        task.message.archived = True
        self._pipeline(run).exhaust_step(state, message)


def retry_delay_s(base_delay_s: float, attempts: int) -> int:
    """floor(base * 2^attempts), the failed attempt counted, capped where SQL's int ends."""
    return min(math.floor(base_delay_s * 2.0 ** min(attempts, 64)), LONGEST_DELAY_S)


def json_type(value: Any) -> str:
    """The word of `jsonb_typeof`, and `null` for SQL null too."""
    if value is None or isinstance(value, Absent):
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else "number"


def _null(output: Any) -> Any:
    return None if isinstance(output, Absent) else output


def _new_state(step: StepPlan, input: Any) -> StepState:
    initial = 1 if not step.is_map else len(input) if step.is_root_map else None
    return StepState(step.slug, remaining_deps=len(step.deps), initial_tasks=initial)


def _task_input(run: RunRow, step: StepPlan, index: int) -> Any:
    if step.is_root_map:
        return run.input[index]
    if step.is_map:
        return run.states[step.deps[0]].output[index]
    return {
        dep: _null(run.states[dep].output)
        for dep in step.deps
        if run.states[dep].status is StepStatus.COMPLETED
    }


def _output(value: Any) -> dict[str, Any]:
    return {} if isinstance(value, Absent) else {"output": value}


def _step_snapshot(state: StepState) -> dict[str, Any]:
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
