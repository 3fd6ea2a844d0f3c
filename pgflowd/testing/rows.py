"""
Rows: what the engine of `testing.engine` keeps instead of tables, and how statuses may move.

The columns are those of the SQL contract that decide anything; times, workers and recovery
are left out. An SQL null among JSON values is `ABSENT`, since `None` is JSON's null. A status
changes by `move` only, which knows the table of moves and raises E902 for any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from pgflowd.core.json.sql_null import SQL_NULL, SqlNull
from pgflowd.core.statuses import RunStatus, StepStatus, TaskStatus
from pgflowd.errors import Bug

Status = TypeVar("Status", RunStatus, StepStatus, TaskStatus)

RUN_MOVES: dict[RunStatus, set[RunStatus]] = {
    RunStatus.STARTED: {RunStatus.COMPLETED, RunStatus.FAILED},
    RunStatus.COMPLETED: set(),
    RunStatus.FAILED: set(),
}
STEP_MOVES: dict[StepStatus, set[StepStatus]] = {
    StepStatus.CREATED: {
        StepStatus.STARTED,
        StepStatus.COMPLETED,  # an empty map
        StepStatus.SKIPPED,
        StepStatus.FAILED,  # its condition was not met
    },
    StepStatus.STARTED: {StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED},
    StepStatus.COMPLETED: set(),
    StepStatus.FAILED: set(),
    StepStatus.SKIPPED: set(),
}
TASK_MOVES: dict[TaskStatus, set[TaskStatus]] = {
    TaskStatus.QUEUED: {TaskStatus.STARTED, TaskStatus.SKIPPED},
    TaskStatus.STARTED: {
        TaskStatus.COMPLETED,
        TaskStatus.FAILED,
        TaskStatus.QUEUED,  # a retry
        TaskStatus.SKIPPED,
    },
    TaskStatus.COMPLETED: set(),
    TaskStatus.FAILED: set(),
    TaskStatus.SKIPPED: set(),
}


def move(table: dict[Status, set[Status]], state: Status, target: Status) -> Status:
    """Return the target status, or raise E902 if the table has no such move."""
    if target not in table[state]:
        raise Bug(f"the engine cannot move from {state} to {target}", code="E902")
    return target


@dataclass
class QueueMessage:
    """The queue's envelope for a task; `visible_at` is virtual time."""

    visible_at: float
    archived: bool = False


@dataclass
class TaskRow:
    run_id: str
    step_slug: str
    index: int
    message: QueueMessage
    status: TaskStatus = TaskStatus.QUEUED
    attempts: int = 0  # as the database counts them: raised to the maximum by Fail
    claims: int = 0
    output: Any = SQL_NULL
    error: str | None = None

    @property
    def is_open(self) -> bool:
        return self.status in (TaskStatus.QUEUED, TaskStatus.STARTED)

    def become(self, target: TaskStatus) -> None:
        self.status = move(TASK_MOVES, self.status, target)


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


@dataclass
class Event:
    """What the SQL sends to whoever follows the run; `step` is None for the run's own."""

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

    def become(self, target: RunStatus) -> None:
        self.status = move(RUN_MOVES, self.status, target)


def json_null(output: Any) -> Any:
    """An output among others in one JSON value, where SQL null becomes JSON's."""
    return None if isinstance(output, SqlNull) else output
