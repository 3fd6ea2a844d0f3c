"""A run is retried while a task of it runs: three daemons never execute it twice at once."""

from __future__ import annotations

import json

from support.covers import covers

from pgflowd.testing.until import until

FLOW = """
import os, signal, time
from oracle import note
from pgflowd import Flow
flow = Flow("siblings", max_attempts=1, timeout=60)

@flow.step
def quick(run, ctx):
    note(ctx, "start")
    while not os.path.exists(run["gate"]):
        time.sleep(0.02)
        if os.path.exists(run["fail"]):
            raise ValueError("as asked")
    note(ctx, "end", 1)
    return 1

@flow.step
def slow(run, ctx):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(ctx, "start")
    while not os.path.exists(run["gate"]):
        time.sleep(0.02)
        note(ctx, "tick")
    note(ctx, "end", 2)
    return 2
"""


@covers("database 8", "G3")
def test_a_task_that_still_runs_is_killed_before_a_retry_begins_it_anew(setup, database):
    setup.module("flow_siblings", FLOW)
    for daemon in [setup.start(name) for name in ("one", "two", "three")]:
        daemon.until("supervisor.ready")
    fail, gate = setup.directory / "fail", setup.directory / "gate"
    inputs = {"fail": str(fail), "gate": str(gate)}
    failed = database.client.start_flow("siblings", inputs).run_id
    cancelled = database.client.start_flow("siblings", {**inputs, "fail": "/nowhere"}).run_id
    until(lambda: len(starts(setup, "slow")) == len(starts(setup, "quick")) == 2)

    with database.connect() as conn:
        conn.execute("select pgflowd.cancel(%s, 'enough', 'me')", (cancelled,))
        conn.execute("select pgflowd.retry(%s, 'me', true)", (cancelled,))
        fail.touch()
        until(lambda: database.client.get_run(failed).status == "failed")
        fail.unlink()
        conn.execute("select pgflowd.retry(%s, 'me')", (failed,))

    until(lambda: len(starts(setup, "slow")) == 4)
    gate.touch()
    for run in (failed, cancelled):
        until(lambda run=run: database.client.get_run(run).status == "completed")


def starts(setup, step):
    """The executions of a step that have begun; the invariants compare their ticks at the end."""
    if not setup.oracle.exists():
        return []
    lines = [json.loads(line) for line in setup.oracle.read_text().splitlines()]
    return [line for line in lines if (line[1], line[4]) == (step, "start")]
