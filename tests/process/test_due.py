"""What is due in a daemon: sleeps end and signals arrive, whoever is killed, and however late."""

from __future__ import annotations

import os
import signal

import psycopg
import pytest
from support.covers import covers
from support.daemon import connected, is_completed, terminate_all
from support.transaction_pooler import TransactionPooler

from pgflowd.testing.until import until

FLOW = """
from pgflowd import Flow
flow = Flow("waits", max_attempts=1, timeout=60)

@flow.step
def work(run, ctx):
    for _ in range(run.get("naps", 0)):
        ctx.sleep(run["s"])
    return ctx.wait_signal("go", timeout=run.get("timeout", "1h")) if run.get("signal") else "slept"
"""
NO_SWEEP = {"recovery_interval": "1h"}  # so that nothing but what a test looks at helps
OUTPUT = "select output from pgflow.runs where run_id = %s and status = 'completed'"
WAITS = "select count(*) from pgflowd.waits"
ASLEEP = "select count(*) from pgflowd.sweepers where sleeps_until > now() + interval '1 minute'"
ON_TIME = """
    select bool_and(claimed.started_at >= slept.saved_at)
      from pgflowd.checkpoints as slept
      join pgflowd.attempts as claimed using (run_id, step_slug, task_index)
     where claimed.outcome = 'completed'
"""


def start(database, **input_):
    query = "select run_id from pgflow.start_flow('waits', %s)"
    return database.connect().execute(query, [psycopg.types.json.Jsonb(input_)]).fetchone()[0]


def waiting(database, number=1):
    until(lambda: value(database, WAITS) == number, 15)


def value(database, query):
    return database.connect().execute(query).fetchone()[0]


def send(conn, run, payload="1"):
    conn.execute("select pgflowd.signal(%s, 'go', %s::jsonb)", [run, payload])


def output(database, run, within_s=15):
    until(lambda: is_completed(database, run), within_s)
    return database.connect().execute(OUTPUT, [run]).fetchone()[0]["work"]


def rests(database):
    """Until the sweeper sleeps, and nothing that is under way can wake it."""
    until(lambda: value(database, ASLEEP), 15)


@pytest.fixture
def waits(setup):
    setup.module("flow_waits", FLOW)
    return setup


def test_sleeps_end_without_any_sweep_of_what_stalled(waits, database):
    waits.serve(recovery=NO_SWEEP)
    rests(database)

    runs = [start(database, naps=2, s=s) for s in (0.3, 0.01, 1.5, 0)]

    assert [output(database, run) for run in runs] == ["slept"] * 4
    assert value(database, ON_TIME)


def test_a_signal_wakes_a_sweeper_that_sleeps(waits, database):
    waits.serve(recovery=NO_SWEEP)
    run = start(database, signal=True)
    waiting(database)
    rests(database)

    send(database.connect(), run, '{"amount": 12}')

    assert output(database, run) == {"amount": 12}


def test_a_signal_whose_transaction_missed_the_sweeper_s_row_is_seen_all_the_same(waits, database):
    daemon = waits.serve(recovery=NO_SWEEP)
    run = start(database, signal=True)
    waiting(database)
    rests(database)
    conn = database.connect()
    conn.autocommit = False
    conn.execute("lock table pgflowd.sweepers in exclusive mode")
    conn.execute("delete from pgflowd.sweepers")
    daemon.kill("sweeper")
    send(conn, run)
    with database.connect() as watcher:
        query = "select count(*) from pg_locks where not granted"
        until(lambda: watcher.execute(query).fetchone()[0], 10)  # the new one lies down

    conn.commit()

    assert output(database, run) == 1


@covers("rule 60")
def test_whenever_a_sweeper_is_killed_each_wait_ends_as_it_should(waits, database):
    daemon = waits.serve(recovery=NO_SWEEP, supervisor={"max_restarts": 100})
    runs = [start(database, naps=1, s=0.2 * (n % 10), signal=n % 2) for n in range(40)]
    conn = database.connect()

    for number, run in enumerate(runs):
        if number % 2:
            send(conn, run, str(number))
        if number % 8 == 0:
            daemon.kill("sweeper")
            daemon.until("child.ready", child="sweeper", count=2 + number // 8)

    found = [output(database, run, 30) for run in runs]
    assert found == [n if n % 2 else "slept" for n in range(40)]


@covers("rule 60")
def test_of_two_daemons_the_other_one_goes_on(waits, database):
    first = waits.serve("one", recovery=NO_SWEEP)
    waits.serve("two", recovery=NO_SWEEP)
    runs = [start(database, naps=1, s=1), start(database, signal=True)]
    until(lambda: value(database, WAITS) == 2, 15)
    for child in ("sweeper", "listener"):
        os.kill(first.pid_of(child), signal.SIGSTOP)

    send(database.connect(), runs[1])

    assert [output(database, run) for run in runs] == ["slept", 1]
    waits.was_frozen = True


def test_what_became_due_while_the_database_was_away_is_done_when_it_is_back(waits, database):
    waits.serve(recovery=NO_SWEEP)
    run = start(database, naps=1, s=0.5, signal=True)
    waiting(database)

    terminate_all(database)
    until(lambda: connected(database) >= 3, 15)
    waiting(database)
    until(lambda: value(database, "select count(*) from pgflowd.checkpoints"), 15)
    waiting(database)
    terminate_all(database, "t: listener")
    send(database.connect(), run)

    assert output(database, run) == 1


@covers("rule 60", "row 82")
def test_where_no_notification_arrives_signals_are_looked_for_each_second(waits, database):
    with TransactionPooler(database.dsn) as pooler:
        daemon = waits.serve(database={"url": pooler.url}, recovery=NO_SWEEP)
        run = start(database, naps=1, s=0.1, signal=True)
        waiting(database)

        send(database.connect(), run)

        assert output(database, run) == 1
        assert daemon.events("listener.deaf", code="W314")
        daemon.close()


def test_where_no_flow_wants_notifications_signals_are_looked_for_each_second(waits, database):
    waits.serve(worker={"signal_strategy": "polling", "poll_max": "200ms"}, recovery=NO_SWEEP)
    run = start(database, naps=1, s=0.1, signal=True)
    waiting(database)

    send(database.connect(), run)

    assert output(database, run) == 1


@covers("rule 61", "E324")
def test_a_task_that_cannot_be_freed_is_a_problem_in_the_status_and_goes_on_later(waits, database):
    daemon = waits.serve(recovery=NO_SWEEP)
    bad, good = start(database, naps=1, s=3600), start(database, naps=1, s=3600)
    waiting(database, 2)
    conn = database.connect()
    conn.execute("""
        create function refuse() returns trigger language plpgsql as
        $$ begin raise exception 'not this one'; end $$
    """)
    conn.execute(f"""
        create trigger refuse before insert on pgmq.q_waits for each row
        when (new.message ->> 'run_id' = '{bad}') execute function refuse()
    """)

    conn.execute("update pgflowd.waits set due_at = now()")
    conn.execute("notify pgflowd_due")

    assert output(database, good) == "slept"
    daemon.until("sweeper.problem", code="E324")
    [problem] = until(
        lambda: [each for each in daemon.ask()["problems"] if each["code"] == "E324"], 10
    )
    assert "1 task or run cannot go on although its time has come" in problem["text"]
    assert "not this one" in problem["text"]
    conn.execute("drop trigger refuse on pgmq.q_waits")
    conn.execute("update pgflowd.waits set due_at = now()")
    conn.execute("notify pgflowd_due")
    assert output(database, bad) == "slept"
