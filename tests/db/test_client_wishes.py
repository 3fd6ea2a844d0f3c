"""What a start may ask for besides its input, by both clients."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from support.covers import covers
from support.shop import Shop

from pgflowd import AsyncClient, Client
from pgflowd.core.statuses import RunStatus
from pgflowd.db import schema
from pgflowd.errors import (
    BadDependency,
    KeyTaken,
    NotFound,
    RunEnded,
    RunError,
    RunExists,
    UnknownFlow,
    WaitTimeout,
)
from pgflowd.testing.until import until

FLOW, INPUT = "analyze_website", {"url": "x"}
AHEAD = timedelta(hours=2)


@pytest.fixture
def shop(database) -> Shop:
    made = Shop(database)
    made.deploy()
    return made


@pytest.fixture
def client(shop) -> Client:
    return shop.database.client


def process(shop: Shop) -> int:
    return int(shop.value("select done from pgflowd.process_due()"))


def let_it_come(shop: Shop, column: str = "start_at") -> None:
    shop.do(f"update pgflowd.runs set {column} = now(), due_at = now() where due_at is not null")


def test_a_run_begins_after_a_key_and_is_planned_anew(shop, client):
    client.start_flow(FLOW, INPUT, key="order 7")
    waiting = client.start_flow(FLOW, INPUT, after_keys=["order 7"])
    other = client.start_flow(FLOW, INPUT)
    assert waiting.status == RunStatus.BLOCKED

    moved = client.reschedule(waiting.run_id, after=[other.run_id])
    assert moved.blocked_by == [other.run_id]
    begun = client.reschedule(waiting.run_id, after=[], singleton="report")
    assert begun.singleton == "report"
    process(shop)
    assert client.get_run(waiting.run_id).status == RunStatus.STARTED
    for keys in ("order 7", [""], [7]):
        with pytest.raises(RunError):
            client.start_flow(FLOW, INPUT, after_keys=keys)
    with pytest.raises(BadDependency, match="no run with key 'order 8'"):
        client.start_flow(FLOW, INPUT, after_keys=["order 8"])


@pytest.mark.parametrize("wish", [{"delay": "2h"}, {"delay": AHEAD}, {"delay": 7200}, {"at": None}])
def test_a_run_begins_later_and_is_read_before(shop, client, wish: dict[str, Any]):
    if "at" in wish:
        wish = {"at": datetime.now(UTC) + AHEAD}
    run = client.start_flow(FLOW, INPUT, labels={"customer": "42"}, **wish)

    assert (run.status, run.input, run.started_at) == (RunStatus.SCHEDULED, INPUT, None)
    assert not run.has_ended
    assert run.labels == {"customer": "42"}
    assert run.start_at is not None
    assert abs(run.start_at - datetime.now(UTC) - AHEAD) < timedelta(minutes=1)
    assert client.get_run(run.run_id) == run
    assert client.get_run_with_states(run.run_id).steps == {}
    with pytest.raises(WaitTimeout, match="has not begun"):
        client.wait(run.run_id, timeout=0)

    let_it_come(shop)
    assert process(shop) == 1
    begun = client.get_run(run.run_id)
    assert (begun.status, begun.labels) == (RunStatus.STARTED, {"customer": "42"})
    assert begun.started_at is not None
    assert set(client.get_run_with_states(run.run_id).steps) > {"website"}


def test_all_wishes_of_many_starts(shop, client):
    at = datetime(2090, 1, 1, tzinfo=UTC)
    runs = client.start_flows(FLOW, [1, 2], at=at, expires=at + AHEAD, labels={"a": "b"})

    assert [(run.input, run.start_at, run.expires_at) for run in runs] == [
        (1, at, at + AHEAD), (2, at, at + AHEAD),
    ]  # fmt: skip


def test_a_run_that_expires_is_read_as_expired(shop, client):
    begun = client.start_flow(FLOW, INPUT, expires="1h")
    planned = client.start_flow(FLOW, INPUT, delay="1h", expires="2h")
    let_it_come(shop, "expires_at")
    shop.do("update pgflowd.runs set start_at = start_at - interval '1 h'")
    assert process(shop) == 2

    for run in (begun, planned):
        ended = client.wait(run.run_id, timeout=10)
        assert (ended.status, ended.has_ended) == (RunStatus.EXPIRED, True)
        assert ended.ended_at is not None
    with pytest.raises(RunEnded):
        client.reschedule(begun.run_id, expires="1h")


def test_who_waits_for_a_planned_run_gets_its_end(shop, client):
    run = client.start_flow(FLOW, INPUT, delay="1h")
    let_it_come(shop)
    process(shop)
    client.cancel(run.run_id)
    assert client.wait(run.run_id, timeout=10).status is RunStatus.CANCELLED

    found: list[Any] = []

    async def scenario() -> None:
        async with AsyncClient(shop.database.dsn) as other:
            planned = await other.start_flow(FLOW, INPUT, delay="1h", key="a")
            waiting = asyncio.create_task(other.wait(planned.run_id, timeout=20))
            await asyncio.to_thread(client.cancel, planned.run_id)
            found.append(await waiting)

    asyncio.run(scenario())
    assert [run.status for run in found] == [RunStatus.CANCELLED]


def test_a_key_gives_everybody_the_same_run(shop, client):
    first = client.start_flow(FLOW, INPUT, key="order 42")
    again = client.start_flow(FLOW, {"url": "y"}, key="order 42", delay="1h")

    assert again == first
    shop.claim_all()
    with psycopg.connect(shop.database.dsn) as conn:
        assert client.start_flow(FLOW, INPUT, key="order 42", conn=conn).run_id == first.run_id
        conn.execute("select 1")  # the transaction goes on
    with pytest.raises(RunError, match="both an id and a key"):
        client.start_flow(FLOW, INPUT, key="order 42", run_id=uuid4())


def test_a_planned_run_is_rescheduled(shop, client):
    run = client.start_flow(FLOW, INPUT, delay="1h")
    at = datetime(2090, 1, 1, tzinfo=UTC)

    assert client.reschedule(run.run_id, at=at).start_at == at
    assert client.reschedule(run.run_id, expires=at + AHEAD).expires_at == at + AHEAD

    async def sooner() -> Any:
        async with AsyncClient(shop.database.dsn) as other:
            return await other.reschedule(run.run_id, delay=0)

    asyncio.run(sooner())
    until(lambda: process(shop) == 1, within_s=5)
    with pytest.raises(RunEnded, match="has begun already"):
        client.reschedule(run.run_id, at=at)
    with pytest.raises(NotFound):
        client.reschedule(uuid4(), at=at)


@pytest.mark.parametrize(
    ("wishes", "code"),
    [
        ({"at": datetime(2090, 1, 1)}, "E430"),
        ({"at": "tomorrow"}, "E430"),
        ({"delay": -1}, "E430"),
        ({"delay": "soon"}, "E430"),
        ({"expires": "2 weeks"}, "E430"),
        ({"at": datetime(2090, 1, 1, tzinfo=UTC), "delay": 1}, "E432"),
        ({"delay": "2h", "expires": "1h"}, "E432"),
        ({"labels": ["a"]}, "E432"),
        ({"labels": {"a": 1}}, "E432"),
        ({"labels": {"a": "\0"}}, "E432"),
        ({"key": ""}, "E432"),
        ({"key": "a" * 201}, "E432"),
        ({"after": "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"}, "E432"),
        ({"after_mode": "ended"}, "E432"),
        ({"after": [UUID(int=1)], "after_mode": "perhaps"}, "E432"),
        ({"after": [UUID(int=1)]}, "E422"),
        ({"singleton": "", "on_conflict": "reject"}, "E432"),
        ({"singleton": "a", "on_conflict": "perhaps"}, "E432"),
        ({"on_conflict": "wait"}, "E432"),
        ({"actor": 42}, "E432"),
    ],
    ids=str,
)
def test_wishes_that_cannot_be_are_refused(client, wishes: dict[str, Any], code: str):
    with pytest.raises(RunError) as error:
        client.start_flow(FLOW, INPUT, **wishes)
    assert error.value.code == code
    assert error.value.next


def test_an_unknown_wish_is_a_type_error(client):
    with pytest.raises(TypeError, match="no option dealy"):
        client.start_flow(FLOW, INPUT, dealy="1h")


def test_a_planned_start_names_what_is_wrong_at_once(client):
    with pytest.raises(UnknownFlow, match="there is no flow 'nothing'"):
        client.start_flow("nothing", INPUT, delay="1h")
    run_id = client.start_flow(FLOW, INPUT).run_id
    with pytest.raises(RunExists, match=f"run {run_id} already exists"):
        client.start_flow(FLOW, INPUT, delay="1h", run_id=run_id)


def test_a_starter_plans_reads_reschedules_and_cancels(shop):
    shop.do(schema.roles_sql())
    url = make_conninfo(shop.database.dsn, options="-c role=pgflow_starter")
    with Client(url) as starter:
        run = starter.start_flow(FLOW, INPUT, delay="1h", key="a")
        assert isinstance(run.run_id, UUID)
        assert starter.get_run(run.run_id).status is RunStatus.SCHEDULED
        assert starter.reschedule(run.run_id, delay="2h").start_at > run.start_at
        assert starter.cancel(run.run_id).status is RunStatus.CANCELLED


def test_a_run_that_begins_while_it_is_read_is_never_unknown(shop, client):
    runs = [client.start_flow(FLOW, INPUT, delay=n / 200) for n in range(100)]
    over = threading.Event()

    def sweep() -> None:
        with psycopg.connect(shop.database.dsn, autocommit=True) as conn:
            while not over.is_set():
                conn.execute("select pgflowd.process_due(1)")

    def all_have_begun() -> bool:
        found = [client.get_run(run.run_id) for run in runs]
        assert all((run.status == "started") == (run.started_at is not None) for run in found)
        return all(run.status == "started" for run in found)

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        until(all_have_begun, within_s=30)
    finally:
        over.set()
        sweeper.join()


def test_one_run_at_a_time_has_a_singleton_key(shop, client):
    first = client.start_flow(FLOW, INPUT, singleton="customer 42")
    second = client.start_flow(FLOW, INPUT, singleton="customer 42")
    assert (first.status, second.status) == (RunStatus.STARTED, RunStatus.BLOCKED)
    existing = client.start_flow(FLOW, INPUT, singleton="customer 42", on_conflict="existing")
    assert existing.run_id == first.run_id
    assert (second.singleton, second.blocked_by) == ("customer 42", [first.run_id])
    with pytest.raises(KeyTaken) as taken:
        client.start_flow(FLOW, INPUT, singleton="customer 42", on_conflict="reject")
    assert (taken.value.run_id, taken.value.code) == (first.run_id, "E421")
    with pytest.raises(WaitTimeout, match="has not begun"):
        client.wait(second.run_id, timeout=0)

    client.cancel(first.run_id)
    until(lambda: process(shop) == 0, within_s=5)
    assert client.get_run(second.run_id).status is RunStatus.STARTED
    with pytest.raises(KeyTaken, match="cannot be tried again"):
        client.retry(first.run_id, even_if_cancelled=True)

    async def replaced() -> Any:
        async with AsyncClient(shop.database.dsn) as other:
            return await other.start_flow(
                FLOW, INPUT, singleton="customer 42", on_conflict="replace", actor="ann"
            )

    last = asyncio.run(replaced())
    until(lambda: process(shop) == 0, within_s=5)
    found = [client.get_run(run.run_id) for run in (second, last)]
    assert [run.status for run in found] == [RunStatus.CANCELLED, RunStatus.STARTED]
    assert (found[1].created_by, found[1].blocked_by) == ("ann", None)


def test_who_asks_for_a_run_with_wishes_is_kept(shop, client):
    assert client.start_flow(FLOW, INPUT, actor="ann").created_by == "ann"
    assert client.start_flow(FLOW, INPUT, labels={"a": "b"}).created_by == "postgres"
    assert client.get_run(client.start_flow(FLOW, INPUT).run_id).created_by is None


@covers("E428")
def test_a_run_begins_after_others_have_ended(shop, client):
    first, second = client.start_flow(FLOW, INPUT), client.start_flow(FLOW, INPUT, delay="1h")
    run = client.start_flow(FLOW, INPUT, after=[first.run_id, str(second.run_id)])
    patient = client.start_flow(FLOW, INPUT, after=[first.run_id], after_mode="ended")
    assert (run.status, run.started_at) == (RunStatus.BLOCKED, None)
    assert sorted(run.blocked_by or ()) == sorted((first.run_id, second.run_id))
    with pytest.raises(WaitTimeout, match="has not begun"):
        client.wait(run.run_id, timeout=0)
    unknown = uuid4()
    with pytest.raises(BadDependency, match=f"there is no run {unknown}"):
        client.start_flow(FLOW, INPUT, after=[unknown])

    async def cancelled() -> Any:
        async with AsyncClient(shop.database.dsn) as other:
            last = await other.start_flow(FLOW, INPUT, after=[run.run_id])
            client.cancel(first.run_id)
            until(lambda: process(shop) == 0, within_s=5)
            return await other.wait(last.run_id, timeout=10)

    assert asyncio.run(cancelled()).status is RunStatus.CANCELLED
    ended = client.get_run(run.run_id)
    assert (ended.status, ended.blocked_by) == (RunStatus.CANCELLED, None)
    assert ended.cancel_reason == f"run {first.run_id} did not complete: it is cancelled (E428)"
    assert client.get_run(patient.run_id).status is RunStatus.STARTED
