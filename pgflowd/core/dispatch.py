"""
Dispatch: decides what a worker does next.

    mind, actions = decide(mind, events, now)

It promises: never more than `max_concurrency` runners, and one task in each; every claimed task
gets one report or one release, or is dropped because its lease is lost; what was killed is
reported after it was reaped, never before; after a drain or a stop began nothing is claimed;
outcomes are reported in the order in which they came. Pure: no clock, no sockets, no chance.

What an event changes is written in `dispatch_runners`, `dispatch_ends`, `dispatch_calls` and
`dispatch_turns`; what time and room then make due, in `settle` here. See runners.md, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pgflowd.core import dispatch_calls as calls
from pgflowd.core import dispatch_ends as ends
from pgflowd.core import dispatch_runners as runners
from pgflowd.core import dispatch_turns as turns
from pgflowd.core import happenings as on
from pgflowd.core.mind import NEVER, Cause, LineState, Mind, Mode, Phase
from pgflowd.core.thought import Thought

STOP_EXTRA_S = 3.0  # beyond kill_grace: a quick stop ends whatever is unfinished
CRASH_LIMIT_S = 2.0  # to report what a dead zygote took along
GOODBYE_LIMIT_S = 2.0


def decide(mind: Mind, events: Iterable[Any], now: float) -> tuple[Mind, list[Any]]:
    """Return the mind after these events, and what to do, in this order."""
    thought = Thought(mind, now)
    for event in events:
        if thought.mind.mode is not Mode.LEFT:
            HANDLERS[type(event)](thought, event)
    if thought.mind.mode is not Mode.LEFT:
        settle(thought)
    return thought.mind, thought.actions


def settle(thought: Thought) -> None:
    """Do what has become due, and use what has become free."""
    mind = thought.mind
    if thought.now >= mind.alarm:
        mind.alarm = NEVER
        _keep_times(thought)
        if mind.mode is Mode.LEFT:
            mind.alarm = NEVER
            return
    if mind.mode is Mode.DRAINING or mind.mode is Mode.STOPPING:
        _finish(thought)
    runners.hand_out(thought)
    calls.use_lines(thought)


def _keep_times(thought: Thought) -> None:
    """Look at every deadline; those to come set the alarm."""
    mind = thought.mind
    for runner in list(mind.runners.values()):
        if thought.passed(runner.due_at):
            ends.time_is_up(thought, runner)
    if mind.zygote and not mind.zygote_end:
        oldest = next(iter(mind.zygote.values()))
        if thought.passed(oldest + ends.ZYGOTE_LIMIT_S):
            mind.zygote_end = f"it did not answer for {ends.ZYGOTE_LIMIT_S:g} s"
            thought.do(on.KillZygote())
    _give_back_what_waits(thought)
    if thought.passed(mind.stop_at):
        stop(thought, on.StopAsked())
    if thought.passed(mind.look_at):
        mind.look, mind.look_at = True, NEVER
        mind.is_fallback = mind.look_reason == "fallback"
        thought.do(on.LookedAround(mind.look_reason))
    calls.keep_times(thought)
    if thought.passed(mind.leave_at):
        _leave(thought)


def _give_back_what_waits(thought: Thought) -> None:
    """Release tasks that wait too long, but for those whose runner is being started."""
    mind = thought.mind
    since = thought.now - runners.HELD_LIMIT_S
    waiting = mind.held[mind.starting :]
    for held in [each for each in waiting if each.since <= since]:
        mind.held.remove(held)
        thought.release(held.task, "no runner was free in time")
    if times := [each.since for each in waiting if each.since > since]:
        thought.by(min(times) + runners.HELD_LIMIT_S)


def drain(thought: Thought, event: on.DrainAsked) -> None:
    """Claim nothing more, and finish what runs. A second order may shorten the first."""
    mind = thought.mind
    if mind.mode is Mode.WORKING:
        ends.begin_to_end(thought)
        mind.mode = Mode.DRAINING
    if event.within_s is not None:
        mind.stop_at = thought.by(min(mind.stop_at, thought.now + event.within_s))


def stop(thought: Thought, event: on.StopAsked) -> None:
    """End the runners too; what is unfinished is released."""
    mind = thought.mind
    mind.stop_at = NEVER
    if mind.mode not in (Mode.WORKING, Mode.DRAINING):
        return
    ends.begin_to_end(thought)
    mind.mode = Mode.STOPPING
    mind.leave_at = thought.by(
        min(mind.leave_at, thought.now + mind.knobs.kill_grace_s + STOP_EXTRA_S)
    )
    for runner in list(mind.runners.values()):
        if runner.phase is Phase.STARTING:
            ends.kill(thought, runner, Cause.SURPLUS)
        elif runner.phase is Phase.BUSY:
            ends.peek(thought, runner, Cause.STOP)


def zygote_ended(thought: Thought, event: on.ZygoteEnded) -> None:
    """Its runners die with it. Report what they were doing, and exit 1 (rule 39)."""
    mind = thought.mind
    mind.zygote_end = mind.zygote_end or event.text
    mind.zygote.clear()
    thought.do(on.Say("error", "worker.error", {"error": f"the zygote ended: {mind.zygote_end}"}))
    mind.exit_code, mind.why = 1, f"its zygote ended: {mind.zygote_end}"
    if mind.mode is Mode.WORKING:
        ends.begin_to_end(thought)
        mind.mode = Mode.DRAINING
    mind.leave_at = thought.by(min(mind.leave_at, thought.now + CRASH_LIMIT_S))
    for runner in list(mind.runners.values()):  # those it had not forked yet
        if runner.phase is Phase.STARTING:
            ends.forget(thought, runner)


def _finish(thought: Thought) -> None:
    """Say good-bye once nothing is left to do."""
    mind = thought.mind
    _close_idle(thought)
    stuck_only = all(runner.phase is Phase.STUCK for runner in mind.runners.values())
    if not stuck_only or mind.held or mind.reports or mind.sending:
        return
    if mind.main.state is LineState.BUSY:
        return
    mind.mode = Mode.LEAVING
    mind.leave_at = thought.by(min(mind.leave_at, thought.now + GOODBYE_LIMIT_S))


def _close_idle(thought: Thought) -> None:
    for runner_id in thought.mind.idle[:]:
        ends.retire(thought, thought.mind.runners[runner_id])


def said_goodbye(thought: Thought, event: on.SaidGoodbye) -> None:
    _leave(thought)


def _leave(thought: Thought) -> None:
    """End. With leases in hand that is not what was asked: then as one that has crashed, so
    that the sweeper gives them back (rule 12)."""
    mind = thought.mind
    if untold := len(list(mind.leases())):
        why = (
            f"tasks that could not be reported in time: {untold}; they run again as soon as"
            " they are given back, or their lease has lapsed"
        )
        thought.do(on.Say("warning", "worker.error", {"count": untold, "error": why}))
        if mind.exit_code in (0, 10):
            mind.exit_code, mind.why = 1, why
    mind.mode = Mode.LEFT
    mind.alarm = NEVER
    thought.do(on.Leave(mind.exit_code, mind.why, mind.failure))


def woken(thought: Thought, event: on.Woken) -> None:
    """Look for tasks, and ask soon whether those that run still should."""
    mind = thought.mind
    mind.look, mind.is_fallback = True, False
    if mind.running:
        calls.beat_soon(thought)


def forked(thought: Thought, event: on.Forked) -> None:
    mind = thought.mind
    mind.zygote.pop(f"fork {event.id}", None)
    mind.fork_delay_s = mind.fork_from = 0.0


def refused(thought: Thought, event: on.Refused) -> None:
    """No room for a runner: give its task back, and wait before the next try."""
    mind = thought.mind
    mind.zygote.pop(f"fork {event.id}", None)
    runner = mind.runners.get(event.id)
    if runner is None:
        return
    ends.forget(thought, runner)
    if len(mind.held) > mind.starting:
        thought.release(mind.held.pop().task, "no runner could be started")
    if thought.now < mind.fork_from:  # asked for before the pause began
        return
    knobs = mind.knobs
    doubled = max(knobs.backoff_min_s, 2 * mind.fork_delay_s)
    mind.fork_delay_s = min(knobs.backoff_max_s, doubled)
    mind.fork_from = thought.now + mind.fork_delay_s
    thought.look_at(mind.fork_from, "due")
    text = f"a runner could not be started: {event.text}"
    thought.do(on.Say("warning", "worker.error", {"error": text, "wait_s": mind.fork_delay_s}))


def _nothing(thought: Thought, event: Any) -> None:
    pass


HANDLERS: dict[type, Callable[[Thought, Any], None]] = {
    on.Tick: _nothing,
    on.Woken: woken,
    on.DrainAsked: drain,
    on.StopAsked: stop,
    on.ZygoteEnded: zygote_ended,
    on.Forked: forked,
    on.Refused: refused,
    on.RunnerReady: runners.ready,
    on.Done: runners.done,
    on.Asked: runners.asked,
    on.Silent: ends.silent,
    on.Spoilt: ends.spoilt,
    on.Undelivered: ends.undelivered,
    on.RunnerEnded: ends.ended,
    on.Reaped: ends.reaped,
    on.Connected: calls.connected,
    on.Broken: calls.broken,
    on.Turned: turns.turned,
    on.NextDue: turns.next_due,
    on.Strangers: turns.strangers,
    on.Beaten: turns.beaten,
    on.Fetched: turns.fetched,
    on.Overheard: turns.overheard,
    on.Told: turns.fetched,
    on.SaidGoodbye: said_goodbye,
}
