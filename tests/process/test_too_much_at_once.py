"""More is due at one moment than one statement can do: the rest of the database goes on."""

from __future__ import annotations

import os
import signal

import pytest
from support.covers import covers
from support.daemon import is_completed, start_marked, start_run

from pgflowd.testing.until import until

FLOWS = """
from pgflowd import Flow
mapper = Flow("mapper")

@mapper.map
def each(item): return item

slp = Flow("slp")

@slp.step
def nap(run, ctx):
    ctx.sleep("0.5s")
    return ctx.wait_signal("go", timeout="1h") if run.get("signal") else "slept"
"""
SLOW = """
    create function slow() returns trigger language plpgsql as
    $$ begin perform pg_sleep({}); return new; end $$;
    create trigger slow before insert on pgmq.q_mapper for each row {} execute function slow()
"""
PLANNED = """
    select pgflowd.start('mapper', (select to_jsonb(array_agg(i)) from generate_series(1, %s) as i),
                         start_at => now() + interval '2 s') from generate_series(1, %s)
"""
LIMITS = {
    "database": {"statement_timeout": "1s"},
    "recovery": {"recovery_interval": "1s"},
}
STARTED = "select count(*) from pgflow.runs where flow_slug = 'mapper'"


@pytest.fixture
def flows(setup):
    setup.module("flows_wide", FLOWS)
    return setup


def value(database, query, *params):
    with database.connect() as conn:  # closed again: it is asked often
        return conn.execute(query, params).fetchone()[0]


def has(daemon, code):
    return [each for each in daemon.ask()["problems"] if each["code"] == code]


@covers("row 19", "database 3", "attack 2")
def test_many_wide_runs_of_one_moment_all_start_and_nothing_else_stands_still(flows, database):
    daemon = flows.serve(**LIMITS)
    conn = database.connect()
    conn.execute(SLOW.format(0.002, ""))  # 100 of these runs take 2 s
    conn.execute(PLANNED, (10, 150))
    until(lambda: value(database, "select min(start_at) < now() from pgflowd.runs"), 20)

    slept = start_run(database, "slp")
    told = start_run(database, "slp", signal=True)
    conn.execute("select pgflowd.signal(%s, 'go', '1')", (told,))
    until(lambda: is_completed(database, slept) and is_completed(database, told), 20)

    until(lambda: value(database, STARTED) == 150, 60)
    assert daemon.events("sweeper.failed", part="what is due")
    assert daemon.events("sweeper.lost") == [], "the line is not lost by a statement that was cut"
    until(lambda: daemon.ask()["state"] == "healthy", 20)
    assert value(database, "select count(*) from pgflowd.runs where state = 'planned'") == 0


@covers("E331", "attack 2")
def test_a_single_run_that_takes_too_long_is_put_off_and_named(flows, database):
    daemon = flows.serve(**LIMITS)
    conn = database.connect()
    conn.execute(PLANNED, (1, 1))
    bad = value(database, "select run_id from pgflowd.runs where state = 'planned'")
    conn.execute(SLOW.format(5, f"when (new.message ->> 'run_id' = '{bad}')"))
    conn.execute(PLANNED, (3, 20))

    until(lambda: value(database, STARTED) == 20, 60)

    [problem] = until(lambda: has(daemon, "E324"), 20)
    assert str(bad)[-8:] in problem["text"]
    assert "statement timeout" in problem["text"]
    assert "raise [database] statement_timeout" in problem["next"]
    later = "select due_at - now() > interval '30 s' from pgflowd.runs where run_id = %s"
    assert value(database, later, bad)
    run_id = start_run(database, "slp")
    until(lambda: is_completed(database, run_id), 20)

    conn.execute("drop trigger slow on pgmq.q_mapper")
    conn.execute("update pgflowd.runs set due_at = now() where run_id = %s", (bad,))
    conn.execute("notify pgflowd_due")
    until(lambda: is_completed(database, bad), 20)


@covers("E331", "attack 2")
def test_what_is_never_done_is_told_from_outside_while_recovery_goes_on(flows, database):
    flows.flow("alpha")
    daemon = flows.serve(
        database=LIMITS["database"],
        worker={"heartbeat_interval": "300ms"},
        recovery={"recovery_interval": "1s", "lease": "1s"},
    )
    conn = database.connect()
    conn.execute("alter function pgflowd.process_due(int, text) rename to was_due")
    conn.execute("""
        create function pgflowd.process_due(
          max_rows int, part text, out done int, out next_s float8, out has_ticks boolean)
        language plpgsql as $$ begin perform pg_sleep(60); end $$
    """)
    conn.execute("notify pgflowd_due")

    [problem] = until(lambda: has(daemon, "E331"), 60)

    assert daemon.ask()["state"] == "degraded"
    assert problem["text"].startswith("the sweeper has not got done for ")
    assert "what is due; the last error (what is due): canceling" in problem["text"]
    assert "\\n" not in problem["text"]
    assert "raise [database] statement_timeout" in problem["next"]
    assert daemon.ask()["sweeper"]["due_late_s"] > 10
    run_id = start_marked(flows, database, s=0.2)
    os.kill(daemon.pid_of("alpha"), signal.SIGKILL)
    until(lambda: is_completed(database, run_id), 30)

    conn.execute("drop function pgflowd.process_due(int, text)")
    conn.execute("alter function pgflowd.was_due(int, text) rename to process_due")
    until(lambda: daemon.ask()["state"] == "healthy", 30)


@covers("outside 4", "use 1")
def test_a_started_task_whose_message_is_gone_with_its_worker_is_executed_again(setup, database):
    setup.flow("alpha")
    first = setup.serve("one", worker={"heartbeat_interval": "300ms"}, recovery={"lease": "1s"})
    run_id = start_marked(setup, database, gate=str(setup.directory / "gate"))
    conn = database.connect()
    until(lambda: value(database, "select count(*) from pgflowd.attempts") == 1, 10)
    conn.execute("delete from pgmq.q_alpha")
    worker = first.pid_of("alpha")
    os.kill(first.pid, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    (setup.directory / "gate").touch()

    setup.serve("two", recovery={"recovery_interval": "500ms"})

    until(lambda: is_completed(database, run_id), 30)
    outcomes = "select array_agg(outcome order by token) from pgflowd.attempts"
    assert value(database, outcomes) == ["stalled", "completed"]


@covers("E327")
def test_a_schedule_whose_run_takes_too_long_stops_neither_others_nor_timers(flows, database):
    daemon = flows.serve(**LIMITS)
    conn = database.connect()
    conn.execute(SLOW.format(5, ""))
    conn.execute(
        "select pgflowd.set_schedule('a', 'mapper', '@every 1s', '[1]', overlap => 'allow')"
    )
    conn.execute("select pgflowd.set_schedule('b', 'slp', '@every 1s', '{}', overlap => 'allow')")

    slept = "select count(*) from pgflow.runs where flow_slug = 'slp' and status = 'completed'"
    until(lambda: value(database, slept) > 2, 60)

    [problem] = until(lambda: has(daemon, "E327"), 30)
    assert "statement timeout" in problem["text"]
    conn.execute("drop trigger slow on pgmq.q_mapper")
