"""
Dispatch, ends: how runners end, and what becomes of the tasks in them.

A runner whose time is over is peeked at (an outcome in its socket wins), asked to end, killed
with its tree, reaped, and only then reported: runners.md, section 6. Part of `core.worker.decide`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pgflowd.core.worker import actions, events, failure_text
from pgflowd.core.worker.state import (
    MOVES,
    NEVER,
    EndCause,
    RunnerPhase,
    RunnerState,
    Task,
    TaskReport,
    UnassignedTask,
    WorkerMode,
)
from pgflowd.core.worker.transition import WorkerTransition

RETIRE_LIMIT_S = 1.0  # a retired runner that has not ended is killed
KILL_LIMIT_S = 10.0  # a killed one that has not ended is reported all the same
ZYGOTE_LIMIT_S = 5.0  # silent for so long, it is killed
MOST_UNREADY_DEATHS = 3


def begin_to_end(transition: WorkerTransition) -> None:
    """Give back what waits, tell handlers that the daemon drains, let idle runners go."""
    state = transition.state
    for held in state.held:
        transition.release(held.task, "the worker stops")
    state.held = []
    for runner in list(state.runners.values()):
        if runner.phase is RunnerPhase.BUSY:
            transition.do(actions.AnnounceStop(runner.id))


def retire(transition: WorkerTransition, runner: RunnerState) -> None:
    transition.move(runner, RunnerPhase.RETIRED, transition.now + RETIRE_LIMIT_S, task=None)
    transition.do(actions.CloseRunner(runner.id))


def peek(transition: WorkerTransition, runner: RunnerState, cause: EndCause) -> None:
    """Its task has to end: first look whether it has."""
    if runner.task is not None:  # else it is dying, and its task went elsewhere
        transition.move(runner, RunnerPhase.PEEKED, cause=cause)
        transition.do(actions.ReadResult(runner.id, runner.task.token))


def kill(
    transition: WorkerTransition, runner: RunnerState, cause: EndCause, **changes: Any
) -> None:
    changes.setdefault("cause", cause)
    transition.move(runner, RunnerPhase.KILLED, transition.now + KILL_LIMIT_S, **changes)
    transition.do(actions.KillRunner(runner.id))


def time_is_up(transition: WorkerTransition, runner: RunnerState) -> None:
    """The moment that a runner's phase waited for has come."""
    if runner.phase is RunnerPhase.BUSY:
        peek(transition, runner, EndCause.TIMEOUT)
    elif runner.phase is RunnerPhase.TERMED:
        kill(transition, runner, runner.cause or EndCause.TIMEOUT)
    elif runner.phase is RunnerPhase.RETIRED:
        kill(transition, runner, EndCause.SURPLUS)
    elif runner.phase is RunnerPhase.IDLE:
        retire(transition, runner)
    elif runner.phase is RunnerPhase.KILLED:
        text = f"runner {runner.id} was killed {KILL_LIMIT_S:g} s ago and is not gone"
        transition.do(actions.WriteLog("error", "worker.error", {"error": text}))
        _conclude(transition, runner, status=9, usage={}, stack="")
        transition.move(runner, RunnerPhase.STUCK, task=None, outcome=None)


def silent(transition: WorkerTransition, event: events.NoResultYet) -> None:
    """No outcome came in time: ask the runner to end."""
    state = transition.state
    runner = state.runners.get(event.id)
    if runner is None or runner.phase is not RunnerPhase.PEEKED or runner.task is None:
        return
    if runner.task.token == event.token:
        transition.move(runner, RunnerPhase.TERMED, transition.now + state.options.kill_grace_s)
        transition.do(actions.TerminateRunner(runner.id))


def spoilt(transition: WorkerTransition, event: events.BadFrameReceived) -> None:
    """Garbage: the runner is killed; what counted before stays."""
    runner = transition.state.runners.get(event.id)
    if runner is None or RunnerPhase.KILLED not in _next(runner):
        return
    if runner.phase is RunnerPhase.TERMED:
        kill(transition, runner, runner.cause or EndCause.GARBAGE)
        return
    if runner.task is None:
        text = f"{event.code} an idle runner sent {event.text}"
        transition.do(
            actions.WriteLog("warning", "worker.error", {"error": text, "code": event.code})
        )
    kill(transition, runner, EndCause.GARBAGE, code=event.code, detail=event.text)


def undelivered(transition: WorkerTransition, event: events.Undelivered) -> None:
    """Its handler never began, so the task may go to another runner."""
    state = transition.state
    runner = state.runners.get(event.id)
    if runner is None or runner.task is None or runner.task.token != event.token:
        return
    if runner.phase not in (RunnerPhase.BUSY, RunnerPhase.PEEKED):
        return
    state.runners[runner.id] = runner._replace(task=None, due_at=NEVER)
    if state.mode is WorkerMode.WORKING and runner.cause is None:
        state.held.insert(0, UnassignedTask(runner.task, transition.now))
    else:
        transition.release(runner.task, "the worker stops")


def _next(runner: RunnerState) -> set[RunnerPhase]:
    return MOVES[runner.phase]


def forget(transition: WorkerTransition, runner: RunnerState) -> None:
    """There is no such process, and there was none."""
    transition.move(runner, RunnerPhase.ENDED)
    del transition.state.runners[runner.id]


def ended(transition: WorkerTransition, event: events.RunnerEnded) -> None:
    state = transition.state
    runner = state.runners.get(event.id)
    if runner is not None:
        if runner.phase is RunnerPhase.STARTING and runner.cause is None:
            _died_unready(transition)
        transition.move(runner, RunnerPhase.ENDED)
    if not state.zygote_end:
        state.zygote[f"reap {event.id}"] = transition.now
        transition.by(transition.now + ZYGOTE_LIMIT_S)
    transition.do(actions.ReapRunner(event.id))


def _died_unready(transition: WorkerTransition) -> None:
    """Its task is released, not failed; three in a row are a bug of ours or of the module."""
    state = transition.state
    state.unready_deaths += 1
    transition.do(
        actions.WriteLog("warning", "worker.error", {"error": "a runner ended before it was ready"})
    )
    if len(state.held) >= state.starting:
        transition.release(state.held[-1].task, "its runner ended before it was ready")
        state.held = state.held[:-1]
    if state.unready_deaths >= MOST_UNREADY_DEATHS and state.mode is WorkerMode.WORKING:
        text = f"{MOST_UNREADY_DEATHS} runners in a row ended before they were ready"
        state.exit_code, state.why, state.failure = 70, text, ("E402", text)
        begin_to_end(transition)
        state.mode = WorkerMode.DRAINING


def reaped(transition: WorkerTransition, event: events.Reaped) -> None:
    """It is gone, and now its task is reported."""
    state = transition.state
    state.zygote.pop(f"reap {event.id}", None)
    runner = state.runners.get(event.id)
    if runner is None or runner.phase is not RunnerPhase.ENDED:
        return
    usage = {"cpu_s": round(event.cpu_s, 6), "peak_kb": event.peak_kb}
    _conclude(transition, runner, event.status, usage, event.stack)
    del state.runners[event.id]


def _conclude(
    transition: WorkerTransition,
    runner: RunnerState,
    status: int,
    usage: dict[str, Any],
    stack: str,
) -> None:
    """Make the one report of a task whose runner is gone."""
    task, cause = runner.task, runner.cause

    def report(ending: TaskReport) -> None:
        transition.report(replace(ending, took_s=round(transition.now - runner.sent_at, 6)))

    if runner.outcome is not None:
        transition.report(runner.outcome)
    elif task is None:
        return
    elif cause is EndCause.TIMEOUT:
        report(failure_text.timed_out(task, status, usage, stack))
    elif cause is EndCause.CANCELLED:
        report(failure_text.cancelled(task, status, usage, stack))
    elif cause is EndCause.STOP:
        transition.release(task, "the worker stops")
    elif cause is EndCause.LOST:
        lost(transition, task, "somebody else has the task now; its runner was killed")
    elif cause is EndCause.GARBAGE:
        report(failure_text.spoilt(task, runner.code, runner.detail, status, usage))
    else:
        end = transition.state.zygote_end
        because = f"its zygote ended ({end}), and it with it" if end else ""
        report(failure_text.crashed(task, status, usage, stack, because))


def judged(transition: WorkerTransition, token: int, verdict: str) -> None:
    """A beat's verdict on a lease: go on, or end what it stands for."""
    state = transition.state
    if verdict == "ok":
        return
    for runner in list(state.runners.values()):
        if runner.phase is RunnerPhase.BUSY and runner.task and runner.task.token == token:
            peek(transition, runner, EndCause.LOST if verdict == "lost" else EndCause.CANCELLED)
            return
    for held in state.held:
        if held.task.token == token:
            state.held.remove(held)
            if verdict == "lost":
                lost(transition, held.task, "somebody else has the task now; it had not begun")
            else:
                transition.release(held.task, "its run has ended")
            return


def lost(transition: WorkerTransition, task: Task, text: str) -> None:
    fields = {**about(task), "code": "E407", "error": text}
    transition.do(actions.WriteLog("warning", "worker.error", fields))


def about(task: Task) -> dict[str, Any]:
    """The fields by which a log record names a task."""
    return {
        "run": task.run_id,
        "step": task.step,
        "task": f"{task.step}#{task.task_index}",
        "attempt": task.attempt,
    }
