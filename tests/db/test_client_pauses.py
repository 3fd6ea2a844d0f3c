"""Runs and flows are paused and resumed by both clients."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from support.shop import Shop

from pgflowd import AsyncClient
from pgflowd.core.statuses import RunStatus
from pgflowd.errors import NotFound, RunEnded, WaitTimeout


@pytest.fixture
def shop(database) -> Shop:
    made = Shop(database)
    made.deploy()
    return made


def test_a_run_is_paused_with_a_reason_and_goes_on(shop):
    client, run_id = shop.database.client, shop.start()

    paused = client.pause(run_id, reason="too hot", actor="jane")

    assert (paused.status, paused.has_ended) == (RunStatus.PAUSED, False)
    assert (paused.paused_by, paused.pause_reason) == ("jane", "too hot")
    assert paused.paused_at is not None
    assert client.get_run(run_id) == client.pause(run_id, reason="again") == paused
    with pytest.raises(WaitTimeout, match="it is paused"):
        client.wait(run_id, timeout=0)
    assert shop.claim_all() == {}
    assert client.resume(run_id).status is RunStatus.STARTED
    assert client.resume(run_id).paused_at is None
    assert shop.claim_all()
    client.cancel(run_id)
    with pytest.raises(RunEnded, match="it is cancelled"):
        client.pause(run_id)


def test_a_pause_belongs_to_the_transaction_of_its_caller(shop):
    client, run_id = shop.database.client, shop.start()
    with psycopg.connect(shop.database.dsn) as conn:
        assert client.pause(run_id, conn=conn).status is RunStatus.PAUSED
        conn.rollback()
    assert client.get_run(run_id).status is RunStatus.STARTED


def test_a_flow_is_paused_once(shop):
    client = shop.database.client
    shop.start()

    assert client.pause_flow("analyze_website", reason="rain")
    assert not client.pause_flow("analyze_website")
    assert shop.claim_all() == {}
    assert client.resume_flow("analyze_website")
    assert not client.resume_flow("analyze_website")
    assert shop.claim_all()
    with pytest.raises(NotFound):
        client.pause_flow("nothing")


def test_the_async_client_does_the_same(shop):
    async def pause_and_resume() -> list[RunStatus | bool]:
        async with AsyncClient(shop.database.dsn) as client:
            run_id = shop.start()
            return [
                (await client.pause(run_id, reason="x")).status,
                (await client.resume(run_id)).status,
                await client.pause_flow("analyze_website"),
                await client.resume_flow("analyze_website"),
            ]

    assert asyncio.run(pause_and_resume()) == [RunStatus.PAUSED, RunStatus.STARTED, True, True]
