"""
How runners end, and what becomes of the tasks in them.

A runner whose task must end is checked for a result first, as one that lies in its socket
counts; then it gets SIGTERM, is killed with its tree and reaped, and only then its task is
reported: docs/design/runners.md, section 6.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pgflowd.core.worker import actions, events, failure_text, run_log
from pgflowd.core.worker.state import (
    MOVES,
    NEVER,
    EndCause,
    RunnerPhase,
    RunnerPool,
    RunnerState,
    Task,
    UnassignedTask,
    WorkerMode,
)
from pgflowd.core.worker.transition import WorkerTransition
from pgflowd.errors import Bug

RETIRE_LIMIT_S = 1.0  # a retired runner that has not ended is killed
KILL_LIMIT_S = 10.0  # a killed one that has not ended is reported all the same
ZYGOTE_LIMIT_S = 5.0  # a zygote that has not answered is killed
MAX_UNREADY_DEATHS = 3


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
    elif runner.phase is RunnerPhase.STARTING and runner.task is None:
        pool.spare -= 1
    pool.by_id[runner.id] = runner._replace(phase=phase, due_at=due_at, **changes)
    if phase is RunnerPhase.IDLE:
        pool.idle.append(runner.id)


def take_back(pool: RunnerPool, runner: RunnerState, task: Task) -> Task:
    """Take the task from a runner that still starts, and return it."""
    pool.by_id[runner.id] = runner._replace(task=None)
    pool.spare += 1
    return task


def stop_working(transition: WorkerTransition, mode: WorkerMode) -> None:
    """Give back the tasks that no handler has begun, and announce the stop to the others."""
    state = transition.state
    state.mode = mode
    tasks = [waiting.task for waiting in state.unassigned]
    state.unassigned = []
    for runner in list(state.runners.by_id.values()):
        if runner.phase is RunnerPhase.STARTING and runner.task:
            tasks.append(take_back(state.runners, runner, runner.task))
        elif runner.phase is RunnerPhase.BUSY:
            transition.do(actions.AnnounceStop(runner.id))
    for task in tasks:
        transition.release(task, "the worker stops")


def retire(
    transition: WorkerTransition, runner: RunnerState, cause: EndCause = EndCause.SURPLUS
) -> None:
    due_at = transition.now + RETIRE_LIMIT_S
    move(transition.state.runners, runner, RunnerPhase.RETIRED, due_at, task=None, cause=cause)
    transition.do(actions.CloseRunner(runner.id))


def check(transition: WorkerTransition, runner: RunnerState, cause: EndCause) -> None:
    """Its task must end: first read whether it has."""
    if runner.task is not None:  # else the runner ends already, and its task is elsewhere
        move(transition.state.runners, runner, RunnerPhase.CHECKED, cause=cause)
        transition.do(actions.ReadResult(runner.id, runner.task.token))


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
        check(transition, runner, EndCause.TIMEOUT)
    elif runner.phase is RunnerPhase.TERMINATED:
        kill(transition, runner, runner.cause or EndCause.TIMEOUT)
    elif runner.phase is RunnerPhase.SENDING:
        fault = ("E903", "only a part of its result")
        kill(transition, runner, EndCause.BAD_FRAME, bad_frame=fault)
    elif runner.phase is RunnerPhase.RETIRED:
        kill(transition, runner, runner.cause or EndCause.SURPLUS)
    elif runner.phase is RunnerPhase.IDLE:
        retire(transition, runner)
    elif runner.phase is RunnerPhase.KILLED:
        text = f"runner {runner.id} was killed {KILL_LIMIT_S:g} s ago and is not gone"
        transition.log_problem("error", text, **_naming(runner))
        _report_end(transition, runner, events.Reaped(runner.id, 9))
        move(pool, runner, RunnerPhase.STUCK, task=None, result=None)
    else:  # STARTING or ENDED: the zygote was to fork or to reap it
        pool.by_id[runner.id] = runner._replace(due_at=NEVER)
        if not pool.zygote_end:
            pool.zygote_end = f"it did not answer for {ZYGOTE_LIMIT_S:g} s"
            transition.do(actions.KillZygote())


def no_result_yet(transition: WorkerTransition, event: events.NoResultYet) -> None:
    """No result came in time: ask the runner to end."""
    state, runner = transition.state, transition.state.runners.by_id.get(event.id)
    if runner is None or runner.phase is not RunnerPhase.CHECKED or runner.task is None:
        return
    if runner.task.token == event.token:
        due_at = transition.now + state.options.kill_grace_s
        move(state.runners, runner, RunnerPhase.TERMINATED, due_at)
        transition.do(actions.TerminateRunner(runner.id))


def bad_frame(transition: WorkerTransition, event: events.BadFrameReceived) -> None:
    """The runner is killed; what counted before stays."""
    runner = transition.state.runners.by_id.get(event.id)
    if runner is None or RunnerPhase.KILLED not in MOVES[runner.phase]:
        return
    if runner.phase is RunnerPhase.TERMINATED:
        kill(transition, runner, runner.cause or EndCause.BAD_FRAME)
        return
    if runner.task is None:
        text = f"{event.code} an idle runner sent {event.text}"
        transition.log_problem("warning", text, code=event.code)
    kill(transition, runner, EndCause.BAD_FRAME, bad_frame=(event.code, event.text))


def undelivered(transition: WorkerTransition, event: events.Undelivered) -> None:
    """Its handler never began, so the task may go to another runner."""
    state, runner = transition.state, transition.state.runners.by_id.get(event.id)
    if runner is None or runner.task is None or runner.task.token != event.token:
        return
    if runner.phase not in (RunnerPhase.BUSY, RunnerPhase.CHECKED):
        return
    state.runners.by_id[runner.id] = runner._replace(task=None, due_at=NEVER)
    if state.mode is WorkerMode.WORKING and runner.cause is None:
        put_first(transition, runner.task)
    else:
        transition.release(runner.task, "the worker stops")


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
        task = None if is_unready else runner.task
        move(pool, runner, RunnerPhase.ENDED, due_at, task=task)
        if is_unready:
            _died_unready(transition, runner)
    transition.do(actions.ReapRunner(event.id))


def _naming(runner: RunnerState) -> dict[str, Any]:
    return run_log.naming(runner.task) if runner.task else {}


def _died_unready(transition: WorkerTransition, runner: RunnerState) -> None:
    """Its task is released, not failed; three in a row are a bug of ours or of the module."""
    state = transition.state
    state.runners.unready_deaths += 1
    text = "a runner ended before it was ready"
    transition.log_problem("warning", text, **_naming(runner))
    if runner.task is not None:
        transition.release(runner.task, "its runner ended before it was ready")
    if state.runners.unready_deaths >= MAX_UNREADY_DEATHS and state.mode is WorkerMode.WORKING:
        text = f"{MAX_UNREADY_DEATHS} runners in a row ended before they were ready"
        transition.will_exit(70, text, ("E402", text))
        stop_working(transition, WorkerMode.DRAINING)


def reaped(transition: WorkerTransition, event: events.Reaped) -> None:
    """It is gone, and now its task is reported."""
    pool = transition.state.runners
    runner = pool.by_id.get(event.id)
    if runner is not None and runner.phase is RunnerPhase.ENDED:
        _report_end(transition, runner, event)
        del pool.by_id[event.id]
        if runner.cause is EndCause.ROOM:
            transition.do(actions.OfferRoom())


def _report_end(transition: WorkerTransition, runner: RunnerState, end: events.Reaped) -> None:
    """Make the one report of a task whose runner is gone."""
    task, cause = runner.task, runner.cause
    if runner.result is not None:
        transition.report(runner.result)
    elif task is None:
        return
    elif cause is EndCause.STOP:
        transition.release(task, "the worker stops")
    elif cause is EndCause.LOST:
        run_log.lease_lost(
            transition, task, "another worker has the task now; its runner was killed"
        )
    else:
        if cause is EndCause.TIMEOUT:
            report = failure_text.timed_out(task, end)
        elif cause is EndCause.CANCELLED:
            report = failure_text.cancelled(task, end)
        elif cause is EndCause.BAD_FRAME:
            report = failure_text.bad_frame(task, *runner.bad_frame, end)
        else:
            zygote_end = transition.state.runners.zygote_end
            because = f"its zygote ended ({zygote_end}), and it with it" if zygote_end else ""
            report = failure_text.crashed(task, end, because)
        transition.report(replace(report, took_s=round(transition.now - runner.sent_at, 6)))


def lease_refused(transition: WorkerTransition, token: int, verdict: events.LeaseVerdict) -> None:
    """A lease is not renewed: end what it stands for."""
    state, is_lost = transition.state, verdict is events.LeaseVerdict.LOST
    for runner in list(state.runners.by_id.values()):
        if runner.task is None or runner.task.token != token:
            continue
        if runner.phase is RunnerPhase.BUSY:
            check(transition, runner, EndCause.LOST if is_lost else EndCause.CANCELLED)
        elif runner.phase is RunnerPhase.STARTING:
            _drop(transition, take_back(state.runners, runner, runner.task), is_lost)
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
