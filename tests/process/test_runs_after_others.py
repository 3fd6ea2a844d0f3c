"""Runs that begin after others, with a daemon whose processes and clients are killed."""

from __future__ import annotations

import threading

import psycopg
import pytest
from support.covers import covers
from support.daemon import is_completed, terminate_all

from pgflowd import Client
from pgflowd.core.statuses import RunStatus
from pgflowd.errors import Unreachable
from pgflowd.testing.until import until

FLOW = """
from pgflowd import Fail, Flow
flow = Flow("link", max_attempts=1, timeout=60)

@flow.step
def work(run):
    if run.get("fails"):
        raise Fail("as it must")
    return run["n"]
"""
NO_SWEEP = {"recovery_interval": "1h"}  # so that nothing but what a test looks at helps
EARLY = """
select count(*) from pgflow.runs as first join pgflow.runs as second
  on (second.input ->> 'n')::int = (first.input ->> 'n')::int + 1
 where second.started_at < first.completed_at
"""


@pytest.fixture
def links(setup):
    setup.module("flow_link", FLOW)
    return setup


@pytest.fixture
def client(database):
    with Client(database.dsn) as client:
        yield client


def value(database, query):
    return database.connect().execute(query).fetchone()[0]


@covers("G18")
def test_a_chain_begins_link_by_link_and_what_follows_a_failure_is_cancelled(
    links, database, client
):
    links.serve(recovery=NO_SWEEP)
    runs = [client.start_flow("link", {"n": 0})]
    for n in range(1, 8):
        runs.append(client.start_flow("link", {"n": n}, after=[runs[-1].run_id]))
    failing = client.start_flow("link", {"fails": True}, after=[run.run_id for run in runs])
    behind = client.start_flow("link", {"n": 100}, after=[failing.run_id])
    cleanup = client.start_flow("link", {"n": 200}, after=[behind.run_id], after_mode="ended")

    assert client.wait(cleanup.run_id, timeout=30).status is RunStatus.COMPLETED
    assert client.get_run(failing.run_id).status is RunStatus.FAILED
    ended = client.get_run(behind.run_id)
    assert (ended.status, ended.cancelled_by) == (RunStatus.CANCELLED, "pgflowd")
    assert ended.cancel_reason == f"run {failing.run_id} did not complete: it is failed (E428)"
    assert value(database, EARLY) == 0


@covers("G18")
def test_runs_begin_after_others_whoever_is_killed(links, database, client):
    daemon = links.serve(recovery={"recovery_interval": "1s"})
    keys = [f"{n}" for n in range(40)]

    def start_chain() -> None:
        """Each link waits for the one before it; whoever comes next goes on."""
        before = []
        with psycopg.connect(database.dsn, application_name="starter") as conn:
            for n, key in enumerate(keys):
                run = client.start_flow("link", {"n": n}, key=key, after=before, conn=conn)
                conn.commit()
                before = [run.run_id]

    def be_cut_off() -> None:
        with pytest.raises((psycopg.Error, Unreachable)):
            while True:
                start_chain()

    begun = "select count(*) from pgflow.runs"
    for kill in range(4):
        starter = threading.Thread(target=be_cut_off)
        starter.start()
        until(lambda least=3 * kill: value(database, begun) > least, 30)
        daemon.kill("sweeper")
        until(lambda alive=starter: terminated(database) and not alive.is_alive(), 20)
    start_chain()

    last = client.start_flow("link", {"n": 1000}, key=keys[-1])
    until(lambda: is_completed(database, last.run_id), 60)
    assert value(database, begun) == len(keys)
    assert value(database, EARLY) == 0
    assert value(database, "select count(*) from pgflowd.awaits") == 0


def terminated(database) -> bool:
    terminate_all(database, "starter")
    return True
