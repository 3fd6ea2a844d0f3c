"""
Mind: what a worker knows, as a value that `core.worker.decide` turns into the next one.

It holds runners, tasks that wait for one, outcomes that wait for the database, two lines to the
database, and times. `core.worker.transition` changes it.
Nothing here looks at a clock or a process: all of it is told by events (`core.worker.events`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

NEVER = float("inf")
MAIN, LEASES = "main", "leases"  # the two connections to the database


class WorkerMode(Enum):
    """What a worker is about."""

    WORKING = "working"
    DRAINING = "draining"  # claims nothing more, lets running tasks finish
    STOPPING = "stopping"  # a quick stop
    LEAVING = "leaving"  # says good-bye to the database
    LEFT = "left"


class RunnerPhase(Enum):
    """Where a runner is on its way."""

    __hash__ = object.__hash__  # Enum's own is written in Python, and asked for with each move

    STARTING = "starting"  # forked, or asked for; not ready yet
    IDLE = "idle"
    BUSY = "busy"
    PEEKED = "peeked"  # its time is over: an outcome already in its socket wins
    TERMED = "termed"  # asked to end
    KILLED = "killed"
    STUCK = "stuck"  # killed and not gone: reported, its place is lost
    RETIRED = "retired"  # its socket is closed, it ends by itself
    ENDED = "ended"  # dead, to be reaped


MOVES = {
    RunnerPhase.STARTING: {RunnerPhase.IDLE, RunnerPhase.KILLED, RunnerPhase.ENDED},
    RunnerPhase.IDLE: {
        RunnerPhase.BUSY,
        RunnerPhase.RETIRED,
        RunnerPhase.KILLED,
        RunnerPhase.ENDED,
    },
    RunnerPhase.BUSY: {
        RunnerPhase.IDLE,
        RunnerPhase.RETIRED,
        RunnerPhase.PEEKED,
        RunnerPhase.KILLED,
        RunnerPhase.ENDED,
    },
    RunnerPhase.PEEKED: {
        RunnerPhase.IDLE,
        RunnerPhase.RETIRED,
        RunnerPhase.TERMED,
        RunnerPhase.KILLED,
        RunnerPhase.ENDED,
    },
    RunnerPhase.TERMED: {RunnerPhase.KILLED, RunnerPhase.ENDED},
    RunnerPhase.RETIRED: {RunnerPhase.KILLED, RunnerPhase.ENDED},
    RunnerPhase.KILLED: {RunnerPhase.STUCK, RunnerPhase.ENDED},
    RunnerPhase.STUCK: {RunnerPhase.ENDED},
    RunnerPhase.ENDED: set(),
}


class EndCause(Enum):
    """Why we end a runner."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"  # its run or step has ended
    LOST = "lost"  # somebody else has the task
    STOP = "stop"
    GARBAGE = "garbage"
    OUTLIVED = "outlived"  # its task is done, and left children behind
    SURPLUS = "surplus"  # it has no task


@dataclass(frozen=True)
class WorkerOptions:
    """The settings that decide; durations in seconds."""

    max_concurrency: int = 10
    batch_size: int = 100
    polls: bool = False
    notify_fallback_s: float = 30.0
    poll_min_s: float = 0.05
    poll_max_s: float = 5.0
    heartbeat_interval_s: float = 5.0
    reuses: bool = True
    max_tasks_per_runner: int = 1000
    runner_idle_s: float = 60.0
    kill_grace_s: float = 2.0
    backoff_min_s: float = 0.1
    backoff_max_s: float = 30.0
    reconnect_min_s: float = 0.25
    reconnect_max_s: float = 30.0
    call_limit_s: float = 32.0
    steps: frozenset[str] = frozenset()
    roots: frozenset[str] = frozenset()  # those without deps
    ends: frozenset[str] = frozenset()  # those with which a run may be over
    is_job: bool = False  # a run is one task
    has_conditions: bool = False  # so steps and runs may end without any failure
    payloads: bool = False  # records of tasks have their inputs and outputs
    tells_all: bool = False  # a record for each completed task, step and run, too


class Task(NamedTuple):
    """A claimed task: one attempt, and what its handler gets, as JSON texts."""

    run_id: str
    step: str
    task_index: int
    token: int
    attempt: int
    max_attempts: int
    timeout_s: float
    input: bytes
    flow_input: bytes | None  # None: SQL null
    waited_s: float | None = None  # for its claim; of first attempts

    @property
    def name(self) -> str:
        return f"{self.run_id}/{self.step}#{self.task_index}"


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What is to be told of an attempt; `fields` are those of `db.tasks.Report`."""

    task: Task
    outcome: str
    output: bytes | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    is_last_word: bool = False  # stands in for a report that the server refused
    took_s: float | None = None  # from the sending of the task, where a record tells it


class RunnerState(NamedTuple):
    """A child process; `due_at` is the next moment that matters in its phase."""

    id: int
    phase: RunnerPhase = RunnerPhase.STARTING
    due_at: float = NEVER
    task: Task | None = None
    sent_at: float = 0.0
    ran: int = 0  # tasks
    cause: EndCause | None = None
    detail: str = ""
    code: str = ""
    outcome: TaskReport | None = None  # stands already, and is reported when the runner is reaped


@dataclass(frozen=True, slots=True)
class UnassignedTask:
    """A claimed task without a runner, and since when."""

    task: Task
    since: float


class ConnectionState(Enum):
    DOWN = "down"
    CONNECTING = "connecting"
    FREE = "free"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class DatabaseConnection:
    """A connection to the database. `until`: when to connect again, or when a call is cut."""

    state: ConnectionState = ConnectionState.FREE
    until: float = NEVER
    delay_s: float = 0.0


@dataclass
class WorkerState:
    """All that a worker knows."""

    options: WorkerOptions
    mode: WorkerMode = WorkerMode.WORKING
    exit_code: int = 0
    why: str = ""
    failure: tuple[str, str] | None = None  # code and text, to be said before the exit
    runners: dict[int, RunnerState] = field(default_factory=dict)
    idle: list[int] = field(default_factory=list)  # the last used is the last
    starting: int = 0
    forked: int = 0  # so far, which numbers them
    unready_deaths: int = 0  # in a row
    held: list[UnassignedTask] = field(default_factory=list)
    reports: list[TaskReport] = field(default_factory=list)
    reports_since: float = 0.0
    sending: tuple[TaskReport, ...] = ()
    wanted: int = 0  # tasks asked for by the turn under way
    main: DatabaseConnection = DatabaseConnection()
    beats: DatabaseConnection = DatabaseConnection()
    turn_from: float = 0.0  # not before; set when the server refuses our calls
    may_claim: bool = True  # False while it refuses outcomes, which would heap up
    look: bool = True  # there may be tasks to claim
    look_at: float = NEVER
    look_reason: str = ""  # why then: "due", "fallback", "poll"
    is_fallback: bool = False  # we look only because nothing was heard for long
    asks_due: bool = False  # nobody told us yet when the next message becomes visible
    asks_soon: bool = False  # likewise, and it may be soon: ask even while tasks run
    poll_s: float = 0.0
    visible: int = 0  # messages that lay open when we asked last
    idle_s: float = 0.0  # how long to leave such messages alone that we could not take
    beat_at: float = 0.0
    beaten_at: float = -NEVER
    asks: tuple[tuple[int, int, str, str], ...] = ()  # runner, token, what, step
    asking: tuple[tuple[int, int, str, str], ...] = ()  # the one that is being fetched
    tells: bool = False  # something was overheard, and is to be told to followers
    fork_from: float = 0.0
    fork_delay_s: float = 0.0
    pace_s: float = 1.0  # how long a task took lately
    strangers: int = 0  # messages of others that were archived, and not told yet
    strangers_from: float = -NEVER  # when they may be told again
    told: tuple[str, ...] = ()  # what the log says once
    about: tuple[str, ...] = ()  # runs of which the turn under way asks for news
    perhaps_ended: tuple[str, ...] = ()  # runs that the next beat asks about
    counting: tuple[str, ...] = ()  # runs that the beat under way asks about
    zygote: dict[str, float] = field(default_factory=dict)  # questions to it, and when
    zygote_end: str = ""
    stop_at: float = NEVER  # a drain becomes a quick stop
    leave_at: float = NEVER  # whatever is unfinished
    alarm: float = NEVER  # no deadline is earlier

    def nap_s(self, now: float) -> float | None:
        """How long nothing will be due; None: for ever."""
        return None if self.alarm == NEVER else max(0.0, self.alarm - now)

    @property
    def occupied(self) -> int:
        """Runners that can take no task now."""
        return len(self.runners) - len(self.idle) - self.starting

    @property
    def running(self) -> int:
        return sum(1 for runner in self.runners.values() if runner.task)

    def leases(self) -> Iterator[Task]:
        """All tasks that we must report or give back."""
        for runner in self.runners.values():
            if runner.task and runner.phase is not RunnerPhase.STUCK:
                yield runner.task
            elif runner.outcome:
                yield runner.outcome.task
        for held in self.held:
            yield held.task
        for report in (*self.sending, *self.reports):
            yield report.task
