"""
Dispatch, runners: which tasks are taken, which runner gets them, and what its outcome changes.

A worker holds no more tasks than its runners will take up at once or, of very short ones,
within 20 ms. How runners end is written in `dispatch_ends`. Part of `core.worker.decide`.
"""

from __future__ import annotations

from dataclasses import replace

from pgflowd.core.worker import actions, events, payloads
from pgflowd.core.worker import runner_ends as ends
from pgflowd.core.worker.state import (
    EndCause,
    RunnerPhase,
    RunnerState,
    Task,
    TaskReport,
    UnassignedTask,
    WorkerMode,
)
from pgflowd.core.worker.transition import WorkerTransition

CHILDREN = "child processes"  # what a task left behind, if its runner has to be killed for it
UNKNOWN_STEP_PAUSE_S = 30.0  # so that newer code may take the task
OLDER_PAUSE_S = 1.0  # beyond its grace, for the killing of an older attempt
HELD_LIMIT_S = 1.0  # a task claimed ahead waits no longer
AHEAD_S = 0.02
STOCK = 4  # a fourth of what they take up within that time
PACE_WEIGHT = 0.2
STEADY_WEIGHT = 0.05  # once tasks are short: the next few say little, a turn's end slows them
NO_ARRAY = "the output is no array, and a map waits for one"


def hand_out(transition: WorkerTransition) -> None:
    """Give waiting tasks to idle runners, and start runners for the others."""
    state = transition.state
    if state.mode is not WorkerMode.WORKING:
        return
    count = min(len(state.held), len(state.idle))
    for held in state.held[:count]:
        send(transition, state.runners[state.idle[-1]], held.task)
    del state.held[:count]
    if not state.held or transition.now < state.fork_from or state.zygote_end:
        return
    wanted = min(
        len(state.held) - state.starting, state.options.max_concurrency - len(state.runners)
    )
    for _ in range(wanted):
        state.forked += 1
        state.starting += 1
        state.runners[state.forked] = RunnerState(state.forked)
        state.zygote[f"fork {state.forked}"] = transition.now
        transition.by(transition.now + ends.ZYGOTE_LIMIT_S)
        transition.do(actions.ForkRunner(state.forked))


def send(transition: WorkerTransition, runner: RunnerState, task: Task) -> None:
    """Give an idle runner a task; its deadline counts from now."""
    now = transition.now
    transition.move(runner, RunnerPhase.BUSY, now + task.timeout_s, task=task, sent_at=now)
    transition.do(actions.SendTask(runner.id, task))
    if transition.state.options.tells_all:
        event = "task.started" if task.attempt == 1 else "task.retried"
        given = {"input": payloads.of_input(task)} if transition.state.options.payloads else {}
        transition.do(actions.WriteLog("debug", event, {**ends.about(task), **given}))


def room(transition: WorkerTransition) -> int:
    """How many tasks more may be claimed."""
    state = transition.state
    if state.mode is not WorkerMode.WORKING:
        return 0
    return max(0, min(state.options.batch_size, _capacity(transition) - len(state.held)))


def is_stocked(transition: WorkerTransition) -> bool:
    """Whether all runners have enough to do until the next report, which takes a claim along."""
    state, held = transition.state, len(transition.state.held)
    if not held or not state.running or held < state.options.max_concurrency - state.occupied:
        return False
    return STOCK * held > _capacity(transition)


def _capacity(transition: WorkerTransition) -> int:
    """How many tasks may wait for a runner."""
    state, options = transition.state, transition.state.options
    free = options.max_concurrency - state.occupied
    if transition.now < state.fork_from:
        free = len(state.idle) + state.starting
    ahead = 0
    if state.pace_s < AHEAD_S and free + state.running:
        ahead = int(options.max_concurrency * AHEAD_S / max(state.pace_s, 1e-5))
    return free + ahead


def ready(transition: WorkerTransition, event: events.RunnerReady) -> None:
    state = transition.state
    state.unready_deaths = 0
    runner = state.runners.get(event.id)
    if runner and runner.phase is RunnerPhase.STARTING:
        transition.move(runner, RunnerPhase.IDLE, transition.now + state.options.runner_idle_s)


def done(transition: WorkerTransition, event: events.Done) -> None:
    """A whole outcome: it counts, unless the task was settled before."""
    state = transition.state
    runner = state.runners.get(event.id)
    if runner is None or runner.task is None or runner.task.token != event.report.task.token:
        return
    if runner.phase is RunnerPhase.TERMED:
        ends.kill(transition, runner, runner.cause or EndCause.TIMEOUT)
        return
    if runner.phase not in (RunnerPhase.BUSY, RunnerPhase.PEEKED):
        return
    took_s = transition.now - runner.sent_at
    weight = PACE_WEIGHT if state.pace_s > AHEAD_S / 4 else STEADY_WEIGHT
    state.pace_s += weight * (took_s - state.pace_s)
    if took_s > AHEAD_S:  # one long task says more than many short ones
        state.pace_s = max(state.pace_s, took_s)
    report = event.report
    if report.outcome != "completed" or state.options.tells_all:
        report = replace(report, took_s=round(took_s, 6))
    if children := next((left for left in event.left if left.startswith(CHILDREN)), ""):
        _warn_of_children(transition, runner, children[:100])
        ends.kill(transition, runner, EndCause.OUTLIVED, task=None, outcome=report)
        return
    transition.report(report)
    _after_a_task(transition, runner, bool(event.left))


def _after_a_task(transition: WorkerTransition, runner: RunnerState, has_left: bool) -> None:
    options, ran = transition.state.options, runner.ran + 1
    if has_left or not options.reuses or ran >= options.max_tasks_per_runner:
        ends.retire(transition, runner)
    else:
        due_at = transition.now + options.runner_idle_s
        transition.move(runner, RunnerPhase.IDLE, due_at, task=None, cause=None, ran=ran)


def _warn_of_children(transition: WorkerTransition, runner: RunnerState, children: str) -> None:
    assert runner.task is not None
    text = f"the task left {children} behind; they are killed with its runner"
    transition.do(
        actions.WriteLog("warning", "worker.error", {**ends.about(runner.task), "error": text})
    )


def asked(transition: WorkerTransition, event: events.HandlerAsked) -> None:
    transition.state.asks = (
        *transition.state.asks,
        (event.id, event.token, event.what, event.step),
    )


def hold(transition: WorkerTransition, tasks: tuple[Task, ...]) -> None:
    """
    Take claimed tasks; those of unknown steps go back for newer code (E406).

    One that still runs here, its lease having lapsed in a stall, goes back until that is killed.
    """
    state = transition.state
    again = {_which(task) for task in tasks}
    for held in [held for held in state.held if _which(held.task) in again]:
        state.held.remove(held)
        ends.lost(transition, held.task, "its lease lapsed before it had begun")
    running = {_which(runner.task): runner for runner in state.runners.values() if runner.task}
    for task in tasks:
        if state.mode is not WorkerMode.WORKING:
            transition.release(task, "the worker stops")
        elif older := running.get(_which(task)):
            if older.phase is RunnerPhase.BUSY:
                ends.peek(transition, older, EndCause.LOST)
            pause_s = state.options.kill_grace_s + OLDER_PAUSE_S
            transition.release(task, "an older attempt of it still runs here", pause_s)
        elif task.step in state.options.steps:
            state.held.append(UnassignedTask(task, transition.now))
            transition.by(transition.now + HELD_LIMIT_S)
        else:
            text = f"the code has no step {task.step}; the task is given back for 30 s"
            fields = {**ends.about(task), "code": "E406", "error": text}
            transition.do(actions.WriteLog("warning", "worker.error", fields))
            transition.release(task, f"E406 {text}", UNKNOWN_STEP_PAUSE_S)


def _which(task: Task) -> tuple[str, str, int]:
    return task.run_id, task.step, task.task_index


def is_refused(report: TaskReport, verdict: str) -> bool:
    """Whether a map waits for this output, which is no array; then its run has failed."""
    return report.outcome == "completed" and verdict == "failed"


def outcome_record(
    report: TaskReport, verdict: str, with_payloads: bool = False
) -> actions.WriteLog:
    """The log record of an outcome that the database took."""
    outcome, error = report.outcome, report.fields.get("error_message")
    code = _CODES.get(outcome)
    if is_refused(report, verdict):
        outcome, error, code = "failed", NO_ARRAY, "E416"
    known = {"verdict": verdict, "code": code, "took_s": report.took_s}
    fields = {**ends.about(report.task), **known}
    if outcome in ("failed", "timed_out", "crashed"):
        then = "it will be retried" if verdict == "queued" else "it is not retried"
        which = f"attempt {report.task.attempt} of {report.task.max_attempts}"
        error = f"{error} ({which}); {then}"
    if with_payloads:
        fields["input"] = payloads.of_input(report.task)
        fields["output"] = payloads.shown(report.output)
    level = "debug" if outcome == "completed" else "warning" if verdict == "failed" else "info"
    return actions.WriteLog(level, f"task.{outcome}", {**fields, "error": error})


_CODES = {"timed_out": "E401", "crashed": "E402"}
