"""`client.follow` yields the events of a run, as `runs follow` prints them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from uuid import uuid4

import psycopg
import pytest
from support.covers import covers
from support.proxy import ProxyProcess

from pgflowd import AsyncClient, Client, Context, Fail, Flow
from pgflowd.errors import NotFound

orders = Flow("orders", base_delay=0, max_attempts=2, on_failure="undo")


@orders.step
def pay(run, ctx: Context):
    if ctx.attempt == 1:
        raise TimeoutError("not yet")
    return 7


@orders.undo(pay)
def give_back(pay):
    return None


@orders.step
def pack(pay, ctx: Context):
    ctx.wait_signal("go")
    raise Fail("no box")


EVENTS = [
    "run:started", "step:started pay", "task:failed pay", "step:completed pay",
    "step:started pack", "task:waiting pack", "task:failed pack", "step:failed pack",
    "run:failed", "run:undoing", "step:started pay", "undo:undone pay", "run:undone",
]  # fmt: skip


@covers("friction 5")
def test_both_clients_yield_all_events_until_the_end(pgflow_db) -> None:
    pgflow_db.deploy(orders)
    run_id = pgflow_db.client.start_flow("orders", {}).run_id
    found: list[str] = []
    for event in pgflow_db.client.follow(run_id):
        found.append(" ".join(filter(None, [event.event, event.step])))
        if event.event == "step:started" and event.step == "pay" and len(found) < 4:
            pgflow_db.drain(orders, hurry=True)
        if event.event == "task:waiting":
            pgflow_db.client.signal(run_id, "go")
            pgflow_db.drain(orders, hurry=True)
    assert sorted(found) == sorted(EVENTS)
    assert found[0] == "run:started" and found[-1] == "run:undone"
    events = list(pgflow_db.client.follow(run_id))
    without = list(pgflow_db.client.follow(run_id, outputs=False))
    assert [e.key for e in without] == [e.key for e in events]
    assert any(e.output is not None for e in events)
    assert all(e.output is None for e in without)

    async def again() -> list[str]:
        async with AsyncClient(pgflow_db.dsn) as client:
            followed = client.follow(run_id, outputs=False)
            return [" ".join(filter(None, [e.event, e.step])) async for e in followed]

    # it waits no longer, so only who followed then was told
    assert sorted(asyncio.run(again())) == sorted(e for e in EVENTS if e != "task:waiting pack")


def test_it_goes_on_when_the_database_is_back_and_ends_when_nobody_listens(pgflow_db) -> None:
    pgflow_db.deploy(orders)
    with ProxyProcess(pgflow_db.dsn) as proxy:
        run_id = pgflow_db.client.start_flow("orders", {}).run_id
        events = Client(proxy.dsn).follow(run_id)
        assert next(events).event == "run:started"
        end_sessions(pgflow_db.connect())
        pgflow_db.drain(orders, hurry=True)
        found = [next(events).event for _ in range(4)]
        assert found == ["step:started", "task:failed", "step:completed", "step:started"]

    async def closed_early() -> None:
        async with AsyncClient(pgflow_db.dsn) as client, aclosing(client.follow(run_id)) as events:
            async for _ in events:
                break

    asyncio.run(closed_early())
    for client in (pgflow_db.client, Client(pgflow_db.dsn)):
        with pytest.raises(NotFound):
            next(client.follow(uuid4()))
    with pytest.raises(ValueError, match="cannot wait"):
        Client(pgflow_db.connect()).follow(run_id)


def end_sessions(conn: psycopg.Connection) -> None:
    conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
        " and application_name = 'pgflowd client'"
    )
