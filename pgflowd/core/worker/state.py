"""
State of a worker's engine: a value that `core.worker.decide` turns into the next one.

It has seven parts: the runners, the tasks that wait for one, the reports that wait for the
database, the schedule of claims, the doorbell, the connections, and how the last turns went.
Beside these stand the worker's mode and how it will exit. Nothing here reads a clock or a process:
all facts come by events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from pgflowd.core.settings.sections import DatabaseSettings, WorkerSettings
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.doorbell import UNARMED, Doorbell
from pgflowd.core.worker.task import (
    HEALTHY,
    NEVER,
    NO_PROGRESS,
    Part,
    ProgressValues,
    Task,
    TaskReport,
    Turns,
    Word,
)
from pgflowd.errors import Bug


# State of the runners: each process, the tasks in it, and how far each of these is.
#
# A runner has one task at a time, or several that share it. A task in a runner has a phase and a
# deadline of its own.
class RunnerPhase(Enum):
    __hash__ = object.__hash__  # Enum's own is written in Python, and every move needs it

    STARTING = "starting"  # requested of the zygote, or forked; not ready yet
    IDLE = "idle"
    BUSY = "busy"
    TERMINATED = "terminated"  # shared; got SIGTERM, at which it writes where it is
    KILLED = "killed"
    STUCK = "stuck"  # killed and not gone: reported, its place is lost
    RETIRED = "retired"  # its socket is closed, it ends by itself
    ENDED = "ended"  # not reaped yet


_ANY_END = {RunnerPhase.KILLED, RunnerPhase.ENDED}
MOVES = {
    RunnerPhase.STARTING: {RunnerPhase.IDLE, *_ANY_END},
    RunnerPhase.IDLE: {RunnerPhase.BUSY, RunnerPhase.RETIRED, *_ANY_END},
    RunnerPhase.BUSY: {
        RunnerPhase.IDLE,
        RunnerPhase.TERMINATED,
        RunnerPhase.RETIRED,
        *_ANY_END,
    },
    RunnerPhase.TERMINATED: _ANY_END,
    RunnerPhase.RETIRED: _ANY_END,
    RunnerPhase.KILLED: {RunnerPhase.STUCK, RunnerPhase.ENDED},
    RunnerPhase.STUCK: {RunnerPhase.ENDED},
    RunnerPhase.ENDED: set(),
}


class TaskPhase(Enum):
    """How far a task in a runner is."""

    __hash__ = object.__hash__

    WAITING = "waiting"  # for its runner to be ready
    RUNNING = "running"
    CHECKED = "checked"  # it must end: a result that already lies in the socket counts
    ENDING = "ending"  # it was asked to end; its outcome is settled
    FINISHED = "finished"  # its handler has returned; its large result waits in the runner
    SENDING = "sending"  # its large result is being read


TASK_MOVES = {
    TaskPhase.WAITING: set(),  # sent to whichever runner is free first, it is assigned anew
    TaskPhase.RUNNING: {TaskPhase.CHECKED, TaskPhase.FINISHED},
    TaskPhase.CHECKED: {TaskPhase.ENDING, TaskPhase.FINISHED},
    TaskPhase.ENDING: {TaskPhase.FINISHED},
    TaskPhase.FINISHED: {TaskPhase.SENDING},
    TaskPhase.SENDING: set(),
}


class EndCause(Enum):
    """Why the worker ends a task, or a runner."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"  # its run or step has ended
    LOST = "lost"  # another worker has the task
    STOP = "stop"
    BLOCKED = "blocked"  # the event loop that tasks share answers no ping
    BAD_FRAME = "bad frame"
    LEFT_CHILDREN = "left children"  # its task is done, and left child processes behind
    SURPLUS = "surplus"  # it has no task
    UNREADY = "unready"  # its lifespan has failed, or takes too long
    ROOM = "room"  # another worker's runner needs the place


class AssignedTask(NamedTuple):
    """A task in a runner; `due_at` is the next moment that matters in its phase."""

    task: Task
    phase: TaskPhase = TaskPhase.WAITING
    due_at: float = NEVER
    sent_at: float = 0.0
    cause: EndCause | None = None  # why it must end
    finished_at: float = 0.0  # when its large result was announced
    result_bytes: int = 0  # of that
    is_committing: bool = False  # its runner completes it by itself, and perhaps has
    returned: TaskReport | None = None  # its result, which came when its outcome was settled

    @property
    def is_asked(self) -> bool:
        """Whether it was asked to end, or its runner was: then its outcome is settled."""
        return self.cause is not None and self.phase is not TaskPhase.CHECKED

    @property
    def output(self) -> bytes | None:
        """What its handler has returned all the same, which an undo of it gets."""
        return None if self.returned is None else self.returned.output

    def given_back(self, reason: str) -> TaskReport:
        """The report of a task whose attempt is not spent."""
        report = TaskReport(self.task, Outcome.RELEASED, self.output, reason, delay_s=0.0)
        report.may_be_recorded = self.is_committing
        return report


NO_TASKS: Mapping[int, AssignedTask] = MappingProxyType({})


class LoopState(NamedTuple):
    """An event loop that tasks share."""

    ping_at: float = NEVER  # when it is pinged next, or when its answer is overdue
    is_pinged: bool = False  # and has not answered


class RunnerState(NamedTuple):
    """A child process; `due_at` is the next moment that matters for it, or for a task in it."""

    id: int
    phase: RunnerPhase = RunnerPhase.STARTING
    due_at: float = NEVER
    tasks: Mapping[int, AssignedTask] = NO_TASKS  # by token; never changed, but replaced
    tasks_left: int = 1  # how many more it may be given
    loop: LoopState | None = None  # the event loop that its tasks share, if they do
    is_forked: bool = False
    cause: EndCause | None = None
    bad_frame: tuple[str, str] = ("", "")  # error code and text
    result: TaskReport | None = None  # settled; reported when the runner is reaped

    @property
    def is_shared(self) -> bool:
        return self.loop is not None


@dataclass
class RunnerPool(Part):
    """The runners, and the zygote that forks them."""

    by_id: dict[int, RunnerState] = field(default_factory=dict)
    idle: list[int] = field(default_factory=list)  # the last used is the last
    finished: tuple[
        tuple[int, int], ...
    ] = ()  # runner and token of large results, the oldest first
    spare: int = 0  # starting runners without a task
    last_id: int = 0
    unready_deaths: int = 0  # in a row
    trouble: str = ""  # why no runner could begin lately, since its lifespan fails
    pace_s: float = 1.0  # how long a task took lately
    forks_from: float = 0.0  # no fork before that moment; 0: forks are not paused
    fork_delay_s: float = 0.0  # after the last refusal
    owes_room: bool = False  # the next runner whose task ends is to make room
    zygote_answered_at: float = 0.0
    zygote_end: str = ""  # how the zygote ended, or why it is being killed
    # how often in a row the runner of a task was killed because of others that shared it
    disturbed: Mapping[tuple[str, str, int], int] = field(default_factory=dict)

    def copy(self) -> Self:
        copied = Part.copy(self)
        copied.by_id, copied.idle = self.by_id.copy(), self.idle[:]
        return copied

    def count_running(self) -> int:
        """How many tasks were sent to their runners and have not ended."""
        starting = RunnerPhase.STARTING
        return sum([len(each.tasks) for each in self.by_id.values() if each.phase is not starting])


# How a runner, or a task in it, goes from one phase to another.
def move(
    pool: RunnerPool, runner: RunnerState, phase: RunnerPhase, due_at: float = NEVER, **changes: Any
) -> None:
    """Put a runner into another phase."""
    if phase not in MOVES[runner.phase]:
        raise Bug(f"a runner cannot go from {runner.phase.value} to {phase.value}", code="E902")
    if runner.phase is RunnerPhase.IDLE and pool.idle[-1] == runner.id:
        pool.idle.pop()
    elif runner.phase is RunnerPhase.IDLE:
        pool.idle.remove(runner.id)
    elif runner.phase is RunnerPhase.STARTING and not runner.tasks:
        pool.spare -= 1
    pool.by_id[runner.id] = runner._replace(phase=phase, due_at=due_at, **changes)
    if phase is RunnerPhase.IDLE:
        pool.idle.append(runner.id)


def move_task(
    pool: RunnerPool,
    runner: RunnerState,
    assigned: AssignedTask,
    phase: TaskPhase,
    due_at: float = NEVER,
    **changes: Any,
) -> None:
    """Put a task in a runner into another phase."""
    if phase not in TASK_MOVES[assigned.phase]:
        text = f"a task cannot go from {assigned.phase.value} to {phase.value}"
        raise Bug(text, code="E902")
    moved = assigned._replace(phase=phase, due_at=due_at, **changes)
    put_tasks(pool, runner, {**runner.tasks, assigned.task.token: moved})


def put_tasks(
    pool: RunnerPool, runner: RunnerState, tasks: Mapping[int, AssignedTask], **changes: Any
) -> None:
    """Change the tasks of a runner that is busy."""
    due_at = min([each.due_at for each in tasks.values()], default=NEVER)
    if loop := changes.get("loop", runner.loop):
        due_at = min(due_at, loop.ping_at)
    pool.by_id[runner.id] = runner._replace(tasks=tasks, due_at=due_at, **changes)


def without(runner: RunnerState, token: int) -> Mapping[int, AssignedTask]:
    """The other tasks of a runner."""
    if len(runner.tasks) == 1:
        return NO_TASKS
    return {each: assigned for each, assigned in runner.tasks.items() if each != token}


def take_back(pool: RunnerPool, runner: RunnerState, token: int) -> Task:
    """Take a task from a runner that still starts, and return it."""
    tasks = without(runner, token)
    pool.by_id[runner.id] = runner._replace(tasks=tasks)
    pool.spare += not tasks
    return runner.tasks[token].task


class WorkerMode(Enum):
    WORKING = "working"
    DRAINING = "draining"  # claims nothing more, lets running tasks finish
    STOPPING = "stopping"  # a quick stop
    LEAVING = "leaving"  # marks its row in the database stopped
    LEFT = "left"


class WakeReason(Word):
    """Why a worker claims; counted by this name."""

    NOTIFICATION = "notification"
    COMPLETION = "completion"  # a report took a claim along, which was given tasks
    LOOK = "look"  # no notification is due, since it was busy a moment ago
    DUE = "due"
    FALLBACK = "fallback"
    POLL = "poll"


class HandlerRequest(Word):
    """What a handler may ask its worker for."""

    RUN_INPUT = "input"
    STEP_OUTPUT = "output"
    WISHES = "wishes"  # of the run's start
    CONNECTION = "conn"  # where and as whom to connect
    CHECKPOINTS = "saved"
    SAVE = "save"
    DROP = "drop"
    CHILDREN = "children"  # the runs that the task has started
    START = "start"  # a child run
    RUNS = "runs"  # as they are now
    ORIGINAL = "original"  # the task that an undo handler undoes


class ConnectionName(Word):
    MAIN = "main"  # reports and claims; side calls too, while there is no other connection
    SECOND = "second"  # side calls: renewals of leases, requests of handlers, their output


@dataclass(frozen=True)
class WorkerOptions(WorkerSettings):
    """The settings that decide, and what the flow is like."""

    database: DatabaseSettings = DatabaseSettings()  # noqa: RUF009
    is_polling: bool = False
    shared_steps: frozenset[str] = frozenset()  # whose tasks share runners: async ones, if any do
    call_limit_s: float = 32.0
    steps: frozenset[str] = frozenset()
    roots: frozenset[str] = frozenset()  # steps without deps
    has_conditions: bool = False  # so steps and runs may end without any failure
    may_log_payloads: bool = False  # records of tasks have their inputs and outputs
    is_debug: bool = False  # each completed task, step and run has a log record, too
    lifespan: str | None = None  # the function that each runner executes before its first task
    start_timeout_s: float = 60.0  # for that


class UnassignedTask(NamedTuple):
    """A claimed task without a runner, and since when."""

    task: Task
    since: float


@dataclass
class Outbox(Part):
    """Reports that wait for the database, and the call that is under way there."""

    reports: list[TaskReport] = field(default_factory=list)
    waiting_since: float = 0.0
    sending: tuple[TaskReport, ...] = ()
    claiming: int = 0  # how many tasks the call under way claims
    follows_reports: bool = False  # it takes reports along, or follows those of runners
    has_recorded: bool = False  # a runner has completed its task by itself since the last claim
    recorded: tuple[TaskReport, ...] = ()  # such ones of which something is to be kept
    paused_until: float = 0.0  # the server refuses reports; 0: it does not
    is_refused: bool = False  # by a fault of the installation: claim nothing, reports would heap up

    def copy(self) -> Self:
        copied = Part.copy(self)
        copied.reports = self.reports[:]
        return copied

    def pause(self, until: float) -> None:
        self.paused_until = max(self.paused_until, until)


class NextDueQuestion(Enum):
    """Whether to ask the database when the next message becomes visible."""

    NO = "no"
    WHEN_IDLE = "when idle"
    NOW = "now"  # it may be soon: even while tasks run


@dataclass
class ClaimSchedule(Part):
    """
    When to claim; `core.worker.claiming` changes it. The policy:

    Claim at once after a wake, after a claim that brought all that it asked for, and after a
    reconnect. Look soon while no doorbell is up (`core.worker.doorbell`). Otherwise claim when the
    next hidden message becomes visible; the database is asked for that moment after a claim, and
    answers it with each renewal of leases. Otherwise claim after `notify_fallback`, or, where
    queues are polled, after a growing, jittered pause.
    """

    is_due: bool = True  # claim as soon as a place is free
    check_at: float = NEVER  # when that will be so without any wake
    reason: WakeReason = WakeReason.DUE  # why then
    is_fallback: bool = False  # it is due only since no wake came for long
    question: NextDueQuestion = NextDueQuestion.NO
    poll_s: float = 0.0  # the last pause between two polls
    visible: int = 0  # visible messages at the last answer
    visible_pause_s: float = 0.0  # for how long such messages that no claim gets are left alone
    has_drained: bool = False  # since the last renewal a claim got less than it asked for


class ConnectionState(Enum):
    CLOSED = "closed"  # nothing wants it
    WANTED = "wanted"  # the supervisor was asked for it
    DOWN = "down"
    CONNECTING = "connecting"
    FREE = "free"
    BUSY = "busy"


class DatabaseConnection(NamedTuple):
    """
    A connection to the database.

    `until`: when to connect again, or when a call is cut; `since`: when that call began.
    """

    state: ConnectionState = ConnectionState.FREE
    until: float = NEVER
    delay_s: float = 0.0
    since: float = 0.0
    side_call: type | None = None  # under way: its action (`core.worker.actions.SideAction`)

    @property
    def is_cut(self) -> bool:
        """Whether its call took so long that it was cut."""
        return self.state is ConnectionState.BUSY and self.until == NEVER

    @property
    def is_open(self) -> bool:
        return self.state in (ConnectionState.FREE, ConnectionState.BUSY)


FREE = DatabaseConnection()
CLOSED = DatabaseConnection(ConnectionState.CLOSED)


class FetchRequest(NamedTuple):
    """What a handler asked for."""

    runner_id: int
    token: int
    kind: HandlerRequest
    step: str = ""
    checkpoint: str = ""  # the name of the one to save or drop, or to read alone
    version: int = 1
    data: bytes = b""  # to save, or the start of a child, as JSON
    runs: tuple[str, ...] = ()  # to read; the id of a child to start
    parts: tuple[str, ...] = ()  # of the task that is undone


class RowState(Word):
    """How the worker's row in the database is."""

    OK = "ok"
    DEPRECATED = "deprecated"
    GONE = "gone"


class Standing(NamedTuple):
    """How the worker's row is, what waits in the queue, and which runs are followed."""

    row: RowState = RowState.OK
    queued: int = 0
    oldest_queued_s: float | None = None
    due_in_s: float | None = None  # until the next hidden message becomes visible
    oldest_run: str | None = None  # of the oldest queued message
    followed: tuple[str, ...] = ()  # runs of any flow, whose handlers' output somebody wants


GOOD_STANDING = Standing()


@dataclass
class WorkerConnections(Part):
    """The connections, and the side calls that wait for one."""

    main: DatabaseConnection = FREE
    second: DatabaseConnection = CLOSED
    look_at: float = NEVER  # when to see whether the second is wanted
    second_used_at: float = -NEVER  # by a handler
    is_side_next: bool = False  # on the main connection, as one has waited for a turn
    renew_at: float = NEVER  # only a worker with tasks renews its leases
    renewed_at: float = -NEVER
    answered_at: float = -NEVER  # the last answer to a renewal
    standing: Standing = GOOD_STANDING  # by the last renewal, or by the sweeper
    queue_seen_at: float = -NEVER  # when that was
    requests: tuple[FetchRequest, ...] = ()
    fetching: FetchRequest | None = None
    refused: tuple[tuple[float, FetchRequest], ...] = ()  # the task was locked: when to ask again
    is_output_next: bool = False  # it has waited for a request of a handler
    has_output: bool = False  # output of handlers is to be published
    progress: ProgressValues = NO_PROGRESS  # what handlers have told
    minute_ends_at: float = NEVER  # when to add what was done to the statistics
    foreign_messages: int = 0  # archived, and not logged yet
    foreign_logged_at: float = -NEVER

    def get(self, name: ConnectionName) -> DatabaseConnection:
        return self.main if name is ConnectionName.MAIN else self.second

    def put(self, name: ConnectionName, connection: DatabaseConnection) -> None:
        if name is ConnectionName.MAIN:
            self.main = connection
        else:
            self.second = connection

    @property
    def for_side_calls(self) -> ConnectionName:
        return ConnectionName.SECOND if self.second.is_open else ConnectionName.MAIN

    def is_under_way(self, call: type) -> bool:
        return call in (self.main.side_call, self.second.side_call)


class WorkerExit(NamedTuple):
    """How the worker will exit."""

    code: int = 0
    why: str = ""
    failure: tuple[str, str] | None = None  # error code and text, sent to the supervisor


STILL_WORKING = WorkerExit()


@dataclass
class WorkerState(Part):
    """All that a worker's engine knows."""

    options: WorkerOptions
    runners: RunnerPool = field(default_factory=RunnerPool)
    unassigned: list[UnassignedTask] = field(default_factory=list)  # the oldest first
    outbox: Outbox = field(default_factory=Outbox)
    schedule: ClaimSchedule = field(default_factory=ClaimSchedule)
    doorbell: Doorbell = UNARMED
    connections: WorkerConnections = field(default_factory=WorkerConnections)
    turns: Turns = HEALTHY
    worked_at: float = 0.0  # when it last had a task
    sleep_at: float = 0.0  # when to see whether it may fall asleep
    is_sleep_asked: bool = False  # by the supervisor
    is_sleep_near: bool = False  # unless the next message is due soon, which is being asked
    mode: WorkerMode = WorkerMode.WORKING
    stop_at: float = NEVER  # a drain becomes a quick stop
    leave_at: float = NEVER  # whatever is unfinished
    due_at: float = 0.0  # the next deadline of all parts, as each transition computes it at its end
    exit: WorkerExit = STILL_WORKING
    logged: tuple[str, ...] = ()  # what the log says once

    def copy(self) -> Self:
        copied = Part.copy(self)
        copied.runners, copied.unassigned = self.runners.copy(), self.unassigned[:]
        copied.outbox, copied.schedule = self.outbox.copy(), self.schedule.copy()
        copied.connections = self.connections.copy()
        return copied

    def leases(self) -> Iterator[Task]:
        """All tasks that must be reported or given back."""
        for runner in self.runners.by_id.values():
            for assigned in runner.tasks.values():
                yield assigned.task
            if runner.result:
                yield runner.result.task
        for waiting in self.unassigned:
            yield waiting.task
        for report in (*self.outbox.sending, *self.outbox.reports):
            yield report.task
