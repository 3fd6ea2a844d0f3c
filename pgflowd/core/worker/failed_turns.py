"""
What a worker does after a turn that failed: what goes back into the outbox, and what is blamed.

How large the next turn may be is decided in `core.worker.turns`. A single report that took too
long three times, alone, becomes a failure of its task: nothing else would end it, and all other
outcomes would wait behind it. So does a single one whose commit the database refuses, by a deferred
constraint, say; `report` itself answers all other refusals.
"""

from __future__ import annotations

from dataclasses import replace

from pgflowd.core.database_failure import DatabaseFailure
from pgflowd.core.failure import MAX_MESSAGE_CHARS, clean
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker import events, run_log
from pgflowd.core.worker.state import ConnectionState
from pgflowd.core.worker.task import TaskReport
from pgflowd.core.worker.transition import WorkerTransition
from pgflowd.core.worker.turns import MAX_TRIES, FailedTurn, TurnError

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
    least_s, most_s = options.reconnect_min_s, options.reconnect_max_s
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
    limit_s, size = state.options.statement_timeout_s, len(report.output or b"")
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


def count_undone(
    transition: WorkerTransition, report: TaskReport, answer: events.ReportAnswer
) -> None:
    """The turn was answered, but this report of it has to be sent again."""
    error = _turn_error(answer.message or "no reason given", answer.sqlstate, report)
    transition.state.turns = transition.state.turns.count_failure(transition.now, error)


def _turn_error(text: str, sqlstate: str | None, report: TaskReport | None) -> TurnError:
    if report is None:
        return TurnError(text, sqlstate)
    naming = run_log.naming(report.task)
    return TurnError(text, sqlstate, naming["run"], naming["task"])
