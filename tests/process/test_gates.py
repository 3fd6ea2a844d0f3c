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
def test_a_task_finds_the_daemon_that_has_what_it_needs_after_a_reload_too(setup, database):
    setup.module("flow_gates", NEEDS)
    plain = setup.serve("plain", recovery=NO_SWEEP)
    run = start_run(database, "gates")
    until(lambda: waits(database) == ["gpu"], 15)

    setup.serve("gpus", recovery=NO_SWEEP, worker={"caps": ["gpu"]})

    assert output(database, run) == [1, 1, "gpu"]
    large = start_run(database, "gates", large=True)
    until(lambda: waits(database) == ["80gb,gpu"], 15)
    setup.config("plain", recovery=NO_SWEEP, worker={"caps": ["80gb", "gpu"]})
    plain.ask("reload")
    assert output(database, large) == [1, 2, "80gb", "gpu"]


def test_a_sleeping_worker_is_started_for_what_only_it_can_do(setup, database):
    setup.module("flow_gates", NEEDS)
    able = setup.serve("gpus", worker={"caps": ["gpu"], "sleep_after": "100ms"})
    setup.serve("plain")
    until(lambda: able.state_of("gates") == "asleep", 15)

    runs = [start_run(database, "gates") for _ in range(3)]

    assert [output(database, run)[2:] for run in runs] == [["gpu"]] * 3


LIMITED = """
import time
from pgflowd import Flow, Limit
flow = Flow("limited", max_attempts=1, timeout=60)

@flow.step(limit=Limit(2, key="run.customer"))
def work(run, ctx):
    time.sleep(run["s"])
    return ctx.token
"""
LEASES = """
    select coalesce(max(leases), 0) from (
      select count(*) as leases from pgflowd.attempts
       where ended_at is null and limit_key is not null group by limit_key) as counted
"""
LEFT = """
    select (select count(*) from pgflowd.waits)
           + (select count(*) from pgflowd.slots where free_at is null)
"""
REPORTED = """
    select extract(epoch from next_one.started_at - done.ended_at)::float8
      from pgflowd.attempts as done
      join pgflowd.attempts as next_one on next_one.started_at >= done.started_at
     where done.run_id = %s and next_one.run_id = %s
"""


@covers("G16")
def test_a_limit_holds_over_daemons_whoever_is_killed(setup, database):
    setup.module("flow_limited", LIMITED)
    daemons = [setup.serve(name, recovery={"recovery_interval": "1s"}) for name in ("a", "b")]
    conn = database.connect()
    runs = [start_run(database, "limited", customer=at % 3, s=0.2) for at in range(30)]
    looks = []

    def done(number):
        looks.append(conn.execute(LEASES).fetchone()[0])
        query = "select count(*) from pgflow.runs where status = 'completed'"
        return conn.execute(query).fetchone()[0] >= number

    until(lambda: done(6), 20)
    daemons[0].kill("limited")
    until(lambda: done(12), 20)
    daemons[1].kill("sweeper")
    daemons[1].kill("limited")
    until(lambda: done(len(runs)), 40)

    assert max(looks) == 2
    until(lambda: conn.execute(LEFT).fetchone()[0] == 0, 10)


def test_a_place_is_used_again_at_once_without_any_sweep_of_what_stalled(setup, database):
    setup.module("flow_limited", LIMITED)
    setup.serve(recovery=NO_SWEEP)
    first = start_run(database, "limited", customer=1, s=0.5)
    others = [start_run(database, "limited", customer=1, s=s) for s in (2, 0.1)]

    conn = database.connect()
    until(lambda: conn.execute("select from pgflowd.waits").fetchone() is not None, 10)
    until(lambda: conn.execute(REPORTED, [first, others[1]]).fetchone(), 10)

    (between_s,) = conn.execute(REPORTED, [first, others[1]]).fetchone()
    assert 0 <= between_s < 1
