"""The sweeper with tasks of foreign workers that have vanished."""

from __future__ import annotations

import uuid

import pytest
from support.covers import covers

from pgflowd.testing.until import until

GIVEN_BACK_BEFORE = "requeued_count = 3, last_requeued_at = now(), permanently_stalled_at = now()"


@pytest.fixture
def conn(database, setup):
    """A connection to a database with two flows that no daemon serves."""
    setup.breaks_invariants = True
    conn = database.connect()
    for slug, timeout_s in (("short", 60), ("long", 7200)):
        conn.execute("select pgflow.create_flow(%s, timeout => %s)", (slug, timeout_s))
        conn.execute("select pgflow.add_step(%s, 'work')", (slug,))
    return conn


def plant(conn, slug):
    """Start a run whose task a worker of upstream's took an hour ago and never reported."""
    worker_id = uuid.uuid4()
    conn.execute(
        "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, %s, 'gone')",
        (worker_id, slug),
    )
    (run_id,) = conn.execute("select run_id from pgflow.start_flow(%s, '{}')", (slug,)).fetchone()
    (msg_id,) = conn.execute(
        "select message_id from pgflow.step_tasks where run_id = %s", (run_id,)
    ).fetchone()
    conn.execute("select pgflow.start_tasks(%s, array[%s::bigint], %s)", (slug, msg_id, worker_id))
    change(conn, run_id, "queued_at = queued_at - interval '1 hour'")
    change(conn, run_id, "started_at = started_at - interval '1 hour'")
    return run_id


def change(conn, run_id, what):
    conn.execute(f"update pgflow.step_tasks set {what} where run_id = %s", (run_id,))


def task(conn, run_id):
    """Status and error of the run's only task."""
    query = "select status, error_message from pgflow.step_tasks where run_id = %s"
    return conn.execute(query, (run_id,)).fetchone()


def run_status(conn, run_id):
    return conn.execute("select status from pgflow.runs where run_id = %s", (run_id,)).fetchone()[0]


def serve(setup):
    """Start a daemon which serves another flow, and sweeps."""
    setup.flow("alpha")
    return setup.serve()


@covers("P20")
def test_what_an_upstream_worker_left_is_given_back(setup, conn):
    left = plant(conn, "short")
    daemon = serve(setup)

    (record,) = daemon.until("sweeper.recovered")

    assert task(conn, left) == ("queued", None)
    assert (record["level"], record["count"]) == ("warning", 1)
    until(lambda: daemon.ask()["sweeper"]["recovered_24h"] == 1)


@covers("P20")
def test_a_long_step_within_its_timeout_is_left_alone(setup, conn):
    running, left = plant(conn, "long"), plant(conn, "short")
    daemon = serve(setup)

    daemon.until("sweeper.recovered")  # so it has looked at both

    assert task(conn, left)[0] == "queued"
    assert task(conn, running)[0] == "started"


@covers("P20", "E408")
def test_a_task_released_three_times_is_failed_and_reported(setup, conn):
    given_up = plant(conn, "short")
    change(conn, given_up, GIVEN_BACK_BEFORE)
    daemon = serve(setup)

    (record,) = daemon.until("sweeper.given_up")
    (failed,) = daemon.until("run.failed")

    assert run_status(conn, given_up) == "failed"
    assert task(conn, given_up) == ("failed", "stalled, and was given back 3 times before")
    assert (record["level"], record["count"], record["code"]) == ("warning", 1, "E408")
    assert (failed["level"], failed["run"], failed["flow"]) == ("warning", str(given_up), "short")
    assert (failed["step"], failed["error"]) == ("work", task(conn, given_up)[1])
    until(lambda: daemon.ask()["sweeper"]["given_up_24h"] == 1)
    assert daemon.ask()["sweeper"]["recovered_24h"] == 0


@covers("P20")
def test_the_task_of_a_failed_run_is_ended(setup, conn):
    failed = plant(conn, "short")
    conn.execute(
        "update pgflow.runs set status = 'failed', failed_at = now() where run_id = %s", (failed,)
    )
    daemon = serve(setup)

    until(lambda: task(conn, failed)[0] == "failed")

    assert daemon.events("sweeper.recovered") + daemon.events("sweeper.given_up") == []


@covers("P20")
def test_a_task_without_a_message_is_not_an_error(setup, conn):
    without, left = plant(conn, "short"), plant(conn, "short")
    change(conn, without, "message_id = null")
    daemon = serve(setup)
    pid = daemon.pid_of("sweeper")

    until(lambda: task(conn, left)[0] == "queued")

    until(lambda: daemon.ask()["sweeper"]["last_sweep_s"] is not None)
    assert task(conn, without)[0] == "queued"
    assert daemon.events(level="error") + daemon.events("child.restarted") == []
    assert daemon.pid_of("sweeper") == pid


@covers("outside 4")
def test_tasks_whose_queue_was_purged_run_all_the_same(setup, database):
    setup.flow("alpha")
    setup.flow("beta")
    first = setup.serve("one", pgflowd={"flows": ["flow_beta"]})
    with database.connect() as conn:
        conn.execute("select pgflow.create_flow('alpha'), pgflow.add_step('alpha', 'work')")
        runs = [database.client.start_flow("alpha", {}).run_id for _ in range(3)]
        conn.execute("select pgmq.purge_queue('alpha')")

    (record,) = first.until("sweeper.recovered")
    setup.serve("two")

    assert (record["count"], record["reason"]) == (3, "its message was gone")
    for run in runs:
        until(lambda run=run: database.client.get_run(run).status == "completed")
