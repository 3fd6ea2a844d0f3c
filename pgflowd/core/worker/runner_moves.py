"""How a runner, or a task in it, goes from one phase to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgflowd.core.worker.part import NEVER
from pgflowd.core.worker.runner_state import (
    MOVES,
    NO_TASKS,
    TASK_MOVES,
    AssignedTask,
    RunnerPhase,
    RunnerPool,
    RunnerState,
    TaskPhase,
)
from pgflowd.core.worker.task import Task
from pgflowd.errors import Bug


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
