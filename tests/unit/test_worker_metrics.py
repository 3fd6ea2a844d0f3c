"""What a worker counts, and how little of it is kept."""

from __future__ import annotations

from support.engine import Play

from pgflowd.core import messages
from pgflowd.core.metrics.definitions import MISSED_NOTIFICATIONS, TASK_SECONDS, TASKS, LastMinute
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.state import WorkerOptions, WorkerState
from pgflowd.core.worker.task import TaskReport
from pgflowd.processes.worker.metrics import WorkerMetrics


def test_the_last_minute_is_counted_however_much_happens_in_it():
    minute = LastMinute()
    for second in range(100):
        minute.add("completed", 1000.5 + second, 1000)

    assert minute.counts(1099.9) == {"completed": 60 * 1000}
    assert minute.counts(1130.0) == {"completed": 30 * 1000}


def test_after_a_quiet_minute_nothing_is_left():
    minute = LastMinute()
    minute.add("failed", 10.0)

    assert minute.counts(11.0) == {"failed": 1}
    assert minute.counts(80.0) == {}


def numbers_of(play: Play) -> WorkerMetrics:
    """The metrics after the last decisions."""
    metrics = WorkerMetrics()
    for action in play.did(actions.Count):
        metrics.count(action)
    for action in play.did(actions.Observe):
        metrics.observe(action)
    return metrics


def said(metrics: WorkerMetrics) -> dict[str, object]:
    return metrics.now(WorkerState(WorkerOptions()), zygote=1)


def test_a_completed_task_is_counted_and_its_time_observed():
    play = Play()
    play.busy(1)
    play.done(1, after_s=0.5)

    numbers = said(numbers_of(play))

    assert (numbers["completed_1m"], numbers["failed_1m"], numbers["p50_s"]) == (1, 0, 0.5)
    assert sum(numbers["task_seconds"]["a"][:-1]) == 1
    play.answer()
    assert said(numbers_of(play))["tasks"] == {"a": {"completed": 1}}


def test_a_result_after_the_timeout_counts_once_and_as_timed_out_even_in_the_same_batch():
    play = Play()
    play.busy(1, timeout_s=60.0)
    runner, given = play.runner_of(1)
    play.feed(events.Tick(), after_s=60.0)
    done = events.Done(runner, TaskReport(given, Outcome.COMPLETED, b"1"))

    play.feed(events.NoResultYet(runner, 1), done)

    assert play.did(actions.KillRunner) and not play.did(actions.Count)
    assert not [each for each in play.did(actions.Observe) if each.metric is TASK_SECONDS]
    play.feed(events.RunnerEnded(runner))
    play.feed(events.Reaped(runner, 9))
    play.answer()  # to the claim that was due meanwhile; it takes the report along
    play.answer()
    assert play.counted(TASKS) == [("a", "timed_out", 1)]
    numbers = said(numbers_of(play))
    assert (numbers["completed_1m"], numbers["failed_1m"]) == (0, 1)


def test_tasks_that_a_claim_after_a_silence_brings_are_a_missed_notification():
    play = Play()
    play.answer()
    play.feed(events.NextDueRead(None))
    play.feed(messages.Wake("a"))
    play.claim(1)
    assert play.counted(MISSED_NOTIFICATIONS) == []

    play = Play()
    play.answer()
    play.feed(events.NextDueRead(None))
    play.feed(events.Tick(), after_s=30.0)
    assert play.counted(MISSED_NOTIFICATIONS) == []
    play.claim(1)

    assert play.counted(MISSED_NOTIFICATIONS) == [(1,)]
    assert said(numbers_of(play))["missed_notifications"] == 1
