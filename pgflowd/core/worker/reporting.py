"""
Dispatch, turns: what the database answered: outcomes taken or refused, tasks, verdicts on leases.

A refused report becomes a failure of its own task, once; one whose run was busy is sent again;
one whose lease is lost is dropped with a warning. Where the installation is at fault, outcomes are
kept and tried slowly, and nothing more is claimed (D3). Part of `core.worker.decide`.
"""

from __future__ import annotations

from pgflowd.core.database_failure import RETRY_STATES
from pgflowd.core.failure import clean
from pgflowd.core.worker import actions, events, runners
from pgflowd.core.worker import run_log as news
from pgflowd.core.worker import runner_ends as ends
from pgflowd.core.worker.state import NEVER, DatabaseConnection, TaskReport, WorkerMode
from pgflowd.core.worker.transition import WorkerTransition

MIN_IDLE_S = 0.1  # between two looks at messages that cannot be claimed
STRANGERS_PAUSE_S = 60.0  # between two records about messages of strangers
REFUSED_STATES = ("22", "23", "54", "P0")


def turned(transition: WorkerTransition, event: events.ReportAndClaimDone) -> None:
    """The database has what we sent; take what was claimed."""
    state, options = transition.state, transition.state.options
    sent, wanted = state.sending, state.wanted
    state.sending, state.wanted = (), 0
    state.main = DatabaseConnection()
    state.may_claim = state.may_claim or bool(sent)
    again = []
    for report, answer in zip(sent, event.answers, strict=True):
        if next_try := _judge(transition, report, answer):
            again.append(next_try)
        if runners.is_refused(report, answer.verdict):
            news.tell_of_refused(transition, report, event.news, runners.NO_ARRAY)
    news.tell(transition, event.news)
    news.count(transition, sent, event)
    if again:
        state.reports[:0] = again
        state.reports_since = transition.now
    news.begun(transition, event.tasks)
    runners.hold(transition, event.tasks)
    if event.tasks:
        state.beat_at = transition.by(
            min(state.beat_at, transition.now + options.heartbeat_interval_s)
        )
    if wanted:
        _look_again(transition, len(event.tasks), wanted, event.chance)
        state.asks_soon = state.asks_soon or (state.asks_due and not sent and not event.tasks)


def _look_again(transition: WorkerTransition, got: int, wanted: int, chance: float) -> None:
    """Look at once while there may be more; else by strategy, or when the next one is due."""
    state, options = transition.state, transition.state.options
    if options.tells_all:
        transition.do(actions.WriteLog("debug", "worker.poll", {"wanted": wanted, "claimed": got}))
    if got:
        state.poll_s = 0.0
    state.look_at = NEVER
    if got >= wanted:
        state.look = True
        return
    if options.polls:
        ceiling = max(options.poll_min_s, 3 * state.poll_s)
        drawn = options.poll_min_s + chance * (ceiling - options.poll_min_s)
        state.poll_s = min(options.poll_max_s, drawn)
        transition.look_at(transition.now + max(options.poll_min_s, state.poll_s), "poll")
    else:
        transition.look_at(transition.now + options.notify_fallback_s, "fallback")
        state.asks_due = bool(got) or not state.is_fallback  # a fallback leaves it to the beats


def strangers(transition: WorkerTransition, event: events.ForeignMessages) -> None:
    """Somebody else writes into our queue: say so now and then."""
    state = transition.state
    state.strangers += event.count
    if transition.now < state.strangers_from:
        return
    text = f"{state.strangers} messages that belong to no open task were archived"
    transition.do(actions.WriteLog("warning", "worker.strangers", {"error": text}))
    state.strangers, state.strangers_from = 0, transition.now + STRANGERS_PAUSE_S


def next_due(transition: WorkerTransition, event: events.NextDue) -> None:
    state = transition.state
    state.main = DatabaseConnection()
    _look_when_due(transition, event.in_s)
    if event.visible and event.visible != state.visible:  # a claim took some away: go on
        state.idle_s = 0.0
        transition.look_at(transition.now, "due")
    elif event.visible:  # nobody's, it seems
        state.idle_s = min(state.options.notify_fallback_s, max(MIN_IDLE_S, 2 * state.idle_s))
        transition.look_at(transition.now + state.idle_s, "due")
    state.visible = event.visible


def _look_when_due(transition: WorkerTransition, in_s: float | None) -> None:
    if in_s is not None and not transition.state.options.polls:
        transition.look_at(transition.now + max(0.001, in_s), "due")


def _judge(
    transition: WorkerTransition, report: TaskReport, answer: events.ReportAnswer
) -> TaskReport | None:
    """Return what has to be sent again, if anything."""
    if answer.verdict == "lost":
        ends.lost(transition, report.task, "somebody else has the task now; the outcome is dropped")
        return None
    if answer.verdict != "error":
        is_dull = report.outcome == "completed" and not runners.is_refused(report, answer.verdict)
        if not is_dull or transition.state.options.tells_all:
            payloads = transition.state.options.payloads
            transition.do(runners.outcome_record(report, answer.verdict, payloads))
        is_delayed = answer.verdict == "queued" and report.outcome != "released"
        if is_delayed and not transition.state.options.polls:
            transition.state.asks_soon = True
        return None
    state, text = answer.sqlstate or "", answer.message or "no reason given"
    if state.startswith(RETRY_STATES):
        transition.state.turn_from = transition.by(
            transition.now + transition.state.options.reconnect_min_s
        )
        return report
    if report.is_last_word:
        fields = {**ends.about(report.task), "error": f"the report was refused: {state} {text}"}
        transition.do(actions.WriteLog("error", "worker.error", fields))
        return None
    if state.startswith(REFUSED_STATES):
        message = clean(f"the database refused the report: {text} ({state})", 4000)
        fields = {"error_message": message, "error_type": "Refused"}
        return TaskReport(report.task, "failed", None, fields, is_last_word=True)
    fields = {**ends.about(report.task), "error": f"{state} {text}"}
    transition.do(actions.WriteLog("error", "worker.error", fields))
    transition.state.turn_from = transition.by(
        transition.now + transition.state.options.reconnect_max_s
    )
    transition.state.may_claim = False
    return report


def beaten(transition: WorkerTransition, event: events.LeasesRenewed) -> None:
    transition.state.beats = DatabaseConnection()
    news.cancelled(transition, event.cancelled)
    news.counted(transition, event)
    for token, verdict in event.verdicts:
        ends.judged(transition, token, verdict)
    if event.standing != "ok":
        gone = "its row is deprecated" if event.standing == "deprecated" else "its row is gone"
        leave_for_successor(transition, gone)
    _look_when_due(transition, event.due_in_s)
    if event.queued:  # nobody told us
        transition.state.look = True


def fetched(transition: WorkerTransition, event: events.Fetched | events.OutputPublished) -> None:
    transition.state.beats, transition.state.asking = DatabaseConnection(), ()


def overheard(transition: WorkerTransition, event: events.OutputWaiting) -> None:
    transition.state.tells = True


def leave_for_successor(transition: WorkerTransition, why: str) -> None:
    """Drain, and exit 10 (rule 40)."""
    if transition.state.mode is WorkerMode.WORKING:
        transition.do(actions.WriteLog("info", "worker.deprecated", {"reason": why}))
        begin_drain(transition, 10, why)


def begin_drain(transition: WorkerTransition, code: int, why: str) -> None:
    state = transition.state
    ends.begin_to_end(transition)
    state.mode, state.exit_code, state.why = WorkerMode.DRAINING, code, why
