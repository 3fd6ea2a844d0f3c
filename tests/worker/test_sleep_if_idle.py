"""A worker that is asked to give its place away: docs/background/supervision.md, rule 54."""

from __future__ import annotations

from support.covers import covers
from support.worker import is_gone

from pgflowd.core.messages import FallingAsleep, SleepIfIdle
from pgflowd.testing.until import until

MODULE = """
    import os, time
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=1, timeout=20)

    @flow.step
    def work(run):
        while not os.path.exists(run["until"]):
            time.sleep(0.005)

    @flow.step(start_delay=600)
    def later(work): return work
"""


@covers("rule 54")
def test_asked_to_sleep_a_worker_stays_while_it_has_work_and_then_ends_with_all_below_it(
    start_worker, tmp_path
):
    worker, gate = start_worker(MODULE), tmp_path / "gate"
    worker.start_run({"until": str(gate)})
    until(lambda: worker.runners)
    zygote = worker.zygote

    worker.send(SleepIfIdle())
    gate.touch()
    running = "select count(*) from pgflow.step_tasks where status = 'started'"
    until(lambda: worker.value(running) == 0)
    assert worker.received(FallingAsleep) is None

    def has_slept_in() -> bool:  # as the supervisor asks: until it is idle, again and again
        worker.send(SleepIfIdle())
        return bool(worker.child.has_ended())

    until(has_slept_in, 10)
    assert worker.ended() == 11
    assert worker.received(FallingAsleep).next_due_at is not None
    assert is_gone(zygote)
    assert worker.value("select stopped_at is not null from pgflow.workers")
