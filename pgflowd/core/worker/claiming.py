"""
When a worker claims, how many tasks, and what it does with those that it gets.

The policy of the claim schedule is written at `core.worker.state.ClaimSchedule`. A worker holds no
more tasks than its runners begin at once or, of very short ones, within 20 ms.
"""

from __future__ import annotations

from pgflowd.core.backoff import doubled_s
from pgflowd.core.metrics.definitions import TASK_WAIT_SECONDS
from pgflowd.core.worker import actions, events, run_log, runner_ends, runners, sharing
from pgflowd.core.worker.actions import Observe, WorkerTransition
from pgflowd.core.worker.runner_ends import ZYGOTE_LIMIT_S
from pgflowd.core.worker.state import (
    AssignedTask,
    ClaimSchedule,
    EndCause,
    LoopState,
    NextDueQuestion,
    RunnerPhase,
    RunnerState,
    TaskPhase,
    UnassignedTask,
    WakeReason,
    WorkerMode,
    WorkerOptions,
    WorkerState,
    move,
    put_tasks,
    take_back,
)
from pgflowd.core.worker.task import NEVER, Task

# A claimed task keeps other workers from it; after 1 s it is cheaper to give it back.
UNASSIGNED_LIMIT_S = 1.0
STOCK = 4  # no claim of its own while a fourth of what may wait does
MIN_PAUSE_S = 0.1  # between two claims of messages that could not be claimed
MIN_DUE_S = 0.001  # the next message is never due earlier
UNKNOWN_STEP_PAUSE_S = 30.0  # so that newer code may take the task
OLDER_ATTEMPT_EXTRA_S = 1.0  # beyond kill_grace, for the killing of an older attempt


def deadline(state: WorkerState) -> float:
    """When the claim schedule or the tasks that wait for a runner change by themselves."""
    check_at = NEVER
    if state.mode is WorkerMode.WORKING:
        look_at = NEVER if state.schedule.is_due else state.doorbell.look_at
        check_at = min(state.schedule.check_at, look_at)
    if not state.unassigned:
        return check_at
    return min(check_at, state.unassigned[0].since + UNASSIGNED_LIMIT_S)


def room(state: WorkerState) -> int:
    """How many tasks more may be claimed."""
    if state.mode is not WorkerMode.WORKING:
        return 0
    most = min(state.options.batch_size, state.turns.most_tasks)
    return max(0, min(most, _capacity(state) - len(state.unassigned)))


def is_stocked(state: WorkerState) -> bool:
    """Whether all runners have enough to do until the next report, which takes a claim along."""
    count = len(state.unassigned)
    if not count or count < runners.free_places(state.runners, state.options):
        return False
    return STOCK * count > _capacity(state) and bool(state.runners.count_running())


def _capacity(state: WorkerState) -> int:
    pool, options = state.runners, state.options
    return runners.free_places(pool, options) + runners.tasks_ahead(pool, options)


# the claim schedule


def check_by(schedule: ClaimSchedule, moment: float, reason: WakeReason) -> None:
    """Claim then, or earlier."""
    if moment < schedule.check_at:
        schedule.check_at, schedule.reason = moment, reason


def claim_now(schedule: ClaimSchedule) -> None:
    """A wake, a reconnect, or visible messages: claim as soon as a place is free."""
    schedule.is_due, schedule.is_fallback = True, False


def time_has_come(schedule: ClaimSchedule) -> None:
    schedule.is_due, schedule.check_at = True, NEVER
    schedule.is_fallback = schedule.reason is WakeReason.FALLBACK


def claim_begins(schedule: ClaimSchedule, has_reports: bool) -> None:
    schedule.is_due = False
    schedule.is_fallback = schedule.is_fallback and not has_reports


def claim_has_ended(
    schedule: ClaimSchedule,
    options: WorkerOptions,
    now: float,
    *,
    wanted: int,
    got: int,
    had_reports: bool,
    is_looking: bool,
    chance: float,
) -> None:
    """Claim again at once while there may be more; else choose the next moment."""
    schedule.has_drained, schedule.check_at = got < wanted, NEVER
    if got:
        schedule.poll_s = 0.0
    if got >= wanted:
        schedule.is_due = True
    elif options.is_polling:
        least_s, ceiling = options.poll_min_s, max(options.poll_min_s, 3 * schedule.poll_s)
        schedule.poll_s = min(options.poll_max_s, least_s + chance * (ceiling - least_s))
        check_by(schedule, now + max(least_s, schedule.poll_s), WakeReason.POLL)
    else:
        check_by(schedule, now + options.notify_fallback_s, WakeReason.FALLBACK)
        if schedule.question is NextDueQuestion.NOW or is_looking:
            return
        if schedule.is_fallback and not got:  # the answer comes with the next renewal of leases
            schedule.question = NextDueQuestion.NO
        elif got or had_reports:
            schedule.question = NextDueQuestion.WHEN_IDLE
        else:
            schedule.question = NextDueQuestion.NOW


def may_ask_next_due(state: WorkerState) -> bool:
    """Whether to ask when the next message is due: it may be soon, or nothing runs."""
    question = state.schedule.question
    if question is NextDueQuestion.NO or state.mode is not WorkerMode.WORKING:
        return False
    if state.outbox.reports:
        return False
    if question is NextDueQuestion.NOW:
        return True
    return not state.unassigned and not any(each.tasks for each in state.runners.by_id.values())


def retry_is_queued(state: WorkerState) -> None:
    """A failed task becomes visible again after its delay: ask when."""
    if not state.options.is_polling:
        state.schedule.question = NextDueQuestion.NOW


def next_message_due(
    schedule: ClaimSchedule, options: WorkerOptions, now: float, in_s: float | None
) -> None:
    if in_s is not None and not options.is_polling:
        check_by(schedule, now + max(MIN_DUE_S, in_s), WakeReason.DUE)


def next_due_read(
    schedule: ClaimSchedule, options: WorkerOptions, now: float, event: events.NextDueRead
) -> None:
    """Messages that are visible and cannot be claimed are left alone for longer and longer."""
    next_message_due(schedule, options, now, event.in_s)
    if event.visible:
        if event.visible != schedule.visible:  # a claim took some of them: go on
            schedule.visible_pause_s = 0.0
        else:
            schedule.visible_pause_s = doubled_s(
                schedule.visible_pause_s, MIN_PAUSE_S, options.notify_fallback_s
            )
        check_by(schedule, now + max(MIN_DUE_S, schedule.visible_pause_s), WakeReason.DUE)
    schedule.visible = event.visible


# claimed tasks


def take(transition: WorkerTransition, tasks: tuple[Task, ...]) -> None:
    """
    Keep claimed tasks; those of unknown steps go back for newer code (E406).

    One whose older attempt still runs here, as its lease lapsed, goes back until that is killed.
    """
    state, now = transition.state, transition.now
    waits: dict[str, list[float]] = {}
    for task in tasks:
        if task.waited_s is not None:
            waits.setdefault(task.step, []).append(task.waited_s)
    for step, seconds in waits.items():
        transition.do(Observe(TASK_WAIT_SECONDS, (step,), tuple(seconds)))
    _drop_older(transition, {task.key for task in tasks})
    older = {
        each.task.key: (runner.id, each)
        for runner in state.runners.by_id.values()
        for each in runner.tasks.values()
    }
    for task in tasks:
        if state.mode is not WorkerMode.WORKING:
            transition.release(task, "the worker stops")
        elif found := older.get(task.key):
            runner_ends.check(transition, state.runners.by_id[found[0]], found[1], EndCause.LOST)
            pause_s = state.options.kill_grace_s + OLDER_ATTEMPT_EXTRA_S
            transition.release(task, "an older attempt of it still runs here", pause_s)
        elif task.step in state.options.steps:
            state.unassigned.append(UnassignedTask(task, now))
        else:
            text = f"the code has no step {task.step}; the task is given back for 30 s"
            transition.log_problem("warning", text, code="E406", **run_log.naming(task))
            transition.release(task, f"E406 {text}", UNKNOWN_STEP_PAUSE_S)


def _drop_older(transition: WorkerTransition, claimed: set[tuple[str, str, int]]) -> None:
    """Drop attempts that have not begun of tasks that were claimed again."""
    state = transition.state
    dropped = [each.task for each in state.unassigned if each.task.key in claimed]
    if dropped:
        state.unassigned = [each for each in state.unassigned if each.task.key not in claimed]
    for runner in list(state.runners.by_id.values()):
        if runner.phase is RunnerPhase.STARTING:
            for token, assigned in runner.tasks.items():
                if assigned.task.key in claimed:
                    runner = state.runners.by_id[runner.id]
                    dropped.append(take_back(state.runners, runner, token))
    for task in dropped:
        run_log.lease_lost(transition, task, "its lease lapsed before it had begun")


def release_overdue(transition: WorkerTransition) -> None:
    """Give back the tasks that have waited too long."""
    unassigned = transition.state.unassigned
    while unassigned and transition.now >= unassigned[0].since + UNASSIGNED_LIMIT_S:
        transition.release(unassigned.pop(0).task, "no runner was free in time")


# Which task goes to which runner.
#
# A runner that starts has its tasks already. An idle one takes a task that waits, or else the task
# of a runner that still starts. Of the idle runners the last used goes first. A task that may share
# a runner goes to one that others share and that has room, before any idle or new one.
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
            # no task waits for the start of its runner while another runner is idle
            for runner in list(pool.by_id.values()):
                if runner.phase is RunnerPhase.STARTING and runner.tasks and pool.idle:
                    (token,) = runner.tasks
                    _send(transition, pool.by_id[pool.idle[-1]], take_back(pool, runner, token))
    free = state.options.max_concurrency - len(pool.by_id)
    if not free or not unassigned or pool.forks_from or pool.zygote_end:
        return
    count = max(0, min(len(unassigned) - pool.spare, free))
    for waiting in unassigned[:count]:
        _fork(transition, waiting.task)
    del unassigned[:count]


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
    uses = options.max_tasks_per_runner if options.isolation == "reuse" else 1
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
