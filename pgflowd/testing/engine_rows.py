"""
The rows that the engine keeps instead of tables, what a claim returns of them, and a snapshot.

The columns are those of the SQL tables that decide anything; times, workers and recovery are left
out. An SQL null among JSON values is `SQL_NULL`, since `None` is JSON's null. A status changes only
by `become`, which reads the table of moves and raises E902 for any other move.

`suspend`, `free_due` and `deliver` do what `_suspend`, `process_due` and `_deliver_signal` do. A
task that waits has no message. It gets one, and a checkpoint that says how the wait ended, when its
time has come, or a signal for which it waits. Signals come before timers of the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pgflowd.core.definition.shape import StepPlan
from pgflowd.core.json import SQL_NULL, SqlNull
from pgflowd.core.statuses import RunStatus, StepStatus, TaskStatus
from pgflowd.core.waiting import Checkpoint, Wait, WaitKind
from pgflowd.errors import Bug

Status = TypeVar("Status", RunStatus, StepStatus, TaskStatus)

RUN_MOVES = {RunStatus.STARTED: {RunStatus.COMPLETED, RunStatus.FAILED}}
STEP_MOVES = {
    StepStatus.CREATED: {
        StepStatus.STARTED,
        StepStatus.COMPLETED,  # an empty map
        StepStatus.SKIPPED,
        StepStatus.FAILED,  # its condition was not met
    },
    StepStatus.STARTED: {StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED},
}
TASK_MOVES = {
    TaskStatus.QUEUED: {TaskStatus.STARTED, TaskStatus.SKIPPED},
    TaskStatus.STARTED: {
        TaskStatus.COMPLETED,
        TaskStatus.FAILED,
        TaskStatus.QUEUED,  # a retry, or it waits
        TaskStatus.SKIPPED,
    },
}
Key = tuple[str, str, int]  # run id, step slug, task index


def move(table: dict[Status, set[Status]], status: Status, target: Status) -> Status:
    """Return the target status, or raise E902 if the table has no such move."""
    if target not in table.get(status, set()):
        raise Bug(f"the engine cannot move from {status} to {target}", code="E902")
    return target


@dataclass
class QueueMessage:
    """The queue's envelope for a task; `visible_at` is virtual time."""

    visible_at: float
    is_archived: bool = False


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


@dataclass
class TaskRow:
    run_id: str
    step_slug: str
    index: int
    message: QueueMessage
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
    progress: dict[str, Any] | None = None  # what its handler has told last

    @property
    def key(self) -> Key:
        return (self.run_id, self.step_slug, self.index)

    @property
    def is_open(self) -> bool:
        return not self.status.is_end

    def become(self, target: TaskStatus) -> None:
        self.status = move(TASK_MOVES, self.status, target)
        self.wait = None


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
    slug: str
    remaining_deps: int
    initial_tasks: int | None
    status: StepStatus = StepStatus.CREATED
    remaining_tasks: int | None = None
    output: Any = SQL_NULL
    error: str | None = None
    skip_reason: str | None = None
    tasks: list[TaskRow] = field(default_factory=list)

    @property
    def is_ready(self) -> bool:
        return self.status is StepStatus.CREATED and self.remaining_deps == 0

    def become(self, target: StepStatus) -> None:
        self.status = move(STEP_MOVES, self.status, target)

    def archive_open_tasks(self) -> None:
        for task in self.tasks:
            if task.is_open:
                task.message.is_archived = True
                task.wait = None


@dataclass
class Event:
    """An event that the SQL sends to the followers of a run; `step` is None for the run's own."""

    run_id: str
    type: str
    step: str | None = None
    error: str | None = None


@dataclass
class EngineRun:
    run_id: str
    input: Any
    remaining_steps: int
    states: dict[str, EngineStep]  # in the order of the shape
    status: RunStatus = RunStatus.STARTED
    output: Any = SQL_NULL
    events: list[Event] = field(default_factory=list)
    signals: list[SentSignal] = field(default_factory=list)  # in the order of sending
    waits: list[EndedWait] = field(default_factory=list)
    suspensions: int = 0
    ended_at: dict[tuple[str, ...], float] = field(default_factory=dict)  # runs that are waited for

    def become(self, target: RunStatus) -> None:
        self.status = move(RUN_MOVES, self.status, target)


def json_null(output: Any) -> Any:
    """An output among others in one JSON value, where SQL null becomes JSON's."""
    return None if isinstance(output, SqlNull) else output


def completed_outputs(run: EngineRun, slugs: Iterable[str]) -> dict[str, Any]:
    """The outputs of those of the steps that have completed."""
    states = (run.states[slug] for slug in slugs)
    return {
        state.slug: json_null(state.output)
        for state in states
        if state.status is StepStatus.COMPLETED
    }


def snapshot_of(run: EngineRun, now: float) -> dict[str, Any]:
    """All that the tables would show of a run; what is SQL null or unused is left out."""
    signals = [
        [each.name, each.payload, each.receiver and list(each.receiver)]
        for each in run.signals
        if each.sent_at <= now
    ]
    return {
        "status": str(run.status),
        "remaining_steps": run.remaining_steps,
        **_output(run.output),
        **({"signals": signals} if signals else {}),
        "steps": {slug: _step_snapshot(state) for slug, state in run.states.items()},
    }


def _output(value: Any) -> dict[str, Any]:
    return {} if isinstance(value, SqlNull) else {"output": value}


def _memory(task: TaskRow) -> dict[str, Any]:
    """What the task waits for, and its checkpoints; nothing of a task that has neither."""
    memory: dict[str, Any] = {}
    if task.wait:
        memory["wait"] = [str(task.wait.kind), task.wait.name, task.wait.checkpoint]
    if task.saved:
        memory["saved"] = {each.name: [each.version, each.data] for each in task.saved.values()}
    return memory


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
                "archived": task.message.is_archived,
                **_output(task.output),
                **_memory(task),
            }
            for task in state.tasks
        ],
    }


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


def element_of(run: EngineRun, step: StepPlan, index: int) -> Any:
    """The element of a map for one of its tasks."""
    return (run.input if step.is_root_map else run.states[step.deps[0]].output)[index]


def record_of(run: EngineRun, step: StepPlan, task: TaskRow) -> ClaimedRecord:
    """The record of a task that has just been started."""
    outputs = {} if step.is_map else completed_outputs(run, step.deps)
    return ClaimedRecord(
        run_id=run.run_id,
        step_slug=step.slug,
        task_index=task.index,
        input=element_of(run, step, task.index) if step.is_map else outputs,
        flow_input=run.input if not step.deps and not step.is_map else SQL_NULL,
        attempt=task.attempts,
        max_attempts=max(step.options["max_attempts"], 1),
        timeout_s=step.options["timeout"],
    )


def suspend(run: EngineRun, task: TaskRow, wait: Wait, now: float) -> None:
    """Let a started task wait, its attempt unspent. A signal that came before ends it at once."""
    task.become(TaskStatus.QUEUED)
    task.attempts -= 1
    task.claims -= 1
    task.asked_at = None
    task.message.is_archived = True
    run.suspensions += 1
    due_at = None if wait.in_s is None else now + wait.in_s
    if wait.kind is WaitKind.NEED:  # some worker has it
        task.needs, task.hand_ons, due_at = wait.needs or (), task.hand_ons + 1, now
    name = ",".join(wait.needs) if wait.needs else wait.name
    ended_at = run.ended_at.get(wait.runs or ())
    task.wait = TaskWait(wait.kind, name, wait.checkpoint, due_at, run.suspensions, now, ended_at)
    if wait.kind is WaitKind.SIGNAL:
        _deliver(run, wait.name, now)


def free_due(run: EngineRun, now: float) -> None:
    """Free the tasks whose signal has come, then those whose time has."""
    for signal in _unused(run):
        if signal.sent_at <= now:
            _deliver(run, signal.name, now)
    due = [
        (over_at, wait.nr, task, wait)
        for task, wait in waiting(run)
        if (over_at := _over_at(wait)) is not None and over_at <= now
    ]
    for over_at, _, task, wait in sorted(due, key=lambda each: each[:2]):
        word = "slept" if wait.kind is WaitKind.SLEEP else "timeout"
        word = "ended" if wait.ended_at == over_at else word
        _free(run, task, wait, {word: True}, now)


def next_due_at(run: EngineRun) -> float | None:
    """When the next wait ends; None if nothing will end one."""
    moments = [at for _, wait in waiting(run) if (at := _over_at(wait)) is not None]
    names = {wait.name for _, wait in waiting(run) if wait.kind is WaitKind.SIGNAL}
    moments += [signal.sent_at for signal in _unused(run) if signal.name in names]
    return min(moments, default=None)


def _over_at(wait: TaskWait) -> float | None:
    """When the wait is over, unless a signal comes before; None if nothing else ends it."""
    return min((at for at in (wait.ended_at, wait.due_at) if at is not None), default=None)


def waiting(run: EngineRun) -> Iterator[tuple[TaskRow, TaskWait]]:
    """The tasks that wait, and for what."""
    if run.status is RunStatus.STARTED:
        for state in run.states.values():
            for task in state.tasks:
                if task.wait:
                    yield task, task.wait


def _unused(run: EngineRun) -> list[SentSignal]:
    return [signal for signal in run.signals if signal.receiver is None]


def _deliver(run: EngineRun, name: str | None, now: float) -> None:
    """Give the oldest unused signal of this name to the task that has waited longest for it."""
    sent = (each for each in _unused(run) if each.name == name and each.sent_at <= now)
    receivers = [
        each for each in waiting(run) if each[1].kind is WaitKind.SIGNAL and each[1].name == name
    ]
    signal = next(sent, None)
    if signal and receivers:
        task, wait = min(receivers, key=lambda each: each[1].nr)
        signal.receiver = (task.step_slug, task.index)
        _free(run, task, wait, {"got": signal.payload}, now)


def _free(run: EngineRun, task: TaskRow, wait: TaskWait, end: Any, now: float) -> None:
    if wait.checkpoint is not None:
        task.saved[wait.checkpoint] = Checkpoint(wait.checkpoint, 1, end)
    task.wait = None
    task.message = QueueMessage(now)
    run.waits.append(EndedWait(task.step_slug, str(wait.kind), _name_of(wait), now - wait.since))


def _name_of(wait: TaskWait) -> str | None:
    if wait.kind is not WaitKind.SLEEP:
        return wait.name
    given = (wait.checkpoint or "").removeprefix("sleep ")
    return given if given and not given.isdecimal() else None
