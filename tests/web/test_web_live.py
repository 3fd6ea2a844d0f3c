"""Live updates without a browser: streams, polling, their limits, and resuming."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import httpx
import pytest
from support.dashboard import Running, running
from support.event_lines import events_of, stream, until_event

from pgflowd.db.query import execute
from pgflowd.db.runs import publish_output
from pgflowd.testing.until import until
from pgflowd.web import app
from pgflowd.web.event_stream import EventStream
from pgflowd.web.request_checks import User
from pgflowd.web.watcher import Watched

OURS = """
select query from pg_stat_activity
 where application_name = 'pgflowd web' and datname = current_database()
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Let documents be read more often: a test on a busy machine would wait long for changes."""
    monkeypatch.setattr("pgflowd.web.watcher.OPEN_S", 0.3)
    monkeypatch.setattr("pgflowd.web.watcher.SHARE", 1)


def test_a_stream_sends_all_fragments_then_what_changes_and_resumes(web, shop):
    run = shop.start("store_items", ["a"])
    row = f"run-{run}"

    with web.stream("GET", "/live/runs") as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        events = events_of(answer)
        first = until_event(events, row, "running")
        for task in shop.claim_all("store_items").values():
            shop.complete(task, 1)
        second = until_event(events, row, "completed")
    other = shop.start("store_items", ["b"])
    with stream(web, "/live/runs", second.id) as events:
        third = next(events)
    with stream(web, "/live/runs", "another.9") as events:
        fragments = {next(events).fragment for _ in range(8)}

    assert first.id.partition(".")[0] == second.id.partition(".")[0]
    assert third.fragment == f"run-{other}"
    assert {row, f"run-{other}"} <= fragments


def test_a_row_that_fits_the_filter_no_more_is_kept_right_for_who_shows_it(web, shop):
    run = shop.start("store_items", ["a"])
    row, path = f"run-{run}", "/live/runs?status=started"

    with (
        stream(web, f"{path}&live_shown={row},x,run-0") as seen,
        stream(web, path) as new,
    ):
        until_event(seen, row, "running")
        until_event(new, row, "running")
        for task in shop.claim_all("store_items").values():
            shop.complete(task, 1)
        until_event(seen, row, "completed")
        shop.start("store_items", ["b"])
        until_event(new, f"run-{shop.start('store_items', ['c'])}", "running")
        shop.do("select pgflowd.delete_run(%s, 'a test')", run)
        gone = next(each for each in seen if each.kind == "removed")

    assert gone.data == row


def test_who_has_no_stream_polls_the_same(web, shop):
    run = shop.start()
    path = f"/fragments/runs/{run}"

    first = web.get(path).json()
    shop.complete(next(iter(shop.claim_all().values())), {"a": 1})
    second = until(lambda: changed(web, f"{path}?live_after={first['id']}"), within_s=20)

    before, after = (
        {data.partition("\n")[0]: data for _, data in each["changes"]} for each in (first, second)
    )
    assert {"run-head", "step-website", "step-summary", "trouble"} <= before.keys()
    assert "completed" in after["step-website"]
    assert not after.keys() & {"trouble", "problems"}
    assert second["now"] >= first["now"]


def changed(web, path):
    """What has changed on a page, if anything has."""
    found = web.get(path).json()
    return found if found["changes"] else None


def test_who_views_daemons_has_their_rows_written_often(web, shop):
    shop.do("listen pgflowd")

    with stream(web, "/live/runs") as events:
        until_event(events, "trouble", "")
    with stream(web, "/live/daemons") as events:
        until_event(events, "trouble", "")
    told = list(shop.conn.notifies(timeout=20, stop_after=1))

    assert [each.payload for each in told] == ["look at daemons"]


def test_the_end_of_a_run_is_announced_once(web, shop):
    run = shop.start("send_email")

    with stream(web, f"/live/runs/{run}") as events:
        until_event(events, "run-head", "running")
        shop.complete(next(iter(shop.claim_all("send_email").values())), 1)
        said = next(each for each in events if each.kind == "announce")

    assert said.data == f"run {str(run)[-8:]} completed"


def test_lines_of_handlers_are_sent_and_a_gap_is_told(web, shop, monkeypatch):
    monkeypatch.setattr("pgflowd.web.watcher.MAX_LINES", 5)
    run = shop.start()

    def printed(numbers):
        for number in numbers:
            line = {"event_type": "task:output", "text": f"line {number}", "step_slug": "website"}
            execute(shop.conn, publish_output([(str(run), json.dumps(line))]))

    with stream(web, f"/live/runs/{run}?view=output") as events:
        until_event(events, "run-head", "running")
        until(lambda: shop.value("select count(*) from pgflowd.followers where with_output") == 1)
        printed([1])
        first = next(each for each in events if each.kind == "line")
        number = int(first.data.split("\n")[0])
        printed(range(2, 10))
        last = next(each for each in events if each.kind == "line" and "line 9" in each.data)
        with stream(web, f"/live/runs/{run}?view=output&live_lines={number}") as again:
            missed = next(each for each in again if each.kind == "line")
        with stream(web, f"/live/runs/{run}?view=output&live_lines=1") as again:
            unknown = next(each for each in again if each.kind == "line")

    assert '"text": "line 1"' in first.data and '"step": "website"' in first.data
    assert int(last.data.split("\n")[0]) == number + 8
    assert "3 lines not shown" in missed.data
    assert "lines not shown" in unknown.data


def test_the_api_streams_the_events_of_a_run_and_resumes_after_each(web, shop, monkeypatch):
    run = shop.start()
    path = f"/api/1/runs/{run}/events"
    expected = ["run:started", "step:started", "step:completed", "step:started", "step:started",
                "step:completed", "step:completed", "step:started", "step:completed",
                "run:completed"]  # fmt: skip
    with stream(web, path) as events:
        got = [next(events), next(events)]
        for _ in range(3):
            for task in shop.claim_all().values():
                shop.complete(task, 1)
        got += list(events)
    again, last = [], ""
    while True:
        with stream(web, path, last) as events:
            event = next(events)
        if event.kind == "end":
            break
        again.append(event)
        last = event.id

    assert [each.kind for each in got] == [*["message"] * 10, "end"]
    assert [each.json["event"] for each in got[:-1]] == expected
    assert got[-1].data == event.data == "finished"
    assert [each.json for each in again] == [each.json for each in got[:-1]]
    refused = web.get(path, headers={"Last-Event-ID": "not ours"})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, "E506")
    unknown = web.get("/api/1/runs/00000000-0000-0000-0000-000000000000/events")
    assert unknown.status_code == 404


def test_the_stream_of_the_api_has_the_documents_of_the_command(web, shop):
    run = shop.run_through()

    with stream(web, f"/api/1/runs/{run}/events") as events:
        sent = [each.json for each in events if each.kind == "message"]
    words = ["runs", "follow", str(run), "--json", "--database-url", shop.database.dsn]
    command = [sys.executable, "-m", "pgflowd.cli.main", *words]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)

    assert sent == [json.loads(line) for line in printed.stdout.splitlines()]


def test_streams_are_limited_and_share_two_connections(database, shop, monkeypatch):
    """600 streams ask for the same page: one connection listens for all that get one."""
    monkeypatch.setattr("pgflowd.web.watcher.IDLE_S", 0.5)
    monkeypatch.setattr("pgflowd.web.event_stream.MAX_OF_SESSION", 1000)
    run = shop.start()
    with running(database.dsn, auth="none") as served, ExitStack() as stack:
        lines = [stack.enter_context(opened(served, f"/live/runs/{run}")) for _ in range(600)]
        heads = [head_of(line) for line in lines]
        refused = [head for head in heads if head.startswith("http/1.1 503")]
        for line in lines[:500:100]:
            received(line, b"step-website")
        connections = shop.column(OURS)
        shop.complete(next(iter(shop.claim_all().values())), {"a": 1})
        for line in lines[:500:100]:
            received(line, b"completed")
        for line in lines:
            line.close()
        until(lambda: shop.column(OURS) == [])

    assert len(refused) == 100
    assert all("retry-after: 10" in head for head in refused)
    assert len(connections) == 2
    assert sum("follow" in query for query in connections) == 1


def test_a_session_has_sixteen_streams_at_most(web):
    with ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(stream(web, "/live/"))
        refused = web.get("/live/")

    assert refused.status_code == 503
    assert "16 streams" in refused.json()["errors"][0]["text"]
    until(lambda: has_room(web))


def has_room(web):
    with web.stream("GET", "/live/") as answer:
        return answer.status_code == 200


class Endless(EventStream):
    """A tab of a page that always has something new."""

    watched = Watched()

    def take(self):
        return b"data: x\n\n", None


def test_a_client_that_takes_nothing_loses_its_stream(monkeypatch):
    monkeypatch.setattr("pgflowd.web.event_stream.SEND_S", 0.05)
    sent, left = [], []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def known():
        return True

    async def open_stream():
        stream = Endless()
        stream.leave, stream.is_known = lambda: left.append(True), known
        await stream({}, receive, send)

    with ThreadPoolExecutor() as threads:  # in this one the loop of the browser runs
        threads.submit(asyncio.run, asyncio.wait_for(open_stream(), 30)).result()
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert left == [True]


def test_a_stream_ends_when_its_user_may_see_nothing_any_more(database, serve, monkeypatch):
    monkeypatch.setattr("pgflowd.web.event_stream.HEARTBEAT_S", 0.1)
    users = [User("jane")]

    async def find(scope):
        return users[0]

    with httpx.Client(base_url=serve(app(database.dsn, user=find)), timeout=30) as web:
        with stream(web, "/live/") as events:
            until_event(events, "trouble", "")
            users[0] = None
            last = [*events][-1]
        again = web.get("/live/")

    assert (last.kind, last.data) == ("end", "login")
    assert again.status_code == 401


def test_streams_end_before_the_server_does_and_go_on_with_the_next(database, shop):
    run = shop.start()
    with ExitStack() as stack:
        with running(database.dsn, auth="none") as served:
            web = stack.enter_context(served.browser())
            page = stack.enter_context(stream(web, "/live/runs"))
            events = stack.enter_context(stream(web, f"/api/1/runs/{run}/events"))
            until_event(page, f"run-{run}", "running")
            next(events)
        last = [*page][-1], [*events][-1]
    shop.complete(next(iter(shop.claim_all().values())), {"a": 1})
    with (
        running(database.dsn, auth="none", port=served.place) as served,
        served.browser() as web,
        stream(web, f"/api/1/runs/{run}/events", last[1].id) as events,
    ):
        assert next(events).json["event"] == "step:completed"

    assert [(each.kind, each.data) for each in last] == [("end", "reconnect")] * 2


def test_while_the_database_is_away_pages_say_so_and_then_go_on(database, shop, proxy):
    """Also a page that is opened meanwhile; and the stream of a run goes on where it was."""
    run = shop.start()
    with (
        running(proxy.dsn, auth="none") as served,
        served.browser() as web,
        stream(web, f"/live/runs/{run}") as page,
        stream(web, f"/api/1/runs/{run}/events") as events,
    ):
        until_event(page, "step-website", "running")
        begun = [next(events).json["event"] for _ in range(2)]
        proxy.do("refuse")
        away = until_event(page, "trouble", "E301")
        with stream(web, "/live/") as other:
            assert "E301" in until_event(other, "trouble", "E301").data
        assert web.get("/").status_code == 503
        shop.complete(next(iter(shop.claim_all().values())), {"a": 1})
        proxy.do("pass")
        back = [next(page), next(page)]
        then = next(events).json["event"]

    assert begun == ["run:started", "step:started"]
    assert "data-ago" in away.data
    assert {each.fragment for each in back} >= {"trouble"}
    assert then == "step:completed"


# tabs without a browser: connections that ask for a stream, and read only what a test reads


def opened(served: Running, path: str) -> closing[socket.socket]:
    """A connection that has asked for a page or stream."""
    line = served.connection()
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.place}\r\n\r\n".encode())
    return closing(line)


def head_of(line: socket.socket) -> str:
    """The head of an answer."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += line.recv(1)
    return received.decode().lower()


def received(line: socket.socket, text: bytes) -> bytes:
    """What comes until a text has come."""
    found = b""
    while text not in found:
        part = line.recv(65536)
        assert part, found
        found += part
    return found
