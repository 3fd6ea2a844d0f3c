"""
The pool of runners: how many tasks it can take, and what the start of a runner or a result changes.

Which task goes to which runner is decided in `core.worker.claiming`, how runners end in
`core.worker.runner_ends`.
"""

from __future__ import annotations

from dataclasses import replace

from pgflowd.core.backoff import doubled_s
from pgflowd.core.messages import HaveRoom, MakeRoom
from pgflowd.core.metrics.definitions import TASK_SECONDS
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker import actions, events, run_log, runner_ends, sharing
from pgflowd.core.worker.actions import WorkerTransition
from pgflowd.core.worker.runner_ends import retire
from pgflowd.core.worker.state import (
    NO_TASKS,
    AssignedTask,
    EndCause,
    RunnerPhase,
    RunnerPool,
    RunnerState,
    TaskPhase,
    WorkerMode,
    WorkerOptions,
    WorkerState,
    move,
    move_task,
    put_tasks,
    without,
)
from pgflowd.core.worker.task import NEVER, TaskReport

# Room for processes: the runners of all flows share what their machine allows.
#
# A worker that cannot fork asks the others for room, through the supervisor. Each ends its idle
# runners, or, without any, the next one whose task ends, and forks nothing for a moment. When one
# that it ended is gone, it says so, and who was refused tries again.
PAUSE_S = 0.5  # of our forks, so that the worker that asked forks first


def asked(transition: WorkerTransition, event: MakeRoom) -> None:
    """Another process cannot be started: end the idle runners, or owe it the next one."""
    pool = transition.state.runners
    if transition.state.mode is not WorkerMode.WORKING:
        return
    count = len(pool.idle)
    pool.owes_room = not count and len(pool.by_id) > 1
    for id in list(pool.idle):
        _end(transition, pool.by_id[id])
    if count:
        transition.log("info", "worker.made_room", count=count)


def made(transition: WorkerTransition, event: HaveRoom) -> None:
    """Another worker has ended a runner: try again, if forks were refused."""
    pool = transition.state.runners
    if pool.forks_from and pool.fork_delay_s:
        pool.forks_from = transition.now


def _end(transition: WorkerTransition, runner: RunnerState) -> None:
    pool = transition.state.runners
    retire(transition, runner, EndCause.ROOM)
    if not pool.forks_from:
        pool.forks_from = transition.now + PAUSE_S


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
    if pool.trouble and not pool.forks_from:  # try one
        return max(idle, 1)
    if options.shared_steps:
        places = sharing.free_places(pool, options)
        return min(places, idle + sharing.room(pool, options)) if pool.forks_from else places
    return idle if pool.forks_from else options.max_concurrency - len(pool.by_id) + idle


def tasks_ahead(pool: RunnerPool, options: WorkerOptions) -> int:
    """How many tasks may wait for a runner besides those that fill the free places."""
    if pool.pace_s >= SHORT_S or not (free_places(pool, options) or pool.count_running()):
        return 0
    return int(options.max_concurrency * SHORT_S / max(pool.pace_s, 1e-5))


def next_end_s(pool: RunnerPool) -> float:
    """In how many seconds a task is expected to end."""
    running = pool.count_running()
    return pool.pace_s / running if running else NEVER


def forked(transition: WorkerTransition, event: events.Forked) -> None:
    pool, options = transition.state.runners, transition.state.options
    if not pool.trouble:  # else forks go on when a runner is ready
        if pool.forks_from:
            transition.state.schedule.is_due = True
        pool.fork_delay_s = pool.forks_from = 0.0
    pool.zygote_answered_at = transition.now
    runner = pool.by_id.get(event.id)
    if runner and runner.phase is RunnerPhase.STARTING:
        due_at = transition.now + options.start_timeout_s if options.lifespan else NEVER
        pool.by_id[event.id] = runner._replace(due_at=due_at, is_forked=True)


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
        transition.send(MakeRoom())


def ready(transition: WorkerTransition, event: events.RunnerReady) -> None:
    """It takes its tasks, if no other runner has taken them."""
    state = transition.state
    pool, runner = state.runners, state.runners.by_id.get(event.id)
    pool.unready_deaths = 0
    if pool.trouble:
        pool.trouble = ""
        pool.fork_delay_s = pool.forks_from = 0.0
        state.schedule.is_due = True
        transition.log("info", "worker.recovered")
    if runner is None or runner.phase is not RunnerPhase.STARTING:
        return
    due_at = transition.now + state.options.runner_idle_s
    move(pool, runner, RunnerPhase.IDLE, due_at, tasks=NO_TASKS, loop=None)
    for assigned in reversed(list(runner.tasks.values())):
        runner_ends.put_first(transition, assigned.task)


def committing(transition: WorkerTransition, event: events.Committing) -> None:
    """Until its result arrives nobody knows whether the database has it."""
    pool = transition.state.runners
    runner = pool.by_id.get(event.id)
    assigned = runner.tasks.get(event.token) if runner else None
    if runner and assigned:
        tasks = {**runner.tasks, event.token: assigned._replace(is_committing=True)}
        pool.by_id[runner.id] = runner._replace(tasks=tasks)


def done(transition: WorkerTransition, event: events.Done) -> TaskReport | None:
    """
    A whole result: it counts, unless the task was settled before; then its output is kept for
    the report. Return its report if the database has recorded it: then it counts in any case.
    """
    pool, report = transition.state.runners, event.report
    runner = pool.by_id.get(event.id)
    assigned = runner.tasks.get(report.task.token) if runner else None
    if runner is None or assigned is None:
        return None
    has_got_sigterm = assigned.is_asked and not runner.is_shared
    if runner.phase is not RunnerPhase.BUSY or (has_got_sigterm and not event.recorded):
        runner = runner_ends.keep(pool, runner, assigned, report)
        if runner.phase is RunnerPhase.BUSY:
            runner_ends.kill(transition, runner, assigned.cause or EndCause.TIMEOUT)
        return None
    settled = _settled(transition, runner, assigned, event)
    unreported = None if event.recorded else settled
    if pool.disturbed:
        sharing.forget(pool, report.task)
    if tasks := without(runner, report.task.token):
        left = 0 if event.left.reset or event.left.children else runner.tasks_left
        put_tasks(pool, runner, tasks, tasks_left=left)
    elif event.left.children or has_got_sigterm:
        if event.left.children:
            run_log.left_behind(transition, report.task, event.left)
        cause = assigned.cause if has_got_sigterm else EndCause.LEFT_CHILDREN
        runner_ends.kill(
            transition, runner, cause or EndCause.TIMEOUT, tasks=NO_TASKS, result=unreported
        )
        unreported = None
    else:
        _be_free(transition, runner, event)
    if unreported is not None:
        transition.report(unreported)
    return settled if event.recorded else None


def _settled(
    transition: WorkerTransition, runner: RunnerState, assigned: AssignedTask, event: events.Done
) -> TaskReport | None:
    """The report of a task with a result; None if its lease is lost."""
    report = event.report
    if not assigned.is_asked or event.recorded:
        if assigned.is_committing:
            report = replace(report, may_be_recorded=True)
        return _measured(transition, assigned, report)
    # it shares its runner, and has ended as it was asked to
    end = events.Reaped(runner.id, None, None, report.peak_kb or 0, event.stack)
    if report.outcome is Outcome.COMPLETED:
        assigned = assigned._replace(returned=report)
    return runner_ends.report_of_end(transition, runner, assigned, end)


def _measured(
    transition: WorkerTransition, assigned: AssignedTask, report: TaskReport
) -> TaskReport:
    """Note how long the task took; return its report, with that if a log record shows it."""
    took_s = (assigned.finished_at or transition.now) - assigned.sent_at
    pool = transition.state.runners
    weight = PACE_WEIGHT if pool.pace_s > SHORT_S / 4 else STEADY_WEIGHT
    pool.pace_s += weight * (took_s - pool.pace_s)
    if took_s > SHORT_S:  # one long task says more than many short ones
        pool.pace_s = max(pool.pace_s, took_s)
    if report.outcome is not Outcome.SUSPENDED:
        labels = (report.task.step,)
        transition.do(actions.Observe(TASK_SECONDS, labels, (took_s,), report.outcome))
    if report.outcome is not Outcome.COMPLETED or transition.state.options.is_debug:
        report = replace(report, took_s=round(took_s, 6))
    return report


def _be_free(transition: WorkerTransition, runner: RunnerState, event: events.Done) -> None:
    """Its last task has ended: it is used again, or ends."""
    pool, left = transition.state.runners, event.left
    if left.tasks and left.reset:
        run_log.left_behind(transition, event.report.task, left)
    if pool.owes_room and len(pool.by_id) > 1:  # the last one stays
        pool.owes_room = False
        _end(transition, runner)
        transition.log("info", "worker.made_room", count=1)
    elif left.reset or not runner.tasks_left:
        runner_ends.retire(transition, runner)
    else:
        if runner.is_shared:
            runner = runner._replace(loop=None)
        due_at = transition.now + transition.state.options.runner_idle_s
        move(pool, runner, RunnerPhase.IDLE, due_at, tasks=NO_TASKS)


# Large results: how many of them a worker has in memory.
#
# The socket of a runner announces a result of more than 256 KiB and stops there. From that moment
# its handler has finished, and no timeout ends it; but its result is read only when what the outbox
# has, and what is being read, leaves room for it. Until then it waits in its runner, which gets no
# other task. So a worker stays small however long the database takes.
MAX_HELD_BYTES = 64 * 1024 * 1024  # of outputs; four turns full. A larger one is held alone
LAST_LIMIT_S = 0.5  # of one that was announced as its runner was to be killed at its timeout
READ_LIMIT_S = 30.0  # the runner only writes into a socket; even while the machine swaps


def announced(transition: WorkerTransition, event: events.ResultAnnounced) -> None:
    """A handler has finished; its result waits."""
    pool, now = transition.state.runners, transition.now
    runner = pool.by_id.get(event.id)
    assigned = runner.tasks.get(event.token) if runner else None
    if runner is None or assigned is None or runner.phase is not RunnerPhase.BUSY:
        return
    if assigned.phase in (TaskPhase.RUNNING, TaskPhase.CHECKED, TaskPhase.ENDING):
        cause = assigned.cause if assigned.is_asked else None
        due_at = NEVER
        if cause is EndCause.TIMEOUT and not runner.is_shared:  # with all that it has started
            due_at = assigned.due_at if assigned.due_at != NEVER else now + LAST_LIMIT_S
        of_result = {"result_bytes": event.size, "finished_at": now}
        move_task(pool, runner, assigned, TaskPhase.FINISHED, due_at, cause=cause, **of_result)
        pool.finished = (*pool.finished, (runner.id, event.token))


def read(transition: WorkerTransition) -> None:
    """Read the results for which there is room, the oldest first."""
    pool = transition.state.runners
    while pool.finished:
        runner_id, token = pool.finished[0]
        runner = pool.by_id.get(runner_id)
        assigned = runner.tasks.get(token) if runner else None
        if runner and assigned and runner.phase is RunnerPhase.BUSY:
            held = _held(transition.state)
            if held and held + assigned.result_bytes > MAX_HELD_BYTES:
                return
            due_at = min(assigned.due_at, transition.now + READ_LIMIT_S)
            move_task(pool, runner, assigned, TaskPhase.SENDING, due_at)
            transition.do(actions.TakeResult(runner.id, token))
        pool.finished = pool.finished[1:]


def _held(state: WorkerState) -> int:
    """How many bytes of outputs the worker has, or will have read."""
    reports = (*state.outbox.sending, *state.outbox.reports)
    assigned = [each for runner in state.runners.by_id.values() for each in runner.tasks.values()]
    reading = sum(each.result_bytes for each in assigned if each.phase is TaskPhase.SENDING)
    return reading + sum(len(each.output) for each in reports if each.output)
