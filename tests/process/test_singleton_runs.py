"""Runs with a singleton key in daemons, whose processes and clients are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.covers import covers
from support.daemon import is_completed

from pgflowd import Client
from pgflowd.testing.until import until

FLOW = """
import pathlib, signal, time
from pgflowd import Flow
flow = Flow("single", max_attempts=3, base_delay=0, timeout=60)

@flow.step
def work(run, ctx):
    ledger = pathlib.Path(run["ledger"])
    with ledger.open("a") as lines:
        lines.write(f"+{ctx.run_id}\\n")
    if run.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while not (ledger.parent / "never").exists():
            time.sleep(0.05)
            ledger.with_suffix(".alive").write_text(str(time.monotonic()))
    with ledger.open("a") as lines:
        lines.write(f"-{ctx.run_id}\\n")
    return time.monotonic()
"""
STARTER = """
import json, sys
from pgflowd import Client
client = Client(sys.argv[1])
for n in range(1000):
    client.start_flow("single", json.loads(sys.argv[2]), singleton="k", key=f"{n}")
    print(n, flush=True)
"""
NOT_SWEPT = {"recovery_interval": "1h"}  # so that nothing but what a test looks at helps


@pytest.fixture
def single(setup):
    setup.module("flow_single", FLOW)
    return setup


def value(database, query):
    return database.connect().execute(query).fetchone()[0]


@covers("G17")
def test_runs_of_a_key_begin_one_after_the_other_whoever_is_killed(single, database, tmp_path):
    daemon = single.serve(recovery={"recovery_interval": "1s"})
    ledger = Path(tmp_path) / "ledger"
    given = json.dumps({"ledger": str(ledger)})
    until(lambda: value(database, "select count(*) from pgflow.flows"), 30)
    counted = "select count(*) from pgflow.runs"

    starter = subprocess.Popen([sys.executable, "-c", STARTER, database.dsn, given], stdout=-1)
    assert starter.stdout
    acknowledged = [starter.stdout.readline() for _ in range(20)]
    until(lambda: value(database, counted) > 3, 30)
    daemon.kill("sweeper")
    until(lambda: value(database, counted) > 6, 30)
    starter.send_signal(signal.SIGKILL)
    acknowledged += starter.stdout.readlines()
    starter.wait()

    rest = "select count(*) from pgflowd.run_status where status in ('blocked', 'started')"
    until(lambda: value(database, rest) == 0, 120)
    assert value(database, counted) >= len(acknowledged)
    lines = ledger.read_text().split()
    assert lines[::2] == [f"+{line[1:]}" for line in lines[1::2]]
    started = [line[1:] for line in lines[::2]]
    query = "select run_id::text from pgflowd.runs order by created_at"
    assert started == [run for (run,) in database.connect().execute(query)]


@covers("G17")
def test_who_replaces_a_run_begins_when_its_handler_is_dead(single, database, tmp_path):
    single.serve(recovery=NOT_SWEPT)
    ledger = Path(tmp_path) / "ledger"
    with Client(database.dsn) as client:
        until(lambda: value(database, "select count(*) from pgflow.flows"), 30)
        stubborn = {"ledger": str(ledger), "stubborn": True}
        client.start_flow("single", stubborn, singleton="k")
        until(ledger.with_suffix(".alive").exists, 30)
        last = client.start_flow(
            "single", {"ledger": str(ledger)}, singleton="k", on_conflict="replace"
        )
        until(lambda: is_completed(database, last.run_id), 30)

        worked_at = client.get_run(last.run_id).output["work"]
    assert float(ledger.with_suffix(".alive").read_text()) < worked_at
    assert len(ledger.read_text().split()) == 3
