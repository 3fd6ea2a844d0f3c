"""How an idle worker comes by new work (failures.md, P23). Counted in looks, not in seconds."""

from __future__ import annotations

from running_worker import start_run

from pgflowd.testing.until import until

FLOW = """
    from pgflowd import Flow
    flow = Flow("flow")

    @flow.step
    def work(run): return 1

    @flow.step(start_delay=1)
    def later(work): return work
"""
DEAF = {"heartbeat_interval_s": 60.0, "notify_fallback_s": 60.0}  # only a wake can tell it
RUNS = 20


def looks(worker):
    return worker.records("worker.poll")


def is_idle(worker):
    """Whether its last look found nothing, and nothing runs."""
    return looks(worker) and looks(worker)[-1]["claimed"] == 0 and worker.title().endswith("0/10")


def test_p23_one_wake_is_enough_for_an_idle_worker(start_worker):
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


def test_p23_without_a_notification_the_fallback_finds_it(start_worker):
    worker = start_worker(FLOW, heartbeat_interval_s=60.0, notify_fallback_s=0.3)
    until(lambda: is_idle(worker))

    run = start_run(worker.conn, "flow")

    assert worker.completed(run)


def test_p23_what_is_delayed_is_claimed_when_it_is_due(start_worker):
    worker = start_worker(FLOW, **DEAF)

    run = worker.start_run()

    assert worker.completed(run)
    query = (
        "select started_at - queued_at >= '1 s' from pgflow.step_tasks where step_slug = 'later'"
    )
    assert worker.value(query)
