"""
Which task goes to which runner.

A runner that starts has its tasks already. An idle one takes a task that waits, or else the task
of a runner that still starts. Of the idle runners the last used goes first. A task that may share
a runner goes to one that others share and that has room, before any idle or new one.
"""

from __future__ import annotations

from pgflowd.core.worker import actions, run_log, sharing
from pgflowd.core.worker.runner_ends import ZYGOTE_LIMIT_S
from pgflowd.core.worker.runner_moves import move, put_tasks, take_back
from pgflowd.core.worker.runner_state import (
    AssignedTask,
    LoopState,
    RunnerPhase,
    RunnerState,
    TaskPhase,
)
from pgflowd.core.worker.state import WorkerMode
from pgflowd.core.worker.task import Task
from pgflowd.core.worker.transition import WorkerTransition


def assign(transition: WorkerTransition) -> None:
    """Give tasks to runners that have room, and start runners for the others."""
    state = transition.state
    if state.mode is not WorkerMode.WORKING or not (state.unassigned or state.runners.idle):
        return
    if state.options.shared_steps:
        _assign_shared(transition)
        return
    pool, unassigned = state.runners, state.unassigned
    if pool.idle:
        count = min(len(unassigned), len(pool.idle))
        for waiting in unassigned[:count]:
            _send(transition, pool.by_id[pool.idle[-1]], waiting.task)
        del unassigned[:count]
        if pool.idle and len(pool.idle) < len(pool.by_id):
            _take_from_starting(transition)
    free = state.options.max_concurrency - len(pool.by_id)
    if not free or not unassigned or pool.forks_from or pool.zygote_end:
        return
    count = max(0, min(len(unassigned) - pool.spare, free))
    for waiting in unassigned[:count]:
        _fork(transition, waiting.task)
    del unassigned[:count]


def _take_from_starting(transition: WorkerTransition) -> None:
    """No task waits for the start of its runner while another runner is idle."""
    pool = transition.state.runners
    for runner in list(pool.by_id.values()):
        if runner.phase is RunnerPhase.STARTING and runner.tasks and pool.idle:
            (token,) = runner.tasks
            _send(transition, pool.by_id[pool.idle[-1]], take_back(pool, runner, token))


def _assign_shared(transition: WorkerTransition) -> None:
    """The same, where some tasks may share a runner: one after the other, as far as they fit."""
    state = transition.state
    free = sharing.free_places(state.runners, state.options)
    waiting, state.unassigned = state.unassigned, []
    for each in waiting:
        if free > 0 and _place(transition, each.task):
            free -= 1
        else:
            state.unassigned.append(each)


def _place(transition: WorkerTransition, task: Task) -> bool:
    """Find a place for a task; return whether there is one."""
    pool, is_shared = transition.state.runners, sharing.may_share(transition.state, task)
    runner = sharing.runner_for(pool, transition.state.options, is_shared=is_shared)
    if runner is not None and runner.phase is RunnerPhase.STARTING:
        pool.spare -= not runner.tasks
        tasks = {**runner.tasks, task.token: AssignedTask(task)}
        loop = LoopState() if is_shared else None
        pool.by_id[runner.id] = runner._replace(tasks=tasks, loop=loop)
    elif runner is not None:
        _send(transition, runner, task, is_shared=is_shared)
    elif pool.forks_from or pool.zygote_end:
        return False
    else:
        _fork(transition, task, is_shared=is_shared)
    return True


def _fork(transition: WorkerTransition, task: Task, *, is_shared: bool = False) -> None:
    """Start a runner, with its first task."""
    pool, options = transition.state.runners, transition.state.options
    pool.last_id += 1
    due_at = transition.now + ZYGOTE_LIMIT_S
    tasks = {task.token: AssignedTask(task)}
    uses = options.max_tasks_per_runner if options.may_reuse_runners else 1
    runner = RunnerState(pool.last_id, due_at=due_at, tasks=tasks, tasks_left=uses)
    pool.by_id[runner.id] = runner._replace(loop=LoopState()) if is_shared else runner
    transition.do(actions.ForkRunner(runner.id))


def _send(
    transition: WorkerTransition, runner: RunnerState, task: Task, *, is_shared: bool = False
) -> None:
    """Send a task to a runner; its deadline counts from now."""
    now, pool = transition.now, transition.state.runners
    due_at, left = now + task.timeout_s, runner.tasks_left - 1
    tasks = {task.token: AssignedTask(task, TaskPhase.RUNNING, due_at, now)}
    if not is_shared:
        move(pool, runner, RunnerPhase.BUSY, due_at, tasks=tasks, tasks_left=left)
    elif runner.phase is RunnerPhase.IDLE:
        loop = LoopState(now + sharing.ping_pause_s(transition.state.options))
        due_at = min(due_at, loop.ping_at)
        move(pool, runner, RunnerPhase.BUSY, due_at, tasks=tasks, tasks_left=left, loop=loop)
    else:
        put_tasks(pool, runner, {**runner.tasks, **tasks}, tasks_left=left)
    transition.do(actions.SendTask(runner.id, task, is_shared))
    run_log.task_started(transition, task)
