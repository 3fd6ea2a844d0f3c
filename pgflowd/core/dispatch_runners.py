"""
Dispatch, runners: what becomes of runners and of the tasks in them.

A runner whose time is over is peeked at (an outcome in its socket wins), asked to end, killed
with its tree, reaped, and then reported: runners.md, section 6. Part of `core.dispatch`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pgflowd.core import endings
from pgflowd.core import happenings as on
from pgflowd.core.mind import (
    MOVES,
    NEVER,
    Cause,
    Held,
    Mode,
    Phase,
    Report,
    Runner,
    Task,
    Thought,
)

RETIRE_LIMIT_S = 1.0  # a retired runner that has not ended is killed
KILL_LIMIT_S = 10.0  # a killed one that has not ended is reported all the same
MOST_UNREADY_DEATHS = 3
CHILDREN = "child processes"  # what a task left behind, if its runner has to be killed for it
UNKNOWN_STEP_PAUSE_S = 30.0  # so that newer code may take the task
HELD_LIMIT_S = 1.0  # a task claimed ahead waits no longer
AHEAD_S = 0.02
PACE_WEIGHT = 0.2


def hand_out(thought: Thought) -> None:
    """Give waiting tasks to idle runners, and start runners for the others."""
    mind = thought.mind
    if mind.mode is not Mode.WORKING:
        return
    while mind.held and mind.idle:
        held, *rest = mind.held
        mind.held = tuple(rest)
        send(thought, mind.runners[mind.idle[-1]], held.task)
    if not mind.held or thought.now < mind.fork_from or mind.zygote_end:
        return
    wanted = min(len(mind.held) - mind.starting, mind.knobs.max_concurrency - len(mind.runners))
    for _ in range(wanted):
        mind.forked += 1
        mind.starting += 1
        mind.runners[mind.forked] = Runner(mind.forked)
        mind.zygote[f"fork {mind.forked}"] = thought.now
        thought.by(thought.now + 5.0)
        thought.do(on.Fork(mind.forked))


def send(thought: Thought, runner: Runner, task: Task) -> None:
    """Give an idle runner a task; its deadline counts from now."""
    now = thought.now
    thought.move(runner, Phase.BUSY, now + task.timeout_s, task=task, sent_at=now)
    thought.do(on.Send(runner.id, task))
    if thought.mind.knobs.tells_all:
        thought.do(on.Say("debug", "task.started", about(task)))


def room(thought: Thought) -> int:
    """How many tasks more may be claimed."""
    mind, knobs = thought.mind, thought.mind.knobs
    if mind.mode is not Mode.WORKING:
        return 0
    free = knobs.max_concurrency - mind.occupied
    if thought.now < mind.fork_from:
        free = len(mind.idle) + mind.starting
    ahead = 0
    if mind.pace_s < AHEAD_S and free + mind.running:
        ahead = int(knobs.max_concurrency * AHEAD_S / max(mind.pace_s, 1e-5))
    return max(0, min(knobs.batch_size, free + ahead) - len(mind.held))


def begin_to_end(thought: Thought) -> None:
    """Give back what waits, tell handlers that the daemon drains, let idle runners go."""
    mind = thought.mind
    for held in mind.held:
        thought.release(held.task, "the worker stops")
    mind.held = ()
    for runner in list(mind.runners.values()):
        if runner.phase is Phase.BUSY:
            thought.do(on.TellStopping(runner.id))


def close_idle(thought: Thought) -> None:
    for runner_id in thought.mind.idle:
        retire(thought, thought.mind.runners[runner_id])


def retire(thought: Thought, runner: Runner) -> None:
    thought.move(runner, Phase.RETIRED, thought.now + RETIRE_LIMIT_S, task=None)
    thought.do(on.Close(runner.id))


def peek(thought: Thought, runner: Runner, cause: Cause) -> None:
    """Its task has to end: first look whether it has."""
    if runner.task is not None:  # else it is dying, and its task went elsewhere
        thought.move(runner, Phase.PEEKED, cause=cause)
        thought.do(on.Peek(runner.id, runner.task.token))


def kill(thought: Thought, runner: Runner, cause: Cause, **changes: Any) -> None:
    changes.setdefault("cause", cause)
    thought.move(runner, Phase.KILLED, thought.now + KILL_LIMIT_S, **changes)
    thought.do(on.Kill(runner.id))


def time_is_up(thought: Thought, runner: Runner) -> None:
    """The moment that a runner's phase waited for has come."""
    if runner.phase is Phase.BUSY:
        peek(thought, runner, Cause.TIMEOUT)
    elif runner.phase is Phase.TERMED:
        kill(thought, runner, runner.cause or Cause.TIMEOUT)
    elif runner.phase is Phase.RETIRED:
        kill(thought, runner, Cause.SURPLUS)
    elif runner.phase is Phase.IDLE:
        retire(thought, runner)
    elif runner.phase is Phase.KILLED:
        text = f"runner {runner.id} was killed {KILL_LIMIT_S:g} s ago and is not gone"
        thought.do(on.Say("error", "worker.error", {"error": text}))
        _conclude(thought, runner, status=9, usage={}, stack="")
        thought.move(runner, Phase.STUCK, task=None, outcome=None)


def ready(thought: Thought, event: on.RunnerReady) -> None:
    mind = thought.mind
    mind.unready_deaths = 0
    runner = mind.runners.get(event.id)
    if runner and runner.phase is Phase.STARTING:
        thought.move(runner, Phase.IDLE, thought.now + mind.knobs.runner_idle_s)


def done(thought: Thought, event: on.Done) -> None:
    """A whole outcome: it counts, unless the task was settled before."""
    mind = thought.mind
    runner = mind.runners.get(event.id)
    if runner is None or runner.task is None or runner.task.token != event.report.task.token:
        return
    if runner.phase is Phase.TERMED:
        kill(thought, runner, runner.cause or Cause.TIMEOUT)
        return
    if runner.phase not in (Phase.BUSY, Phase.PEEKED):
        return
    took_s = thought.now - runner.sent_at
    mind.pace_s += PACE_WEIGHT * (took_s - mind.pace_s)
    if took_s > AHEAD_S:  # one long task says more than many short ones
        mind.pace_s = max(mind.pace_s, took_s)
    if CHILDREN in event.left:
        _warn_of_children(thought, runner)
        kill(thought, runner, Cause.OUTLIVED, task=None, outcome=event.report)
        return
    thought.report(event.report)
    _after_a_task(thought, replace(runner, ran=runner.ran + 1), bool(event.left))


def _after_a_task(thought: Thought, runner: Runner, has_left: bool) -> None:
    knobs = thought.mind.knobs
    thought.mind.runners[runner.id] = runner
    if has_left or not knobs.reuses or runner.ran >= knobs.max_tasks_per_runner:
        retire(thought, runner)
    else:
        due_at = thought.now + knobs.runner_idle_s
        thought.move(runner, Phase.IDLE, due_at, task=None, cause=None)


def _warn_of_children(thought: Thought, runner: Runner) -> None:
    assert runner.task is not None
    text = "the task left child processes behind; they are killed with its runner"
    thought.do(on.Say("warning", "worker.error", {**about(runner.task), "error": text}))


def asked(thought: Thought, event: on.Asked) -> None:
    thought.mind.asks = (*thought.mind.asks, (event.id, event.token, event.what, event.step))


def silent(thought: Thought, event: on.Silent) -> None:
    """No outcome came in time: ask the runner to end."""
    mind = thought.mind
    runner = mind.runners.get(event.id)
    if runner is None or runner.phase is not Phase.PEEKED or runner.task is None:
        return
    if runner.task.token == event.token:
        thought.move(runner, Phase.TERMED, thought.now + mind.knobs.kill_grace_s)
        thought.do(on.Term(runner.id))


def spoilt(thought: Thought, event: on.Spoilt) -> None:
    """Garbage: the runner is killed; what counted before stays."""
    runner = thought.mind.runners.get(event.id)
    if runner is None or Phase.KILLED not in _next(runner):
        return
    if runner.phase is Phase.TERMED:
        kill(thought, runner, runner.cause or Cause.GARBAGE)
        return
    if runner.task is None:
        text = f"{event.code} an idle runner sent {event.text}"
        thought.do(on.Say("warning", "worker.error", {"error": text, "code": event.code}))
    kill(thought, runner, Cause.GARBAGE, code=event.code, detail=event.text)


def undelivered(thought: Thought, event: on.Undelivered) -> None:
    """Its handler never began, so the task may go to another runner."""
    mind = thought.mind
    runner = mind.runners.get(event.id)
    if runner is None or runner.task is None or runner.task.token != event.token:
        return
    if runner.phase not in (Phase.BUSY, Phase.PEEKED):
        return
    mind.runners[runner.id] = replace(runner, task=None, due_at=NEVER)
    if mind.mode is Mode.WORKING and runner.cause is None:
        mind.held = (Held(runner.task, thought.now), *mind.held)
    else:
        thought.release(runner.task, "the worker stops")


def _next(runner: Runner) -> set[Phase]:
    return MOVES[runner.phase]


def forget(thought: Thought, runner: Runner) -> None:
    """There is no such process, and there was none."""
    thought.move(runner, Phase.ENDED)
    del thought.mind.runners[runner.id]


def ended(thought: Thought, event: on.RunnerEnded) -> None:
    mind = thought.mind
    runner = mind.runners.get(event.id)
    if runner is not None:
        if runner.phase is Phase.STARTING and runner.cause is None:
            _died_unready(thought)
        thought.move(runner, Phase.ENDED)
    if not mind.zygote_end:
        mind.zygote[f"reap {event.id}"] = thought.now
        thought.by(thought.now + 5.0)
    thought.do(on.Reap(event.id))


def _died_unready(thought: Thought) -> None:
    """Its task is released, not failed; three in a row are a bug of ours or of the module."""
    mind = thought.mind
    mind.unready_deaths += 1
    thought.do(on.Say("warning", "worker.error", {"error": "a runner ended before it was ready"}))
    if len(mind.held) >= mind.starting:
        thought.release(mind.held[-1].task, "its runner ended before it was ready")
        mind.held = mind.held[:-1]
    if mind.unready_deaths >= MOST_UNREADY_DEATHS and mind.mode is Mode.WORKING:
        text = f"{MOST_UNREADY_DEATHS} runners in a row ended before they were ready"
        mind.exit_code, mind.why, mind.failure = 70, text, ("E402", text)
        begin_to_end(thought)
        mind.mode = Mode.DRAINING


def reaped(thought: Thought, event: on.Reaped) -> None:
    """It is gone, and now its task is reported."""
    mind = thought.mind
    mind.zygote.pop(f"reap {event.id}", None)
    runner = mind.runners.get(event.id)
    if runner is None or runner.phase is not Phase.ENDED:
        return
    usage = {"cpu_s": round(event.cpu_s, 6), "peak_kb": event.peak_kb}
    _conclude(thought, runner, event.status, usage, event.stack)
    del mind.runners[event.id]


def _conclude(
    thought: Thought, runner: Runner, status: int, usage: dict[str, Any], stack: str
) -> None:
    """Make the one report of a task whose runner is gone."""
    task, cause = runner.task, runner.cause
    if runner.outcome is not None:
        thought.report(runner.outcome)
    elif task is None:
        return
    elif cause is Cause.TIMEOUT:
        thought.report(endings.timed_out(task, status, usage, stack))
    elif cause is Cause.CANCELLED:
        thought.report(endings.cancelled(task, status, usage, stack))
    elif cause is Cause.STOP:
        thought.release(task, "the worker stops")
    elif cause is Cause.LOST:
        lost(thought, task, "somebody else has the task now; its runner was killed")
    elif cause is Cause.GARBAGE:
        thought.report(endings.spoilt(task, runner.code, runner.detail, status, usage))
    else:
        end = thought.mind.zygote_end
        because = f"its zygote ended ({end}), and it with it" if end else ""
        thought.report(endings.crashed(task, status, usage, stack, because))


def lost(thought: Thought, task: Task, text: str) -> None:
    fields = {**about(task), "code": "E407", "error": text}
    thought.do(on.Say("warning", "worker.error", fields))


def judged(thought: Thought, token: int, verdict: str) -> None:
    """A beat's verdict on a lease: go on, or end what it stands for."""
    mind = thought.mind
    if verdict == "ok":
        return
    for runner in list(mind.runners.values()):
        if runner.phase is Phase.BUSY and runner.task and runner.task.token == token:
            peek(thought, runner, Cause.LOST if verdict == "lost" else Cause.CANCELLED)
            return
    for held in mind.held:
        if held.task.token == token:
            mind.held = tuple(each for each in mind.held if each is not held)
            if verdict == "lost":
                lost(thought, held.task, "somebody else has the task now; it had not begun")
            else:
                thought.release(held.task, "its run has ended")
            return


def hold(thought: Thought, tasks: tuple[Task, ...]) -> None:
    """Take claimed tasks; those of unknown steps go back for newer code (E406)."""
    mind = thought.mind
    for task in tasks:
        if mind.mode is not Mode.WORKING:
            thought.release(task, "the worker stops")
        elif task.step in mind.knobs.steps:
            mind.held = (*mind.held, Held(task, thought.now))
            thought.by(thought.now + HELD_LIMIT_S)
        else:
            text = f"the code has no step {task.step}; the task is given back for 30 s"
            fields = {**about(task), "code": "E406", "error": text}
            thought.do(on.Say("warning", "worker.error", fields))
            thought.release(task, f"E406 {text}", UNKNOWN_STEP_PAUSE_S)


def about(task: Task) -> dict[str, Any]:
    """The fields by which a log record names a task."""
    return {
        "run": task.run_id,
        "step": task.step,
        "task": f"{task.step}#{task.index}",
        "attempt": task.attempt,
    }


def outcome_record(report: Report, verdict: str) -> on.Say:
    """The log record of an outcome that the database took."""
    outcome, error = report.outcome, report.fields.get("error_message")
    fields = {**about(report.task), "verdict": verdict, "code": _CODES.get(outcome)}
    if outcome in ("failed", "timed_out", "crashed"):
        then = "it will be retried" if verdict == "queued" else "it is not retried"
        which = f"attempt {report.task.attempt} of {report.task.max_attempts}"
        error = f"{error} ({which}); {then}"
    level = "debug" if outcome == "completed" else "warning" if verdict == "failed" else "info"
    return on.Say(level, f"task.{outcome}", {**fields, "error": error})


_CODES = {"timed_out": "E401", "crashed": "E402"}
