"""
The outbox: how reports are sent, and what the database made of them.

Each call takes as many as `core.worker.task` allows, and 16 MiB of outputs at most. A refused
report becomes a failure of its own task, once; one whose run was locked is sent again; one whose
lease is lost is dropped with a warning. Where the installation is at fault, reports are kept and
sent slowly, and nothing more is claimed (docs/background/failures.md, D3).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from pgflowd.core.failure import MAX_MESSAGE_CHARS, RETRY_STATES, DatabaseFailure, clean
from pgflowd.core.metrics.definitions import MINUTE_S, MISSED_NOTIFICATIONS, RUNS, TASKS, WAKES
from pgflowd.core.statuses import Outcome, RunStatus
from pgflowd.core.worker import claiming, events, run_log, runners, second_connection
from pgflowd.core.worker.actions import WorkerTransition
from pgflowd.core.worker.events import ReportAnswer, Verdict
from pgflowd.core.worker.state import (
    FREE,
    ConnectionState,
    Outbox,
    WakeReason,
    WorkerMode,
    WorkerState,
)
from pgflowd.core.worker.task import (
    HEALTHY,
    MAX_BYTES,
    MAX_REPORTS,
    MAX_TRIES,
    NEVER,
    FailedTurn,
    Suspect,
    TaskReport,
    TurnError,
)

# What a worker does after a turn that failed: what goes back into the outbox, and what is blamed.
#
# How large the next turn may be is decided in `core.worker.task`. A single report that took too
# long three times, alone, becomes a failure of its task: nothing else would end it, and all other
# outcomes would wait behind it. So does a single one whose commit the database refuses, by a
# deferred constraint, say; `report` itself answers all other refusals.
TOO_LONG = "57014"  # SQLSTATE of a statement that was cancelled
REFUSED_AT_COMMIT = {"22", "23", "P0"}  # classes; 54 is the full queue of notifications


def turn_failed(
    transition: WorkerTransition, event: events.ConnectionLost, *, was_cut: bool
) -> None:
    """Put the reports of the call back, the first of the next one; learn from its failure."""
    state, now, options = transition.state, transition.now, transition.state.options
    outbox, sent, had_claim = state.outbox, state.outbox.sending, bool(state.outbox.claiming)
    single = sent[0] if len(sent) == 1 and not had_claim else None
    error = _turn_error(event.text, event.sqlstate, single)
    main = state.connections.main
    began = main.since if main.state is ConnectionState.BUSY else now
    state.turns = state.turns.count_failure(began, error)
    if not sent and not had_claim:
        return
    is_too_long = was_cut or event.sqlstate == TOO_LONG
    is_serious = is_too_long or event.failure is not DatabaseFailure.RETRY
    turn = FailedTurn(len(sent), had_claim, is_serious)
    least_s, most_s = options.database.reconnect_min_s, options.database.reconnect_max_s
    state.turns = state.turns.after_failure(turn, now, least_s, most_s)
    # cut by us, it counts only if the database has answered on the other line meanwhile
    has_answered = not was_cut or state.connections.answered_at > main.since
    kept = list(sent)
    if single and is_too_long and has_answered:
        kept = _after_slow_report(transition, single)
    elif single and (event.sqlstate or "")[:2] in REFUSED_AT_COMMIT:
        kept = _after_refused_commit(transition, single, event)
    if kept and not outbox.reports:
        outbox.waiting_since = now
    if single and is_serious and not is_too_long:  # perhaps the others can be recorded
        outbox.reports += kept
    else:
        outbox.reports[:0] = kept
    outbox.sending, outbox.claiming = (), 0


def _after_slow_report(transition: WorkerTransition, report: TaskReport) -> list[TaskReport]:
    """Return what is to be sent instead of a report that took too long alone."""
    state = transition.state
    state.turns = state.turns.after_slow_report(report.task.token)
    if state.turns.slow_tries < MAX_TRIES:
        return [report]
    state.turns = state.turns._replace(slow_token=0, slow_tries=0)
    limit_s, size = state.options.database.statement_timeout_s, len(report.output or b"")
    text = (
        f"the database could not record the outcome in {limit_s:g} s ({MAX_TRIES} times, alone; an"
        f" output of {size} bytes): return less, or raise [database] statement_timeout"
    )
    if report.is_final:
        text = f"the report was refused: {text}"
    transition.log_problem("error", text, **run_log.naming(report.task))
    return [] if report.is_final else [refusal(report, text, retry=False)]


def _after_refused_commit(
    transition: WorkerTransition, report: TaskReport, event: events.ConnectionLost
) -> list[TaskReport]:
    """Return what is to be sent instead of a report whose commit was refused."""
    reason = event.text.partition("\\n")[0]  # the log has the context
    text = f"the database refused the report: {reason} ({event.sqlstate})"
    transition.log_problem("error", text, **run_log.naming(report.task))
    return [] if report.is_final else [refusal(report, text, retry=True)]


def refusal(report: TaskReport, text: str, *, retry: bool) -> TaskReport:
    """What takes the place of a report that cannot be recorded: a failure, or the same without an
    output that only an undo would have had."""
    if report.output is not None and report.outcome is not Outcome.COMPLETED:
        return replace(report, output=None)
    return TaskReport(
        report.task,
        Outcome.FAILED,
        error_message=clean(text, MAX_MESSAGE_CHARS),
        error_type="Refused",
        retry=retry,
        is_final=True,
    )


def _turn_error(text: str, sqlstate: str | None, report: TaskReport | None) -> TurnError:
    if report is None:
        return TurnError(text, sqlstate)
    naming = run_log.naming(report.task)
    return TurnError(text, sqlstate, naming["run"], naming["task"])


BATCHING_S = 0.002  # while all runners are busy, reports wait for others
SOON_S = 0.005  # a report that is expected so soon takes a claim along, so no wake is needed

REFUSED_CLASSES = {"22", "23", "54", "P0"}  # of SQLSTATE, which begins with its class
HOPELESS_CLASSES = {"22", "54"}  # of these, where another execution brings the same


def deadline(state: WorkerState) -> float:
    """When the outbox changes by itself."""
    outbox = state.outbox
    if outbox.paused_until:
        return outbox.paused_until
    if not outbox.reports or state.connections.main.state is not ConnectionState.FREE:
        return NEVER
    return outbox.waiting_since + BATCHING_S


def is_due(state: WorkerState, now: float) -> bool:
    """At once if a runner is idle or nothing runs; else a little later, with other reports."""
    outbox = state.outbox
    if not outbox.reports:
        return bool(outbox.recorded)
    if not state.unassigned or state.mode is not WorkerMode.WORKING:
        return True
    return len(outbox.reports) >= MAX_REPORTS or now >= outbox.waiting_since + BATCHING_S


def may_claim(state: WorkerState) -> bool:
    """Whether a claim may go now, alone or with reports."""
    outbox, turns = state.outbox, state.turns
    if outbox.is_refused or turns.claims_from:
        return False
    return turns.suspect is Suspect.NOTHING or not outbox.reports


def begin(state: WorkerState, now: float, room: int) -> None:
    """Send the oldest reports, and claim so many tasks."""
    outbox = state.outbox
    count = _batch(outbox.reports, state.turns.most_reports)
    outbox.sending, outbox.claiming = tuple(outbox.reports[:count]), room
    del outbox.reports[:count]
    outbox.follows_reports = bool(count) or outbox.has_recorded
    outbox.has_recorded = outbox.has_recorded and not room
    if not state.options.is_polling:
        needs_wake = not outbox.follows_reports and runners.next_end_s(state.runners) > SOON_S
        state.doorbell = state.doorbell.begin(now, has_claim=bool(room), needs_wake=needs_wake)


def _batch(reports: list[TaskReport], most: int) -> int:
    """How many of the oldest reports go together: one at least, then by number and bytes."""
    if len(reports) < 2:
        return len(reports)
    size = 0
    for count, report in enumerate(reports):
        size += len(report.output or b"") + (report.printed.size if report.printed else 0)
        if count == most or (count and size > MAX_BYTES):
            return count
    return len(reports)


def kept(outbox: Outbox) -> tuple[TaskReport, ...]:
    """Those of which output or progress is to be kept."""
    if not outbox.recorded:
        return tuple([report for report in outbox.sending if report.has_more])
    recorded, outbox.recorded = outbox.recorded, ()
    return (*recorded, *[report for report in outbox.sending if report.has_more])


def report_and_claim_done(transition: WorkerTransition, event: events.ReportAndClaimDone) -> None:
    """The database has the reports; take what was claimed."""
    state, now = transition.state, transition.now
    outbox, wanted = state.outbox, state.outbox.claiming
    sent = tuple(map(_as_recorded, outbox.sending, event.answers))
    had_reports = outbox.follows_reports
    outbox.sending, outbox.claiming = (), 0
    state.connections.main = FREE
    is_all_done = True
    if sent or event.tasks:
        state.worked_at = now
    if sent:
        outbox.is_refused = False
        is_all_done = _take_answers(transition, sent, event)
    if state.turns is not HEALTHY:
        turns = state.turns.after_success(
            had_reports=bool(sent), claimed=wanted, is_all_done=is_all_done
        )
        state.turns = HEALTHY if turns == HEALTHY else turns
    run_log.changes(transition, event.changes, [report.task for report in sent])
    if event.tasks:
        if state.schedule.is_fallback:
            transition.count(MISSED_NOTIFICATIONS)
        if had_reports:
            transition.count(WAKES, WakeReason.COMPLETION)
        run_log.runs_started(transition, event.tasks)
        claiming.take(transition, event.tasks)
        renew_by = now + state.options.heartbeat_interval_s
        state.connections.renew_at = min(state.connections.renew_at, renew_by)
        second_connection.look_later(state, now)
    _plan_next_claim(transition, event, wanted, had_reports)


def _plan_next_claim(
    transition: WorkerTransition, event: events.ReportAndClaimDone, wanted: int, had_reports: bool
) -> None:
    state, now, got = transition.state, transition.now, len(event.tasks)
    if not state.options.is_polling:
        state.doorbell = state.doorbell.end(
            now, wanted=wanted, got=got, is_new=event.is_armed_anew, writers=event.writers
        )
    if not wanted:
        return
    transition.log("debug", "worker.poll", wanted=wanted, claimed=got)
    claiming.claim_has_ended(
        state.schedule,
        state.options,
        now,
        wanted=wanted,
        got=got,
        had_reports=had_reports,
        is_looking=state.doorbell.is_looking and not state.options.is_polling,
        chance=event.chance,
    )
    if state.doorbell.look_at <= now:
        claiming.claim_now(state.schedule)


def task_not_started(transition: WorkerTransition, event: events.TaskNotStarted) -> None:
    """A claim found a task that cannot be started: log and count its failure."""
    report, answer = event.report, event.answer
    run_log.recorded(transition, report, answer.verdict)
    transition.count(TASKS, report.task.step, report.outcome)
    if answer.verdict is Verdict.QUEUED:
        claiming.retry_is_queued(transition.state)
    if answer.run_status is not None:
        transition.count(RUNS, answer.run_status)
        run_log.run_failed(transition, report.task.run_id, (), report.error_message or "")


def recorded_by_runner(
    transition: WorkerTransition, report: TaskReport, recorded: events.Recorded
) -> None:
    """A runner has completed its task over its handler's connection: as if that were reported."""
    state = transition.state
    answered = events.ReportAndClaimDone((recorded.answer,), (), recorded.changes)
    _take_answers(transition, (report,), answered)
    run_log.changes(transition, recorded.changes, [report.task])
    state.worked_at = transition.now
    state.outbox.has_recorded = True
    transition.complete(report)
    if report.has_more:
        state.outbox.recorded = (*state.outbox.recorded, report)
    claiming.claim_now(state.schedule)


def _take_answers(
    transition: WorkerTransition, sent: tuple[TaskReport, ...], event: events.ReportAndClaimDone
) -> bool:
    """Return whether nothing is to be sent again."""
    state = transition.state
    again: list[TaskReport] = []
    undone: tuple[TaskReport, ReportAnswer] | None = None
    recorded: Counter[tuple[str, str]] = Counter()
    ended: dict[str, RunStatus] = {}
    failed: dict[str, str] = {}  # without a failed report
    for report, answer in zip(sent, event.answers, strict=True):
        if answer.run_status is not None:
            ended[report.task.run_id] = answer.run_status
        if answer.verdict is Verdict.ERROR:
            kept = _after_error(transition, report, answer)
            again += kept
            if report in kept:
                undone = undone or (report, answer)
            continue
        recorded[report.task.step, report.outcome] += 1
        if answer.verdict is Verdict.LOST:
            text = "another worker has the task now; the outcome is dropped"
            run_log.dropped(transition, report, text)
            continue
        run_log.recorded(transition, report, answer.verdict)
        is_delayed = report.outcome.is_failure or report.at_most_s is not None
        if answer.verdict is Verdict.QUEUED and is_delayed:
            claiming.retry_is_queued(state)
        if error := run_log.error_of_completion(report, answer):
            failed[report.task.run_id] = error
    for run_id, error in failed.items():
        run_log.run_failed(transition, run_id, event.changes, error)
    for labels, count in recorded.items():
        transition.count(TASKS, *labels, count=count)
    for status, count in Counter(ended.values()).items():
        transition.count(RUNS, status, count=count)
    minute_ends_at = min(state.connections.minute_ends_at, transition.now + MINUTE_S)
    state.connections.minute_ends_at = minute_ends_at
    if again:
        state.outbox.reports[:0] = again
        state.outbox.waiting_since = transition.now
    if undone:
        report, answer = undone
        error_of_turn = _turn_error(answer.message or "no reason given", answer.sqlstate, report)
        state.turns = state.turns.count_failure(transition.now, error_of_turn)
    return not again


def _as_recorded(report: TaskReport, answer: ReportAnswer) -> TaskReport:
    """What a handler wanted unspent may be spent, since it has asked for that for too long."""
    if report.at_most_s is None or not answer.message or answer.sqlstate is not None:
        return report
    return replace(report, outcome=Outcome.FAILED, error_message=answer.message)


def _after_error(
    transition: WorkerTransition, report: TaskReport, answer: ReportAnswer
) -> list[TaskReport]:
    """Return what is to be sent instead."""
    outbox, options = transition.state.outbox, transition.state.options
    state, text = answer.sqlstate or "", answer.message or "no reason given"
    if state.startswith(RETRY_STATES):
        outbox.pause(transition.now + options.database.reconnect_min_s)
        return [report]
    naming = run_log.naming(report.task)
    if report.is_final:
        transition.log_problem("error", f"the report was refused: {state} {text}", **naming)
        return []
    if state[:2] in REFUSED_CLASSES:
        code = "E404 " if state.startswith("54") else ""
        message = f"{code}the database refused the report: {text} ({state})"
        return [refusal(report, message, retry=state[:2] not in HOPELESS_CLASSES)]
    transition.log_problem("error", f"{state} {text}", **naming)
    outbox.pause(transition.now + options.database.reconnect_max_s)
    outbox.is_refused = True
    return [report]
