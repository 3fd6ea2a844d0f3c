"""Gates in daemons: each task is executed where it may be, and only there."""

from __future__ import annotations

from support.covers import covers
from support.daemon import start_run

from pgflowd.testing.until import until

NEEDS = """
from pgflowd import Flow
flow = Flow("gates", max_attempts=1, timeout=60)

@flow.step(needs=["gpu"])
def train(run, ctx):
    ctx.save("tries", ctx.load("tries", 0) + 1)
    if run.get("large") and "80gb" not in ctx.caps:
        ctx.hand_on(needs=["gpu", "80gb"], note="out of memory")
    return [ctx.attempt, ctx.load("tries"), *sorted(ctx.caps)]
"""
NO_SWEEP = {"recovery_interval": "1h"}  # so that nothing but what a test looks at helps
OUTPUT = "select output -> 'train' from pgflow.runs where run_id = %s and status = 'completed'"
WAITS = "select name from pgflowd.waits order by nr"


def output(database, run, within_s=15):
    conn = database.connect()
    until(lambda: conn.execute(OUTPUT, [run]).fetchone(), within_s)
    return conn.execute(OUTPUT, [run]).fetchone()[0]


def waits(database):
    return [name for (name,) in database.connect().execute(WAITS)]


@covers("G16")
def test_a_task_finds_the_daemon_that_has_what_it_needs(setup, database):
    setup.module("flow_gates", NEEDS)
    setup.serve("plain", recovery=NO_SWEEP)
    run = start_run(database, "gates")
    until(lambda: waits(database) == ["gpu"], 15)

    setup.serve("gpus", recovery=NO_SWEEP, worker={"caps": ["gpu"]})

    assert output(database, run) == [1, 1, "gpu"]
    large = start_run(database, "gates", large=True)
    until(lambda: waits(database) == ["80gb,gpu"], 15)
    setup.serve("large", recovery=NO_SWEEP, worker={"caps": ["80gb", "gpu"]})
    assert output(database, large) == [1, 2, "80gb", "gpu"]
    last = start_run(database, "gates", large=True)  # all of them hear of it, or claim it
    assert output(database, last)[2:] == ["80gb", "gpu"]


def test_new_caps_are_used_at_once_after_a_reload(setup, database):
    setup.module("flow_gates", NEEDS)
    daemon = setup.serve(recovery=NO_SWEEP)
    run = start_run(database, "gates")
    until(lambda: waits(database) == ["gpu"], 15)

    setup.config("t", recovery=NO_SWEEP, worker={"caps": ["gpu"]})
    daemon.ask("reload")

    assert output(database, run) == [1, 1, "gpu"]


def test_a_sleeping_worker_is_started_for_what_only_it_can_do(setup, database):
    setup.module("flow_gates", NEEDS)
    able = setup.serve("gpus", worker={"caps": ["gpu"], "sleep_after": "100ms"})
    setup.serve("plain")
    until(lambda: able.state_of("gates") == "asleep", 15)

    runs = [start_run(database, "gates") for _ in range(3)]

    assert [output(database, run)[2:] for run in runs] == [["gpu"]] * 3
