"""
Dispatch, calls: what is asked of the database, on two lines, one call at a time on each.

The main line reports and claims in one turn; the other beats, so that a report which waits
for a lock does not look like death, and fetches what handlers ask for. A line that broke is
made anew, after growing, jittered delays; outcomes wait meanwhile, in order. Part of
`core.worker.decide`.
"""

from __future__ import annotations

from dataclasses import replace

from pgflowd.core.worker import actions, events, runners
from pgflowd.core.worker import reporting as turns
from pgflowd.core.worker import run_log as news
from pgflowd.core.worker.state import (
    LEASES,
    MAIN,
    NEVER,
    ConnectionState,
    DatabaseConnection,
    WorkerMode,
)
from pgflowd.core.worker.transition import WorkerTransition

MOST_REPORTS = 200  # of one turn, and all that one call of the database takes
BATCHING_S = 0.002  # while all runners are busy, outcomes wait for company
# A worker without a lease has nothing to renew but its row, which counts as alive for 30 s. So it
# beats three intervals apart, 15 s at most: idle it asks at most once in 10 s, fallback included.
IDLE_BEATS = 3
IDLE_BEAT_S = 15.0
SOON_S = 0.5  # beats that a wake asks for are so far apart at least


def use_lines(transition: WorkerTransition) -> None:
    """Start whatever a free line is wanted for."""
    state = transition.state
    if state.main.state is ConnectionState.FREE:
        _use_main(transition)
    if state.beats.state is ConnectionState.FREE:
        _use_beats(transition)


def _use_main(transition: WorkerTransition) -> None:
    state = transition.state
    if state.mode in (WorkerMode.LEAVING, WorkerMode.LEFT) or not transition.passed(
        state.turn_from
    ):
        return
    is_due = _reports_are_due(transition)
    looks = state.look and not runners.is_stocked(transition)
    room = runners.room(transition) if state.may_claim and (is_due or looks) else 0
    if is_due or room:
        state.sending = tuple(state.reports[:MOST_REPORTS])
        del state.reports[:MOST_REPORTS]
        state.wanted = room
        state.is_fallback = state.is_fallback and not state.sending
        if room:
            state.look = False
        state.about = news.asked_about(state, state.sending)
        transition.do(actions.ReportAndClaim(state.sending, room, state.about))
        state.main = _busy(transition)
    elif _asks_due(transition):
        state.asks_due = state.asks_soon = False
        transition.do(actions.AskNextDue())
        state.main = _busy(transition)


def _asks_due(transition: WorkerTransition) -> bool:
    """Whether to ask when the next message is due: if that may be soon, or nothing runs."""
    state = transition.state
    if state.mode is not WorkerMode.WORKING or state.reports:
        return False
    return state.asks_soon or (state.asks_due and not state.held and not state.running)


def _reports_are_due(transition: WorkerTransition) -> bool:
    """At once if a runner is idle or nothing runs; else a little later, with others."""
    state = transition.state
    if not state.reports:
        return False
    if not state.held or len(state.reports) >= MOST_REPORTS or state.mode is not WorkerMode.WORKING:
        return True
    return transition.passed(state.reports_since + BATCHING_S)


def _use_beats(transition: WorkerTransition) -> None:
    state = transition.state
    if state.mode is WorkerMode.LEFT:
        return
    if state.mode is WorkerMode.LEAVING and not state.tells:
        transition.do(actions.SignOff())
        state.beats = _busy(transition)
    elif transition.passed(state.beat_at):
        tokens = tuple(task.token for task in state.leases())
        pause_s = state.options.heartbeat_interval_s
        if not tokens:
            pause_s = max(pause_s, min(IDLE_BEATS * pause_s, IDLE_BEAT_S))
        state.beaten_at, state.beat_at = transition.now, transition.by(transition.now + pause_s)
        state.counting, state.perhaps_ended = tuple(dict.fromkeys(state.perhaps_ended)), ()
        transition.do(actions.RenewLeases(tokens, state.counting))
        state.beats = _busy(transition)
    elif state.asks:
        state.asking, state.asks = state.asks[:1], state.asks[1:]
        transition.do(actions.Fetch(*state.asking[0]))
        state.beats = _busy(transition)
    elif state.tells:
        state.tells = False
        transition.do(actions.PublishOutput())
        state.beats = _busy(transition)


def beat_soon(transition: WorkerTransition) -> None:
    state = transition.state
    state.beat_at = transition.by(min(state.beat_at, state.beaten_at + SOON_S))


def keep_times(transition: WorkerTransition) -> None:
    """Cut calls over their limit, make broken lines anew."""
    state = transition.state
    for name, line in ((MAIN, state.main), (LEASES, state.beats)):
        if line.state is ConnectionState.FREE or not transition.passed(line.until):
            continue
        if line.state is ConnectionState.DOWN:
            until = transition.by(transition.now + state.options.call_limit_s)
            _set(transition, name, replace(line, state=ConnectionState.CONNECTING, until=until))
            transition.do(actions.Connect(name))
        else:
            _set(transition, name, replace(line, until=NEVER))
            transition.do(actions.CutConnection(name))
    transition.passed(state.turn_from)
    transition.passed(state.beat_at)
    if state.reports and state.held:
        transition.passed(state.reports_since + BATCHING_S)


def connected(transition: WorkerTransition, event: events.Connected) -> None:
    state = transition.state
    _set(transition, event.line, replace(_line(transition, event.line), state=ConnectionState.FREE))
    if event.line == MAIN:
        state.look = True


def broken(transition: WorkerTransition, event: events.ConnectionLost) -> None:
    """A line is gone: keep what was under way, and try again later."""
    state, options = transition.state, transition.state.options
    if event.line == MAIN:
        if state.sending and not state.reports:
            state.reports_since = transition.now
        state.reports, state.sending = [*state.sending, *state.reports], ()
        state.look = True
    else:
        state.perhaps_ended, state.counting = (*state.counting, *state.perhaps_ended), ()
        state.asks, state.asking = (*state.asking, *state.asks), ()
    _row_is_gone(transition, event)
    line = _line(transition, event.line)
    was_up = line.state is ConnectionState.BUSY and line.delay_s == 0
    if was_up or event.meaning in ("loud", "fault"):
        level = "error" if event.meaning in ("loud", "fault") else "warning"
        transition.do(
            actions.WriteLog(level, "worker.error", {"error": event.text, "line": event.line})
        )
    delay_s = min(options.reconnect_max_s, max(options.reconnect_min_s, 2 * line.delay_s))
    if event.meaning == "fault":
        delay_s = options.reconnect_max_s
    wait_s = delay_s * (0.5 + event.chance / 2)
    until = transition.by(transition.now + wait_s)
    _set(transition, event.line, DatabaseConnection(ConnectionState.DOWN, until, delay_s))
    if state.mode is WorkerMode.LEAVING and event.line == LEASES:
        state.leave_at = transition.by(transition.now)


def _row_is_gone(transition: WorkerTransition, event: events.ConnectionLost) -> None:
    if event.meaning == "gone":
        turns.leave_for_successor(transition, "its row or its flow is gone from the database")
    elif event.meaning == "core" and transition.state.mode is WorkerMode.WORKING:
        turns.begin_drain(transition, 78, event.text)
        transition.state.failure = ("E307", event.text)


def _busy(transition: WorkerTransition) -> DatabaseConnection:
    until = transition.by(transition.now + transition.state.options.call_limit_s)
    return DatabaseConnection(ConnectionState.BUSY, until)


def _line(transition: WorkerTransition, name: str) -> DatabaseConnection:
    return transition.state.main if name == MAIN else transition.state.beats


def _set(transition: WorkerTransition, name: str, line: DatabaseConnection) -> None:
    if name == MAIN:
        transition.state.main = line
    else:
        transition.state.beats = line
