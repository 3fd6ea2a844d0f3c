"""
Dispatch: decides what a worker does next.

    state, actions = decide(state, events, now)

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

from pgflowd.core.worker import actions, events, runners
from pgflowd.core.worker import connections as calls
from pgflowd.core.worker import reporting as turns
from pgflowd.core.worker import runner_ends as ends
from pgflowd.core.worker.state import (
    NEVER,
    ConnectionState,
    EndCause,
    RunnerPhase,
    WorkerMode,
    WorkerState,
)
from pgflowd.core.worker.transition import WorkerTransition

STOP_EXTRA_S = 3.0  # beyond kill_grace: a quick stop ends whatever is unfinished
CRASH_LIMIT_S = 2.0  # to report what a dead zygote took along
GOODBYE_LIMIT_S = 2.0


def decide(state: WorkerState, events: Iterable[Any], now: float) -> tuple[WorkerState, list[Any]]:
    """Return the state after these events, and what to do, in this order."""
    transition = WorkerTransition(state, now)
    for event in events:
        if transition.state.mode is not WorkerMode.LEFT:
            HANDLERS[type(event)](transition, event)
    if transition.state.mode is not WorkerMode.LEFT:
        settle(transition)
    return transition.state, transition.actions


def settle(transition: WorkerTransition) -> None:
    """Do what has become due, and use what has become free."""
    state = transition.state
    if transition.now >= state.alarm:
        state.alarm = NEVER
        _keep_times(transition)
        if state.mode is WorkerMode.LEFT:
            state.alarm = NEVER
            return
    if state.mode is WorkerMode.DRAINING or state.mode is WorkerMode.STOPPING:
        _finish(transition)
    runners.hand_out(transition)
    calls.use_lines(transition)


def _keep_times(transition: WorkerTransition) -> None:
    """Look at every deadline; those to come set the alarm."""
    state = transition.state
    for runner in list(state.runners.values()):
        if transition.passed(runner.due_at):
            ends.time_is_up(transition, runner)
    if state.zygote and not state.zygote_end:
        oldest = next(iter(state.zygote.values()))
        if transition.passed(oldest + ends.ZYGOTE_LIMIT_S):
            state.zygote_end = f"it did not answer for {ends.ZYGOTE_LIMIT_S:g} s"
            transition.do(actions.KillZygote())
    _give_back_what_waits(transition)
    if transition.passed(state.stop_at):
        stop(transition, events.StopAsked())
    if transition.passed(state.look_at):
        state.look, state.look_at = True, NEVER
        state.is_fallback = state.look_reason == "fallback"
        transition.do(actions.ClaimCheckDue(state.look_reason))
    calls.keep_times(transition)
    if transition.passed(state.leave_at):
        _leave(transition)


def _give_back_what_waits(transition: WorkerTransition) -> None:
    """Release tasks that wait too long, but for those whose runner is being started."""
    state = transition.state
    since = transition.now - runners.HELD_LIMIT_S
    waiting = state.held[state.starting :]
    for held in [each for each in waiting if each.since <= since]:
        state.held.remove(held)
        transition.release(held.task, "no runner was free in time")
    if times := [each.since for each in waiting if each.since > since]:
        transition.by(min(times) + runners.HELD_LIMIT_S)


def drain(transition: WorkerTransition, event: events.DrainAsked) -> None:
    """Claim nothing more, and finish what runs. A second order may shorten the first."""
    state = transition.state
    if state.mode is WorkerMode.WORKING:
        ends.begin_to_end(transition)
        state.mode = WorkerMode.DRAINING
    if event.within_s is not None:
        state.stop_at = transition.by(min(state.stop_at, transition.now + event.within_s))


def stop(transition: WorkerTransition, event: events.StopAsked) -> None:
    """End the runners too; what is unfinished is released."""
    state = transition.state
    state.stop_at = NEVER
    if state.mode not in (WorkerMode.WORKING, WorkerMode.DRAINING):
        return
    ends.begin_to_end(transition)
    state.mode = WorkerMode.STOPPING
    state.leave_at = transition.by(
        min(state.leave_at, transition.now + state.options.kill_grace_s + STOP_EXTRA_S)
    )
    for runner in list(state.runners.values()):
        if runner.phase is RunnerPhase.STARTING:
            ends.kill(transition, runner, EndCause.SURPLUS)
        elif runner.phase is RunnerPhase.BUSY:
            ends.peek(transition, runner, EndCause.STOP)


def zygote_ended(transition: WorkerTransition, event: events.ZygoteEnded) -> None:
    """Its runners die with it. Report what they were doing, and exit 1 (rule 39)."""
    state = transition.state
    state.zygote_end = state.zygote_end or event.text
    state.zygote.clear()
    transition.do(
        actions.WriteLog(
            "error", "worker.error", {"error": f"the zygote ended: {state.zygote_end}"}
        )
    )
    state.exit_code, state.why = 1, f"its zygote ended: {state.zygote_end}"
    if state.mode is WorkerMode.WORKING:
        ends.begin_to_end(transition)
        state.mode = WorkerMode.DRAINING
    state.leave_at = transition.by(min(state.leave_at, transition.now + CRASH_LIMIT_S))
    for runner in list(state.runners.values()):  # those it had not forked yet
        if runner.phase is RunnerPhase.STARTING:
            ends.forget(transition, runner)


def _finish(transition: WorkerTransition) -> None:
    """Say good-bye once nothing is left to do."""
    state = transition.state
    _close_idle(transition)
    stuck_only = all(runner.phase is RunnerPhase.STUCK for runner in state.runners.values())
    if not stuck_only or state.held or state.reports or state.sending:
        return
    if state.main.state is ConnectionState.BUSY:
        return
    state.mode = WorkerMode.LEAVING
    state.leave_at = transition.by(min(state.leave_at, transition.now + GOODBYE_LIMIT_S))


def _close_idle(transition: WorkerTransition) -> None:
    for runner_id in transition.state.idle[:]:
        ends.retire(transition, transition.state.runners[runner_id])


def said_goodbye(transition: WorkerTransition, event: events.SignedOff) -> None:
    _leave(transition)


def _leave(transition: WorkerTransition) -> None:
    """End. With leases in hand that is not what was asked: then as one that has crashed, so
    that the sweeper gives them back (rule 12)."""
    state = transition.state
    if untold := len(list(state.leases())):
        why = (
            f"tasks that could not be reported in time: {untold}; they run again as soon as"
            " they are given back, or their lease has lapsed"
        )
        transition.do(actions.WriteLog("warning", "worker.error", {"count": untold, "error": why}))
        if state.exit_code in (0, 10):
            state.exit_code, state.why = 1, why
    state.mode = WorkerMode.LEFT
    state.alarm = NEVER
    transition.do(actions.Leave(state.exit_code, state.why, state.failure))


def woken(transition: WorkerTransition, event: events.WokenUp) -> None:
    """Look for tasks, and ask soon whether those that run still should."""
    state = transition.state
    state.look, state.is_fallback = True, False
    if state.running:
        calls.beat_soon(transition)


def forked(transition: WorkerTransition, event: events.Forked) -> None:
    state = transition.state
    state.zygote.pop(f"fork {event.id}", None)
    state.fork_delay_s = state.fork_from = 0.0


def refused(transition: WorkerTransition, event: events.ForkRefused) -> None:
    """No room for a runner: give its task back, and wait before the next try."""
    state = transition.state
    state.zygote.pop(f"fork {event.id}", None)
    runner = state.runners.get(event.id)
    if runner is None:
        return
    ends.forget(transition, runner)
    if len(state.held) > state.starting:
        transition.release(state.held.pop().task, "no runner could be started")
    if transition.now < state.fork_from:  # asked for before the pause began
        return
    options = state.options
    doubled = max(options.backoff_min_s, 2 * state.fork_delay_s)
    state.fork_delay_s = min(options.backoff_max_s, doubled)
    state.fork_from = transition.now + state.fork_delay_s
    transition.look_at(state.fork_from, "due")
    text = f"a runner could not be started: {event.text}"
    transition.do(
        actions.WriteLog("warning", "worker.error", {"error": text, "wait_s": state.fork_delay_s})
    )


def _nothing(transition: WorkerTransition, event: Any) -> None:
    pass


HANDLERS: dict[type, Callable[[WorkerTransition, Any], None]] = {
    events.Tick: _nothing,
    events.WokenUp: woken,
    events.DrainAsked: drain,
    events.StopAsked: stop,
    events.ZygoteEnded: zygote_ended,
    events.Forked: forked,
    events.ForkRefused: refused,
    events.RunnerReady: runners.ready,
    events.Done: runners.done,
    events.HandlerAsked: runners.asked,
    events.NoResultYet: ends.silent,
    events.BadFrameReceived: ends.spoilt,
    events.Undelivered: ends.undelivered,
    events.RunnerEnded: ends.ended,
    events.Reaped: ends.reaped,
    events.Connected: calls.connected,
    events.ConnectionLost: calls.broken,
    events.ReportAndClaimDone: turns.turned,
    events.NextDue: turns.next_due,
    events.ForeignMessages: turns.strangers,
    events.LeasesRenewed: turns.beaten,
    events.Fetched: turns.fetched,
    events.OutputWaiting: turns.overheard,
    events.OutputPublished: turns.fetched,
    events.SignedOff: said_goodbye,
}
