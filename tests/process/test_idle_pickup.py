"""The time until an idle daemon begins a started run (docs/background/failures.md, P23)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.covers import covers

from pgflowd.testing.until import until

FLOW = """
from pgflowd import Flow
flow = Flow("flow", base_delay=1)

@flow.step
def work(run, ctx):
    if run and ctx.attempt == 1:
        raise ValueError("again, after 2 s")
    return 1
"""
LATER = """

@flow.step(start_delay=1)
def later(work): return work
"""
RUNS = 40
BUSY = 2  # the bounds of the page, doubled for machines with other work
SOON = BUSY * timedelta(milliseconds=200)
LATE = BUSY * timedelta(milliseconds=500)
EARLY = timedelta(milliseconds=-200)  # a claim is dated by its transaction, which reports first


def waited(conn: Any, step: str = "work") -> list[timedelta]:
    """How long each task waited from the moment it might start to its claim; ascending."""
    query = """
        select attempt.started_at - task.queued_at
               - make_interval(secs => coalesce(step.opt_start_delay, 0))
          from pgflowd.attempts as attempt
          join pgflow.step_tasks as task using (run_id, step_slug, task_index)
          join pgflow.steps as step on step.flow_slug = task.flow_slug
                                   and step.step_slug = task.step_slug
         where step.step_slug = %s and attempt.attempt = 1 order by 1
    """
    return [row[0] for row in conn.execute(query, (step,)).fetchall()]


@covers("P23")
@pytest.mark.timing
def test_an_idle_daemon_begins_95_of_100_runs_within_200_ms(setup, database):
    setup.module("flows", FLOW)
    setup.serve(worker={"heartbeat_interval": "600ms", "notify_fallback": "1m"})
    conn = database.connect()

    for _ in range(RUNS):
        database.client.start_flow_sync("flow", 0, timeout=10)

    assert waited(conn)[RUNS * 95 // 100 - 1] < SOON


@covers("P23")
@pytest.mark.timing
def test_a_sleeping_flow_begins_half_of_its_runs_within_100_ms_beyond_the_import(setup, database):
    setup.module("flows", FLOW)
    daemon = setup.serve(worker={"sleep_after": "50ms", "notify_fallback": "1m"})
    imports = []

    for _ in range(RUNS // 4):
        until(lambda: daemon.state_of("flow") == "asleep", 10)
        database.client.start_flow_sync("flow", 0, timeout=10)
        imports.append(daemon.ask()["flows"][0]["import_s"])

    waits = waited(database.connect())
    beyond = waits[len(waits) // 2] - timedelta(seconds=sorted(imports)[len(imports) // 2])
    assert beyond < BUSY * timedelta(milliseconds=100)


@covers("P23")
def test_without_the_trigger_it_claims_after_notify_fallback(setup, database):
    setup.module("flows", FLOW)
    setup.serve(worker={"notify_fallback": "1s"})
    conn = database.connect()
    conn.execute("alter table pgmq.q_flow disable trigger pgflowd_notify")

    database.client.start_flow_sync("flow", 0, timeout=10)

    [wait] = waited(conn)
    assert wait > EARLY


@covers("P23")
def test_a_delayed_task_is_not_begun_early(setup, database):
    setup.module("flows", FLOW + LATER)
    setup.serve(worker={"notify_fallback": "1m"})
    conn = database.connect()

    for run in database.client.start_flows("flow", [0, 1, 1]):
        until(lambda run=run: database.client.get_run(run.run_id).status == "completed", 10)

    delays = waited(conn, "later")
    assert delays[0] > EARLY
    query = """
        select second.started_at - first.ended_at from pgflowd.attempts as first
          join pgflowd.attempts as second using (run_id, step_slug, task_index)
         where first.attempt = 1 and second.attempt = 2
    """
    retries = [row[0] - timedelta(seconds=2) for row in conn.execute(query).fetchall()]
    assert len(retries) == 2
    assert all(late > EARLY for late in retries)


@covers("P23")
@pytest.mark.timing
def test_a_delayed_task_is_begun_half_a_second_late_at_most(setup, database):
    setup.module("flows", FLOW + LATER)
    setup.serve(worker={"notify_fallback": "1m"})

    runs = database.client.start_flows("flow", [0, 0])
    until(lambda: all(database.client.get_run(run.run_id).status == "completed" for run in runs), 9)

    assert waited(database.connect(), "later")[-1] < LATE
