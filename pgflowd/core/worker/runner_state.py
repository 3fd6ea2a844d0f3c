"""
State of the runners: each process, the tasks in it, and how far each of these is.

A runner has one task at a time, or several that share it. A task in a runner has a phase and a
deadline of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.task import NEVER, Part, Task, TaskReport
from pgflowd.errors import Bug


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
