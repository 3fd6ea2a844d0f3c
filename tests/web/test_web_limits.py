"""Slow, greedy and many clients, and the end of the dashboard while they are there."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from support.dashboard import IN_S, everything, running

from pgflowd.testing.until import until
from pgflowd.web import guard, server
from pgflowd.web.rendering import address_of

HEAD = "{} HTTP/1.1\r\nHost: localhost\r\n"
STREAM = f"{HEAD.format('GET /live/runs')}X-Forwarded-For: {{}}\r\n\r\n"


def test_clients_that_send_or_take_nothing_are_ended(monkeypatch, database, shop):
    """The limits are shorter here, so that the test need not wait for them."""
    monkeypatch.setattr(server, "HEAD_S", 1.0)
    monkeypatch.setattr(server, "SEND_S", 1.0)
    monkeypatch.setattr("pgflowd.web.request_checks.READ_S", 1.0)
    post = f"{HEAD.format('POST /login')}Content-Length: 9\r\nSec-Fetch-Site: same-origin\r\n"
    web: dict[str, Any] = {"auth": "none"}
    with running(database.dsn, **web) as made, ExitStack() as stack:

        def sent(text: str) -> socket.socket:
            conn = stack.enter_context(made.connection())
            conn.sendall(text.encode())
            return conn

        silent, half = sent(""), sent("GET / HTTP/1.1\r\nHost: local")
        trickle = sent("GET / HTTP/1.1\r\n")
        deaf = stack.enter_context(made.connection())
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        script = (HEAD.format(f"GET /{address_of('pgflowd.js')}") + "\r\n").encode()
        deaf.sendall(script * 1000)  # more than the kernel keeps
        body = sent(f"{post}Content-Type: application/x-www-form-urlencoded\r\n\r\nname")
        drop = threading.Event()

        def send_slowly() -> None:
            try:
                while not drop.wait(0.2):
                    trickle.sendall(b"X")
            except OSError:
                drop.set()

        thread = threading.Thread(target=send_slowly, daemon=True)
        thread.start()
        assert everything(silent) == ""
        assert everything(half).startswith("HTTP/1.1 408 ")
        assert drop.wait(IN_S)  # a byte now and then does not keep it open
        thread.join()
        assert made.browser().get("/nothing").status_code == 404
        until(lambda: is_ended(deaf), within_s=IN_S)
        assert everything(body).startswith("HTTP/1.1 40")


def is_ended(conn: socket.socket) -> bool:
    """Whether the other side has ended a connection from which we read nothing."""
    try:
        conn.sendall(b"\r\n")
    except OSError:
        return True
    return False


def test_more_streams_than_there_may_be_are_told_to_poll(database, shop):
    server._raise_limit_of_files()
    web: dict[str, Any] = {"auth": "none", "trusted_proxies": ("127.0.0.1",)}
    with running(database.dsn, **web) as made, ExitStack() as stack:
        conns = []
        for number in range(600):
            conns.append(stack.enter_context(made.connection()))
            conns[-1].sendall(STREAM.format(f"10.0.{number // 16}.1").encode())
        statuses = [conn.recv(12).decode() for conn in conns]

        assert statuses.count("HTTP/1.1 200") == 500
        assert statuses.count("HTTP/1.1 503") == 100
        with made.browser() as browser:  # streams do not take the places of pages
            assert browser.get("/runs").status_code == 200
            mine = {"x-forwarded-for": "10.0.0.1"}
            refused = browser.get("/live/runs", headers=mine)
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0


def test_more_requests_at_once_than_there_may_be_are_told_to_come_again(monkeypatch, database):
    monkeypatch.setattr(guard, "AT_ONCE", 3)
    with running(database.dsn, auth="none") as made, ExitStack() as stack:
        for _ in range(3):  # each waits for its body
            conn = stack.enter_context(made.connection())
            head = HEAD.format("POST /appearance") + "Sec-Fetch-Site: same-origin\r\n"
            conn.sendall(f"{head}Content-Length: 5\r\n\r\n".encode())
        browser = made.browser()
        until(lambda: browser.get("/nothing").status_code == 503, within_s=IN_S)

        assert browser.get("/nothing").headers["retry-after"] == "2"
        stack.close()
        until(lambda: browser.get("/nothing").status_code == 404, within_s=IN_S)


def test_more_connections_than_there_may_be_end_the_oldest_that_waits(monkeypatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 10)
    with running("", auth="none") as made, ExitStack() as stack:
        conns = [stack.enter_context(made.connection()) for _ in range(40)]

        assert everything(conns[0]) == ""
        assert made.browser().get("/nothing").status_code == 404


def test_at_its_end_streams_are_told_to_come_back_and_nothing_is_cancelled(database, shop):
    with running(database.dsn, auth="none") as made:
        conn = made.connection()
        conn.sendall(STREAM.format("10.0.0.1").encode())
        head = conn.recv(65536).decode()
        while "heartbeat" not in head:
            head += conn.recv(65536).decode()
    rest = everything(conn)
    conn.close()

    assert "event: end\ndata: reconnect\n" in head + rest
    assert rest.endswith("0\r\n\r\n")  # the answer is whole
    assert "web.error" not in made.log.events()
    with pytest.raises(httpx.ConnectError):
        made.browser().get("/")
