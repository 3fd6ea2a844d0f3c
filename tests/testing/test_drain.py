"""`pgflow_db.drain` executes flows on the real database in the test's own process."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta

import pytest

from pgflowd import Client, Context, Fail, Flow, job
from pgflowd.testing import assert_not_started, assert_started, run_flow

orders = Flow("orders", max_attempts=3, base_delay=60)


@orders.step
def lines(run, ctx: Context):
    ctx.conn().execute("insert into seen values (%s)", (f"lines {ctx.attempt}",))
    if run.get("flaky") and ctx.attempt == 1:
        raise TimeoutError("not yet")
    ctx.progress(1, 2, "half")
    return run["lines"]


@orders.map(over="lines")
async def pack(item, ctx: Context):
    await asyncio.sleep(0)
    return {"packed": item, "of": ctx.flow_input()["customer"]}


@orders.step
def bill(pack, ctx: Context):
    note = ctx.memo("note", lambda: f"{len(pack)} parcels")
    ctx.sleep("2h")
    paid = ctx.wait_signal("paid", timeout="1d", default={"amount": 0})
    child = ctx.start("mail", {"note": note, "amount": paid["amount"]})
    [ended] = ctx.wait(child)
    return ended.output["perform"]


@job("mail")
def mail(run) -> str:
    Client().start_flow("count", None, key="one")  # the database of the test
    return f"{run['note']}, {run['amount']}"


@job("count")
def count() -> int:
    return os.getpid()


undone = Flow("undone", on_failure="undo")


@undone.step
def book(run):
    return 7


@undone.undo(book)
def unbook(book):
    return None


@undone.step
def fly(book):
    raise Fail("no seat")


def test_a_drain_executes_what_is_due_and_hurries_when_asked(pgflow_db) -> None:
    conn = pgflow_db.connect()
    conn.execute("create table seen (what text)")
    pgflow_db.deploy([orders, mail, count])
    given = {"customer": 7, "lines": ["a", "b"], "flaky": True}
    run_id = pgflow_db.client.start_flow("orders", given).run_id
    all_of_them = [orders, mail, count]

    [run] = pgflow_db.drain(all_of_them)
    assert run.status == "started"  # its first attempt has failed, and the next one is due later
    assert conn.execute("select * from seen").fetchall() == []  # rolled back with it
    assert pgflow_db.drain(all_of_them) == []

    pgflow_db.hurry(run)
    [run] = pgflow_db.drain(all_of_them)
    assert run.status == "waiting"  # for the end of its sleep
    assert conn.execute("select * from seen").fetchall() == [("lines 2",)]
    steps = pgflow_db.client.get_run_with_states(run_id).steps
    assert steps["pack"].output == [{"packed": "a", "of": 7}, {"packed": "b", "of": 7}]

    pgflow_db.client.signal(run_id, "paid", {"amount": 12})
    drained = {run.flow_slug: run for run in pgflow_db.drain(all_of_them, hurry=True)}
    assert drained["orders"].status == "completed"
    assert drained["orders"].output == {"bill": "2 parcels, 12"}
    assert drained["count"].output == {"perform": os.getpid()}
    assert_started(pgflow_db, "mail", input_contains={"amount": 12})


def test_a_run_is_undone_a_planned_one_begins_and_a_signal_does_not_come(pgflow_db) -> None:
    pgflow_db.deploy([undone, orders, mail, count])
    pgflow_db.connect().execute("create table seen (what text)")
    failed = pgflow_db.client.start_flow("undone", {}).run_id
    given = {"customer": 1, "lines": []}
    later = pgflow_db.client.start_flow("orders", given, delay="7d").run_id

    async def in_an_async_test() -> None:
        pgflow_db.drain([undone, orders, mail, count], hurry=True)

    asyncio.run(in_an_async_test())
    assert pgflow_db.client.get_run(failed).status == "undone"
    ended = pgflow_db.client.get_run(later)
    assert ended.output == {"bill": "0 parcels, 0"}


def test_what_ends_a_test_is_no_failed_attempt(pgflow_db) -> None:
    @job("stops")
    def stops() -> None:
        pytest.fail("this is the test's")

    pgflow_db.deploy(stops)
    pgflow_db.client.start_flow("stops", None)
    with pytest.raises(pytest.fail.Exception, match="the test's"):
        pgflow_db.drain(stops)
    with pytest.raises(TypeError, match="takes flows and jobs"):
        pgflow_db.drain([7])


def test_a_failed_assertion_names_the_runs_that_exist_and_the_nearest(pgflow_db) -> None:
    pgflow_db.deploy([orders, count])
    assert_not_started(pgflow_db, "orders")
    with pytest.raises(AssertionError, match="found 0; the flow has no runs at all"):
        assert_started(pgflow_db, "orders")
    given = {"customer": 7, "lines": [1, {"x": None}], "paid": False}
    run = pgflow_db.client.start_flow("orders", given)
    pgflow_db.client.start_flow("orders", {"customer": 8}, delay=60)
    assert assert_started(pgflow_db, "orders", input_contains={"customer": 7}) == run
    assert_started(pgflow_db.dsn, "orders", count=2)
    assert_not_started(pgflow_db, "orders", input_contains={"customer": 9})
    assert_not_started(pgflow_db, "orders", input_contains=None)
    with pytest.raises(AssertionError) as error:
        wanted = {"customer": 7, "lines": [1, {"x": 0}], "paid": 0, "card": "visa"}
        assert_started(pgflow_db, "orders", input_contains=wanted)
    text = str(error.value)
    assert "found 0" in text and '{"customer":8}' in text
    assert text.split("nearest: ")[1].splitlines() == [
        f"{run.run_id}, which differs in",
        '  input.card is missing, expected "visa"',
        "  input.paid is false, expected 0",
        '  input.lines is [1,{"x":null}], expected [1,{"x":0}]',
    ]
    with pytest.raises(AssertionError, match="flow 'orders' was started with "):
        assert_not_started(pgflow_db, "orders", input_contains={"customer": 7})

    with pgflow_db.connect(autocommit=False) as conn:  # which is not committed
        Client(conn).start_flow("count", None)
        assert_started(conn, "count")
        assert_not_started(pgflow_db, "count")
        conn.rollback()


def test_now_is_when_a_run_of_a_test_begins() -> None:
    new_year = datetime(2027, 1, 1, tzinfo=UTC)
    flow, seen = Flow("party"), []

    @flow.step
    def start(run, ctx: Context):
        seen.append(ctx.deadline)
        ctx.sleep("1h")
        ctx.sleep(until=new_year + timedelta(hours=5))
        ctx.sleep(until=new_year + timedelta(hours=2))  # which has passed

    run = run_flow(flow, None, now=new_year)
    assert run.took_s == 5 * 3600
    assert seen[0] == new_year + timedelta(seconds=60)
    assert seen[-1] == seen[0] + timedelta(hours=5)
    with pytest.raises(TypeError, match="with a time zone"):
        run_flow(flow, None, now=datetime(2027, 1, 1))


names: list[str] = []


@pytest.mark.pgflow_db(reset="truncate")
@pytest.mark.parametrize("nr", [1, 2])
def test_a_truncated_database_has_no_rows_of_others(pgflow_db, nr) -> None:
    names.append(pgflow_db.name)
    assert len(set(names)) == 1
    conn = pgflow_db.connect()
    conn.execute("create table if not exists of_the_application (id int)")
    assert conn.execute("select count(*) from of_the_application").fetchone() == (0,)
    conn.execute("insert into of_the_application values (1)")
    pgflow_db.deploy([count, orders])
    assert_not_started(pgflow_db, "count")
    pgflow_db.client.start_flow("count", None)
    pgflow_db.client.start_flow("orders", {}, delay=60, key="same")
    [run] = pgflow_db.drain(count)
    assert run.status == "completed"


def test_a_mark_that_nobody_understands_is_refused() -> None:
    from pgflowd.testing.plugin import reset_of

    for wrong in (pytest.mark.pgflow_db("truncate"), pytest.mark.pgflow_db(reset="always")):
        with pytest.raises(pytest.UsageError, match='or "new" for a database of its own'):
            reset_of(wrong.mark)
