"""What a worker sends next, after turns with its database that failed or took too long."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.engine import MAIN, SECOND, Play

from pgflowd.core import messages
from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.settings.sections import DatabaseSettings
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.events import Verdict
from pgflowd.core.worker.task import MAX_BYTES

RETRY, BROKEN = DatabaseFailure.RETRY, DatabaseFailure.BROKEN


def next_turn(play: Play) -> tuple[int, int]:
    """How many reports and claims the call under way has; waits until there is one."""
    for _ in range(20):
        if play.sending() or play.claiming():
            return len(play.sending()), play.claiming()
        play.wait()
        if play.did(actions.Connect):
            play.feed(*(events.Connected(each.connection) for each in play.did(actions.Connect)))
        if any(each.connection is SECOND for each in play.did(actions.RenewLeases)):
            play.renewed()
        if play.did(actions.ReadNextDue):
            play.feed(events.NextDueRead(None))
    raise AssertionError("no turn")


def fail(play: Play, failure: DatabaseFailure = RETRY, sqlstate: str | None = "57014") -> None:
    """Let the call under way fail."""
    play.feed(events.ConnectionLost(MAIN, failure, "no", 1.0, sqlstate))


def cut(play: Play, *, is_renewed: bool) -> None:
    """Let the call under way take until our own limit."""
    while not play.did(actions.CutConnection):
        play.wait()
        if is_renewed and play.did(actions.Connect):
            play.feed(events.Connected(SECOND))
        if is_renewed and play.did(actions.RenewLeases):
            play.renewed()
    fail(play, RETRY, None)


def with_reports(count: int, size: int = 1) -> Play:
    """A worker whose call under way has no reports, while so many wait behind it."""
    play = Play(max_concurrency=count + 2, batch_size=count)
    play.busy(*range(1, count + 1))
    for token in range(1, count + 1):
        play.done(token, output=b"x" * size)
    return play


@covers("database 3")
def test_a_batch_holds_16_mib_of_outputs_and_one_report_at_least():
    play = with_reports(10, MAX_BYTES // 4)
    play.claim()

    assert next_turn(play)[0] == 4
    play.answer()
    assert next_turn(play)[0] == 4

    huge = with_reports(2, MAX_BYTES + 1)
    huge.claim()
    assert next_turn(huge)[0] == 1


@covers("database 3")
def test_a_turn_that_takes_too_long_is_halved_without_a_claim_and_grows_again():
    play = with_reports(8)
    play.claim()

    assert next_turn(play) == (8, 8)
    fail(play)
    assert next_turn(play) == (4, 0)
    fail(play)
    assert next_turn(play) == (2, 0)
    play.answer()
    assert next_turn(play) == (4, 0)
    play.answer()
    assert next_turn(play) == (2, 0)
    play.answer()
    assert next_turn(play) == (0, 1)
    play.claim(20)
    assert next_turn(play) == (0, 2)


@covers("outside 1")
def test_reports_never_wait_for_a_claim_that_fails():
    play = with_reports(3)
    fail(play, BROKEN, "54000")

    assert next_turn(play) == (3, 0)
    play.answer()
    assert next_turn(play) == (0, 1)
    fail(play, BROKEN, "54000")
    play.feed(messages.Wake("a"))
    assert next_turn(play) == (0, 1)


@covers("database 1")
def test_claims_after_a_faulty_one_ask_for_one_task_and_then_for_more():
    play = Play(max_concurrency=8)
    assert play.claiming() == 8
    fail(play, BROKEN, "54000")

    sizes = []
    for token in range(1, 4):
        sizes.append(next_turn(play)[1])
        play.claim(token * 10, *range(token * 10 + 1, token * 10 + sizes[-1]))

    assert sizes == [1, 2, 4]


def test_a_faulty_claim_is_tried_again_after_growing_pauses_and_costs_reports_none():
    play = Play(database=DatabaseSettings(reconnect_min_s=1.0, reconnect_max_s=30.0))
    pauses = []
    for _ in range(7):
        assert next_turn(play)[0] == 0
        fail(play, BROKEN, "54000")
        began = play.now
        next_turn(play)
        pauses.append(play.now - began)

    assert pauses == [1, 2, 4, 8, 16, 30, 30]


@covers("database 3", "outside 2")
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_report_that_takes_too_long_three_times_alone_becomes_a_failure_of_its_task(is_cut):
    play = with_reports(2)
    play.claim()
    assert next_turn(play) == (2, 2)
    fail(play)

    for _ in range(3):
        assert next_turn(play) == (1, 0)
        assert play.sending()[0].outcome is Outcome.COMPLETED
        cut(play, is_renewed=True) if is_cut else fail(play)
    next_turn(play)
    [failure] = play.sending()

    assert failure.task.token == 1 and failure.outcome is Outcome.FAILED
    assert not failure.retry and failure.is_final
    assert "could not record the outcome in 30 s" in (failure.error_message or "")
    play.answer(Verdict.FAILED)
    next_turn(play)
    assert [each.task.token for each in play.sending()] == [2]


def test_an_outcome_is_kept_while_the_database_answers_nothing_at_all():
    play = with_reports(1)
    play.claim()

    for _ in range(10):
        next_turn(play)
        cut(play, is_renewed=False)
    next_turn(play)

    assert play.sending()[0].outcome is Outcome.COMPLETED


def test_a_lost_connection_changes_nothing_about_the_next_turn():
    play = with_reports(4)
    play.claim()
    assert next_turn(play) == (4, 4)

    fail(play, RETRY, "57P01")

    assert next_turn(play) == (4, 4)


def test_a_turn_that_loses_its_connection_again_and_again_gets_smaller():
    play = with_reports(4)
    play.claim()
    for _ in range(3):
        assert next_turn(play) == (4, 4)
        fail(play, RETRY, None)

    assert next_turn(play) == (2, 0)


def test_a_report_that_fails_by_a_fault_alone_does_not_keep_the_others_waiting():
    play = with_reports(2)
    play.claim()
    next_turn(play)
    fail(play, BROKEN, "54000")

    next_turn(play)
    assert [each.task.token for each in play.sending()] == [1]
    fail(play, BROKEN, "54000")
    next_turn(play)

    assert [each.task.token for each in play.sending()] == [2]


def test_failures_in_a_row_are_counted_with_the_last_error_until_the_line_works_again():
    play = with_reports(2)
    play.claim()
    next_turn(play)
    fail(play)
    next_turn(play)
    fail(play, BROKEN, "54000")

    turns = play.turns()
    assert (turns.failures, turns.error.sqlstate, turns.error.text) == (2, "54000", "no")
    assert (turns.error.run_id, turns.error.task) == ("run1", "a#0")
    next_turn(play)
    play.answer()
    next_turn(play)
    play.answer()
    assert play.turns().failures == 2, "the claim was not tried yet"
    next_turn(play)
    play.claim()
    assert play.turns().failures == 0 and play.turns().error is None


def test_a_report_whose_run_is_locked_counts_as_a_failure_until_it_is_recorded():
    play = with_reports(1)
    play.claim()
    next_turn(play)
    play.answer(Verdict.ERROR, sqlstate="55P03", message="canceling statement due to lock timeout")
    assert (play.turns().failures, play.turns().error.task) == (1, "a#0")

    next_turn(play)
    play.answer()

    assert play.turns().failures == 0


def test_a_line_that_is_back_counts_as_such_even_if_there_is_nothing_to_report_or_claim():
    play = Play(max_concurrency=1)
    play.claim(1)
    play.ready()
    play.feed(events.NextDueRead(None))
    play.feed(messages.Wake("a"))
    play.feed(events.ConnectionLost(MAIN, RETRY, "gone", 1.0))
    assert play.turns().failures == 1

    while not play.did(actions.Connect):
        play.wait()
    play.feed(events.Connected(MAIN))
    play.feed(events.NextDueRead(None))

    assert play.turns().failures == 0


@covers("database 3")
def test_a_call_that_took_until_it_was_cancelled_counts_from_its_beginning():
    play = with_reports(1)
    play.claim()
    next_turn(play)
    began = play.now

    cut(play, is_renewed=True)

    assert play.now >= began + 30
    assert play.turns().failing_since == began


@covers("outside 11", "database 3")
def test_a_report_whose_commit_is_refused_becomes_a_failure_of_its_task():
    play = with_reports(2)
    play.claim()
    next_turn(play)
    fail(play, BROKEN, "23514")
    assert next_turn(play) == (1, 0)

    fail(play, BROKEN, "23514")

    assert next_turn(play) == (1, 0)
    assert [(each.task.token, each.outcome) for each in play.sending()] == [(2, "completed")]
    play.answer()
    assert next_turn(play) == (1, 0)
    [failure] = play.sending()
    assert (failure.task.token, failure.outcome) == (1, "failed")
    assert failure.retry and "the database refused the report: no (23514)" in failure.error_message
    play.answer(Verdict.QUEUED)
    assert next_turn(play)[1]
