"""
How an idle worker finds new work (docs/background/failures.md, P23).

Counted in claims, not in seconds.
"""

from __future__ import annotations

from dataclasses import replace

from support.covers import covers
from support.worker import PROFILE_T

from pgflowd.core.messages import Heartbeat
from pgflowd.core.settings.sections import SupervisorSettings
from pgflowd.testing.until import until

FLOW = """
    from pgflowd import Flow
    flow = Flow("flow")

    @flow.step
    def work(run): return 1

    @flow.step(start_delay=1)
    def later(work): return work
"""
DEAF = {"heartbeat_interval_s": 60.0, "notify_fallback_s": 60.0}  # only a wake is in time
RUNS = 20


def looks(worker):
    return worker.records("worker.poll")


def is_idle(worker):
    """Whether its last look found nothing, and nothing runs."""
    return looks(worker) and looks(worker)[-1]["claimed"] == 0 and worker.title().endswith("0/10")


@covers("P23")
def test_one_wake_is_enough_for_an_idle_worker(start_worker):
    module = FLOW.partition("@flow.step(")[0]
    worker = start_worker(module, **DEAF)
    until(lambda: is_idle(worker))
    before = len(looks(worker))

    for _ in range(RUNS):
        worker.completed(worker.start_run())

    query = """
        select percentile_disc(0.5) within group (order by started_at - queued_at) < '200 ms'
          from pgflow.step_tasks
    """
    assert worker.value(query)
    found = [record["claimed"] for record in looks(worker)[before:]]
    assert sum(found) == RUNS
    assert len(found) <= 3 * RUNS  # the wake's, the report's, and a stray one


@covers("P23", "row 88")
def test_without_a_notification_the_fallback_finds_it(start_worker):
    worker = start_worker(FLOW, heartbeat_interval_s=60.0, notify_fallback_s=0.3)
    until(lambda: is_idle(worker))

    run = worker.start("flow")

    assert worker.completed(run)


@covers("P23", "row 92")
def test_what_is_delayed_is_claimed_when_it_is_due(start_worker):
    worker = start_worker(FLOW, **DEAF)

    run = worker.start_run()

    assert worker.completed(run)
    query = (
        "select started_at - queued_at >= '1 s' from pgflow.step_tasks where step_slug = 'later'"
    )
    assert worker.value(query)


def test_how_long_tasks_waited_for_their_claim_is_counted_by_step(start_worker):
    often = replace(PROFILE_T, supervisor=SupervisorSettings(hang_timeout_s=1.0))
    worker = start_worker(FLOW, settings=often)
    worker.completed(worker.start_run())

    told = until(lambda: waits(worker) if "later" in waits(worker) else None)

    assert {step: sum(histogram[:-1]) for step, histogram in told.items()} == {
        "work": 1,
        "later": 1,
    }


def waits(worker):
    """The newest histograms that the worker sent."""
    beats = [each.numbers for each in worker.receive() if isinstance(each, Heartbeat)]
    return next((n["task_wait_seconds"] for n in beats[::-1] if "task_wait_seconds" in n), {})
