"""How many large results a worker has in memory, and what becomes of the runners that wait."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.engine import Play

from pgflowd.core import messages
from pgflowd.core.metrics.definitions import TASK_SECONDS
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.events import LeaseVerdict
from pgflowd.core.worker.runners import LAST_LIMIT_S, MAX_HELD_BYTES, READ_LIMIT_S
from pgflowd.core.worker.state import TaskPhase

HALF = MAX_HELD_BYTES // 2


def full() -> Play:
    """Four runners: two results are being read and fill the memory, and two handlers run."""
    play = Play()
    play.busy(1, 2, 3, 4, timeout_s=10.0)
    play.feed(events.NextDueRead(None))
    assert len(play.announced(1, HALF)) == 1 and len(play.announced(2, HALF)) == 1
    return play


def taken(play: Play) -> list[int]:
    return [action.id for action in play.did(actions.TakeResult)]


@covers("outside 3", "database 3")
def test_a_result_waits_in_its_runner_until_the_database_has_taken_others():
    play = full()
    assert not play.announced(3, HALF)

    play.done(1, output=b"x" * HALF)
    play.done(2, output=b"x" * HALF)
    assert not taken(play)
    play.answer()

    assert taken(play) == [play.runner_of(3)[0]]


@covers("outside 3")
def test_a_result_of_any_size_is_read_when_nothing_else_is_held():
    play = Play()
    play.busy(1, 2)

    assert play.announced(1, 10 * MAX_HELD_BYTES)
    assert not play.announced(2, 300_000)


@covers("outside 3")
def test_no_timeout_ends_a_handler_that_has_finished_and_waits():
    play = full()
    play.announced(3, HALF, after_s=9.0)
    play.feed(events.Tick(), after_s=20.0)

    assert play.runner_of(3)[0] not in [each.id for each in play.did(actions.ReadResult)]
    phases = play.task_phases()
    assert phases.count(TaskPhase.FINISHED) == 1


def test_a_result_that_is_announced_at_the_deadline_counts():
    play = full()
    play.feed(events.Tick(), after_s=10.0)
    assert play.did(actions.ReadResult)

    play.announced(3, HALF)
    play.feed(events.Tick(), after_s=15.0)

    assert not play.did(actions.TerminateRunner)
    assert play.task_phases().count(TaskPhase.FINISHED) == 1


def test_the_time_of_a_task_ends_with_its_handler():
    play = full()
    play.announced(3, HALF, after_s=4.0)
    play.done(1, after_s=90.0)
    play.done(2)
    play.answer()
    play.done(3)

    [observed] = [each for each in play.did(actions.Observe) if each.metric is TASK_SECONDS]
    assert observed.seconds == (4.0,)


def test_a_runner_that_sends_a_part_of_its_result_only_is_killed():
    play = full()

    play.feed(events.Tick(), after_s=READ_LIMIT_S)

    killed = {each.id for each in play.did(actions.KillRunner)}
    assert {play.runner_of(1)[0], play.runner_of(2)[0]} <= killed
    for runner in killed:
        play.feed(events.RunnerEnded(runner))
        play.feed(events.Reaped(runner, 9))
    waiting = [*play.sending(), *play.waiting_reports()]
    assert {each.outcome for each in waiting} == {Outcome.CRASHED}
    assert "E903" in (waiting[0].error_message or "")


def test_a_runner_whose_result_waits_gets_no_other_task_and_keeps_its_lease():
    play = full()
    play.announced(3, HALF)
    play.announced(4, HALF)

    play.feed(messages.Wake("a"))

    assert play.claiming() == 0
    assert set(play.leases()) == {1, 2, 3, 4}


def test_a_lost_lease_of_a_result_that_waits_is_left_to_the_answer_to_its_report():
    play = full()
    play.announced(3, HALF)

    play.renewed((3, LeaseVerdict.LOST))

    assert not play.did(actions.KillRunner) and not play.did(actions.ReadResult)


def test_a_runner_that_dies_while_its_result_waits_has_crashed():
    play = full()
    play.announced(3, HALF)
    runner, _ = play.runner_of(3)

    play.feed(events.RunnerEnded(runner))
    play.feed(events.Reaped(runner, 9))

    [report] = [*play.sending(), *play.waiting_reports()]
    assert report.outcome is Outcome.CRASHED
    play.done(1)
    play.done(2)
    assert runner not in taken(play)


@pytest.mark.parametrize("verdict", [LeaseVerdict.CANCEL, None])
def test_a_large_result_of_a_handler_that_was_asked_to_end_is_read(verdict):
    play = full()
    runner, _ = play.runner_of(3)
    play.renewed((3, verdict)) if verdict else play.feed(messages.QuickStop())
    play.feed(events.NoResultYet(runner, 3))
    assert runner in [each.id for each in play.did(actions.TerminateRunner)]

    play.announced(3, HALF)
    play.done(1, output=b"x" * HALF)
    play.done(2, output=b"x" * HALF)
    play.answer()

    assert runner in taken(play)
    play.done(3, output=b"y" * HALF)
    assert runner in [each.id for each in play.did(actions.KillRunner)]
    play.feed(events.RunnerEnded(runner))
    play.feed(events.Reaped(runner, 9))
    reports = [*play.sending(), *play.waiting_reports()]
    [report] = [each for each in reports if each.task.token == 3]
    assert report.outcome is (Outcome.COMPLETED if verdict else Outcome.RELEASED)
    assert report.output == b"y" * HALF


@covers("G5")
@pytest.mark.parametrize("when", ["in the grace", "at its end"])
def test_after_a_timeout_there_is_no_long_wait_for_a_large_result(when):
    play = full()
    runner, _ = play.runner_of(3)
    play.feed(events.Tick(), after_s=10.0)
    play.feed(events.NoResultYet(runner, 3))
    if when == "at its end":
        play.feed(events.Tick(), after_s=2.0)
        assert actions.ReadResult(runner, 3) in play.actions
    play.announced(3, HALF)
    assert runner not in [each.id for each in play.did(actions.KillRunner)]

    play.feed(events.Tick(), after_s=2.0 if when == "in the grace" else LAST_LIMIT_S)

    assert runner in [each.id for each in play.did(actions.KillRunner)]
