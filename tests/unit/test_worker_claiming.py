"""When a worker claims next: the schedule alone, without the rest of the engine."""

from __future__ import annotations

import pytest
from support.engine import OPTIONS

from pgflowd.core.worker import claiming, events
from pgflowd.core.worker.state import ClaimSchedule, NextDueQuestion, WakeReason, WorkerOptions

NOW = 100.0
POLLING = WorkerOptions(is_polling=True, poll_min_s=0.05, poll_max_s=5.0, sleep_after_s=0.0)


def after_claim(
    schedule: ClaimSchedule,
    got: int,
    *,
    wanted: int = 4,
    had_reports: bool = False,
    options: WorkerOptions = OPTIONS,
    is_looking: bool = False,
    chance: float = 1.0,
) -> ClaimSchedule:
    claiming.claim_begins(schedule, had_reports)
    claiming.claim_has_ended(
        schedule,
        options,
        NOW,
        wanted=wanted,
        got=got,
        had_reports=had_reports,
        is_looking=is_looking,
        chance=chance,
    )
    return schedule


def test_a_full_claim_is_followed_by_another_at_once():
    assert after_claim(ClaimSchedule(), got=4).is_due


def test_a_claim_that_got_less_waits_for_the_fallback():
    schedule = after_claim(ClaimSchedule(), got=1)

    assert not schedule.is_due
    assert (schedule.check_at, schedule.reason) == (
        NOW + OPTIONS.notify_fallback_s,
        WakeReason.FALLBACK,
    )


@pytest.mark.parametrize(
    ("got", "had_reports", "question"),
    [
        (0, False, NextDueQuestion.NOW),
        (0, True, NextDueQuestion.WHEN_IDLE),
        (1, False, NextDueQuestion.WHEN_IDLE),
    ],
)
def test_after_a_claim_the_database_is_asked_when_the_next_message_is_due(
    got, had_reports, question
):
    assert after_claim(ClaimSchedule(), got, had_reports=had_reports).question is question


def test_after_a_fallback_the_answer_comes_with_the_next_renewal_of_leases():
    schedule = after_claim(ClaimSchedule(), got=0)
    schedule.question = NextDueQuestion.NO
    claiming.time_has_come(schedule)

    assert after_claim(schedule, got=0).question is NextDueQuestion.NO


def test_a_wake_ends_what_only_a_fallback_began():
    schedule = after_claim(ClaimSchedule(), got=0)
    claiming.time_has_come(schedule)
    claiming.claim_now(schedule)

    assert schedule.is_due and not schedule.is_fallback


def test_the_next_message_is_claimed_when_it_is_due_and_not_later_than_the_fallback():
    schedule = after_claim(ClaimSchedule(), got=0)

    claiming.next_message_due(schedule, OPTIONS, NOW, 1.5)
    claiming.next_message_due(schedule, OPTIONS, NOW, 99.0)

    assert (schedule.check_at, schedule.reason) == (NOW + 1.5, WakeReason.DUE)


def test_visible_messages_that_no_claim_gets_are_left_alone_for_longer_and_longer():
    schedule, pauses = ClaimSchedule(), []
    for _ in range(4):
        after_claim(schedule, got=0)
        claiming.next_due_read(schedule, OPTIONS, NOW, events.NextDueRead(None, visible=3))
        pauses.append(round(schedule.check_at - NOW, 3))

    assert pauses == [0.001, 0.1, 0.2, 0.4]


def test_polling_draws_its_pauses_between_the_limits_and_begins_anew_after_work():
    schedule, pauses = ClaimSchedule(), []
    for _ in range(8):
        after_claim(schedule, got=0, options=POLLING)
        pauses.append(round(schedule.check_at - NOW, 3))

    assert pauses == [0.05, 0.15, 0.45, 1.35, 4.05, 5.0, 5.0, 5.0]
    assert round(after_claim(schedule, got=1, options=POLLING).check_at - NOW, 3) == 0.05
