"""
The pool of runners: which task goes to which runner, and what its result changes.

A runner that starts has its task already. An idle one takes a task that waits, or else the task
of a runner that still starts. Of the idle runners the last used goes first. How runners end is
decided in `core.worker.runner_ends`.
"""

from __future__ import annotations

from dataclasses import replace

from pgflowd.core.backoff import doubled_s
from pgflowd.core.metrics.definitions import TASK_SECONDS
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker import actions, events, room, run_log, runner_ends
from pgflowd.core.worker.part import NEVER
from pgflowd.core.worker.runner_ends import ZYGOTE_LIMIT_S
from pgflowd.core.worker.runner_moves import move, take_back
from pgflowd.core.worker.runner_state import (
    NO_TASKS,
    AssignedTask,
    EndCause,
    RunnerPhase,
    RunnerPool,
    RunnerState,
    TaskPhase,
)
from pgflowd.core.worker.state import WorkerMode, WorkerOptions
from pgflowd.core.worker.task import Task
from pgflowd.core.worker.transition import WorkerTransition

SHORT_S = 0.02  # tasks that take less are claimed ahead: as many as runners begin in this time
PACE_WEIGHT = 0.2  # of the last task in the pace
STEADY_WEIGHT = 0.05  # likewise once tasks are short: the next few say little


def deadline(pool: RunnerPool) -> float:
    """When the pool changes by itself."""
    soonest = pool.forks_from or NEVER
    for runner in pool.by_id.values():  # faster than min
        if runner.due_at < soonest:
            soonest = runner.due_at
    return soonest


def free_places(pool: RunnerPool, options: WorkerOptions) -> int:
    """How many tasks more the runners can begin now; fewer while forks are paused."""
    idle = len(pool.idle) + pool.spare
    return idle if pool.forks_from else options.max_concurrency - len(pool.by_id) + idle


def tasks_ahead(pool: RunnerPool, options: WorkerOptions) -> int:
    """How many tasks may wait for a runner besides those that fill the free places."""
    if pool.pace_s >= SHORT_S or not (free_places(pool, options) or pool.count_running()):
        return 0
    return int(options.max_concurrency * SHORT_S / max(pool.pace_s, 1e-5))


def assign(transition: WorkerTransition) -> None:
    """Give tasks to idle runners, and start runners for the others."""
    state = transition.state
    if state.mode is not WorkerMode.WORKING:
        return
    pool, unassigned, options = state.runners, state.unassigned, state.options
    if pool.idle:
        count = min(len(unassigned), len(pool.idle))
        for waiting in unassigned[:count]:
            _send(transition, waiting.task)
        del unassigned[:count]
        if pool.idle and len(pool.idle) < len(pool.by_id):
            _take_from_starting(transition)
    free = options.max_concurrency - len(pool.by_id)
    if not free or not unassigned or pool.forks_from or pool.zygote_end:
        return
    count = max(0, min(len(unassigned) - pool.spare, free))
    for waiting in unassigned[:count]:
        pool.last_id += 1
        due_at = transition.now + ZYGOTE_LIMIT_S
        tasks = {waiting.task.token: AssignedTask(waiting.task)}
        uses = options.max_tasks_per_runner if options.may_reuse_runners else 1
        runner = RunnerState(pool.last_id, due_at=due_at, tasks=tasks, tasks_left=uses)
        pool.by_id[runner.id] = runner
        transition.do(actions.ForkRunner(runner.id))
    del unassigned[:count]


def _take_from_starting(transition: WorkerTransition) -> None:
    """No task waits for the start of its runner while another runner is idle."""
    pool = transition.state.runners
    for runner in list(pool.by_id.values()):
        if runner.phase is RunnerPhase.STARTING and runner.tasks and pool.idle:
            (token,) = runner.tasks
            _send(transition, take_back(pool, runner, token))


def _send(transition: WorkerTransition, task: Task) -> None:
    """Give the last used idle runner a task; its deadline counts from now."""
    now, pool = transition.now, transition.state.runners
    runner, due_at = pool.by_id[pool.idle[-1]], now + task.timeout_s
    tasks = {task.token: AssignedTask(task, TaskPhase.RUNNING, due_at, now)}
    move(pool, runner, RunnerPhase.BUSY, due_at, tasks=tasks, tasks_left=runner.tasks_left - 1)
    transition.do(actions.SendTask(runner.id, task))
    run_log.task_started(transition, task)


def forked(transition: WorkerTransition, event: events.Forked) -> None:
    pool = transition.state.runners
    if pool.forks_from:
        transition.state.schedule.is_due = True
    pool.fork_delay_s = pool.forks_from = 0.0
    pool.zygote_answered_at = transition.now
    runner = pool.by_id.get(event.id)
    if runner and runner.phase is RunnerPhase.STARTING:
        pool.by_id[event.id] = runner._replace(due_at=NEVER)


def refused(transition: WorkerTransition, event: events.ForkRefused) -> None:
    """No room for a runner: give its task back, and pause before the next fork."""
    state, options = transition.state, transition.state.options
    pool, runner = state.runners, state.runners.by_id.get(event.id)
    pool.zygote_answered_at = transition.now
    if runner is None:
        return
    runner_ends.forget(pool, runner)
    for assigned in runner.tasks.values():
        transition.release(assigned.task, "no runner could be started")
    if pool.forks_from:  # requested before the pause began
        return
    pool.fork_delay_s = doubled_s(pool.fork_delay_s, options.backoff_min_s, options.backoff_max_s)
    pool.forks_from = transition.now + pool.fork_delay_s
    text = f"a runner could not be started: {event.text}"
    transition.log_problem("warning", text, wait_s=pool.fork_delay_s)
    if event.needs_room:
        transition.do(actions.AskForRoom())


def ready(transition: WorkerTransition, event: events.RunnerReady) -> None:
    """It takes its tasks, if no other runner has taken them."""
    state = transition.state
    pool, runner = state.runners, state.runners.by_id.get(event.id)
    pool.unready_deaths = 0
    if runner is None or runner.phase is not RunnerPhase.STARTING:
        return
    due_at = transition.now + state.options.runner_idle_s
    move(pool, runner, RunnerPhase.IDLE, due_at, tasks=NO_TASKS)
    for assigned in runner.tasks.values():
        runner_ends.put_first(transition, assigned.task)


def done(transition: WorkerTransition, event: events.Done) -> None:
    """A whole result: it counts, unless the task was settled before."""
    pool, report = transition.state.runners, event.report
    runner = pool.by_id.get(event.id)
    assigned = runner.tasks.get(report.task.token) if runner else None
    if runner is None or assigned is None or runner.phase is not RunnerPhase.BUSY:
        return
    if assigned.phase is TaskPhase.ENDING:
        runner_ends.kill(transition, runner, assigned.cause or EndCause.TIMEOUT)
        return
    took_s = (assigned.finished_at or transition.now) - assigned.sent_at
    _measure_pace(pool, took_s)
    labels = (report.task.step,)
    transition.do(actions.Observe(TASK_SECONDS, labels, (took_s,), report.outcome))
    if report.outcome is not Outcome.COMPLETED or transition.state.options.is_debug:
        report = replace(report, took_s=round(took_s, 6))
    if event.left.children:
        names = ", ".join(event.left.children)[:100]
        text = f"the task left child processes ({names}) behind; they are killed with its runner"
        transition.log_problem("warning", text, **run_log.naming(report.task))
        cause = EndCause.LEFT_CHILDREN
        runner_ends.kill(transition, runner, cause, tasks=NO_TASKS, result=report)
        return
    transition.report(report)
    if room.is_owed(pool):
        room.repay(transition, runner)
    elif event.left.reset or not runner.tasks_left:
        runner_ends.retire(transition, runner)
    else:
        due_at = transition.now + transition.state.options.runner_idle_s
        move(pool, runner, RunnerPhase.IDLE, due_at, tasks=NO_TASKS)


def _measure_pace(pool: RunnerPool, took_s: float) -> None:
    weight = PACE_WEIGHT if pool.pace_s > SHORT_S / 4 else STEADY_WEIGHT
    pool.pace_s += weight * (took_s - pool.pace_s)
    if took_s > SHORT_S:  # one long task says more than many short ones
        pool.pace_s = max(pool.pace_s, took_s)
