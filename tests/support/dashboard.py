"""
The dashboard as `pgflowd web` serves it, in a thread of the test, and raw requests to it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from pgflowd.core.settings.sections import WebSettings
from pgflowd.testing.until import until
from pgflowd.web.server import Server, served

PORT = 7460  # in `listen`; tests get a free one
IN_S = 30.0  # for a slow machine


@dataclass
class Log:
    """What the dashboard has logged."""

    records: list[dict[str, Any]] = field(default_factory=list)

    def write(self, level: str, event: str, **fields: Any) -> None:
        self.records.append({"level": level, "event": event, **fields})

    def events(self) -> list[str]:
        return [record["event"] for record in self.records]


@dataclass
class Running:
    """A dashboard that is served."""

    place: int | str  # its port, or the path of its socket
    key: str
    log: Log
    dashboard: Any

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.place}"

    @property
    def link(self) -> str:
        return f"{self.url}/?key={self.key}"

    def browser(self, **headers: str) -> httpx.Client:
        """A client with cookies, which has come by no link yet."""
        accept = {"accept": "text/html,*/*", **headers}
        return httpx.Client(base_url=self.url, headers=accept, timeout=IN_S)

    def connection(self) -> socket.socket:
        if isinstance(self.place, str):
            conn = socket.socket(socket.AF_UNIX)
            conn.settimeout(IN_S)
            conn.connect(self.place)
            return conn
        return socket.create_connection(("127.0.0.1", self.place), IN_S)

    def raw(self, request: str | bytes) -> str:
        """Send bytes, and return all that comes until the end of the connection."""
        with self.connection() as conn:
            conn.sendall(request.encode("latin-1") if isinstance(request, str) else request)
            return everything(conn)

    def ask(self, *lines: str, first: str = "GET / HTTP/1.1", body: str = "") -> tuple[int, str]:
        """Send a head of these lines and `Connection: close`; return the status and the answer."""
        head = "\r\n".join([first, *lines, "Connection: close", "", body])
        answer = self.raw(head)
        return int(answer.split(" ", 2)[1]), answer


def everything(conn: socket.socket) -> str:
    """What comes until the end."""
    parts = []
    try:
        while part := conn.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts).decode("utf-8", "replace")


@contextmanager
def running(
    url: str,
    *,
    operator_url: str = "",
    unix: Path | None = None,
    port: int = 0,
    redact: Sequence[str] = (),
    **web: Any,
) -> Iterator[Running]:
    """Serve the dashboard of a database, with these keys of [web]. Port 0 is a free one."""
    log = Log()
    settings = replace(WebSettings(), **web)
    made = served(
        settings, url=url, operator_url=operator_url, owner="owner", write=log.write, redact=redact
    )
    if unix is None:
        listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        place: int | str = listener.getsockname()[1]
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(unix))
        listener.listen(64)
        place = str(unix)
    ready = threading.Event()
    server = Server(made.application, on_ready=ready.set, on_end=made.dashboard.end)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        until(ready.is_set, within_s=IN_S)
        yield Running(place, made.key, log, made.dashboard)
    finally:
        server.ask_to_end()
        thread.join(IN_S)
        assert not thread.is_alive()
