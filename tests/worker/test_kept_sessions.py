"""The session of `ctx.conn()` stays with its runner, and the next task meets it like a new one."""

from __future__ import annotations

import pytest

from pgflowd.testing.until import until

MODULE = """
    import os, threading, time
    import psycopg
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=1)
    kept = []

    @flow.step
    def work(run, ctx):
        conn = ctx.conn()
        {before}
        row = conn.execute("select pg_backend_pid(), " + {seen}).fetchone()
        if run:
            conn.execute("insert into work values (1)")
            {left}
        return list(row)
"""
pytestmark = pytest.mark.own_session


def module(left: str = "pass", seen: str = "null", before: str = "pass") -> str:
    return MODULE.format(left=left, seen=repr(f"({seen})::text"), before=before)


@pytest.fixture
def table(database):
    conn = database.connect()
    conn.execute("create table work (n int)")
    return conn


def first_and_second(worker) -> tuple[list[object], list[object]]:
    """What two tasks saw, one after the other in the same runner; only the first one writes."""
    first = worker.output(worker.start_run({"writes": True}))["work"]
    second = worker.output(worker.start_run())["work"]
    return first, second


@pytest.mark.parametrize(
    ("left", "seen"),
    [
        ("conn.execute('set statement_timeout = 77')", "current_setting('statement_timeout')"),
        ("conn.execute('set search_path = nowhere')", "current_setting('search_path')"),
        ("conn.execute('set my.tenant = 7')", "nullif(current_setting('my.tenant', true), '')"),
        ("conn.execute('set role pg_read_all_data')", "current_user"),
        (  # nobody but a superuser may do so, and then nothing can be completed there
            "conn.commit(); conn.execute('set session authorization pg_read_all_data');"
            "conn.commit()",
            "session_user",
        ),
        ("conn.execute('set client_encoding = latin1')", "pg_client_encoding()"),
        ("conn.execute('create temp table mine (n int)')", "to_regclass('mine')"),
        (
            "conn.execute('select pg_advisory_lock(9)')",
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
        ),
        ("conn.execute('listen mine')", "select count(*) from pg_listening_channels()"),
        ("conn.execute('prepare mine as select 1')", "select count(*) from pg_prepared_statements"),
        (
            "conn.execute('declare mine cursor with hold for select 1')",
            "select count(*) from pg_cursors where name = 'mine'",
        ),
        ("conn.row_factory = psycopg.rows.dict_row", "1"),
        ("conn.commit(); conn.autocommit = True", "1"),
        ("conn.execute('select pg_sleep(0)', prepare=True)", "'é'"),
    ],
)
def test_the_next_task_meets_nothing_of_the_last_one(start_worker, table, left, seen):
    worker = start_worker(module(left, seen), max_concurrency=1)

    first, second = first_and_second(worker)

    assert first == second
    assert table.execute("select count(*) from work").fetchone() == (1,)


@pytest.mark.parametrize("stale", ["kept[0].execute", "kept[1].execute"], ids=["conn", "cursor"])
def test_an_object_that_outlives_its_task_is_useless(start_worker, table, stale):
    before = f"""if kept:
            try: {stale}("insert into work values (2)")
            except psycopg.Error as error: ctx.log.info(type(error).__name__)
        kept[:] = [conn, conn.cursor()]"""
    worker = start_worker(module(before=before), max_concurrency=1)

    first, second = first_and_second(worker)

    assert first == second
    assert table.execute("select n from work").fetchall() == [(1,)]
    assert [each["text"] for each in worker.records("task.log")] == ["OperationalError"]


def test_a_session_that_the_server_has_ended_is_replaced(start_worker, table):
    worker = start_worker(module(), max_concurrency=1)
    first = worker.output(worker.start_run({"writes": True}))["work"]
    query = "select count(*) from pg_stat_activity where pid = %s"
    table.execute("select pg_terminate_backend(%s)", first[:1])
    until(lambda: table.execute(query, first[:1]).fetchone() == (0,))

    second = worker.output(worker.start_run({"writes": True}))["work"]

    assert first != second
    assert worker.records("worker.error") == []


def test_a_handler_whose_session_ends_under_its_query_has_failed(start_worker, table):
    worker = start_worker(module('conn.execute("select pg_terminate_backend(pg_backend_pid())")'))

    worker.start_run({"writes": True})

    until(lambda: worker.value("select max(outcome) from pgflowd.attempts") == "failed")


@pytest.mark.parametrize(
    "left",
    [
        "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        "conn.close()",
        "raise ValueError('no')",
    ],
)
def test_a_session_that_did_not_end_in_order_is_closed(start_worker, table, left):
    worker = start_worker(module(left), max_concurrency=1)

    worker.start_run({"writes": True})

    handlers = "select count(*) from pg_stat_activity where application_name like '%% handler'"
    until(lambda: worker.value("select count(*) from pgflowd.attempts where ended_at is not null"))
    until(lambda: table.execute(handlers.encode(), ()).fetchone() == (0,))


def test_a_session_that_no_task_uses_is_closed_after_a_while(start_worker, table):
    worker = start_worker(module(), max_concurrency=1)
    kept = worker.output(worker.start_run())["work"][0]
    of_runner = "select count(*) from pg_stat_activity where pid = %s"

    assert table.execute(of_runner, (kept,)).fetchone() == (1,)
    until(lambda: table.execute(of_runner, (kept,)).fetchone() == (0,), 20)

    assert worker.output(worker.start_run())["work"][0] != kept
