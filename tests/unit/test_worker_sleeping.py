"""When a worker falls asleep: docs/background/supervision.md, rule 54."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.engine import MAIN, Play

from pgflowd.core import messages
from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.messages import FallingAsleep
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.state import WorkerMode

AFTER_S = 300.0


def idle(**options) -> Play:
    """A worker whose first claim brought nothing."""
    play = Play(sleep_after_s=AFTER_S, **options)
    play.answer()
    play.feed(events.NextDueRead(None))
    return play


def rest(play: Play, seconds: float = AFTER_S) -> list[FallingAsleep]:
    """Let time pass; claims bring nothing, and no message is queued. Return what it announced."""
    until = play.now + seconds
    announced: list[FallingAsleep] = []
    while play.now < until and play.mode() is WorkerMode.WORKING:
        play.wait()
        announced += answered(play)
    return announced


def answered(play: Play) -> list[FallingAsleep]:
    """Let the calls under way end well; return what the worker announces."""
    done = list(play.actions)
    for action in done:  # grows meanwhile
        if isinstance(action, actions.ReadNextDue):
            done += play.feed(events.NextDueRead(None))
        elif isinstance(action, actions.ReportAndClaim):
            done += play.answer()
        elif isinstance(action, actions.AddMinute):
            done += play.feed(events.SideCallDone(action.connection))
        elif isinstance(action, actions.CloseRunner):
            done += play.feed(events.RunnerEnded(action.id), events.Reaped(action.id, 0))
    sent = [action.message for action in done if isinstance(action, actions.SendMessage)]
    return [message for message in sent if isinstance(message, FallingAsleep)]


@covers("rule 54")
def test_after_a_long_time_without_a_task_it_says_so_signs_off_and_ends_with_11():
    play = idle()
    began = play.now

    [announced] = rest(play, AFTER_S + 60)
    assert began + AFTER_S <= play.now < began + AFTER_S + 40
    assert announced.next_due_at is None
    assert play.did(actions.SignOff)
    play.feed(events.SignedOff(MAIN))

    [leave] = play.did(actions.Leave)
    assert (leave.code, leave.why) == (11, "asleep")


@covers("rule 54")
def test_it_never_sleeps_without_sleep_after():
    play = Play()
    play.answer()
    play.feed(events.NextDueRead(None))

    assert rest(play, 100_000) == []


@covers("rule 54")
def test_a_task_begins_the_time_anew():
    play = idle()
    rest(play, AFTER_S - 40)
    play.feed(messages.Wake("a"))
    play.busy(1)
    play.done(1)
    play.answer()
    answered(play)

    assert rest(play, AFTER_S - 40) == []
    assert len(rest(play, 80)) == 1


@covers("rule 54")
def test_a_task_that_runs_for_longer_keeps_it_awake():
    play = idle()
    play.feed(messages.Wake("a"))
    play.busy(1, timeout_s=10 * AFTER_S)

    assert rest(play, 3 * AFTER_S) == []
    assert play.mode() is WorkerMode.WORKING


@covers("rule 54")
def test_a_message_that_is_due_soon_keeps_it_awake_and_a_later_one_is_announced():
    for in_s, sleeps in ((AFTER_S - 1, False), (AFTER_S + 1, True)):
        play = idle()
        play.feed(events.Tick(), after_s=AFTER_S)
        play.answer()  # of the claim after so long a silence
        while not play.did(actions.ReadNextDue):
            play.wait()
        play.feed(events.NextDueRead(in_s))
        announced = [each.next_due_at for each in play.did(FallingAsleep)]
        assert announced == ([play.now + in_s] if sleeps else [])


@covers("rule 54")
def test_a_wake_during_the_last_question_keeps_it_awake():
    play = idle()
    play.feed(messages.SleepIfIdle())
    assert play.did(actions.ReadNextDue)

    play.feed(messages.Wake("a"))
    play.feed(events.NextDueRead(None))

    assert not play.did(FallingAsleep)
    assert play.did(actions.ReportAndClaim)


@covers("rule 54")
@pytest.mark.parametrize("answer", [events.NextDueRead(None, 1), events.NextDueRead(0.5)])
def test_asked_to_sleep_it_stays_for_messages_that_wait_or_are_due_within_a_second(answer):
    play = idle()
    play.feed(messages.SleepIfIdle())
    play.feed(answer)

    assert not play.did(FallingAsleep)
    assert play.mode() is WorkerMode.WORKING


@covers("rule 54")
def test_asked_to_sleep_it_sleeps_at_once_though_a_message_is_due_later_and_it_never_would():
    play = Play(sleep_after_s=0.0)
    play.answer()
    play.feed(events.NextDueRead(60.0))

    play.feed(messages.SleepIfIdle())
    play.feed(events.NextDueRead(60.0))

    [announced] = play.did(FallingAsleep)
    assert announced.next_due_at == play.now + 60.0


@covers("rule 54")
def test_asked_to_sleep_while_a_task_runs_it_stays_and_forgets_it():
    play = Play()
    play.busy(1)
    play.feed(messages.SleepIfIdle())
    play.done(1)
    play.answer()
    play.feed(events.NextDueRead(None))

    assert play.mode() is WorkerMode.WORKING
    assert not play.did(FallingAsleep)


@covers("rule 54")
def test_asked_to_sleep_during_a_claim_it_waits_for_its_answer():
    play = Play()
    play.feed(messages.SleepIfIdle())
    assert not play.did(actions.ReadNextDue)
    play.answer()
    play.feed(events.NextDueRead(None))
    assert play.mode() is WorkerMode.WORKING

    play.wait()
    assert play.did(actions.ReadNextDue)
    play.feed(events.NextDueRead(None))

    assert play.did(FallingAsleep)


@covers("rule 54")
def test_without_the_database_it_stays_awake():
    play = idle()
    play.feed(events.ConnectionLost(MAIN, DatabaseFailure.RETRY, "lost"))

    play.feed(messages.SleepIfIdle())
    play.feed(events.Tick(), after_s=0.1)

    assert play.mode() is WorkerMode.WORKING
    assert not play.did(actions.ReadNextDue)


@covers("rule 54")
def test_idle_runners_are_gone_before_it_signs_off():
    play = idle()
    play.feed(messages.Wake("a"))
    play.busy(1)
    play.done(1)
    play.answer()
    play.feed(events.NextDueRead(None))
    play.feed(messages.SleepIfIdle())
    play.feed(events.NextDueRead(None))
    assert play.did(FallingAsleep)

    [closed] = play.did(actions.CloseRunner)
    assert not play.did(actions.SignOff)
    play.feed(events.RunnerEnded(closed.id))
    play.feed(events.Reaped(closed.id, 0))

    assert play.did(actions.SignOff)


@covers("rule 54")
def test_once_it_falls_asleep_it_claims_nothing_whatever_wakes_it():
    play = idle()
    play.feed(messages.SleepIfIdle())
    play.feed(events.NextDueRead(None))
    play.feed(messages.Wake("a"))

    assert not play.did(actions.ReportAndClaim)
    play.feed(events.SignedOff(MAIN))
    assert play.did(actions.Leave)[0].code == 11
