"""
The SQL state machine in pure Python: the twin that `run_flow` executes and tests compare with SQL.

It follows the functions of sql/schema/pgflow: conditions and empty maps alternate until nothing
changes, and tasks of a skipped step become `skipped`. It has no clock: `now` is a number that
`advance_to_next` moves, and a message is visible or hidden by it. It has no workers, leases,
recovery or cancelling. An engine is one run; its rows have the columns of the SQL tables that
decide anything. An SQL null among JSON values is `SQL_NULL`, since `None` is JSON's null.

    engine = Engine(flow.shape()).start({"url": "x"})
    [record] = engine.claim()
    engine.complete(record.key, output)    or fail, release, suspend

Reports may be late, repeated or about unclaimed tasks: the effect is the same as in SQL.

A task that waits has no message. It gets one, and a checkpoint that says how the wait ended, when
its time has come, or a signal for which it waits. Signals come before timers of the same moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pgflowd.core.definition.shape import StepPlan, contains, plan_of
from pgflowd.core.failure import MAX_DELAY_S
from pgflowd.core.json import SQL_NULL, SqlNull
from pgflowd.core.statuses import RunStatus, StepStatus, TaskStatus
from pgflowd.core.undo import FAILURE_MARK
from pgflowd.core.waiting import Checkpoint, Wait, WaitKind
from pgflowd.errors import MapInput, RunError

MAX_ROUNDS = 50  # as in SQL, whose loop over empty maps ends there
Key = tuple[str, str, int]  # run id, step slug, task index


@dataclass(frozen=True)
class TaskWait:
    """A row of `waits`: what a queued task without a message waits for. Times are virtual."""

    kind: WaitKind
    name: str | None
    checkpoint: str | None
    due_at: float | None
    nr: int
    since: float
    ended_at: float | None = None  # when the runs will have ended for which it waits

    @property
    def over_at(self) -> float:
        """When it is over, unless a signal comes before; infinity if nothing else ends it."""
        moments = (at for at in (self.ended_at, self.due_at) if at is not None)
        return min(moments, default=math.inf)


@dataclass
class TaskRow:
    """A task and its message, which is visible from a moment of virtual time on."""

    run_id: str
    state: EngineStep = field(repr=False)
    index: int
    visible_at: float
    is_archived: bool = False
    status: TaskStatus = TaskStatus.QUEUED
    attempts: int = 0  # as the database counts them: raised to the maximum by Fail
    claims: int = 0  # without those that ended in a wait
    output: Any = SQL_NULL
    error: str | None = None
    wait: TaskWait | None = None
    needs: tuple[str, ...] = ()  # what it was handed on for
    hand_ons: int = 0
    asked_at: float | None = None  # when its handler first asked for a release, of those in a row
    caps: frozenset[str] = frozenset()  # of the worker that has it, which has what it needs
    saved: dict[str, Checkpoint] = field(default_factory=dict)
    progress_told: list[dict[str, Any]] = field(default_factory=list)  # by its handler
    has_begun: bool = False  # its handler was called
    late_output: Any = SQL_NULL  # that came when the run or the step had ended
    traceback: str | None = None  # of its last failure

    @property
    def step_slug(self) -> str:
        return self.state.slug

    @property
    def key(self) -> Key:
        return (self.run_id, self.step_slug, self.index)

    @property
    def is_open(self) -> bool:
        return not self.status.is_end

    @property
    def has_completed(self) -> bool:
        """Whether its handler has returned, though its run may have failed before."""
        return self.status is TaskStatus.COMPLETED or self.late_output is not SQL_NULL

    def become(self, target: TaskStatus) -> None:
        self.status, self.wait = target, None

    def give_back(self, visible_at: float) -> None:
        """Queue it again, its attempt unspent."""
        self.become(TaskStatus.QUEUED)
        self.attempts -= 1
        self.claims -= 1
        self.visible_at = visible_at


@dataclass
class SentSignal:
    """A row of `signals`; one that is sent later than now is not there yet."""

    name: str
    payload: Any
    sent_at: float
    receiver: tuple[str, int] | None = None  # the slug and index of the task that got it


class EndedWait(NamedTuple):
    """What a task has waited for, and how long."""

    step: str
    kind: str  # sleep, signal, runs or need
    name: str | None  # of the signal, of the sleep if it has one, or what was needed
    seconds: float  # in virtual time


@dataclass
class EngineStep:
    plan: StepPlan
    remaining_deps: int
    initial_tasks: int | None
    status: StepStatus = StepStatus.CREATED
    remaining_tasks: int | None = None
    output: Any = SQL_NULL
    error: str | None = None
    skip_reason: str | None = None
    tasks: list[TaskRow] = field(default_factory=list)

    @property
    def slug(self) -> str:
        return self.plan.slug

    @property
    def is_ready(self) -> bool:
        return self.status is StepStatus.CREATED and self.remaining_deps == 0

    def archive_open_tasks(self) -> None:
        for task in self.tasks:
            if task.is_open:
                task.is_archived, task.wait = True, None


class Event(NamedTuple):
    """An event that the SQL sends to the followers of a run; `step` is None for the run's own."""

    type: str
    step: str | None = None
    error: str | None = None


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


class Engine:
    """
    One run of a flow.

    After each change, conditions are tested and empty maps completed until neither changes
    anything; then ready steps start, and a run with no steps left completes (in SQL: `_advance`).
    """

    def __init__(self, shape: Mapping[str, Any], flow_slug: str = "flow") -> None:
        self.flow_slug, self.plan = flow_slug, plan_of(shape)
        self.now = 0.0
        self.run_id = ""
        self.status = RunStatus.STARTED
        self.input: Any = None
        self.output: Any = SQL_NULL
        self.states: dict[str, EngineStep] = {}  # in the order of the shape
        self.remaining_steps = 0
        self.events: list[Event] = []
        self.signals: list[SentSignal] = []  # in the order of sending
        self.waits: list[EndedWait] = []
        self.ended_at: dict[tuple[str, ...], float] = {}  # runs that are waited for
        self._suspensions = 0

    def start(self, input: Any, run_id: str = "run-1") -> Engine:
        """Start the run and everything that is ready in it. MapInput where the SQL raises P0001."""
        if self.plan.has_root_map and not isinstance(input, list):
            text = f"Flow {self.flow_slug} has root map steps but input is not an array"
            raise MapInput(f"{text} (got {json_type(input)})")
        self.run_id, self.input = run_id, input
        for step in self.plan.steps.values():
            tasks = 1 if not step.is_map else len(input) if step.is_root_map else None
            self.states[step.slug] = EngineStep(step, len(step.deps), tasks)
        self.remaining_steps = len(self.states)
        self._send("run:started", None)
        self._advance()
        return self

    def claimable(self) -> list[TaskRow]:
        """The tasks a worker could claim now; first those whose messages were visible first."""
        due = [task for task in self._queued_tasks() if task.visible_at <= self.now]
        return sorted(due, key=lambda task: (task.visible_at, task.state.plan.index, task.index))

    def claim(self) -> list[ClaimedRecord]:
        """Start all claimable tasks."""
        return self.start_tasks(self.claimable())

    def start_tasks(self, tasks: Iterable[TaskRow]) -> list[ClaimedRecord]:
        """Start those of the tasks that are queued under a started step and run."""
        return [self._start(task) for task in tasks if self._may_start(task)]

    def advance_to_next(self) -> bool:
        """Move `now` to when a message becomes visible or a wait ends; False if none will."""
        moments = [task.visible_at for task in self._queued_tasks()]
        moments += [wait.over_at for _, wait in self.waiting()]
        names = {wait.name for _, wait in self.waiting() if wait.kind is WaitKind.SIGNAL}
        moments += [signal.sent_at for signal in self._unused() if signal.name in names]
        next_at = min(moments, default=math.inf)
        if next_at < math.inf:
            self.now = max(self.now, next_at)
            self.process_due()
        return next_at < math.inf

    def is_going_on(self, state: EngineStep) -> bool:
        """Whether the run and this step of it have started, and not ended."""
        return self.status is RunStatus.STARTED and state.status is StepStatus.STARTED

    def element(self, state: EngineStep, index: int) -> Any:
        """The element of a map for one of its tasks."""
        step = state.plan
        return (self.input if step.is_root_map else self.states[step.deps[0]].output)[index]

    def _queued_tasks(self) -> list[TaskRow]:
        tasks = (task for state in self.states.values() for task in state.tasks)
        return [task for task in tasks if self._may_start(task) and not task.is_archived]

    def _may_start(self, task: TaskRow) -> bool:
        return task.status is TaskStatus.QUEUED and self.is_going_on(task.state)

    def _start(self, task: TaskRow) -> ClaimedRecord:
        step = task.state.plan
        task.become(TaskStatus.STARTED)
        task.attempts += 1
        task.claims += 1
        task.caps = frozenset(task.needs or step.options["needs"] or ())
        task.needs = ()
        task.visible_at = self.now + step.options["timeout"] + 2
        given = self.element(task.state, task.index) if step.is_map else self._outputs(step.deps)
        return ClaimedRecord(
            *task.key,
            input=given,
            flow_input=self.input if not step.deps and not step.is_map else SQL_NULL,
            attempt=task.attempts,
            max_attempts=max(step.options["max_attempts"], 1),
            timeout_s=step.options["timeout"],
        )

    def _outputs(self, slugs: Iterable[str]) -> dict[str, Any]:
        """The outputs of those of the steps that have completed."""
        states = (self.states[slug] for slug in slugs)
        done = StepStatus.COMPLETED
        return {state.slug: json_null(state.output) for state in states if state.status is done}

    def waiting(self) -> Iterator[tuple[TaskRow, TaskWait]]:
        """The tasks that wait, and for what."""
        if self.status is RunStatus.STARTED:
            for state in self.states.values():
                for task in state.tasks:
                    if task.wait:
                        yield task, task.wait

    def suspend(self, key: Key, wait: Wait) -> None:
        """Let a started task wait, its attempt unspent. A signal that was sent ends it at once."""
        task = self._executed(key)
        if task is None:
            return
        task.give_back(task.visible_at)
        task.asked_at, task.is_archived = None, True
        self._suspensions += 1
        due_at = None if wait.in_s is None else self.now + wait.in_s
        if wait.kind is WaitKind.NEED:  # some worker has it
            task.needs, task.hand_ons, due_at = wait.needs or (), task.hand_ons + 1, self.now
        name = ",".join(wait.needs) if wait.needs else wait.name
        ended_at = self.ended_at.get(wait.runs or ())
        task.wait = TaskWait(
            wait.kind, name, wait.checkpoint, due_at, self._suspensions, self.now, ended_at
        )
        if wait.kind is WaitKind.SIGNAL:
            self._deliver(wait.name)

    def signal(self, signal: SentSignal) -> None:
        """Send a signal now or later, after all others, unless the run has ended."""
        if self.status is RunStatus.STARTED:
            self.signals.append(signal)

    def process_due(self) -> None:
        """Free the tasks whose signal has come, then those whose time has."""
        for signal in self._unused():
            if signal.sent_at <= self.now:
                self._deliver(signal.name)
        due = [(task, wait) for task, wait in self.waiting() if wait.over_at <= self.now]
        for task, wait in sorted(due, key=lambda each: (each[1].over_at, each[1].nr)):
            word = "slept" if wait.kind is WaitKind.SLEEP else "timeout"
            self._free(task, wait, {"ended" if wait.ended_at == wait.over_at else word: True})

    def _unused(self) -> list[SentSignal]:
        return [signal for signal in self.signals if signal.receiver is None]

    def _deliver(self, name: str | None) -> None:
        """Give the oldest unused signal of a name to the task that has waited longest for it."""
        sent = (each for each in self._unused() if each.name == name and each.sent_at <= self.now)
        signal = next(sent, None)
        receivers = [
            (task, wait)
            for task, wait in self.waiting()
            if wait.kind is WaitKind.SIGNAL and wait.name == name
        ]
        if signal and receivers:
            task, wait = min(receivers, key=lambda each: each[1].nr)
            signal.receiver = (task.step_slug, task.index)
            self._free(task, wait, {"got": signal.payload})

    def _free(self, task: TaskRow, wait: TaskWait, end: Any) -> None:
        name = wait.name
        if wait.checkpoint is not None:
            task.saved[wait.checkpoint] = Checkpoint(wait.checkpoint, 1, end)
        if wait.kind is WaitKind.SLEEP and wait.checkpoint is not None:
            given = wait.checkpoint.removeprefix("sleep ")
            name = None if given.isdecimal() else given
        task.wait, task.is_archived, task.visible_at = None, False, self.now
        self.waits.append(EndedWait(task.step_slug, str(wait.kind), name, self.now - wait.since))

    def complete(self, key: Key, output: Any) -> TaskRow | None:
        """Report a task completed; `SQL_NULL` is SQL null. Returns its row, None if unknown."""
        task = self.find(key)
        if task is not None and self.status is not RunStatus.FAILED:
            self._complete(task, output)
        return task

    def fail(
        self, key: Key, message: str, *, retry: bool = True, delay_s: float | None = None
    ) -> TaskRow | None:
        """Report an attempt failed; `retry` and `delay_s` are arguments of `pgflowd.fail`."""
        task = self.find(key)
        if task is None:
            return None
        is_over = self.status is RunStatus.FAILED
        if is_over and task.status is TaskStatus.STARTED:
            task.become(TaskStatus.FAILED)
            task.error = message
        if is_over or task.state.status is not StepStatus.STARTED:
            task.is_archived = True
        elif task.status is TaskStatus.STARTED:
            if not retry:
                most = task.state.plan.options["max_attempts"]
                task.attempts = max(task.attempts, most)
            self._fail(task, message, delay_s)
        return task

    def release(self, key: Key, delay_s: float, at_most_s: float) -> bool:
        """Give a task back unspent, for which its handler asked; False if it may no longer."""
        task = self._executed(key)
        if task is None:
            return False
        asked_at = self.now if task.asked_at is None else task.asked_at
        if self.now + delay_s > asked_at + at_most_s:
            return False
        task.asked_at = asked_at
        task.give_back(self.now + delay_s)
        return True

    def find(self, key: Key) -> TaskRow | None:
        tasks = self.states[key[1]].tasks
        return tasks[key[2]] if key[2] < len(tasks) else None

    def _executed(self, key: Key) -> TaskRow | None:
        """The task, if it is being executed in a run that goes on."""
        task = self.find(key)
        is_one = task and task.status is TaskStatus.STARTED and self.is_going_on(task.state)
        return task if is_one else None

    def _complete(self, task: TaskRow, output: Any) -> None:
        state = task.state
        if state.status is not StepStatus.STARTED:
            task.is_archived = True
            return
        if not isinstance(output, list) and not state.plan.is_map:
            dependents = (self.states[slug] for slug in state.plan.dependents)
            maps = (one.slug for one in dependents if one.plan.is_map and one.initial_tasks is None)
            if (waiting := next(maps, None)) is not None:  # it waits for a list
                self._violate_type(task, output, waiting)
                return
        if task.status is not TaskStatus.STARTED:
            return
        task.become(TaskStatus.COMPLETED)
        task.output, task.is_archived = output, True
        state.remaining_tasks = (state.remaining_tasks or 0) - 1
        if state.remaining_tasks == 0:
            outputs = [json_null(task.output) for task in state.tasks]
            self._end_step(state, outputs if state.plan.is_map else output)
            self._release_dependents(state)
            self._advance()

    def _fail(self, task: TaskRow, message: str, delay_s: float | None) -> None:
        """Queue the task for another attempt; without attempts left end its step."""
        state, options = task.state, task.state.plan.options
        task.error, task.asked_at = message, None
        if task.attempts < options["max_attempts"]:
            task.become(TaskStatus.QUEUED)
            if delay_s is None:
                delay_s = retry_delay_s(options["base_delay"], task.attempts)
            task.visible_at = self.now + delay_s
            return
        if options["settle"]:
            self._complete(task, {FAILURE_MARK: {"message": message}})
            return
        task.become(TaskStatus.FAILED)
        task.is_archived = True
        if options["when_exhausted"] == "fail":
            self._fail_step(state, message)
            return
        state.error = message
        self._skip(state, "handler_failed", message)
        if options["when_exhausted"] == "skip-cascade":
            self._force_skip(state.slug, "handler_failed")
            self._maybe_complete_run()
        else:
            self._release_dependents(state)
            self._advance()

    def _violate_type(self, task: TaskRow, output: Any, map_slug: str) -> None:
        """Fail the run, whether the task was claimed or not."""
        state, word = task.state, json_type(output)
        task.become(TaskStatus.FAILED)
        task.is_archived, task.output = True, output
        task.error = f"[TYPE_VIOLATION] Produced {word} instead of array"
        state.error = (
            f"[TYPE_VIOLATION] Map step {map_slug} expects array input"
            f" but dependency {state.slug} produced {word}"
        )
        state.status = StepStatus.FAILED
        self._fail_run(state.error)
        self._send("step:failed", state.slug, state.error)

    def _advance(self) -> None:
        """Do all that has become possible."""
        while self._resolve_conditions():
            if self._complete_taskless_steps():
                continue
            if self.status is RunStatus.STARTED:
                for _, state in sorted(self.states.items()):
                    if state.is_ready and state.initial_tasks:
                        self._start_step(state, state.initial_tasks)
            self._maybe_complete_run()
            return

    def _resolve_conditions(self) -> bool:
        """End ready steps whose condition is not met; False if that has failed the run."""
        while unmet := [
            state for state in self.states.values() if state.is_ready and not self._is_met(state)
        ]:
            for state in unmet:
                if state.plan.options["when_unmet"] == "fail":
                    self._fail_step(state, "Condition not met")
                    return False
            skipped = [state for state in unmet if state.plan.options["when_unmet"] == "skip"]
            for state in sorted(skipped, key=lambda state: state.slug):
                self._skip(state, "condition_unmet")
            for state in skipped:
                self._release_dependents(state)
            for state in unmet:
                if state.plan.options["when_unmet"] == "skip-cascade":
                    self._force_skip(state.slug, "condition_unmet")
        return True

    def _is_met(self, state: EngineStep) -> bool:
        step = state.plan
        required, forbidden = step.options["if_"], step.options["if_not"]
        subject = self._outputs(step.deps) if step.deps else self.input
        has_required = required is None or contains(subject, required)
        return has_required and (forbidden is None or not contains(subject, forbidden))

    def _complete_taskless_steps(self) -> bool:
        """Complete ready steps without tasks, except those whose condition is not met."""
        for done in range(MAX_ROUNDS):
            ready = (state for state in self.states.values() if state.is_ready)
            empty = [state for state in ready if state.initial_tasks == 0 and self._is_met(state)]
            if not empty:
                return done > 0
            for state in empty:
                state.remaining_tasks = 0
                self._end_step(state, [])
            for state in empty:
                self._release_dependents(state)
        raise RunError(f"Cascade loop exceeded safety limit of {MAX_ROUNDS} iterations")

    def _start_step(self, state: EngineStep, tasks: int) -> None:
        state.status, state.remaining_tasks = StepStatus.STARTED, tasks
        self._send("step:started", state.slug)
        visible_at = self.now + state.plan.options["start_delay"]
        state.tasks = [TaskRow(self.run_id, state, index, visible_at) for index in range(tasks)]

    def _maybe_complete_run(self) -> None:
        if not self.remaining_steps and self.status is RunStatus.STARTED:
            self.status = RunStatus.COMPLETED
            if outputs := self._outputs(self.plan.leaves):
                self.output = outputs
            self._send("run:completed", None)

    def _end_step(self, state: EngineStep, output: Any) -> None:
        state.status, state.output = StepStatus.COMPLETED, output
        self.remaining_steps -= 1
        self._send("step:completed", state.slug)

    def _fail_step(self, state: EngineStep, message: str) -> None:
        state.status, state.error = StepStatus.FAILED, message
        self._send("step:failed", state.slug, message)
        self._fail_run(message)

    def _fail_run(self, message: str) -> None:
        """Fail the run; its open tasks keep their status and lose their messages."""
        self.status = RunStatus.FAILED
        self._send("run:failed", None, message)
        for state in self.states.values():
            state.archive_open_tasks()

    def _skip(self, state: EngineStep, reason: str, message: str | None = None) -> None:
        state.status, state.skip_reason = StepStatus.SKIPPED, reason
        state.remaining_tasks = None
        self.remaining_steps -= 1
        state.archive_open_tasks()
        for task in state.tasks:
            if task.is_open:
                task.become(TaskStatus.SKIPPED)
        self._send("step:skipped", state.slug, message)

    def _force_skip(self, slug: str, reason: str) -> None:
        downstream = self.plan.downstream(slug)
        for state in self.states.values():
            if state.slug in downstream and not state.status.is_end:
                self._skip(state, reason if state.slug == slug else "dependency_skipped")

    def _release_dependents(self, ended: EngineStep) -> None:
        """Count a dep off its dependents, and give their maps the number of tasks."""
        for state in (self.states[slug] for slug in ended.plan.dependents):
            state.remaining_deps -= 1
            if state.plan.is_map and state.initial_tasks is None:
                has_list = ended.status is StepStatus.COMPLETED and isinstance(ended.output, list)
                state.initial_tasks = len(ended.output) if has_list else 0

    def _send(self, type: str, step: str | None, error: str | None = None) -> None:
        self.events.append(Event(type, step, error))


def json_null(output: Any) -> Any:
    """An output among others in one JSON value, where SQL null becomes JSON's."""
    return None if isinstance(output, SqlNull) else output


def retry_delay_s(base_delay_s: float, attempts: int) -> int:
    """floor(base * 2^attempts), the failed attempt counted, capped where SQL's int ends."""
    return min(math.floor(base_delay_s * 2.0 ** min(attempts, 64)), MAX_DELAY_S)


def json_type(value: Any) -> str:
    """The word of `jsonb_typeof`, and `null` for SQL null too."""
    if value is None or isinstance(value, SqlNull):
        return "null"
    words = {bool: "boolean", str: "string", dict: "object", list: "array"}
    return words.get(type(value), "number")
