"""Both clients tell what happened in a run, and who did it."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from support.shop import Shop

from pgflowd import AsyncClient, RunEvent
from pgflowd.errors import NotFound


@pytest.fixture
def shop(database) -> Shop:
    made = Shop(database)
    made.deploy()
    return made


def test_the_timeline_of_a_run_has_its_events_and_what_was_done_to_it(shop):
    client, run_id = shop.database.client, shop.start()
    shop.claim_all()
    client.pause(run_id, actor="jane", reason="too hot")
    client.resume(run_id, actor="joe", reason="cooler")
    client.cancel(run_id)
    client.retry(run_id, actor="ann", reason="by mistake", even_if_cancelled=True)

    events = client.timeline(run_id)

    done = [
        (one.word, one.actor, one.detail.get("reason")) for one in events if one.kind == "action"
    ]
    assert done == [
        ("pause", "jane", "too hot"),
        ("resume", "joe", "cooler"),
        ("cancel", "postgres", None),
        ("retry", "ann", "by mistake"),
    ]
    assert all(isinstance(event, RunEvent) for event in events)
    assert len({event.key for event in events}) == len(events)
    later = client.timeline(run_id, after=events[-2].at)
    assert later == [event for event in events if event.at >= events[-2].at]
    with pytest.raises(NotFound):
        client.timeline(uuid.uuid4())


def test_the_asyncio_client_tells_the_same(shop):
    run_id = shop.run_through()

    async def told() -> list[RunEvent]:
        async with AsyncClient(shop.database.dsn) as client:
            return await client.timeline(run_id)

    assert asyncio.run(told()) == shop.database.client.timeline(run_id)
