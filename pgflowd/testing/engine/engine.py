"""The engine: one flow with its runs, and the calls that SQL has as functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pgflowd.core.definition.plan import FlowPlan, StepPlan, plan_of
from pgflowd.core.statuses import RunStatus, StepStatus, TaskStatus
from pgflowd.core.waiting import Wait
from pgflowd.errors import MapInput
from pgflowd.testing.engine.progress import RunProgress, json_type
from pgflowd.testing.engine.state import (
    ClaimedRecord,
    EngineRun,
    EngineStep,
    Event,
    Key,
    SentSignal,
    TaskRow,
    record_of,
    snapshot_of,
)
from pgflowd.testing.engine.waits import free_due, next_due_at, suspend


class Engine:
    """One flow with its runs."""

    def __init__(self, shape: Mapping[str, Any], flow_slug: str = "flow") -> None:
        self.flow_slug = flow_slug
        self.plan: FlowPlan = plan_of(shape)
        self.now = 0.0
        self.runs: dict[str, EngineRun] = {}

    # -- starting ------------------------------------------------------------------------

    def start(self, input: Any, run_id: str | None = None) -> EngineRun:
        """Start a run and everything that is ready in it."""
        if self.plan.has_root_map and not isinstance(input, list):
            raise MapInput(
                f"Flow {self.flow_slug} has root map steps but input is not an array"
                f" (got {json_type(input)})"
            )
        run_id = run_id or f"run-{len(self.runs) + 1}"
        states = {step.slug: _new_state(step, input) for step in self.plan.steps.values()}
        run = EngineRun(run_id, input, remaining_steps=len(states), states=states)
        run.events.append(Event(run_id, "run:started"))
        RunProgress(self.plan, run, self.now).advance()
        self.runs[run_id] = run
        return run

    # -- claiming ------------------------------------------------------------------------

    def claimable(self) -> list[TaskRow]:
        """The tasks a worker could claim now; first those whose messages were visible first."""
        due = [task for task in self._queued_tasks() if task.message.visible_at <= self.now]
        return sorted(due, key=self._reading_order)

    def claim(self, limit: int | None = None) -> list[ClaimedRecord]:
        """Start up to `limit` claimable tasks, all of them without a limit."""
        return self.start_tasks(self.claimable()[:limit])

    def start_tasks(self, tasks: Iterable[TaskRow]) -> list[ClaimedRecord]:
        """Start those of the tasks that are queued under a started step and run."""
        return [self._start(task) for task in tasks if self._may_start(task)]

    def next_visible_at(self) -> float | None:
        """When the next message of a task that could then be claimed becomes visible."""
        return min((task.message.visible_at for task in self._queued_tasks()), default=None)

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def advance_to_next(self) -> bool:
        """Move `now` to when a message becomes visible or a wait ends; False if none will."""
        waits = (next_due_at(run) for run in self.runs.values())
        moments = [at for at in (self.next_visible_at(), *waits) if at is not None]
        if moments:
            self.now = max(self.now, min(moments))
            self.process_due()
        return bool(moments)

    # -- waiting -------------------------------------------------------------------------

    def suspend(self, key: Key, wait: Wait) -> TaskRow | None:
        """Report a task suspended: it is queued again, unspent, and waits."""
        run, state, task = self._find(key)
        is_open = run.status is RunStatus.STARTED and state.status is StepStatus.STARTED
        if task is not None and is_open and task.status is TaskStatus.STARTED:
            suspend(run, task, wait, self.now)
        return task

    def signal(self, run_id: str, signal: SentSignal) -> None:
        """Send a signal now or later, after all others, unless the run has ended."""
        run = self.runs[run_id]
        if run.status is RunStatus.STARTED:
            run.signals.append(signal)

    def process_due(self) -> None:
        """Free the tasks whose waits are over by now."""
        for run in self.runs.values():
            free_due(run, self.now)

    # -- reporting -----------------------------------------------------------------------

    def complete(self, key: Key, output: Any) -> TaskRow | None:
        """Report a task completed. Returns its row as it is afterwards, None if unknown."""
        run, state, task = self._find(key)
        if task is not None:
            RunProgress(self.plan, run, self.now).complete(state, task, output)
        return task

    def fail(
        self, key: Key, message: str, *, retry: bool = True, delay_s: float | None = None
    ) -> TaskRow | None:
        """Report a task failed; `retry` and `delay_s` are arguments of `pgflowd.fail`."""
        run, state, task = self._find(key)
        if task is not None:
            reports = RunProgress(self.plan, run, self.now)
            reports.fail(state, task, message, retry=retry, delay_s=delay_s)
        return task

    def release(self, key: Key, delay_s: float, at_most_s: float) -> bool:
        """Give a task back unspent, for which its handler asked; False if it may no longer."""
        run, state, task = self._find(key)
        is_open = run.status is RunStatus.STARTED and state.status is StepStatus.STARTED
        if task is None or not is_open or task.status is not TaskStatus.STARTED:
            return False
        asked_at = self.now if task.asked_at is None else task.asked_at
        if self.now + delay_s > asked_at + at_most_s:
            return False
        task.become(TaskStatus.QUEUED)
        task.asked_at = asked_at
        task.attempts -= 1
        task.claims -= 1
        task.message.visible_at = self.now + delay_s
        return True

    def snapshot(self, run_id: str) -> dict[str, Any]:
        """All that the tables would show of a run."""
        return snapshot_of(self.runs[run_id], self.now)

    # -- inside --------------------------------------------------------------------------

    def _find(self, key: Key) -> tuple[EngineRun, EngineStep, TaskRow | None]:
        run_id, slug, index = key
        run = self.runs[run_id]
        state = run.states[slug]
        return run, state, state.tasks[index] if index < len(state.tasks) else None

    def _queued_tasks(self) -> list[TaskRow]:
        return [
            task
            for run in self.runs.values()
            for state in run.states.values()
            for task in state.tasks
            if self._may_start(task) and not task.message.is_archived
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

    def _start(self, task: TaskRow) -> ClaimedRecord:
        run, step = self.runs[task.run_id], self.plan.steps[task.step_slug]
        task.become(TaskStatus.STARTED)
        task.attempts += 1
        task.claims += 1
        task.caps = frozenset(task.needs or step.options["needs"] or ())
        task.needs = ()
        task.message.visible_at = self.now + step.options["timeout"] + 2
        return record_of(run, step, task)


def _new_state(step: StepPlan, input: Any) -> EngineStep:
    initial = 1 if not step.is_map else len(input) if step.is_root_map else None
    return EngineStep(step.slug, remaining_deps=len(step.deps), initial_tasks=initial)
