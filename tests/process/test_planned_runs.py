"""Runs that begin later in a daemon: on time, once, and whoever is killed; expiry ends handlers."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from support.covers import covers
from support.daemon import is_completed, terminate_all

from pgflowd import Client
from pgflowd.core.statuses import RunStatus
from pgflowd.errors import Unreachable
from pgflowd.testing.until import until

FLOW = """
import pathlib, time
from pgflowd import Flow
flow = Flow("later", max_attempts=1, timeout=60)

@flow.step
def work(run):
    if run.get("began"):
        pathlib.Path(run["began"]).touch()
        time.sleep(50)
    return run["n"]

asked = Flow("asked")

@asked.step
async def tell(run, ctx):
    return [dict(ctx.labels), ctx.scheduled_for and ctx.scheduled_for.isoformat()]
"""
NO_SWEEP = {"recovery_interval": "1h"}  # so that nothing but what a test looks at helps
EARLY = "select count(*) from pgflowd.run_status where started_at < start_at"


@pytest.fixture
def later(setup):
    setup.module("flow_later", FLOW)
    return setup


@pytest.fixture
def client(database):
    with Client(database.dsn) as client:
        yield client


def value(database, query):
    return database.connect().execute(query).fetchone()[0]


def completed(database, runs) -> None:
    for run in runs:
        until(lambda run=run: is_completed(database, run.run_id), 30)


def test_planned_runs_begin_on_time_and_not_before(later, database, client):
    later.serve(recovery=NO_SWEEP)

    runs = [client.start_flow("later", {"n": n}, delay=n / 10) for n in range(12)]
    runs.append(client.start_flow_sync("later", {"n": 1}, delay=0.3, timeout=20))

    completed(database, runs)
    assert value(database, EARLY) == 0


@covers("G15")
def test_planned_runs_begin_once_whoever_is_killed(later, database, client):
    daemon = later.serve(recovery={"recovery_interval": "1s"})
    runs = [client.start_flow("later", {"n": n}, delay=n / 40) for n in range(80)]

    until(lambda: value(database, "select count(*) from pgflow.runs") > 5, 30)
    daemon.kill("sweeper")
    until(lambda: value(database, "select count(*) from pgflow.runs") > 20, 30)
    terminate_all(database, "t: sweeper")

    completed(database, runs)
    assert value(database, "select count(*) from pgflow.runs") == 80
    assert value(database, EARLY) == 0


@covers("G15")
def test_starters_that_are_killed_leave_whole_runs_or_none(later, database, client):
    """Each plans runs by a key, in transactions, and is cut off; whoever comes next goes on."""
    later.serve(recovery=NO_SWEEP)
    keys = [f"order {n}" for n in range(30)]

    def plan() -> None:
        with psycopg.connect(database.dsn, application_name="starter") as conn:
            for key in keys:
                client.start_flow("later", {"n": 1}, key=key, delay=0.05, conn=conn)
                conn.commit()

    def be_cut_off() -> None:
        with pytest.raises((psycopg.Error, Unreachable)):
            while True:
                plan()

    for _ in range(5):
        starter = threading.Thread(target=be_cut_off)
        starter.start()
        until(lambda: value(database, "select count(*) from pgflowd.runs") > 0, 10)
        until(lambda alive=starter: terminated(database) and not alive.is_alive(), 10)
    plan()

    runs = [client.start_flow("later", {"n": 2}, key=key) for key in keys]
    completed(database, runs)
    assert value(database, "select count(*) from pgflow.runs") == len(keys)


def terminated(database) -> bool:
    terminate_all(database, "starter")
    return True


@covers("G15")
def test_a_run_that_expires_ends_with_its_handler(later, database, client, tmp_path):
    daemon = later.serve(recovery=NO_SWEEP)
    began = Path(tmp_path) / "began"
    run = client.start_flow("later", {"n": 1, "began": str(began)}, expires="1h")
    until(began.exists, 20)

    client.reschedule(run.run_id, expires=0.1)

    ended = client.wait(run.run_id, timeout=20)
    assert ended.status is RunStatus.EXPIRED
    daemon.until("run.cancelled", run=str(run.run_id))


def test_a_handler_reads_what_the_start_of_its_run_asked_for(later, database, client):
    later.serve()
    at = datetime.now(UTC) + timedelta(seconds=0.3)

    wished = client.start_flow("asked", {}, at=at, labels={"customer": "42"})
    plain = client.start_flow("asked", {})

    outputs = [client.wait(run.run_id, timeout=30).output["tell"] for run in (wished, plain)]
    assert outputs == [[{"customer": "42"}, at.isoformat()], [{}, None]]
