"""What keeps work from going on: `status` calls the daemon degraded, and it heals by itself."""

from __future__ import annotations

import json
import signal

import psycopg
import pytest
from support.covers import covers
from support.daemon import DaemonSetup
from support.own_server import OwnServer

from pgflowd.processes.supervisor.status import LATE_MIN_S
from pgflowd.testing.until import until

OFTEN = {  # heartbeats to the supervisor, three in a hang_timeout
    "database": {"statement_timeout": "2s"},
    "supervisor": {"hang_timeout": "6s"},
}
PAGE = "select pg_notify('somewhere', %s || repeat('x', 7000))"  # fills one page of the queue


@pytest.fixture
def small_queue(tmp_path):
    """A server with the smallest queue of notifications, 64 pages, and a daemon's setup there."""
    with OwnServer({"max_notify_queue_pages": "64"}) as server:
        setup = DaemonSetup(tmp_path, server.dsn)
        yield server, setup
        setup.close()


def fill(conn: psycopg.Connection, most: int = 100) -> None:
    for number in range(most):
        conn.execute(PAGE, (f"{number} ",))


@covers("database 5", "row 111", "G9", "E319")
def test_a_full_notification_queue_is_told_and_heals_when_the_guilty_session_is_gone(small_queue):
    server, setup = small_queue
    setup.flow("alpha")
    daemon = setup.serve()
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        gate = setup.directory / "gate"
        running = start(conn, "alpha", gate=str(gate))
        until(lambda: daemon.ask()["flows"][0]["zygote"] and one_runs(conn))
        deaf = psycopg.connect(server.dsn, dbname="template1", application_name="report builder")
        deaf.execute("listen somewhere")
        deaf.commit()
        deaf.execute("select 1")  # and stays in this transaction
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            fill(conn)
        gate.touch()  # its outcome cannot be recorded now

        status = until(lambda: with_problem(daemon, "E319"), 30)
        assert status["state"] == "degraded"
        assert daemon.command("status", "--check").returncode == 1
        [problem] = [each for each in status["problems"] if each["code"] == "E319"]
        pid = deaf.info.backend_pid
        assert f"pid {pid} (report builder, user postgres, database template1)" in problem["text"]
        assert f"pg_terminate_backend({pid})" in problem["next"]

        conn.execute("select pg_terminate_backend(%s)", (pid,))

        until(lambda: ended(conn, running) == ("completed", 1), 10)
        until(lambda: daemon.ask()["state"] == "healthy", 15)
        later = start(conn, "alpha")
        until(lambda: ended(conn, later) == ("completed", 1), 10)
    assert daemon.events("child.restarted") == []
    assert len(daemon.events("sweeper.problem", code="E319")) == 1


@covers("database 5")
def test_doctor_names_who_holds_a_full_queue_in_another_database(small_queue):
    server, setup = small_queue
    setup.flow("alpha")
    daemon = setup.serve()
    deaf = psycopg.connect(server.dsn, dbname="template1", application_name="report builder")
    deaf.execute("listen somewhere")
    deaf.commit()
    deaf.execute("select 1")
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        fill(conn, 20)

    ended = daemon.command("doctor", "--json")

    found = {each["check"]: each for each in json.loads(ended.stdout)["findings"]}
    assert (ended.returncode, found["listeners"]["code"]) == (1, "E319")
    assert "(report builder, user postgres, database template1)" in found["listeners"]["text"]
    deaf.close()


JOIN = """
import os, time
from pgflowd import Flow
flow = Flow("join", max_attempts=2, base_delay=0)

@flow.step
def one(run):
    while run.get("gate") and not os.path.exists(run["gate"]):
        time.sleep(0.02)
    return 1

@flow.step
def two(one): return 2
"""
POISON = """
    create or replace function pgflow._deps_output(flow_slug text, run_id uuid, step_slug text)
    returns jsonb language plpgsql stable as $$
    begin
      if run_id = '{}' then raise exception 'more than 256 MB' using errcode = '54000'; end if;
      return '{{"one": 1}}';
    end $$
"""


@covers("database 1", "G1")
def test_a_task_whose_input_cannot_be_built_fails_and_its_flow_goes_on(setup, database):
    setup.module("join", JOIN)
    daemon = setup.serve()
    conn = database.connect()
    gate = setup.directory / "gate"
    poisoned = start(conn, "join", gate=str(gate))
    conn.execute(POISON.format(poisoned))

    gate.touch()
    innocents = [start(conn, "join") for _ in range(5)]

    until(lambda: ended(conn, poisoned)[0] == "failed", 20)
    until(lambda: all(ended(conn, each)[0] == "completed" for each in innocents), 20)
    text = "select error_message from pgflow.step_tasks where run_id = %s and status = 'failed'"
    assert "more than 256 MB (54000)" in conn.execute(text, (poisoned,)).fetchone()[0]
    assert daemon.ask()["state"] == "healthy"
    assert daemon.events("child.restarted") == []


LINES = """
from pgflowd import Flow
flow = Flow("lines", max_attempts=2, base_delay=0)

@flow.step
def lines(run): return ["x" * 95] * run

@flow.step
def count(lines): return len(lines)
"""


@covers("database 2")
def test_long_lists_of_strings_are_no_fault_any_more(setup, database):
    setup.module("lines", LINES)
    daemon = setup.serve(worker={"notify_fallback": "1s"})

    runs = [database.client.start_flow("lines", number) for number in (160_000, 3, 160_000)]

    states = set()
    query = "select count(*) from pgflow.runs where status = 'completed'"
    with database.connect() as conn:
        until(lambda: states.add(daemon.ask()["state"])
              or conn.execute(query).fetchone()[0] == len(runs), 30)  # fmt: skip
    assert states == {"healthy"}
    assert daemon.events("worker.error") == []


SLOW = """
    create function slow() returns trigger language plpgsql as $$
    begin perform pg_sleep(60); return new; end $$;
    create trigger slow before update on pgflow.step_tasks for each row
      when (new.output = '"unrecordable"') execute function slow();
"""
WORDS = """
from pgflowd import Flow
flow = Flow("words", max_attempts=2, base_delay=0)

@flow.step
def word(run): return run
"""


@covers("database 3")
def test_an_outcome_that_is_never_recorded_is_told_and_in_the_end_a_failure(setup, database):
    setup.module("words", WORDS)
    # a report that is under way holds its task, so that its lease is not renewed meanwhile
    daemon = setup.serve(**OFTEN, recovery={"lease": "30s"})
    conn = database.connect()
    conn.execute(SLOW)

    runs = database.client.start_flows("words", ["unrecordable", *"abcdef"])
    guilty, *innocents = [str(run.run_id) for run in runs]

    status = until(lambda: with_problem(daemon, "E322"), 30)
    assert status["state"] == "degraded"
    [problem] = [each for each in status["problems"] if each["code"] == "E322"]
    assert problem["flow"] == "words"
    until(lambda: all(ended(conn, each)[0] == "completed" for each in innocents), 30)
    until(lambda: ended(conn, guilty)[0] == "failed", 30)
    text = "select error_message from pgflow.step_tasks where run_id = %s"
    assert "could not record the outcome in 2 s" in conn.execute(text, (guilty,)).fetchone()[0]
    until(lambda: daemon.ask()["state"] == "healthy", 15)


DAWDLE = """
    create table public.gate (text text);
    insert into public.gate values ('closed');
    create function dawdle() returns trigger language plpgsql as $$
    begin
      while exists (select from public.gate) loop perform pg_sleep(0.05); end loop;
      return new;
    end $$;
    create trigger dawdle before update on pgflow.step_tasks for each row
      when (new.status = 'completed') execute function dawdle();
"""


@covers("database 3", "row 110")
def test_a_call_that_hangs_is_told_before_its_limit_and_heals(setup, database):
    setup.module("words", WORDS)
    times = {"statement_timeout": "30s"}  # as by default
    daemon = setup.serve(database=times, supervisor={"hang_timeout": "60s"})
    conn = database.connect()
    conn.execute(DAWDLE)

    run_id = start(conn, "words")  # no other task waits

    status = until(lambda: with_problem(daemon, "E322"), 25)
    assert status["state"] == "degraded"
    [problem] = [each for each in status["problems"] if each["code"] == "E322"]
    assert problem["text"].startswith("its call is under way for ")
    conn.execute("truncate public.gate")
    until(lambda: ended(conn, run_id) == ("completed", 1), 10)
    until(lambda: daemon.ask()["state"] == "healthy", 15)


@covers("database 1", "row 110", "G7", "E318", "E322")
def test_claims_that_fail_and_tasks_that_wait_are_told_and_heal(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(worker={"notify_fallback": "1s"}, **OFTEN)
    conn = database.connect()
    conn.execute("alter function pgflowd.claim rename to away")

    run_id = start(conn, "alpha")

    failing = until(lambda: with_problem(daemon, "E322"), 30)
    waiting = until(lambda: with_problem(daemon, "E318"), 30)
    assert {failing["state"], waiting["state"]} == {"degraded"}
    texts = {each["code"]: each["text"] for each in waiting["problems"]}
    assert "function pgflowd.claim" in texts["E322"] and "(42883)" in texts["E322"]
    assert f"a task of run {run_id[-8:]} waits for " in texts["E318"]
    shown = daemon.command("status").stdout
    assert "degraded" in shown and "E318 a task of run" in shown

    conn.execute("alter function pgflowd.away rename to claim")

    until(lambda: ended(conn, run_id) == ("completed", 1), 10)
    until(lambda: daemon.ask()["state"] == "healthy", 15)


def test_a_flow_with_a_backlog_is_busy_and_not_sick(setup, database):
    setup.flow("alpha")
    worker = {"notify_fallback": "1s", "max_concurrency": 2}
    daemon = setup.serve(worker=worker, **OFTEN)
    database.client.start_flows("alpha", [{"s": 0.3}] * 100)

    states = set()

    def has_waited_long():
        status = daemon.ask()
        states.add(status["state"])
        return (status["flows"][0]["oldest_queued_s"] or 0) > LATE_MIN_S + 1

    until(has_waited_long, 30)
    assert states == {"healthy"}
    daemon.send(signal.SIGQUIT)


def start(conn, flow, **input_):
    query = "select run_id::text from pgflow.start_flow(%s, %s)"
    return conn.execute(query, (flow, json.dumps(input_))).fetchone()[0]


def one_runs(conn):
    query = "select count(*) from pgflow.step_tasks where status = 'started'"
    return conn.execute(query).fetchone()[0] == 1


def ended(conn, run_id):
    """The status of a run, and the most attempts of any task."""
    query = """
        select run.status, (select max(attempts_count) from pgflow.step_tasks as task
                             where task.run_id = run.run_id)
          from pgflow.runs as run where run.run_id = %s
    """
    return conn.execute(query, (run_id,)).fetchone()


def with_problem(daemon, code):
    status = daemon.ask()
    return status if code in {each["code"] for each in status["problems"]} else None
