"""
The SQL state machine in pure Python: the twin that `run_flow` executes and tests compare with SQL.

It follows the functions of sql/schema/pgflow: conditions and empty maps alternate until nothing
changes, and tasks of a skipped step become `skipped`. It has no clock: `now` is a number that
`advance` moves, and a message is visible or hidden by it. It has no workers, leases, recovery or
cancelling.

    engine = Engine(flow.shape())
    run = engine.start({"url": "x"})             MapInput where the SQL raises P0001
    engine.claimable()                           tasks whose messages a worker would read now
    record = engine.start_tasks([task])[0]       as `start_tasks`, visible or not; or engine.claim()
    engine.complete(record.key, output)          as `complete_task`; SQL_NULL is SQL null
    engine.fail(record.key, "text")              as `fail_task`; retry=False, delay_s= as ours
    engine.suspend(record.key, wait)             as a report of `suspended`
    engine.signal(run.run_id, SentSignal(…))     as `signal`, now or at a moment to come
    engine.process_due()                         as the sweep: frees tasks whose waits are over
    engine.advance_to_next()                     to when a message becomes visible or a wait ends
    engine.snapshot(run.run_id)                  statuses, counters, outputs, errors, tasks
    run.events                                   type, step and error of each event, in order

A key is (run id, step slug, task index). Reports may be late, repeated or about unclaimed tasks:
the effect is the same as in SQL. Every call either happens as a whole or raises.

`RunProgress` applies a report to a task, as complete_task and fail_task do, and all that follows.
After each change, conditions are tested and empty maps completed until neither changes anything;
then ready steps start, and a run with no steps left completes (in SQL: `_advance`). A method that
returns False has failed the run, and nothing follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pgflowd.core.definition.shape import FlowPlan, StepPlan, contains, plan_of
from pgflowd.core.failure import MAX_DELAY_S
from pgflowd.core.json import SqlNull
from pgflowd.core.statuses import RunStatus, StepStatus, TaskStatus
from pgflowd.core.undo import FAILURE_MARK
from pgflowd.core.waiting import Wait
from pgflowd.errors import MapInput, RunError
from pgflowd.testing.engine_rows import (
    ClaimedRecord,
    EngineRun,
    EngineStep,
    Event,
    Key,
    QueueMessage,
    SentSignal,
    TaskRow,
    completed_outputs,
    free_due,
    json_null,
    next_due_at,
    record_of,
    snapshot_of,
    suspend,
)

MAX_ROUNDS = 50  # as in SQL, whose loop over empty maps ends there


class RunProgress:
    """The effects of one change in a run, at one moment."""

    def __init__(self, plan: FlowPlan, run: EngineRun, now: float) -> None:
        self.plan, self.run, self.now = plan, run, now

    def advance(self) -> None:
        """Do all that has become possible."""
        if self._settle():
            self._start_ready_steps()
            self._maybe_complete_run()

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

    # -- reports -------------------------------------------------------------------------

    def _complete(self, state: EngineStep, task: TaskRow, output: Any) -> None:
        task.become(TaskStatus.COMPLETED)
        task.output = output
        task.message.is_archived = True
        state.remaining_tasks = (state.remaining_tasks or 0) - 1
        if state.remaining_tasks > 0:
            return
        is_map = self.plan.steps[state.slug].is_map
        state.output = [json_null(task.output) for task in state.tasks] if is_map else output
        self._complete_step(state)

    def _fail(self, state: EngineStep, task: TaskRow, message: str, delay_s: float | None) -> None:
        options = self.plan.steps[state.slug].options
        task.error, task.asked_at = message, None
        if task.attempts < options["max_attempts"]:
            task.become(TaskStatus.QUEUED)
            if delay_s is None:
                delay_s = retry_delay_s(options["base_delay"], task.attempts)
            task.message.visible_at = self.now + delay_s
            return
        if options["settle"]:
            self.complete(state, task, {FAILURE_MARK: {"message": message}})
            return
        task.become(TaskStatus.FAILED)
        task.message.is_archived = True
        self._exhaust_step(state, message)

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
        self._fail_run(state.error)
        self._send("step:failed", state.slug, state.error)

    def _waiting_map(self, state: EngineStep) -> str | None:
        """A dependent map that waits for the list of this single step."""
        step = self.plan.steps[state.slug]
        if step.is_map:
            return None
        maps = (slug for slug in step.dependents if self.plan.steps[slug].is_map)
        return next((slug for slug in maps if self.run.states[slug].initial_tasks is None), None)

    def _complete_step(self, state: EngineStep) -> None:
        """End a step whose last task has completed."""
        state.become(StepStatus.COMPLETED)
        self.run.remaining_steps -= 1
        self._send("step:completed", state.slug)
        self._release_dependents(state)
        self.advance()

    def _exhaust_step(self, state: EngineStep, message: str) -> None:
        """End a step that has a task without attempts left, as its `when_exhausted` asks."""
        mode = self.plan.steps[state.slug].options["when_exhausted"]
        if mode == "fail":
            self._fail_step(state, message)
            return
        state.error = message
        self._skip(state, "handler_failed", message)
        if mode == "skip-cascade":
            self._force_skip(state.slug, "handler_failed")
            self._maybe_complete_run()
        else:
            self._release_dependents(state)
            self.advance()

    def _fail_run(self, message: str) -> None:
        """Fail the run; its open tasks keep their status and lose their messages."""
        self.run.become(RunStatus.FAILED)
        self._send("run:failed", None, message)
        for state in self.run.states.values():
            state.archive_open_tasks()

    # -- conditions ----------------------------------------------------------------------

    def _settle(self) -> bool:
        """Alternate conditions and empty maps until neither changes anything."""
        while self._resolve_conditions():
            if not self._complete_taskless_steps():
                return True
        return False

    def _resolve_conditions(self) -> bool:
        while True:
            unmet = [step for step in self.plan.steps.values() if self._is_unmet(step)]
            if not unmet:
                return True
            for step in unmet:
                if step.options["when_unmet"] == "fail":
                    self._fail_step(self.run.states[step.slug], "Condition not met")
                    return False
            skipped = [
                self.run.states[step.slug] for step in unmet if step.options["when_unmet"] == "skip"
            ]
            for state in sorted(skipped, key=_slug):
                self._skip(state, "condition_unmet")
            for state in skipped:
                self._release_dependents(state)
            for step in unmet:
                if step.options["when_unmet"] == "skip-cascade":
                    self._force_skip(step.slug, "condition_unmet")

    def _is_unmet(self, step: StepPlan) -> bool:
        return self.run.states[step.slug].is_ready and not self._is_met(step)

    def _is_met(self, step: StepPlan) -> bool:
        required, forbidden = step.options["if_"], step.options["if_not"]
        if required is None and forbidden is None:
            return True
        subject = self.run.input if not step.deps else completed_outputs(self.run, step.deps)
        has_required = required is None or contains(subject, required)
        return has_required and (forbidden is None or not contains(subject, forbidden))

    # -- empty maps ----------------------------------------------------------------------

    def _complete_taskless_steps(self) -> int:
        """Complete ready steps without tasks, except those whose condition is not met."""
        completed = 0
        for _ in range(MAX_ROUNDS):
            empty = [state for state in self.run.states.values() if self._is_taskless(state)]
            if not empty:
                return completed
            for state in empty:
                state.become(StepStatus.COMPLETED)
                state.remaining_tasks, state.output = 0, []
                self.run.remaining_steps -= 1
                self._send("step:completed", state.slug)
            for state in empty:
                self._release_dependents(state)
            completed += len(empty)
        raise RunError(f"Cascade loop exceeded safety limit of {MAX_ROUNDS} iterations")

    def _is_taskless(self, state: EngineStep) -> bool:
        is_empty = state.is_ready and state.initial_tasks == 0
        return is_empty and self._is_met(self.plan.steps[state.slug])

    # -- starting and ending -------------------------------------------------------------

    def _start_ready_steps(self) -> None:
        if self.run.status is not RunStatus.STARTED:
            return
        for state in sorted(self.run.states.values(), key=_slug):
            if not state.is_ready or not state.initial_tasks:
                continue
            state.become(StepStatus.STARTED)
            state.remaining_tasks = state.initial_tasks
            self._send("step:started", state.slug)
            visible_at = self.now + self.plan.steps[state.slug].options["start_delay"]
            state.tasks = [
                TaskRow(self.run.run_id, state.slug, index, QueueMessage(visible_at))
                for index in range(state.initial_tasks)
            ]

    def _maybe_complete_run(self) -> None:
        if self.run.remaining_steps or self.run.status is not RunStatus.STARTED:
            return
        self.run.become(RunStatus.COMPLETED)
        if outputs := completed_outputs(self.run, self.plan.leaves):
            self.run.output = outputs
        self._send("run:completed", None)

    def _fail_step(self, state: EngineStep, message: str) -> None:
        state.become(StepStatus.FAILED)
        state.error = message
        self._send("step:failed", state.slug, message)
        self._fail_run(message)

    # -- skipping ------------------------------------------------------------------------

    def _skip(self, state: EngineStep, reason: str, message: str | None = None) -> None:
        state.become(StepStatus.SKIPPED)
        state.skip_reason = reason
        state.remaining_tasks = None
        self.run.remaining_steps -= 1
        state.archive_open_tasks()
        for task in state.tasks:
            if task.is_open:
                task.become(TaskStatus.SKIPPED)
        self._send("step:skipped", state.slug, message)

    def _force_skip(self, slug: str, reason: str) -> None:
        downstream = self.plan.downstream(slug)
        for state in self.run.states.values():
            if state.slug in downstream and not state.status.is_end:
                self._skip(state, reason if state.slug == slug else "dependency_skipped")

    def _release_dependents(self, ended: EngineStep) -> None:
        """Count a dep off its dependents, and give their maps the number of tasks."""
        for slug in self.plan.steps[ended.slug].dependents:
            state = self.run.states[slug]
            state.remaining_deps -= 1
            if self.plan.steps[slug].is_map and state.initial_tasks is None:
                has_list = ended.status is StepStatus.COMPLETED and isinstance(ended.output, list)
                state.initial_tasks = len(ended.output) if has_list else 0

    def _send(self, type: str, step: str | None, error: str | None = None) -> None:
        self.run.events.append(Event(self.run.run_id, type, step, error))


def _slug(state: EngineStep) -> str:
    return state.slug


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
