"""
Dispatch, calls: what is asked of the database, on two lines, one call at a time on each.

The main line reports and claims in one turn; the other beats, so that a report which waits
for a lock does not look like death, and fetches what handlers ask for. A line that broke is
made anew, after growing, jittered delays; outcomes wait meanwhile, in order. Part of
`core.dispatch`.
"""

from __future__ import annotations

from dataclasses import replace

from pgflowd.core import dispatch_news as news
from pgflowd.core import dispatch_runners as runners
from pgflowd.core import dispatch_turns as turns
from pgflowd.core import happenings as on
from pgflowd.core.mind import (
    NEVER,
    Line,
    LineState,
    Mode,
)
from pgflowd.core.thought import Thought

MOST_REPORTS = 200  # of one turn, and all that one call of the database takes
BATCHING_S = 0.002  # while all runners are busy, outcomes wait for company
# A worker without a lease has nothing to renew but its row, which counts as alive for 30 s. So it
# beats three intervals apart, 15 s at most: idle it asks at most once in 10 s, fallback included.
IDLE_BEATS = 3
IDLE_BEAT_S = 15.0
SOON_S = 0.5  # beats that a wake asks for are so far apart at least


def use_lines(thought: Thought) -> None:
    """Start whatever a free line is wanted for."""
    mind = thought.mind
    if mind.main.state is LineState.FREE:
        _use_main(thought)
    if mind.beats.state is LineState.FREE:
        _use_beats(thought)


def _use_main(thought: Thought) -> None:
    mind = thought.mind
    if mind.mode in (Mode.LEAVING, Mode.LEFT) or not thought.passed(mind.turn_from):
        return
    is_due = _reports_are_due(thought)
    looks = mind.look and not runners.is_stocked(thought)
    room = runners.room(thought) if mind.may_claim and (is_due or looks) else 0
    if is_due or room:
        mind.sending = tuple(mind.reports[:MOST_REPORTS])
        del mind.reports[:MOST_REPORTS]
        mind.wanted = room
        mind.is_fallback = mind.is_fallback and not mind.sending
        if room:
            mind.look = False
        mind.about = news.asked_about(mind, mind.sending)
        thought.do(on.Turn(mind.sending, room, mind.about))
        mind.main = _busy(thought)
    elif _asks_due(thought):
        mind.asks_due = mind.asks_soon = False
        thought.do(on.AskDue())
        mind.main = _busy(thought)


def _asks_due(thought: Thought) -> bool:
    """Whether to ask when the next message is due: if that may be soon, or nothing runs."""
    mind = thought.mind
    if mind.mode is not Mode.WORKING or mind.reports:
        return False
    return mind.asks_soon or (mind.asks_due and not mind.held and not mind.running)


def _reports_are_due(thought: Thought) -> bool:
    """At once if a runner is idle or nothing runs; else a little later, with others."""
    mind = thought.mind
    if not mind.reports:
        return False
    if not mind.held or len(mind.reports) >= MOST_REPORTS or mind.mode is not Mode.WORKING:
        return True
    return thought.passed(mind.reports_since + BATCHING_S)


def _use_beats(thought: Thought) -> None:
    mind = thought.mind
    if mind.mode is Mode.LEFT:
        return
    if mind.mode is Mode.LEAVING and not mind.tells:
        thought.do(on.Goodbye())
        mind.beats = _busy(thought)
    elif thought.passed(mind.beat_at):
        tokens = tuple(task.token for task in mind.leases())
        pause_s = mind.knobs.heartbeat_interval_s
        if not tokens:
            pause_s = max(pause_s, min(IDLE_BEATS * pause_s, IDLE_BEAT_S))
        mind.beaten_at, mind.beat_at = thought.now, thought.by(thought.now + pause_s)
        mind.counting, mind.perhaps_ended = tuple(dict.fromkeys(mind.perhaps_ended)), ()
        thought.do(on.Beat(tokens, mind.counting))
        mind.beats = _busy(thought)
    elif mind.asks:
        mind.asking, mind.asks = mind.asks[:1], mind.asks[1:]
        thought.do(on.Fetch(*mind.asking[0]))
        mind.beats = _busy(thought)
    elif mind.tells:
        mind.tells = False
        thought.do(on.Tell())
        mind.beats = _busy(thought)


def beat_soon(thought: Thought) -> None:
    mind = thought.mind
    mind.beat_at = thought.by(min(mind.beat_at, mind.beaten_at + SOON_S))


def keep_times(thought: Thought) -> None:
    """Cut calls over their limit, make broken lines anew."""
    mind = thought.mind
    for name, line in ((on.MAIN, mind.main), (on.BEATS, mind.beats)):
        if line.state is LineState.FREE or not thought.passed(line.until):
            continue
        if line.state is LineState.DOWN:
            until = thought.by(thought.now + mind.knobs.call_limit_s)
            _set(thought, name, replace(line, state=LineState.CONNECTING, until=until))
            thought.do(on.Connect(name))
        else:
            _set(thought, name, replace(line, until=NEVER))
            thought.do(on.Cut(name))
    thought.passed(mind.turn_from)
    thought.passed(mind.beat_at)
    if mind.reports and mind.held:
        thought.passed(mind.reports_since + BATCHING_S)


def connected(thought: Thought, event: on.Connected) -> None:
    mind = thought.mind
    _set(thought, event.line, replace(_line(thought, event.line), state=LineState.FREE))
    if event.line == on.MAIN:
        mind.look = True


def broken(thought: Thought, event: on.Broken) -> None:
    """A line is gone: keep what was under way, and try again later."""
    mind, knobs = thought.mind, thought.mind.knobs
    if event.line == on.MAIN:
        if mind.sending and not mind.reports:
            mind.reports_since = thought.now
        mind.reports, mind.sending = [*mind.sending, *mind.reports], ()
        mind.look = True
    else:
        mind.perhaps_ended, mind.counting = (*mind.counting, *mind.perhaps_ended), ()
        mind.asks, mind.asking = (*mind.asking, *mind.asks), ()
    _row_is_gone(thought, event)
    line = _line(thought, event.line)
    was_up = line.state is LineState.BUSY and line.delay_s == 0
    if was_up or event.meaning in ("loud", "fault"):
        level = "error" if event.meaning in ("loud", "fault") else "warning"
        thought.do(on.Say(level, "worker.error", {"error": event.text, "line": event.line}))
    delay_s = min(knobs.reconnect_max_s, max(knobs.reconnect_min_s, 2 * line.delay_s))
    if event.meaning == "fault":
        delay_s = knobs.reconnect_max_s
    wait_s = delay_s * (0.5 + event.chance / 2)
    until = thought.by(thought.now + wait_s)
    _set(thought, event.line, Line(LineState.DOWN, until, delay_s))
    if mind.mode is Mode.LEAVING and event.line == on.BEATS:
        mind.leave_at = thought.by(thought.now)


def _row_is_gone(thought: Thought, event: on.Broken) -> None:
    if event.meaning == "gone":
        turns.leave_for_successor(thought, "its row or its flow is gone from the database")
    elif event.meaning == "core" and thought.mind.mode is Mode.WORKING:
        turns.begin_drain(thought, 78, event.text)
        thought.mind.failure = ("E307", event.text)


def _busy(thought: Thought) -> Line:
    until = thought.by(thought.now + thought.mind.knobs.call_limit_s)
    return Line(LineState.BUSY, until)


def _line(thought: Thought, name: str) -> Line:
    return thought.mind.main if name == on.MAIN else thought.mind.beats


def _set(thought: Thought, name: str, line: Line) -> None:
    if name == on.MAIN:
        thought.mind.main = line
    else:
        thought.mind.beats = line
