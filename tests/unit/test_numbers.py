"""What a child counts, and how little of it is kept."""

from __future__ import annotations

from test_dispatch import Play

from pgflowd.core.metrics.counters import LastMinute
from pgflowd.core.worker import events
from pgflowd.core.worker.state import RunnerPhase, TaskReport
from pgflowd.db.workers import Standing
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


def test_an_outcome_that_comes_after_the_timeout_is_not_counted_as_completed():
    play, numbers = Play(), WorkerMetrics()
    play.busy(1, timeout_s=60.0)
    (runner,) = play.state.runners.values()
    play.tell(events.Tick(), after_s=60.0)
    play.tell(events.NoResultYet(runner.id, 1))
    assert play.phases() == [RunnerPhase.TERMED]

    numbers.saw([events.Done(runner.id, TaskReport(runner.task, "completed", b"1"))], play.state)

    said = numbers.now(play.state, Standing("ok"), zygote=1)
    assert (said["completed_1m"], said["task_seconds"], said["p50_s"]) == (0, {}, None)
