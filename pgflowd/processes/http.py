"""
Answers health checks and scrapes over HTTP: `/livez`, `/readyz` and `/metrics`.

It is an observer (docs/background/supervision.md, rules 50 to 53): without a connection to the
database, and without user code. It asks the supervisor over the control socket and keeps each
answer for a second, so that many scrapes cost the supervisor one. A connection has one request and
is then closed. When there are too many, the one that has not sent its request for longest makes
room, so that idle ones keep nobody out.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import socket
import time
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import Any

from pgflowd.core.documents.health import health_of, is_ready
from pgflowd.core.http import (
    MAX_HEAD_BYTES,
    HttpAnswer,
    HttpRequest,
    prefers,
    read_request,
    refusal,
)
from pgflowd.core.messages import Drain, Failed, Heartbeat, QuickStop, Ready
from pgflowd.core.metrics.definitions import LOG_RECORDS_DROPPED
from pgflowd.core.metrics.exposition import HistogramDetail, TextFormat, exposition
from pgflowd.core.settings.sections import Settings
from pgflowd.core.settings.values import Address
from pgflowd.core.supervision.exits import EXIT_ASKED, EXIT_CANNOT
from pgflowd.errors import ConfigError
from pgflowd.host import control
from pgflowd.host.channel import Channel
from pgflowd.host.config import control_path
from pgflowd.host.config_refs import read
from pgflowd.host.logs import Log
from pgflowd.host.process_use import ProcessUse
from pgflowd.host.socket_place import SocketInUse, SocketPathError, SocketPlace

HEARTBEAT_S = 5.0  # a small part of hang_timeout
KEPT_S = 1.0  # an answer of the supervisor
ANSWER_S = 2.0  # the supervisor's loop never waits, so one that takes longer hangs
HEAD_S = 5.0  # to send a request
WRITE_S = 5.0  # to take the answer
MAX_CONNECTIONS = 64  # at once; as many are accepted before any of them is read
BACKLOG = 1024  # that the kernel keeps until they are accepted


def main(channel: Channel, settings: Settings, log: Log) -> int:
    """Answer until the supervisor asks to end."""
    address = settings.http.address
    assert address is not None
    try:
        place = _Place(address)
    except (OSError, SocketInUse, SocketPathError) as error:
        why = f"another process has {error}" if isinstance(error, SocketInUse) else error
        channel.send(Failed("E504", f"[http] listen = {settings.http.listen}: {why}"))
        channel.flush_all()
        return EXIT_CANNOT
    try:
        asyncio.run(HttpServer(channel, settings, log).run(place.listener))
    finally:
        place.leave()
    return EXIT_ASKED


class _Place:
    """The listening socket; of a Unix one also its file."""

    def __init__(self, address: Address) -> None:
        self._file = SocketPlace(Path(address.path), MAX_CONNECTIONS) if address.path else None
        if self._file is not None:
            self.listener = self._file.listener
            return
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.listener = socket.create_server(
            (address.host, address.port), family=family, backlog=MAX_CONNECTIONS
        )

    def leave(self) -> None:
        if self._file is not None:
            self._file.leave()


class HttpServer:
    """The connections, and what the supervisor has answered."""

    def __init__(self, channel: Channel, settings: Settings, log: Log) -> None:
        self._channel = channel
        self._settings = settings
        self._log = log
        self._socket = Path(control_path(settings)).absolute()
        self._asked: dict[str, tuple[float, asyncio.Task[dict[str, Any] | None]]] = {}
        self._texts: dict[TextFormat, tuple[dict[str, Any], str]] = {}  # and of which answer
        self._use = ProcessUse()
        # connections, the oldest first
        self._reading: dict[asyncio.StreamWriter, None] = {}
        self._answering: dict[asyncio.StreamWriter, None] = {}
        self._token_error = ""  # that was logged last
        self._numbers: dict[str, Any] = {"listen": settings.http.listen, "requests": 0}
        self._is_over = asyncio.Event()

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._channel.fileno(), self._receive)
        loop.set_exception_handler(lambda _, context: self._log_error(context["message"]))
        server = await asyncio.start_server(
            self._serve, sock=listener, limit=MAX_HEAD_BYTES, backlog=MAX_CONNECTIONS
        )
        listener.listen(BACKLOG)
        self._channel.send(Ready())
        heartbeat_s = min(HEARTBEAT_S, self._settings.supervisor.hang_timeout_s / 3)
        while not self._is_over.is_set():
            self._channel.flush()
            self._numbers[LOG_RECORDS_DROPPED.key] = self._log.lost
            self._channel.send(Heartbeat(self._numbers))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), heartbeat_s)
        server.close()

    def _receive(self) -> None:
        orders = self._channel.receive()
        if self._channel.at_end or any(isinstance(each, Drain | QuickStop) for each in orders):
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._is_over.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its begin to its end."""
        try:
            await self._answer_one(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # its client is gone, too slow, or had to make room
        except Exception as error:
            self._log_error(f"{type(error).__name__}: {error}")
        finally:
            self._reading.pop(writer, None)
            self._answering.pop(writer, None)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    def _make_room(self) -> None:
        """End the oldest connection if there are too many; rather one that still sends its head."""
        if len(self._reading) + len(self._answering) < MAX_CONNECTIONS:
            return
        those = self._reading or self._answering
        oldest = next(iter(those))
        del those[oldest]
        oldest.transport.abort()

    def _log_error(self, text: str, code: str | None = None) -> None:
        self._log.error("http.error", code=code, error=text)

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._make_room()
        self._reading[writer] = None
        writer.transport.set_write_buffer_limits(0)  # so that drain waits until all is sent
        try:
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            request = read_request(head)
        except asyncio.LimitOverrunError:
            text = f"a request has at most {MAX_HEAD_BYTES} bytes"
            request = refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
        self._reading.pop(writer, None)
        self._answering[writer] = None
        is_head = isinstance(request, HttpRequest) and request.is_head
        answer = await self._answer(request) if isinstance(request, HttpRequest) else request
        self._numbers["requests"] += 1
        self._numbers["last_request_at"] = time.time()
        writer.write(answer.encode(formatdate(usegmt=True), is_head=is_head))
        async with asyncio.timeout(WRITE_S):
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        if request.path == "/metrics":
            return await self._metrics(request)
        if request.path not in ("/livez", "/readyz"):
            return refusal(HTTPStatus.NOT_FOUND, "there are /livez, /readyz and /metrics")
        status = await self._ask("status")
        is_well = status is not None and (request.path == "/livez" or is_ready(status))
        body = health_of(status, with_reasons=self._may_read(request))
        return HttpAnswer(
            HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE,
            f"{json.dumps(body)}\n",
            "application/json",
        )

    async def _metrics(self, request: HttpRequest) -> HttpAnswer:
        if not self._may_read(request):
            text = 'this needs the header "Authorization: Bearer TOKEN", as in [http] token'
            return refusal(HTTPStatus.UNAUTHORIZED, text, **{"WWW-Authenticate": "Bearer"})
        numbers = await self._ask("metrics")
        if numbers is None:
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the supervisor has not answered")
        accept = request.headers.get("accept", "")
        is_open = prefers(accept, "application/openmetrics-text", "text/plain")
        form = TextFormat.OPENMETRICS if is_open else TextFormat.CLASSIC
        if form not in self._texts or self._texts[form][0] is not numbers:
            detail = HistogramDetail(self._settings.http.histograms)
            used = self._use.of(numbers["status"])
            self._texts[form] = numbers, exposition(numbers, used, form, detail)
        return HttpAnswer(HTTPStatus.OK, self._texts[form][1], form.value)

    def _may_read(self, request: HttpRequest) -> bool:
        """Whether it brings the token, if one is set; a file may have a new one at any time."""
        if not self._settings.http.token:
            return True
        try:
            token = read(self._settings.http.token, place="[http] token")
        except ConfigError as error:
            if error.text != self._token_error:
                self._token_error = error.text
                self._log_error(error.text, error.code)
            return False
        given = request.bearer.encode("latin-1")
        return bool(token) and hmac.compare_digest(token.encode(), given)

    async def _ask(self, command: str) -> dict[str, Any] | None:
        """Return the supervisor's answer, one of the last second included; None: it has none."""
        at, task = self._asked.get(command, (0.0, None))
        if task is None or (task.done() and time.monotonic() >= at + KEPT_S):
            task = asyncio.create_task(self._ask_now(command))
            self._asked[command] = time.monotonic(), task
        return await asyncio.shield(task)

    async def _ask_now(self, command: str) -> dict[str, Any] | None:
        try:
            call = asyncio.to_thread(control.ask, self._socket, command, ANSWER_S)
            answer = await asyncio.wait_for(call, ANSWER_S)
        except (OSError, ValueError, TimeoutError):
            return None
        return None if "error" in answer else answer
