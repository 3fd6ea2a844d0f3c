"""
How runners end, and what becomes of the tasks in them.

A runner whose task must end is checked for a result first, as one that lies in its socket
counts; then it gets SIGTERM, is killed with its tree and reaped, and only then its task is
reported: docs/background/runners.md, section 6. From SIGTERM on the outcome is settled, but what
the handler returns all the same goes along with the report, for an undo.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pgflowd.core.backoff import doubled_s
from pgflowd.core.failure import (
    MAX_MESSAGE_CHARS,
    MAX_TRACEBACK_CHARS,
    clean,
    place_of,
    without_the_runner,
)
from pgflowd.core.messages import HaveRoom
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker import actions, events, run_log, sharing
from pgflowd.core.worker.actions import WorkerTransition
from pgflowd.core.worker.events import RunnerEvent
from pgflowd.core.worker.state import (
    MOVES,
    NO_TASKS,
    AssignedTask,
    EndCause,
    RunnerPhase,
    RunnerPool,
    RunnerState,
    TaskPhase,
    UnassignedTask,
    WorkerMode,
    move,
    move_task,
    put_tasks,
    take_back,
    without,
)
from pgflowd.core.worker.task import NEVER, Task, TaskReport

# What a lifespan that fails changes: its runner cannot begin, and no task is to blame.
#
# The tasks of such a runner are given back, their attempts unspent, and no runner is started for a
# while that grows with each failure. Until one is ready the worker tells of E433, so its daemon is
# degraded; runners that have begun go on.
CODE = "E433"
NEXT = "correct it, then pgflowd reload; see pgflowd logs for the traceback"


@dataclass(slots=True)
class RunnerUnready(RunnerEvent):
    """The lifespan of a runner has failed before its first task."""

    text: str
    traceback: str | None = None


def failed(
    transition: WorkerTransition, tasks: Iterable[AssignedTask], why: str, **fields: Any
) -> None:
    """Give the tasks of a runner back that cannot begin, and pause before the next one."""
    state, pool, options = transition.state, transition.state.runners, transition.state.options
    pool.trouble = f"the lifespan {options.lifespan} failed: {why}"
    reason = f"{CODE} {pool.trouble}"
    for assigned in tasks:
        transition.release(assigned.task, reason)
    for waiting in state.unassigned:
        transition.release(waiting.task, reason)
    state.unassigned = []
    if pool.forks_from:  # it was started before the pause began
        return
    least_s, most_s = options.backoff_min_s, options.backoff_max_s
    pool.fork_delay_s = doubled_s(pool.fork_delay_s, least_s, most_s)
    pool.forks_from = transition.now + pool.fork_delay_s
    fields = {"code": CODE, "wait_s": pool.fork_delay_s, **fields}
    transition.log_problem("error", reason, **fields)


RETIRE_LIMIT_S = 3.0  # a retired runner that has not ended is killed; it may flush for 2 s
KILL_LIMIT_S = 10.0  # a killed one that has not ended is reported all the same
ZYGOTE_LIMIT_S = 5.0  # a zygote that has not answered is killed
MAX_UNREADY_DEATHS = 3


def stop_working(transition: WorkerTransition, mode: WorkerMode) -> None:
    """Give back the tasks that no handler has begun, and announce the stop to the others."""
    state = transition.state
    state.mode = mode
    tasks = [waiting.task for waiting in state.unassigned]
    state.unassigned = []
    for runner in list(state.runners.by_id.values()):
        if runner.phase is RunnerPhase.STARTING and runner.tasks:
            tasks += [each.task for each in runner.tasks.values()]
            state.runners.by_id[runner.id] = runner._replace(tasks=NO_TASKS)
            state.runners.spare += 1
        elif runner.phase is RunnerPhase.BUSY:
            transition.do(actions.AnnounceStop(runner.id))
    for task in tasks:
        transition.release(task, "the worker stops")


def retire(
    transition: WorkerTransition, runner: RunnerState, cause: EndCause = EndCause.SURPLUS
) -> None:
    options = transition.state.options
    limit_s = max(RETIRE_LIMIT_S, options.kill_grace_s) if options.lifespan else RETIRE_LIMIT_S
    due_at = transition.now + limit_s
    changes: dict[str, Any] = {"tasks": NO_TASKS, "cause": cause}
    move(transition.state.runners, runner, RunnerPhase.RETIRED, due_at, **changes)
    transition.do(actions.CloseRunner(runner.id))


def check(
    transition: WorkerTransition, runner: RunnerState, assigned: AssignedTask, cause: EndCause
) -> None:
    """A task must end: first read whether it has."""
    if runner.phase is RunnerPhase.BUSY and assigned.phase is TaskPhase.RUNNING:
        move_task(transition.state.runners, runner, assigned, TaskPhase.CHECKED, cause=cause)
        transition.do(actions.ReadResult(runner.id, assigned.task.token))


def keep(
    pool: RunnerPool, runner: RunnerState, assigned: AssignedTask, result: TaskReport
) -> RunnerState:
    """Keep what a handler has returned though its outcome was settled; return the runner."""
    if result.outcome is Outcome.COMPLETED:
        kept = assigned._replace(returned=result)
        pool.by_id[runner.id] = runner._replace(tasks={**runner.tasks, assigned.task.token: kept})
    return pool.by_id[runner.id]


def kill(
    transition: WorkerTransition, runner: RunnerState, cause: EndCause, **changes: Any
) -> None:
    due_at = transition.now + KILL_LIMIT_S
    move(transition.state.runners, runner, RunnerPhase.KILLED, due_at, cause=cause, **changes)
    transition.do(actions.KillRunner(runner.id))


def time_is_up(transition: WorkerTransition, runner: RunnerState) -> None:
    """The moment that a runner's phase waited for has come."""
    pool = transition.state.runners
    if runner.phase is RunnerPhase.BUSY:
        for assigned in runner.tasks.values():
            if transition.now >= assigned.due_at and runner.phase is RunnerPhase.BUSY:
                _task_is_due(transition, runner, assigned)
                runner = pool.by_id[runner.id]
        if runner.loop and runner.phase is RunnerPhase.BUSY:
            sharing.keep_pinging(transition, runner, runner.loop)
    elif runner.phase is RunnerPhase.TERMINATED:
        kill(transition, runner, runner.cause or EndCause.BLOCKED)
    elif runner.phase is RunnerPhase.RETIRED:
        kill(transition, runner, runner.cause or EndCause.SURPLUS)
    elif runner.phase is RunnerPhase.IDLE:
        retire(transition, runner)
    elif runner.phase is RunnerPhase.KILLED:
        text = f"runner {runner.id} was killed {KILL_LIMIT_S:g} s ago and is not gone"
        transition.log_problem("error", text, **_naming(runner))
        _report_end(transition, runner, events.Reaped(runner.id, 9))
        move(pool, runner, RunnerPhase.STUCK, tasks=NO_TASKS, result=None)
    elif runner.phase is RunnerPhase.STARTING and runner.is_forked:
        why = f"it did not yield within {transition.state.options.start_timeout_s:g} s"
        _cannot_begin(transition, runner, why)
    else:  # STARTING or ENDED: the zygote was to fork or to reap it
        limit_at = pool.zygote_answered_at + ZYGOTE_LIMIT_S  # it may be busy with others
        due_at = limit_at if transition.now < limit_at else NEVER
        pool.by_id[runner.id] = runner._replace(due_at=due_at)
        if due_at == NEVER and not pool.zygote_end:
            pool.zygote_end = f"it did not answer for {ZYGOTE_LIMIT_S:g} s"
            transition.do(actions.KillZygote())


def _task_is_due(transition: WorkerTransition, runner: RunnerState, assigned: AssignedTask) -> None:
    if assigned.phase is TaskPhase.RUNNING:
        check(transition, runner, assigned, EndCause.TIMEOUT)
    elif assigned.phase is TaskPhase.ENDING:  # read once more
        token = assigned.task.token
        waiting = {**runner.tasks, token: assigned._replace(due_at=NEVER)}
        put_tasks(transition.state.runners, runner, waiting)
        transition.do(actions.ReadResult(runner.id, token))
    elif assigned.phase is TaskPhase.FINISHED:
        kill(transition, runner, assigned.cause or EndCause.TIMEOUT)
    elif assigned.phase is TaskPhase.SENDING:
        fault = ("E903", "only a part of its result")
        kill(transition, runner, EndCause.BAD_FRAME, bad_frame=fault)


def no_result_yet(transition: WorkerTransition, event: events.NoResultYet) -> None:
    """No result came in time: ask the task to end, or the runner with it."""
    state, runner = transition.state, transition.state.runners.by_id.get(event.id)
    if runner is None or runner.phase is not RunnerPhase.BUSY:
        return
    assigned = runner.tasks.get(event.token)
    if event.token == events.PING:
        if runner.loop and runner.loop.is_pinged and runner.loop.ping_at == NEVER:
            sharing.terminate(transition, runner, EndCause.BLOCKED)  # a handler blocks the loop
    elif assigned is not None and assigned.phase is TaskPhase.CHECKED:
        options = state.options
        limit_s = sharing.limit_s(options) if runner.is_shared else options.kill_grace_s
        due_at = transition.now + limit_s
        move_task(state.runners, runner, assigned, TaskPhase.ENDING, due_at)
        if runner.is_shared:
            transition.do(actions.CancelTask(runner.id, event.token))
        else:
            transition.do(actions.TerminateRunner(runner.id))
    elif assigned is not None and assigned.phase is TaskPhase.ENDING and assigned.due_at == NEVER:
        end = sharing.terminate if runner.is_shared else kill
        end(transition, runner, assigned.cause or EndCause.TIMEOUT)


def bad_frame(transition: WorkerTransition, event: events.BadFrameReceived) -> None:
    """The runner is killed; what counted before stays."""
    runner = transition.state.runners.by_id.get(event.id)
    if runner is None or RunnerPhase.KILLED not in MOVES[runner.phase]:
        return
    if not runner.tasks:
        text = f"{event.code} an idle runner sent {event.text}"
        transition.log_problem("warning", text, code=event.code)
    kill(transition, runner, EndCause.BAD_FRAME, bad_frame=(event.code, event.text))


def undelivered(transition: WorkerTransition, event: events.Undelivered) -> None:
    """Its handler never began, so the task may go to another runner."""
    state, runner = transition.state, transition.state.runners.by_id.get(event.id)
    assigned = runner.tasks.get(event.token) if runner else None
    if runner is None or assigned is None or runner.phase is not RunnerPhase.BUSY:
        return
    if assigned.phase not in (TaskPhase.RUNNING, TaskPhase.CHECKED):
        return
    put_tasks(state.runners, runner, without(runner, event.token))
    if state.mode is WorkerMode.WORKING and assigned.cause is None:
        put_first(transition, assigned.task)
    else:
        transition.release(assigned.task, "the worker stops")


def put_first(transition: WorkerTransition, task: Task) -> None:
    """The task is the next that an idle runner takes."""
    unassigned = transition.state.unassigned
    since = unassigned[0].since if unassigned else transition.now
    unassigned.insert(0, UnassignedTask(task, since))


def forget(pool: RunnerPool, runner: RunnerState) -> None:
    """There is no such process, and there was none."""
    move(pool, runner, RunnerPhase.ENDED)
    del pool.by_id[runner.id]


def ended(transition: WorkerTransition, event: events.RunnerEnded) -> None:
    pool = transition.state.runners
    runner = pool.by_id.get(event.id)
    if runner is not None:
        due_at = NEVER if pool.zygote_end else transition.now + ZYGOTE_LIMIT_S
        is_unready = runner.phase is RunnerPhase.STARTING
        tasks = NO_TASKS if is_unready else runner.tasks
        move(pool, runner, RunnerPhase.ENDED, due_at, tasks=tasks)
        if is_unready:
            _died_unready(transition, runner)
    transition.do(actions.ReapRunner(event.id))


def _naming(runner: RunnerState) -> dict[str, Any]:
    return next((run_log.naming(each.task) for each in runner.tasks.values()), {})


def _died_unready(transition: WorkerTransition, runner: RunnerState) -> None:
    """Its task is released, not failed; three in a row are a bug of ours or of the module."""
    state = transition.state
    if state.options.lifespan:
        why = "it ended its process before it had yielded"
        failed(transition, runner.tasks.values(), why)
        return
    state.runners.unready_deaths += 1
    text = "a runner ended before it was ready"
    transition.log_problem("warning", text, **_naming(runner))
    for assigned in runner.tasks.values():
        transition.release(assigned.task, "its runner ended before it was ready")
    if state.runners.unready_deaths >= MAX_UNREADY_DEATHS and state.mode is WorkerMode.WORKING:
        text = f"{MAX_UNREADY_DEATHS} runners in a row ended before they were ready"
        transition.will_exit(70, text, ("E402", text))
        stop_working(transition, WorkerMode.DRAINING)


def unready(transition: WorkerTransition, event: RunnerUnready) -> None:
    """A runner says that its lifespan has failed, and ends."""
    runner = transition.state.runners.by_id.get(event.id)
    if runner is not None and runner.phase is RunnerPhase.STARTING:
        _cannot_begin(transition, runner, event.text, traceback=event.traceback)


def _cannot_begin(
    transition: WorkerTransition, runner: RunnerState, why: str, **fields: Any
) -> None:
    failed(transition, runner.tasks.values(), why, **fields)
    kill(transition, runner, EndCause.UNREADY, tasks=NO_TASKS)


def reaped(transition: WorkerTransition, event: events.Reaped) -> None:
    """It is gone, and now its task is reported."""
    pool = transition.state.runners
    pool.zygote_answered_at = transition.now
    runner = pool.by_id.get(event.id)
    if runner is not None and runner.phase is RunnerPhase.ENDED:
        _report_end(transition, runner, event)
        del pool.by_id[event.id]
        if runner.cause is EndCause.ROOM:
            transition.send(HaveRoom())


def _report_end(transition: WorkerTransition, runner: RunnerState, end: events.Reaped) -> None:
    """Make the one report of each task whose runner is gone."""
    if runner.result is not None:
        transition.report(runner.result)
    guilty = sharing.to_blame(runner, end)
    if transition.state.runners.zygote_end:
        guilty = list(runner.tasks.values())
    if len(guilty) < len(runner.tasks):
        sharing.log_end(transition, runner, guilty[0].task if guilty else None)
    for each in runner.tasks.values():
        if each not in guilty:
            sharing.give_back(transition, each)
        elif report := report_of_end(transition, runner, each, end):
            sharing.forget(transition.state.runners, each.task)
            transition.report(report)


def report_of_end(
    transition: WorkerTransition, runner: RunnerState, assigned: AssignedTask, end: events.Reaped
) -> TaskReport | None:
    """The report of a task that was ended, or whose runner has; None if its lease is lost."""
    task, cause = assigned.task, sharing.cause_of_end(runner, assigned)
    if runner.is_shared:  # CPU is that of all its tasks
        end = replace(end, cpu_s=None, stack=end.stacks.get(task.token, end.stack))
    if cause is EndCause.STOP:
        return assigned.given_back("the worker stops")
    if cause in (EndCause.CANCELLED, EndCause.LOST) and assigned.returned is not None:
        return replace(assigned.returned, may_be_recorded=assigned.is_committing)
    if cause is EndCause.LOST:
        text = "another worker has the task now; its runner was killed"
        run_log.dropped(transition, assigned.given_back(text), text)
        return None
    because = ""
    if cause is EndCause.BLOCKED:
        because = f"{sharing.limit_s(transition.state.options):g} s"
    elif zygote_end := transition.state.runners.zygote_end:
        because = f"its zygote ended ({zygote_end}), and it with it"
    report = failure_of(task, cause, end, because, runner.bad_frame)
    report.took_s = round(transition.now - assigned.sent_at, 6)
    report.may_be_recorded = assigned.is_committing
    report.output, report.printed = assigned.output, end.printed.get(task.token)
    if assigned.returned:
        report.printed = assigned.returned.printed
    return report


# What a person reads of a task whose runner was killed or ended by itself.
#
# The text says where the handler was, which signal or exit code ended it, and how much memory it
# had, as far as these are known: `timed out after 5 s; it was at flows/analyze.py:31 in summary`.
# The stack is what `faulthandler` wrote as the runner got SIGTERM, and what the task of an async
# handler awaited. A status is a number as `wait` returns it.
def failure_of(
    task: Task,
    cause: EndCause | None,
    end: events.Reaped,
    because: str = "",
    bad_frame: tuple[str, str] = ("", ""),
) -> TaskReport:
    """The report of a task that did not end by itself. `because`: how long it has blocked its
    runner, or why that ended if its status does not say so."""
    place, outcome, stack = place_of(end.stack), Outcome.FAILED, end.stack
    code, number = exit_of(end.status)
    if cause is EndCause.TIMEOUT:
        outcome, error_type = Outcome.TIMED_OUT, "Timeout"
        text = f"timed out after {task.timeout_s:g} s"
    elif cause is EndCause.BLOCKED:
        outcome, error_type = Outcome.TIMED_OUT, "Blocked"
        text = f"timed out: it blocked the event loop of its runner for {because}"
    elif cause is EndCause.CANCELLED:
        error_type, text = "Cancelled", "killed, since its run or step had ended"
    elif cause is EndCause.BAD_FRAME:  # or an output over the limit
        outcome = Outcome.FAILED if bad_frame[0] == "E404" else Outcome.CRASHED
        error_type, text, place, stack = "Garbage", " ".join(bad_frame), "", ""
    else:
        outcome, error_type = Outcome.CRASHED, "Crash"
        how = because or f"it exited with code {code} before its outcome was whole"
        if number is not None and not because:
            hint = " (out of memory?)" if number == signal.SIGKILL else ""
            how = f"killed by signal {number}, {signal_name(number)}{hint}"
        mib = end.peak_kb / 1024
        memory = f", peak {mib / 1024:.1f} GiB" if mib >= 1024 else f", peak {mib:.0f} MiB"
        text = f"the runner crashed: {how}{memory if end.peak_kb else ''}"
    return TaskReport(
        task,
        outcome,
        error_message=clean(f"{text}; it was at {place}" if place else text, MAX_MESSAGE_CHARS),
        error_type=error_type,
        traceback=clean(without_the_runner(stack), MAX_TRACEBACK_CHARS) or None,
        cpu_s=None if end.cpu_s is None else round(end.cpu_s, 6),
        peak_kb=end.peak_kb,
        exit_code=code,
        exit_signal=number,
    )


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def exit_of(status: int | None) -> tuple[int | None, int | None]:
    """The exit code and the signal in a wait status; one of them is None, or both without it."""
    if status is None:
        return None, None
    number = status & 0x7F
    return (status >> 8 & 0xFF, None) if number == 0 else (None, number)


def lease_refused(transition: WorkerTransition, token: int, verdict: events.LeaseVerdict) -> None:
    """A lease is not renewed: end what it stands for."""
    state, is_lost = transition.state, verdict is events.LeaseVerdict.LOST
    for runner in state.runners.by_id.values():
        if token not in runner.tasks:
            continue
        if runner.phase is RunnerPhase.STARTING:
            _drop(transition, take_back(state.runners, runner, token), is_lost)
        else:
            cause = EndCause.LOST if is_lost else EndCause.CANCELLED
            check(transition, runner, runner.tasks[token], cause)
        return
    for waiting in state.unassigned:
        if waiting.task.token == token:
            state.unassigned.remove(waiting)
            _drop(transition, waiting.task, is_lost)
            return


def _drop(transition: WorkerTransition, task: Task, is_lost: bool) -> None:
    if is_lost:
        run_log.lease_lost(transition, task, "another worker has the task now; it had not begun")
    else:
        transition.release(task, "its run has ended")
