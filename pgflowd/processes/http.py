"""
Answers health checks and scrapes over HTTP: `/livez`, `/readyz` and `/metrics`.

It is an observer (docs/background/supervision.md, rules 50 to 53): without a connection to the
database, and without user code. It asks the supervisor over the control socket and keeps each
answer for a second, so that many scrapes cost the supervisor one. A connection has one request and
is then closed. When there are too many, the one that has not sent its request for longest makes
room, so that idle ones keep nobody out.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import socket
import sys
import threading
import time
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pgflowd.core.documents.daemon_status import health_of, is_ready
from pgflowd.core.messages import Failed, Ready
from pgflowd.core.metrics.exposition import TextFormat, exposition
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.tree import EXIT_ASKED, EXIT_CANNOT
from pgflowd.errors import ConfigError
from pgflowd.host import control
from pgflowd.host.channel import Channel
from pgflowd.host.config import control_path, read
from pgflowd.host.control import SocketInUse, SocketPathError, SocketPlace
from pgflowd.host.logs import Log
from pgflowd.host.process_tree import ProcessUse
from pgflowd.processes.service import Service, StopRequested

KEPT_S = 1.0  # an answer of the supervisor
ANSWER_S = 2.0  # the supervisor's loop never waits, so one that takes longer hangs
SOCKET_S = 5.0  # for each piece of a request or an answer
MAX_CONNECTIONS = 8  # at once; each is a thread
OK, UNAVAILABLE = HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE
BACKLOG = 1024  # that the kernel keeps until they are accepted


def main(channel: Channel, settings: Settings, log: Log) -> int:
    """Answer until the supervisor asks to end."""
    address, file = settings.http.address, None
    assert address is not None
    try:
        if address.path:
            file = SocketPlace(Path(address.path), BACKLOG)
            listener = file.listener
        else:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            place = (address.host, address.port)
            listener = socket.create_server(place, family=family, backlog=BACKLOG)
    except (OSError, SocketInUse, SocketPathError) as error:
        why = f"another process has {error}" if isinstance(error, SocketInUse) else error
        channel.send(Failed("E504", f"[http] listen = {settings.http.listen}: {why}"))
        channel.flush_all()
        return EXIT_CANNOT
    service = Service(channel, settings, log)
    server = HttpServer(listener, settings, log, service.numbers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    channel.send(Ready())
    try:
        with contextlib.suppress(StopRequested):
            service.wait_until(inf)
    finally:
        server.shutdown()
        if file is not None:
            file.leave()
    return EXIT_ASKED


class HttpServer(ThreadingHTTPServer):
    """The connections, and what the supervisor has answered."""

    def __init__(
        self, listener: socket.socket, settings: Settings, log: Log, numbers: dict[str, Any]
    ) -> None:
        super().__init__(("", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.settings = settings
        self.log = log
        self.numbers = numbers  # of the heartbeats
        numbers |= {"listen": settings.http.listen, "requests": 0}
        self._open: dict[socket.socket, bool] = {}  # whether its request was read, the oldest first
        self._lock = threading.Lock()
        self._control = Path(control_path(settings)).absolute()
        self._answers: dict[str, tuple[float, dict[str, Any] | None]] = {}
        self._ask_locks = {"status": threading.Lock(), "metrics": threading.Lock()}
        self._texts: dict[TextFormat, tuple[dict[str, Any], str]] = {}  # and of which answer
        self._use = ProcessUse()
        self._token_error = ""  # that was logged last

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a new connection in a thread; where there are too many, end the oldest."""
        with self._lock:
            if len(self._open) >= MAX_CONNECTIONS:
                oldest = min(self._open, key=lambda each: self._open[each])
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = False
        super().process_request(request, client_address)

    def has_asked(self, request: Any) -> None:
        """Count a request that was read; those that were not make room first."""
        with self._lock:
            if request in self._open:
                self._open[request] = True
            self.numbers["requests"] += 1
            self.numbers["last_request_at"] = time.time()

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):  # else its client is gone, too slow, or made room
            self.log.error("http.error", code=None, error=f"{type(error).__name__}: {error}")

    def may_read(self, authorization: str) -> bool:
        """Whether it brings the token, if one is set; a file may have a new one at any time."""
        if not self.settings.http.token:
            return True
        try:
            token = read(self.settings.http.token, place="[http] token")
        except ConfigError as error:
            if error.text != self._token_error:
                self._token_error = error.text
                self.log.error("http.error", code=error.code, error=error.text)
            return False
        scheme, _, given = authorization.partition(" ")
        is_equal = hmac.compare_digest(token.encode(), given.strip().encode("latin-1"))
        return scheme.lower() == "bearer" and bool(token) and is_equal

    def ask(self, command: str) -> dict[str, Any] | None:
        """Return the supervisor's answer, one of the last second included; None: it has none."""
        with self._ask_locks[command]:
            at, answer = self._answers.get(command, (-KEPT_S, None))
            if time.monotonic() >= at + KEPT_S:
                try:
                    answer = control.ask(self._control, command, ANSWER_S)
                except (OSError, ValueError):
                    answer = None
                answer = None if answer is None or "error" in answer else answer
                self._answers[command] = time.monotonic(), answer
            return answer

    def metrics_text(self, numbers: dict[str, Any], form: TextFormat) -> str:
        kept = self._texts.get(form)
        if kept is None or kept[0] is not numbers:
            used = self._use.of(numbers["status"])
            kept = self._texts[form] = numbers, exposition(numbers, used, form)
        return kept[1]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    timeout = SOCKET_S
    server: HttpServer
    headers: Message

    def do_GET(self) -> None:
        self.server.has_asked(self.request)
        may_read = self.server.may_read(self.headers.get("authorization", ""))
        path = urlsplit(self.path).path if self.path.startswith("/") else ""
        if path in ("/livez", "/readyz"):
            status = self.server.ask("status")
            is_well = status is not None and (path == "/livez" or is_ready(status))
            text = json.dumps(health_of(status, with_reasons=may_read)) + "\n"
            self._answer(OK if is_well else UNAVAILABLE, text, "application/json")
        elif path != "/metrics":
            self._answer(HTTPStatus.NOT_FOUND, "there are /livez, /readyz and /metrics\n")
        elif not may_read:
            text = 'this needs the header "Authorization: Bearer TOKEN", as in [http] token\n'
            self._answer(HTTPStatus.UNAUTHORIZED, text)
        elif (numbers := self.server.ask("metrics")) is None:
            self._answer(UNAVAILABLE, "the supervisor has not answered\n")
        else:
            is_open = "application/openmetrics-text" in self.headers.get("accept", "")
            form = TextFormat.OPENMETRICS if is_open else TextFormat.CLASSIC
            self._answer(OK, self.server.metrics_text(numbers, form), form.value)

    do_HEAD = do_GET

    def _answer(
        self, status: HTTPStatus, text: str, type_: str = "text/plain; charset=utf-8"
    ) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", type_)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "pgflowd"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: each scrape would be a line."""
