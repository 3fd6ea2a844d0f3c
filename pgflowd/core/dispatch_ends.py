"""
Dispatch, ends: how runners end, and what becomes of the tasks in them.

A runner whose time is over is peeked at (an outcome in its socket wins), asked to end, killed
with its tree, reaped, and only then reported: runners.md, section 6. Part of `core.dispatch`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pgflowd.core import endings
from pgflowd.core import happenings as on
from pgflowd.core.mind import MOVES, NEVER, Cause, Held, Mode, Phase, Report, Runner, Task
from pgflowd.core.thought import Thought

RETIRE_LIMIT_S = 1.0  # a retired runner that has not ended is killed
KILL_LIMIT_S = 10.0  # a killed one that has not ended is reported all the same
ZYGOTE_LIMIT_S = 5.0  # silent for so long, it is killed
MOST_UNREADY_DEATHS = 3


def begin_to_end(thought: Thought) -> None:
    """Give back what waits, tell handlers that the daemon drains, let idle runners go."""
    mind = thought.mind
    for held in mind.held:
        thought.release(held.task, "the worker stops")
    mind.held = []
    for runner in list(mind.runners.values()):
        if runner.phase is Phase.BUSY:
            thought.do(on.TellStopping(runner.id))


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
    mind.runners[runner.id] = runner._replace(task=None, due_at=NEVER)
    if mind.mode is Mode.WORKING and runner.cause is None:
        mind.held.insert(0, Held(runner.task, thought.now))
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
        thought.by(thought.now + ZYGOTE_LIMIT_S)
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

    def report(ending: Report) -> None:
        thought.report(replace(ending, took_s=round(thought.now - runner.sent_at, 6)))

    if runner.outcome is not None:
        thought.report(runner.outcome)
    elif task is None:
        return
    elif cause is Cause.TIMEOUT:
        report(endings.timed_out(task, status, usage, stack))
    elif cause is Cause.CANCELLED:
        report(endings.cancelled(task, status, usage, stack))
    elif cause is Cause.STOP:
        thought.release(task, "the worker stops")
    elif cause is Cause.LOST:
        lost(thought, task, "somebody else has the task now; its runner was killed")
    elif cause is Cause.GARBAGE:
        report(endings.spoilt(task, runner.code, runner.detail, status, usage))
    else:
        end = thought.mind.zygote_end
        because = f"its zygote ended ({end}), and it with it" if end else ""
        report(endings.crashed(task, status, usage, stack, because))


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
            mind.held.remove(held)
            if verdict == "lost":
                lost(thought, held.task, "somebody else has the task now; it had not begun")
            else:
                thought.release(held.task, "its run has ended")
            return


def lost(thought: Thought, task: Task, text: str) -> None:
    fields = {**about(task), "code": "E407", "error": text}
    thought.do(on.Say("warning", "worker.error", fields))


def about(task: Task) -> dict[str, Any]:
    """The fields by which a log record names a task."""
    return {
        "run": task.run_id,
        "step": task.step,
        "task": f"{task.step}#{task.task_index}",
        "attempt": task.attempt,
    }
