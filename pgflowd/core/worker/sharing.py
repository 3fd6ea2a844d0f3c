"""
Tasks that share a runner: async ones of a flow with `tasks_per_runner` above 1.

They share one event loop, so one of them can end or block all. Then the runner is ended; the task
that is to blame is reported, and the others are given back unspent. A task that was disturbed so
three times in a row has a runner of its own from then on, and so has every handler that is not
async. Where nobody is known to be to blame all are given back, and so are soon alone.
"""

from __future__ import annotations

from pgflowd.core.worker import actions, events, run_log
from pgflowd.core.worker.actions import WorkerTransition
from pgflowd.core.worker.state import (
    AssignedTask,
    EndCause,
    LoopState,
    RunnerPhase,
    RunnerPool,
    RunnerState,
    WorkerOptions,
    WorkerState,
    move,
    put_tasks,
)
from pgflowd.core.worker.task import NEVER, Task

MAX_DISTURBED = 3  # in a row; then a task has a runner of its own
MAX_REMEMBERED = 10_000  # disturbed tasks
PINGS = 4  # in the time after which a ping without an answer is overdue
MIN_LIMIT_S = 0.5  # even if `kill_grace` is shorter: a loop may be busy for a moment
_OF_ANY_TASK = (None, EndCause.BLOCKED)  # causes of a runner's end that name no task
STACK_S = 0.25  # from SIGTERM, at which a runner writes where it is, to SIGKILL


# who shares


def may_share(state: WorkerState, task: Task) -> bool:
    disturbed = state.runners.disturbed
    if disturbed and disturbed.get(task.key, 0) >= MAX_DISTURBED:
        return False
    return task.step in state.options.shared_steps


def runner_for(pool: RunnerPool, options: WorkerOptions, *, is_shared: bool) -> RunnerState | None:
    """The runner that takes the next task: of those that are ready a shared one, if the task may
    share, or an idle one; else one that starts, for tasks that share it or for none."""
    starting = None
    if is_shared:
        for runner in pool.by_id.values():
            if room_in(runner, options):
                if runner.phase is RunnerPhase.BUSY:
                    return runner
                starting = starting or runner
    if pool.idle:
        return pool.by_id[pool.idle[-1]]
    if starting is None and pool.spare:
        phase = RunnerPhase.STARTING
        spare = (each for each in pool.by_id.values() if each.phase is phase and not each.tasks)
        return next(spare)
    return starting


def free_places(pool: RunnerPool, options: WorkerOptions) -> int:
    """How many tasks more may run at once. A runner that ends has a place, too."""
    runners = pool.by_id.values()
    are_free = len(pool.idle) + pool.spare
    tasks = sum([len(each.tasks) - 1 for each in runners if each.tasks])
    return options.max_concurrency - len(runners) + are_free - tasks


def room(pool: RunnerPool, options: WorkerOptions) -> int:
    """How many tasks more the runners can take that tasks share now."""
    return sum([room_in(each, options) for each in pool.by_id.values()])


def room_in(runner: RunnerState, options: WorkerOptions) -> int:
    """How many tasks more a runner with tasks that share it can take."""
    if not runner.is_shared or not runner.tasks:
        return 0
    count = len(runner.tasks)
    if runner.phase is RunnerPhase.STARTING:
        return min(options.tasks_per_runner, runner.tasks_left) - count
    if runner.phase is not RunnerPhase.BUSY:
        return 0
    return min(options.tasks_per_runner - count, runner.tasks_left)


# pings


def limit_s(options: WorkerOptions) -> float:
    """In which a loop must answer a ping, and a task must end after it was asked to."""
    return max(options.kill_grace_s, MIN_LIMIT_S)


def ping_pause_s(options: WorkerOptions) -> float:
    return limit_s(options) / PINGS


def keep_pinging(transition: WorkerTransition, runner: RunnerState, loop: LoopState) -> None:
    """Ask the loop for an answer; when that is overdue, read first what lies in the socket."""
    if transition.now < loop.ping_at:
        return
    if loop.is_pinged:
        ping_at = NEVER
        transition.do(actions.ReadResult(runner.id, events.PING))
    else:
        ping_at = transition.now + limit_s(transition.state.options)
        transition.do(actions.PingRunner(runner.id))
    loop = LoopState(ping_at, is_pinged=True)
    put_tasks(transition.state.runners, runner, runner.tasks, loop=loop)


def ponged(transition: WorkerTransition, event: events.Ponged) -> None:
    """The loop goes on: ask again later."""
    pool = transition.state.runners
    runner = pool.by_id.get(event.id)
    if runner and runner.phase is RunnerPhase.BUSY and runner.loop and runner.loop.is_pinged:
        loop = LoopState(transition.now + ping_pause_s(transition.state.options))
        put_tasks(pool, runner, runner.tasks, loop=loop)


def terminate(transition: WorkerTransition, runner: RunnerState, cause: EndCause) -> None:
    """End a runner with all its tasks: it writes where it is, and is killed."""
    due_at = transition.now + STACK_S
    move(transition.state.runners, runner, RunnerPhase.TERMINATED, due_at, cause=cause)
    transition.do(actions.TerminateRunner(runner.id))


# blame


def to_blame(runner: RunnerState, end: events.Reaped) -> list[AssignedTask]:
    """The tasks whose outcome the end of their runner is; the others are given back."""
    tasks = list(runner.tasks.values())
    if not runner.is_shared or len(tasks) == 1:
        return tasks
    # one that was asked to end, and does not know, was blocked by another
    guilty = [
        each
        for each in tasks
        if each.cause and (each.cause is not EndCause.TIMEOUT or each.task.token in end.stacks)
    ]
    if runner.cause is EndCause.BAD_FRAME or (guilty and runner.cause not in _OF_ANY_TASK):
        return guilty
    executing = [each for each in tasks if each.task.token == end.executing]
    return guilty + [each for each in executing if each not in guilty]


def cause_of_end(runner: RunnerState, assigned: AssignedTask) -> EndCause | None:
    """Why a task that is to blame has ended."""
    if assigned.is_asked:
        return assigned.cause
    if not runner.is_shared or runner.cause in (*_OF_ANY_TASK, EndCause.BAD_FRAME):
        return runner.cause or assigned.cause
    return assigned.cause or EndCause.BLOCKED  # it kept another one from ending


def give_back(transition: WorkerTransition, assigned: AssignedTask) -> None:
    """Give a task back whose runner has ended because of another."""
    pool, task = transition.state.runners, assigned.task
    count = pool.disturbed.get(task.key, 0) + 1
    kept = {key: times for key, times in pool.disturbed.items() if key != task.key}
    while len(kept) >= MAX_REMEMBERED:
        del kept[next(iter(kept))]
    pool.disturbed = {**kept, task.key: count}
    text = "its runner has ended because of another task that shared it"
    transition.report(assigned.given_back(text))


def forget(pool: RunnerPool, task: Task) -> None:
    """The task has ended by itself, so it begins again at 0."""
    if task.key in pool.disturbed:
        pool.disturbed = {key: n for key, n in pool.disturbed.items() if key != task.key}


def log_end(transition: WorkerTransition, runner: RunnerState, guilty: Task | None) -> None:
    """Tell why the tasks of a runner are given back."""
    others = len(runner.tasks) - (guilty is not None)
    because = "nobody knows which of its tasks is to blame"
    if guilty is not None:
        because = f"{guilty.step}#{guilty.task_index} is to blame"
    text = f"a runner that {len(runner.tasks)} tasks shared has ended: {because}"
    then = f"the other {others} are given back" if guilty else "all are given back"
    naming = run_log.naming(guilty) if guilty else {}
    transition.log_problem("warning", f"{text}; {then}, unspent", count=others, **naming)
