"""
Dispatch, runners: which tasks are taken, which runner gets them, and what its outcome changes.

A worker holds no more tasks than its runners will take up at once or, of very short ones,
within 20 ms. How runners end is written in `dispatch_ends`. Part of `core.dispatch`.
"""

from __future__ import annotations

from dataclasses import replace

from pgflowd.core import dispatch_ends as ends
from pgflowd.core import happenings as on
from pgflowd.core import payloads
from pgflowd.core.mind import Cause, Held, Mode, Phase, Report, Runner, Task
from pgflowd.core.thought import Thought

CHILDREN = "child processes"  # what a task left behind, if its runner has to be killed for it
UNKNOWN_STEP_PAUSE_S = 30.0  # so that newer code may take the task
OLDER_PAUSE_S = 1.0  # beyond its grace, for the killing of an older attempt
HELD_LIMIT_S = 1.0  # a task claimed ahead waits no longer
AHEAD_S = 0.02
STOCK = 4  # a fourth of what they take up within that time
PACE_WEIGHT = 0.2
STEADY_WEIGHT = 0.05  # once tasks are short: the next few say little, a turn's end slows them
NO_ARRAY = "the output is no array, and a map waits for one"


def hand_out(thought: Thought) -> None:
    """Give waiting tasks to idle runners, and start runners for the others."""
    mind = thought.mind
    if mind.mode is not Mode.WORKING:
        return
    count = min(len(mind.held), len(mind.idle))
    for held in mind.held[:count]:
        send(thought, mind.runners[mind.idle[-1]], held.task)
    del mind.held[:count]
    if not mind.held or thought.now < mind.fork_from or mind.zygote_end:
        return
    wanted = min(len(mind.held) - mind.starting, mind.knobs.max_concurrency - len(mind.runners))
    for _ in range(wanted):
        mind.forked += 1
        mind.starting += 1
        mind.runners[mind.forked] = Runner(mind.forked)
        mind.zygote[f"fork {mind.forked}"] = thought.now
        thought.by(thought.now + ends.ZYGOTE_LIMIT_S)
        thought.do(on.Fork(mind.forked))


def send(thought: Thought, runner: Runner, task: Task) -> None:
    """Give an idle runner a task; its deadline counts from now."""
    now = thought.now
    thought.move(runner, Phase.BUSY, now + task.timeout_s, task=task, sent_at=now)
    thought.do(on.Send(runner.id, task))
    if thought.mind.knobs.tells_all:
        event = "task.started" if task.attempt == 1 else "task.retried"
        given = {"input": payloads.of_input(task)} if thought.mind.knobs.payloads else {}
        thought.do(on.Say("debug", event, {**ends.about(task), **given}))


def room(thought: Thought) -> int:
    """How many tasks more may be claimed."""
    mind = thought.mind
    if mind.mode is not Mode.WORKING:
        return 0
    return max(0, min(mind.knobs.batch_size, _capacity(thought) - len(mind.held)))


def is_stocked(thought: Thought) -> bool:
    """Whether all runners have enough to do until the next report, which takes a claim along."""
    mind, held = thought.mind, len(thought.mind.held)
    if not held or not mind.running or held < mind.knobs.max_concurrency - mind.occupied:
        return False
    return STOCK * held > _capacity(thought)


def _capacity(thought: Thought) -> int:
    """How many tasks may wait for a runner."""
    mind, knobs = thought.mind, thought.mind.knobs
    free = knobs.max_concurrency - mind.occupied
    if thought.now < mind.fork_from:
        free = len(mind.idle) + mind.starting
    ahead = 0
    if mind.pace_s < AHEAD_S and free + mind.running:
        ahead = int(knobs.max_concurrency * AHEAD_S / max(mind.pace_s, 1e-5))
    return free + ahead


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
        ends.kill(thought, runner, runner.cause or Cause.TIMEOUT)
        return
    if runner.phase not in (Phase.BUSY, Phase.PEEKED):
        return
    took_s = thought.now - runner.sent_at
    weight = PACE_WEIGHT if mind.pace_s > AHEAD_S / 4 else STEADY_WEIGHT
    mind.pace_s += weight * (took_s - mind.pace_s)
    if took_s > AHEAD_S:  # one long task says more than many short ones
        mind.pace_s = max(mind.pace_s, took_s)
    report = event.report
    if report.outcome != "completed" or mind.knobs.tells_all:
        report = replace(report, took_s=round(took_s, 6))
    if children := next((left for left in event.left if left.startswith(CHILDREN)), ""):
        _warn_of_children(thought, runner, children[:100])
        ends.kill(thought, runner, Cause.OUTLIVED, task=None, outcome=report)
        return
    thought.report(report)
    _after_a_task(thought, runner, bool(event.left))


def _after_a_task(thought: Thought, runner: Runner, has_left: bool) -> None:
    knobs, ran = thought.mind.knobs, runner.ran + 1
    if has_left or not knobs.reuses or ran >= knobs.max_tasks_per_runner:
        ends.retire(thought, runner)
    else:
        due_at = thought.now + knobs.runner_idle_s
        thought.move(runner, Phase.IDLE, due_at, task=None, cause=None, ran=ran)


def _warn_of_children(thought: Thought, runner: Runner, children: str) -> None:
    assert runner.task is not None
    text = f"the task left {children} behind; they are killed with its runner"
    thought.do(on.Say("warning", "worker.error", {**ends.about(runner.task), "error": text}))


def asked(thought: Thought, event: on.Asked) -> None:
    thought.mind.asks = (*thought.mind.asks, (event.id, event.token, event.what, event.step))


def hold(thought: Thought, tasks: tuple[Task, ...]) -> None:
    """
    Take claimed tasks; those of unknown steps go back for newer code (E406).

    One that still runs here, its lease having lapsed in a stall, goes back until that is killed.
    """
    mind = thought.mind
    again = {_which(task) for task in tasks}
    for held in [held for held in mind.held if _which(held.task) in again]:
        mind.held.remove(held)
        ends.lost(thought, held.task, "its lease lapsed before it had begun")
    running = {_which(runner.task): runner for runner in mind.runners.values() if runner.task}
    for task in tasks:
        if mind.mode is not Mode.WORKING:
            thought.release(task, "the worker stops")
        elif older := running.get(_which(task)):
            if older.phase is Phase.BUSY:
                ends.peek(thought, older, Cause.LOST)
            pause_s = mind.knobs.kill_grace_s + OLDER_PAUSE_S
            thought.release(task, "an older attempt of it still runs here", pause_s)
        elif task.step in mind.knobs.steps:
            mind.held.append(Held(task, thought.now))
            thought.by(thought.now + HELD_LIMIT_S)
        else:
            text = f"the code has no step {task.step}; the task is given back for 30 s"
            fields = {**ends.about(task), "code": "E406", "error": text}
            thought.do(on.Say("warning", "worker.error", fields))
            thought.release(task, f"E406 {text}", UNKNOWN_STEP_PAUSE_S)


def _which(task: Task) -> tuple[str, str, int]:
    return task.run_id, task.step, task.task_index


def is_refused(report: Report, verdict: str) -> bool:
    """Whether a map waits for this output, which is no array; then its run has failed."""
    return report.outcome == "completed" and verdict == "failed"


def outcome_record(report: Report, verdict: str, with_payloads: bool = False) -> on.Say:
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
    return on.Say(level, f"task.{outcome}", {**fields, "error": error})


_CODES = {"timed_out": "E401", "crashed": "E402"}
