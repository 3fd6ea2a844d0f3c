"""
Dispatch, turns: what the database answered: outcomes taken or refused, tasks, verdicts on leases.

A refused report becomes a failure of its own task, once; one whose run was busy is sent again;
one whose lease is lost is dropped with a warning. Where the installation is at fault, outcomes are
kept and tried slowly, and nothing more is claimed (D3). Part of `core.dispatch`.
"""

from __future__ import annotations

from pgflowd.core import dispatch_ends as ends
from pgflowd.core import dispatch_news as news
from pgflowd.core import dispatch_runners as runners
from pgflowd.core import happenings as on
from pgflowd.core.failure import clean
from pgflowd.core.mind import NEVER, Line, Mode, Report
from pgflowd.core.thought import Thought

MIN_IDLE_S = 0.1  # between two looks at messages that cannot be claimed
STRANGERS_PAUSE_S = 60.0  # between two records about messages of strangers

AGAIN_STATES = ("08", "25006", "25P03", "40", "53", "55006", "55P03", "57", "58", "XX")
REFUSED_STATES = ("22", "23", "54", "P0")


def turned(thought: Thought, event: on.Turned) -> None:
    """The database has what we sent; take what was claimed."""
    mind, knobs = thought.mind, thought.mind.knobs
    sent, wanted = mind.sending, mind.wanted
    mind.sending, mind.wanted = (), 0
    mind.main = Line()
    mind.may_claim = mind.may_claim or bool(sent)
    again = []
    for report, answer in zip(sent, event.answers, strict=True):
        if next_try := _judge(thought, report, answer):
            again.append(next_try)
        if runners.is_refused(report, answer.verdict):
            news.tell_of_refused(thought, report, event.news, runners.NO_ARRAY)
    news.tell(thought, event.news)
    news.count(thought, sent, event)
    if again:
        mind.reports[:0] = again
        mind.reports_since = thought.now
    news.begun(thought, event.tasks)
    runners.hold(thought, event.tasks)
    if event.tasks:
        mind.beat_at = thought.by(min(mind.beat_at, thought.now + knobs.heartbeat_interval_s))
    if wanted:
        _look_again(thought, len(event.tasks), wanted, event.chance)
        mind.asks_soon = mind.asks_soon or (mind.asks_due and not sent and not event.tasks)


def _look_again(thought: Thought, got: int, wanted: int, chance: float) -> None:
    """Look at once while there may be more; else by strategy, or when the next one is due."""
    mind, knobs = thought.mind, thought.mind.knobs
    if knobs.tells_all:
        thought.do(on.Say("debug", "worker.poll", {"wanted": wanted, "claimed": got}))
    if got:
        mind.poll_s = 0.0
    mind.look_at = NEVER
    if got >= wanted:
        mind.look = True
        return
    if knobs.polls:
        ceiling = max(knobs.poll_min_s, 3 * mind.poll_s)
        drawn = knobs.poll_min_s + chance * (ceiling - knobs.poll_min_s)
        mind.poll_s = min(knobs.poll_max_s, drawn)
        thought.look_at(thought.now + max(knobs.poll_min_s, mind.poll_s), "poll")
    else:
        thought.look_at(thought.now + knobs.notify_fallback_s, "fallback")
        mind.asks_due = bool(got) or not mind.is_fallback  # a fallback leaves it to the beats


def strangers(thought: Thought, event: on.Strangers) -> None:
    """Somebody else writes into our queue: say so now and then."""
    mind = thought.mind
    mind.strangers += event.count
    if thought.now < mind.strangers_from:
        return
    text = f"{mind.strangers} messages that belong to no open task were archived"
    thought.do(on.Say("warning", "worker.strangers", {"error": text}))
    mind.strangers, mind.strangers_from = 0, thought.now + STRANGERS_PAUSE_S


def next_due(thought: Thought, event: on.NextDue) -> None:
    mind = thought.mind
    mind.main = Line()
    _look_when_due(thought, event.in_s)
    if event.visible and event.visible != mind.visible:  # a claim took some away: go on
        mind.idle_s = 0.0
        thought.look_at(thought.now, "due")
    elif event.visible:  # nobody's, it seems
        mind.idle_s = min(mind.knobs.notify_fallback_s, max(MIN_IDLE_S, 2 * mind.idle_s))
        thought.look_at(thought.now + mind.idle_s, "due")
    mind.visible = event.visible


def _look_when_due(thought: Thought, in_s: float | None) -> None:
    if in_s is not None and not thought.mind.knobs.polls:
        thought.look_at(thought.now + max(0.001, in_s), "due")


def _judge(thought: Thought, report: Report, answer: on.Answer) -> Report | None:
    """Return what has to be sent again, if anything."""
    if answer.verdict == "lost":
        ends.lost(thought, report.task, "somebody else has the task now; the outcome is dropped")
        return None
    if answer.verdict != "error":
        is_dull = report.outcome == "completed" and not runners.is_refused(report, answer.verdict)
        if not is_dull or thought.mind.knobs.tells_all:
            payloads = thought.mind.knobs.payloads
            thought.do(runners.outcome_record(report, answer.verdict, payloads))
        is_delayed = answer.verdict == "queued" and report.outcome != "released"
        if is_delayed and not thought.mind.knobs.polls:
            thought.mind.asks_soon = True
        return None
    state, text = answer.sqlstate or "", answer.message or "no reason given"
    if state.startswith(AGAIN_STATES):
        thought.mind.turn_from = thought.by(thought.now + thought.mind.knobs.reconnect_min_s)
        return report
    if report.is_last_word:
        fields = {**ends.about(report.task), "error": f"the report was refused: {state} {text}"}
        thought.do(on.Say("error", "worker.error", fields))
        return None
    if state.startswith(REFUSED_STATES):
        message = clean(f"the database refused the report: {text} ({state})", 4000)
        fields = {"error_message": message, "error_type": "Refused"}
        return Report(report.task, "failed", None, fields, is_last_word=True)
    fields = {**ends.about(report.task), "error": f"{state} {text}"}
    thought.do(on.Say("error", "worker.error", fields))
    thought.mind.turn_from = thought.by(thought.now + thought.mind.knobs.reconnect_max_s)
    thought.mind.may_claim = False
    return report


def beaten(thought: Thought, event: on.Beaten) -> None:
    thought.mind.beats = Line()
    news.cancelled(thought, event.cancelled)
    news.counted(thought, event)
    for token, verdict in event.verdicts:
        ends.judged(thought, token, verdict)
    if event.standing != "ok":
        gone = "its row is deprecated" if event.standing == "deprecated" else "its row is gone"
        leave_for_successor(thought, gone)
    _look_when_due(thought, event.due_in_s)
    if event.queued:  # nobody told us
        thought.mind.look = True


def fetched(thought: Thought, event: on.Fetched | on.Told) -> None:
    thought.mind.beats, thought.mind.asking = Line(), ()


def overheard(thought: Thought, event: on.Overheard) -> None:
    thought.mind.tells = True


def leave_for_successor(thought: Thought, why: str) -> None:
    """Drain, and exit 10 (rule 40)."""
    if thought.mind.mode is Mode.WORKING:
        thought.do(on.Say("info", "worker.deprecated", {"reason": why}))
        begin_drain(thought, 10, why)


def begin_drain(thought: Thought, code: int, why: str) -> None:
    mind = thought.mind
    ends.begin_to_end(thought)
    mind.mode, mind.exit_code, mind.why = Mode.DRAINING, code, why
