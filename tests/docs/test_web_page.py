"""The applications of docs/guides/web.md, served and asked over sockets."""

from __future__ import annotations

import json
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
import uvicorn
import werkzeug.serving
from support.pages import blocks_of

from pgflowd import Flow
from pgflowd.testing.until import until

MODULE = types.ModuleType("web_page")  # where annotations are looked up
sys.modules["web_page"] = MODULE
PAGE: dict[str, Any] = vars(MODULE)
for block in blocks_of("docs/guides/web.md", "python"):
    exec(block, PAGE)

payments = Flow("payments")


@payments.step
def book(run): ...


@contextmanager
def asgi(app: Any) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive(), within_s=20)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def wsgi(app: Any) -> Iterator[str]:
    server = werkzeug.serving.make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(20)


Served = Callable[[str], AbstractContextManager[str]]
FRAMEWORKS: dict[str, Served] = {
    "fastapi": lambda dsn: asgi(PAGE["app"]),
    "litestar": lambda dsn: asgi(PAGE["litestar_app"]),
    "flask": lambda dsn: wsgi(PAGE["make_app"](dsn)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Litestar 3 will ask for
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_order_starts_a_run_and_its_events_are_streamed(name, pgflow_db, monkeypatch) -> None:
    monkeypatch.setenv("SHOP_DSN", pgflow_db.dsn)
    conn = pgflow_db.connect()
    conn.execute("create table orders (id serial primary key, card text)")
    pgflow_db.deploy([PAGE["orders"], payments])
    with FRAMEWORKS[name](pgflow_db.dsn) as url, httpx.Client(base_url=url, timeout=20) as web:
        answer = web.post("/orders", json={"card": "visa"})
        assert answer.status_code == 202, answer.text
        run_id = answer.json()["run_id"]
        assert conn.execute("select id, card from orders").fetchall() == [(1, "visa")]
        assert web.get(f"/runs/{run_id}").json()["status"] == "started"
        assert web.get(f"/runs/{uuid4()}").status_code == 404

        seen = []
        with web.stream("GET", f"/runs/{run_id}/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    seen.append(json.loads(line.removeprefix("data: ")))
                    if len(seen) == 1:  # it was streamed before the run goes on
                        pgflow_db.drain(PAGE["orders"])
        assert [event["event"] for event in seen][-2:] == ["step:completed", "run:completed"]
        output = {"pay": "paid by visa"}
        assert seen[-1]["output"] == (None if name == "fastapi" else output)  # outputs=False
        assert web.get(f"/runs/{run_id}").json()["output"] == {"pay": "paid by visa"}

        if name == "fastapi":
            rest = web.get(f"/runs/{run_id}/events", headers={"last-event-id": str(len(seen) - 2)})
            assert rest.text.count("id: ") == 2 and f"id: {len(seen)}\n" in rest.text
            headers = {"x-delivery-id": "d-1"}
            both = [web.post("/webhooks/payments", json={"a": 1}, headers=headers) for _ in "12"]
            assert both[0].json() == both[1].json() and both[1].status_code == 202
        conn.execute("drop table orders")  # a request that fails starts nothing
        assert web.post("/orders", json={"card": "gone"}).status_code == 500
    counted = "select flow_slug, count(*) from pgflow.runs group by 1 order by 1"
    expected = [("orders", 1)] + ([("payments", 1)] if name == "fastapi" else [])
    assert conn.execute(counted).fetchall() == expected


def test_the_test_of_the_page_passes(pgflow_db, monkeypatch) -> None:
    PAGE["test_an_order_is_paid"](pgflow_db, monkeypatch)
