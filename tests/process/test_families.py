"""Families of runs in a daemon whose processes are killed: no child twice, and none is lost."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.daemon import is_completed, terminate_all

from pgflowd import Client
from pgflowd.core.statuses import RunStatus
from pgflowd.testing.until import until

FLOWS = """
import os, signal
from pgflowd import Flow, job

parents = Flow("parents", max_attempts=20, base_delay=0, timeout=60)

@parents.step
def collect(run, ctx):
    runs = []
    for n in range(run["n"]):
        runs.append(ctx.start("children", {"n": n, "below": run["below"]}, key=str(n)))
        if n == ctx.attempt * 3:
            os.kill(os.getpid(), signal.SIGKILL)
    return sum(each.output["perform"] for each in ctx.wait(*runs))

@job("children", max_attempts=5)
def child(run, ctx):
    if run["below"]:
        (below,) = ctx.wait(ctx.start("children", {"n": run["n"], "below": run["below"] - 1}))
        return below.output["perform"]
    if run["n"] < 0:
        ctx.wait_signal("never")
    return run["n"]
"""
RUNS = "select count(*) from pgflow.runs where flow_slug = 'children'"


@pytest.fixture
def families(setup):
    setup.module("flow_families", FLOWS)
    return setup


def value(database, query):
    return database.connect().execute(query).fetchone()[0]


@covers("G21")
def test_a_family_ends_once_and_whole_whoever_is_killed(families, database):
    daemon = families.serve(recovery={"recovery_interval": "1s"})
    with Client(database.dsn) as client:
        run = client.start_flow("parents", {"n": 16, "below": 1})
        until(lambda: value(database, RUNS) > 5, 30)
        daemon.kill("parents")
        daemon.kill("sweeper")
        until(lambda: value(database, RUNS) > 16, 60)
        daemon.kill("children")
        terminate_all(database, "t: sweeper")

        until(lambda: is_completed(database, run.run_id), 60)
        assert client.get_run(run.run_id).output == {"collect": sum(range(16))}
    assert value(database, RUNS) == 32
    assert value(database, "select count(*) from pgflowd.awaits") == 0


def test_a_cancel_reaches_a_family_that_waits(families, database):
    families.serve()
    with Client(database.dsn) as client:
        run = client.start_flow("children", {"n": -1, "below": 2})
        until(lambda: value(database, "select count(*) from pgflowd.waits") == 3, 30)
        client.cancel(run.run_id)
        ended = "select count(*) = 3 from pgflowd.run_status where status = 'cancelled'"
        until(lambda: value(database, ended), 20)
        assert client.get_run(run.run_id).status is RunStatus.CANCELLED
