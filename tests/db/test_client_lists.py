"""Clients list runs, tasks, flows and daemons, as the commands do."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from support.covers import covers

from pgflowd import AsyncClient, Client, Flow
from pgflowd.errors import NotFound, RunError, UnknownFlow

orders = Flow("orders")


@orders.step
def pack(run): ...


@orders.map(over="pack")
def send(item): ...


Call = Callable[..., Any]


@pytest.fixture(params=["plain", "asyncio"])
def call(request, database) -> Call:
    """Calls a method of either client."""
    connection = database.connect()
    shape = Jsonb(orders.shape())
    connection.execute("select pgflow._create_flow_from_shape('orders', %s)", (shape,))
    is_async = request.param == "asyncio"
    client: Any = AsyncClient(database.dsn) if is_async else Client(database.dsn)

    def called(name: str, *args: Any, **named: Any) -> Any:
        async def awaited() -> Any:
            async with AsyncClient(database.dsn) as own:
                return await getattr(own, name)(*args, **named)

        return asyncio.run(awaited()) if is_async else getattr(client, name)(*args, **named)

    return called


def ids(page: Any) -> list[Any]:
    return [run.run_id for run in page.runs]


def test_runs_are_found_by_what_they_have_in_common(call: Call) -> None:
    one = call("start_flow", "orders", {"customer": 1, "items": ["a", "b"]}, key="first")
    two = call("start_flow", "orders", {"customer": 2}, labels={"shop": "berlin"})
    later = call("start_flow", "orders", {"customer": 3, "items": []}, delay="1h")
    call("cancel", two.run_id, reason="enough")
    now = datetime.now(UTC)

    def found(**wanted: Any) -> list[Any]:
        here = ids(call("runs", **wanted))
        assert call("count", **wanted).found == len(here)
        return here

    newest_first = [later.run_id, two.run_id, one.run_id]
    assert found() == found(flow="orders") == found(since="1h") == newest_first
    assert found(since=now - timedelta(hours=1), until=now + timedelta(hours=1)) == newest_first
    assert found(until="1h") == found(since=now + timedelta(hours=1)) == []
    assert found(status="cancelled") == [two.run_id]
    assert found(status=["scheduled", "started"]) == [later.run_id, one.run_id]
    assert found(labels={"shop": "berlin"}) == found(text="berlin") == [two.run_id]
    assert found(labels={"shop": "paris"}) == []
    assert found(key="first", flow="orders") == [one.run_id]
    assert found(key="second", flow="orders") == []
    assert found(key="first", flow="orders", status="failed") == []
    assert found(text=str(one.run_id)[-8:]) == [one.run_id]
    assert found(input={"customer": 2}) == [two.run_id]
    assert found(input={"items": ["b"]}) == [one.run_id]
    assert found(input={"customer": 3}) == [later.run_id]
    assert found(input={"items": []}) == [later.run_id, one.run_id]


def test_runs_are_found_by_their_title(call: Call, database) -> None:
    run = call("start_flow", "orders", {"customer": 7}, labels={"shop": "berlin"})
    call("start_flow", "orders", {"customer": 8}, delay=60)
    database.connect().execute(
        "update pgflowd.runs set title = 'Order of Ada' where run_id = %s", (run.run_id,)
    )

    [found] = call("runs", text="of ada").runs

    assert (found.run_id, found.title, found.labels) == (
        run.run_id,
        "Order of Ada",
        {"shop": "berlin"},
    )


def test_each_run_is_on_one_page(call: Call) -> None:
    started = call("start_flows", "orders", [{"customer": each} for each in range(5)])

    pages = [call("runs", limit=2)]
    while pages[-1].next is not None:
        key = pages[-1].next
        pages.append(call("runs", limit=2, page=key if len(pages) == 1 else key.text))

    assert sorted(run_id for page in pages for run_id in ids(page)) == sorted(
        run.run_id for run in started
    )


def test_tasks_flows_and_daemons_are_listed(call: Call) -> None:
    run = call("start_flow", "orders", {"customer": 1})

    [task] = call("tasks")
    [flow] = call("flows")

    assert (task.run_id, task.step_slug, task.flow_slug) == (run.run_id, "pack", "orders")
    assert call("tasks", run.run_id) == call("tasks", flow="orders", status="ready") == [task]
    assert call("tasks", status="waiting") == call("tasks", needs=["gpu"]) == []
    page = call("step_tasks", run.run_id, "pack")
    assert [each.task for each in page.tasks] == [0] and page.next is None
    assert call("step_tasks", str(run.run_id), "pack", page=0).tasks == []
    assert (flow.title, flow.active_runs, flow.queued) == ("orders", 1, 1)
    assert call("daemons") == []


@covers("E434")
@pytest.mark.parametrize(
    ("name", "wanted", "text"),
    [
        ("runs", {"status": "done"}, "there is no status 'done'"),
        ("count", {"status": [1]}, "there is no status 1"),
        ("runs", {"status": 5}, "a status is a text"),
        ("runs", {"labels": {"a": 1}}, "labels are a dict of texts"),
        ("runs", {"labels": "a=b"}, "labels are a dict of texts"),
        ("runs", {"text": 5}, "what is searched for is a text"),
        ("runs", {"text": "\0"}, "what is searched for is a text"),
        ("runs", {"key": "k"}, "a run has its key within its flow"),
        ("runs", {"key": "", "flow": "orders"}, "a key has 1 to 200 characters"),
        ("runs", {"limit": 0}, "a page has 1 to 1,000 rows"),
        ("runs", {"limit": True}, "a page has 1 to 1,000 rows"),
        ("runs", {"page": "2026"}, "'2026' is not the key of a page"),
        ("runs", {"page": 5}, "5 is not the key of a page"),
        ("tasks", {"status": "failed"}, "there is no status 'failed'"),
        ("tasks", {"needs": "gpu"}, "needs must be a list"),
        ("tasks", {"run_id": "0197e7b1-0000-7000-8000-000000000000", "flow": "orders"}, "exclude"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(call: Call, name: str, wanted: Any, text: str) -> None:
    with pytest.raises(RunError, match=text) as raised:
        call(name, **wanted)

    assert raised.value.code == "E434"
    assert raised.value.next


def test_what_is_unknown_is_refused(call: Call) -> None:
    run = call("start_flow", "orders", {"customer": 1})

    for name in ("runs", "count", "tasks"):
        with pytest.raises(UnknownFlow, match="there is no flow 'order'"):
            call(name, flow="order")
    with pytest.raises(NotFound, match="has no step 'park'"):
        call("step_tasks", run.run_id, "park")
    with pytest.raises(RunError) as raised:
        call("runs", since=datetime(2026, 1, 1))
    assert raised.value.code == "E430"
    with pytest.raises(TypeError, match="runs are not found by colour"):
        call("runs", colour="red")


def test_both_clients_ask_for_the_same() -> None:
    for name in ("runs", "count", "tasks", "step_tasks", "flows", "daemons"):
        plain, other = (inspect.signature(getattr(each, name)) for each in (Client, AsyncClient))
        assert list(plain.parameters) == list(other.parameters)
