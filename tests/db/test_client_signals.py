"""Signals and answers by the clients, and runs that wait as the clients see them."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from support.shop import Shop

from pgflowd import AsyncClient, Client
from pgflowd.db import schema
from pgflowd.errors import NotFound, NotOpen, OutputError, RunEnded, RunError, WaitTimeout

SENT = "select name, payload, sent_by, dedup from pgflowd.signals order by signal_id"


@pytest.fixture
def shop(database) -> Shop:
    made = Shop(database)
    made.deploy()
    return made


@pytest.fixture
def waiting(shop) -> UUID:
    run_id = shop.start()
    shop.suspend(shop.claim_all()["website#0"], kind="signal", name="website", why="approval")
    return run_id


def test_a_signal_carries_its_payload_its_actor_and_its_key(shop, waiting):
    client = shop.database.client

    client.signal(waiting, "paid", {"amount": 12}, actor="ann", dedup="order-7")
    client.signal(str(waiting), "paid", {"amount": 13}, dedup="order-7")
    client.signal(waiting, "paid")
    client.signal(waiting, "counted", actor=7)

    sent = [tuple(row) for row in shop.rows(SENT)]
    assert sent == [
        ("paid", {"amount": 12}, "ann", "order-7"),
        ("paid", None, "postgres", None),
        ("counted", None, "7", None),
    ]


def test_an_answer_is_a_signal_with_the_name_of_the_step(shop, waiting):
    client = shop.database.client

    client.approve(waiting, "website", note="have fun", actor="ann", dedup="1")
    client.reject(waiting, "website")

    assert [tuple(row) for row in shop.rows(SENT)] == [
        ("website", {"approved": True, "by": "ann", "note": "have fun"}, "ann", "1"),
        ("website", {"approved": False, "by": "postgres", "note": ""}, "postgres", None),
    ]


def test_an_answer_to_a_step_that_the_run_does_not_have_is_refused(shop, waiting):
    with pytest.raises(NotFound, match="no step 'web_site'") as refused:
        shop.database.client.approve(waiting, "web_site")

    assert "its steps are website" in str(refused.value.next)
    assert shop.rows(SENT) == []


def test_an_answer_to_a_step_that_waits_for_a_signal_is_refused(shop):
    run_id = shop.start()
    shop.suspend(shop.claim_all()["website#0"], kind="signal", name="website")

    with pytest.raises(NotOpen, match="is no approval"):
        shop.database.client.approve(run_id, "website")

    assert shop.rows(SENT) == []


def test_a_signal_is_sent_when_the_connection_of_the_caller_commits(shop, waiting):
    client = shop.database.client
    with psycopg.connect(shop.database.dsn) as conn:
        client.signal(waiting, "paid", 1, conn=conn)
        assert shop.rows(SENT) == []
    assert len(shop.rows(SENT)) == 1

    with psycopg.connect(shop.database.dsn) as conn:
        client.approve(waiting, "website", conn=conn)
        conn.rollback()
    assert len(shop.rows(SENT)) == 1


@pytest.mark.parametrize("name", ["", "x" * 201, None, 7, "a\0b"])
def test_a_name_that_no_signal_can_have_is_refused_at_once(shop, waiting, name):
    client = shop.database.client

    for send in (client.signal, client.approve, client.reject):
        with pytest.raises(RunError, match="E429"):
            send(waiting, name)
    assert shop.rows(SENT) == []


@pytest.mark.parametrize("dedup", ["", "x" * 201, 7, "a\0b"])
def test_a_key_that_no_signal_can_have_is_refused_at_once(shop, waiting, dedup):
    client = shop.database.client

    with pytest.raises(
        RunError, match=r"E429 the dedup .* of a signal .*; give it another one, or none"
    ):
        client.signal(waiting, "paid", dedup=dedup)
    for answer in (client.approve, client.reject):
        with pytest.raises(RunError, match="E429 the dedup"):
            answer(waiting, "website", dedup=dedup)
    assert shop.rows(SENT) == []


def test_what_cannot_be_sent_is_refused_and_nothing_is_sent(shop, waiting):
    client = shop.database.client
    ended = shop.run_through()

    with pytest.raises(OutputError, match="payload is a set"):
        client.signal(waiting, "paid", {1})
    with pytest.raises(RunError, match="E424"):
        client.signal(waiting, "paid", "x" * 1_100_000)
    with pytest.raises(NotFound):
        client.signal(uuid4(), "paid")
    with pytest.raises(RunEnded):
        client.approve(ended, "website")
    with pytest.raises(ValueError, match="is not a run id"):
        client.signal("7f3a", "paid")
    assert shop.rows(SENT) == []


def test_a_run_that_waits_has_that_status_and_has_not_ended(shop, waiting):
    client = shop.database.client

    assert client.get_run(waiting).status == "waiting"
    assert not client.get_run(waiting).has_ended
    assert client.get_run_with_states(waiting).status == "waiting"
    with pytest.raises(WaitTimeout, match="it waits; `pgflowd runs show"):
        client.wait(waiting, timeout=0.05)

    shop.do("select pgflowd.signal(%s, 'website')", waiting)
    shop.do("select pgflowd.process_due()")
    assert client.get_run(waiting).status == "started"
    shop.do("update pgflow.runs set status = 'failed', failed_at = now()")
    assert client.get_run(waiting).status == "failed"


def test_a_role_that_reads_no_table_sends_and_sees_a_started_run(shop, waiting):
    shop.do(schema.roles_sql())
    name = f"h_{uuid4().hex[:8]}"
    shop.conn.execute(sql.SQL("create role {} login in role pgflow_starter").format(
        sql.Identifier(name)))  # fmt: skip
    try:
        with Client(make_conninfo(shop.database.dsn, user=name)) as client:
            client.signal(waiting, "paid", 1)
            client.approve(waiting, "website", note="fine")
            assert client.get_run(waiting).status == "waiting"
    finally:
        shop.conn.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))

    assert [row.sent_by for row in shop.rows(SENT)] == [name, name]
    assert shop.rows(SENT)[1].payload["by"] == name


def test_the_asyncio_client_does_the_same(shop, waiting):
    async def send() -> str:
        async with AsyncClient(shop.database.dsn) as client:
            await client.signal(waiting, "paid", 1, actor="ann")
            await client.approve(waiting, "website", note="yes", actor="ann")
            await client.reject(waiting, "website", actor="ben")
            return str((await client.get_run(waiting)).status)

    assert asyncio.run(send()) == "waiting"
    assert [(row.name, row.sent_by) for row in shop.rows(SENT)] == [
        ("paid", "ann"), ("website", "ann"), ("website", "ben"),
    ]  # fmt: skip
