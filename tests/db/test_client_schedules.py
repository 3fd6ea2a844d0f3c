"""Schedules by both clients."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from support.shop import Shop

from pgflowd import AsyncClient, FlowError, Schedule
from pgflowd.errors import NotFound

DAILY = Schedule("@daily", {"to": "jane"}, timezone="Europe/Berlin")


@pytest.fixture
def shop(database: Any) -> Shop:
    made = Shop(database)
    made.deploy()
    return made


def test_a_schedule_belongs_to_the_transaction_of_its_caller(shop: Shop) -> None:
    client = shop.database.client
    with psycopg.connect(shop.database.dsn) as conn:
        assert client.add_schedule("mail", "send_email", DAILY, conn=conn)
        conn.rollback()
    assert client.schedules() == []


def test_what_is_wrong_is_told_before_anything_is_asked(shop: Shop) -> None:
    client = shop.database.client
    with pytest.raises(FlowError, match="five fields"):
        client.add_schedule("mail", "send_email", Schedule("daily"))
    with pytest.raises(NotFound):
        client.add_schedule("mail", "send_mail", DAILY)
    for verb in ("remove", "pause", "resume", "fire"):
        with pytest.raises(NotFound):
            getattr(client, f"{verb}_schedule")("mail")


def test_the_async_client_does_the_same(shop: Shop) -> None:
    async def perform() -> None:
        async with AsyncClient(shop.database.dsn) as client:
            assert await client.add_schedule("mail", "send_email", DAILY, actor="jane")
            (listed,) = await client.schedules("send_email")
            assert (listed.input, listed.changed_by, listed.origin) == (
                {"to": "jane"}, "jane", "operator",
            )  # fmt: skip
            assert await client.pause_schedule("mail")
            assert await client.resume_schedule("mail")
            fired = await client.fire_schedule("mail", actor="jane")
            assert await client.fire_schedule("mail") == fired
            assert fired.labels is not None and fired.labels["schedule"] == "mail"
            await client.remove_schedule("mail")
            assert await client.schedules() == []

    asyncio.run(perform())
