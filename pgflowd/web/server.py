"""
Serves the dashboard: uvicorn with httptools, within limits, until a signal ends it.

uvicorn waits for slow clients without an end, and for open event streams at its own end. Here a
head must come within 10 s, and an answer must be taken within 20 s; before the shutdown all
streams are told to come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Generator, Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pgflowd.core.settings.sections import LoggingSettings, WebSettings
from pgflowd.web.application import Dashboard
from pgflowd.web.auth import LOGINS, Asked, FindUser
from pgflowd.web.guard import OUR_HEADERS, Guard
from pgflowd.web.login_files import LoginFile, read_secret
from pgflowd.web.request_checks import MAX_HEAD_BYTES, Write, log

HEAD_S = 10.0  # to send the head of a request
SEND_S = 20.0  # to take what was sent
KEEP_ALIVE_S = 30  # between two requests; more than a page that polls waits
SHUTDOWN_S = 2  # then what is still answered is cancelled
MAX_CONNECTIONS = 1000  # 500 streams, 200 requests, and browsers that wait
FILES = 4096  # descriptors that these need, and those of the database
_MAX_READ = 2 * MAX_HEAD_BYTES  # what comes in more than one piece; `request_checks` counts exactly


def serve(
    application: ASGIApp,
    listener: socket.socket,
    write: Write,
    *,
    on_ready: Callable[[], None],
    on_end: Callable[[], None],
) -> None:
    """Answer until SIGTERM or SIGINT. `on_end` is called first then, and ends open streams."""
    _raise_limit_of_files()
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [_PassOn(write)], False
    Server(application, on_ready=on_ready, on_end=on_end).run(sockets=[listener])


class Server(uvicorn.Server):
    """Ends by a signal with exit code 0; a second one ends it at once."""

    def __init__(
        self, application: ASGIApp, *, on_ready: Callable[[], None], on_end: Callable[[], None]
    ) -> None:
        config = uvicorn.Config(
            application, http=_Protocol, loop="asyncio", ws="none", lifespan="off",
            proxy_headers=False, server_header=False, access_log=False, log_config=None,
            timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=SHUTDOWN_S,
        )  # fmt: skip
        super().__init__(config)
        self._on_ready, self._on_end = on_ready, on_end

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_end()
        await asyncio.sleep(0)  # so that the streams write their last event
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self.ask_to_end)
        yield

    def ask_to_end(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


class _Protocol(HttpToolsProtocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_bytes = 0
        self._is_in_head = False
        self._is_deaf = False  # what else comes is not read
        self._began_at = self.loop.time()
        self._head_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._wait_for_head()
        if len(self.connections) > MAX_CONNECTIONS:
            # end the oldest connection that waits, so that those keep nobody out
            others = [each for each in self.connections if isinstance(each, _Protocol)]
            idle = [each for each in others if each.is_idle and each is not self]
            oldest = min(idle, key=lambda each: each._began_at, default=self)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _stop(self._head_timer)
        _stop(self._send_timer)

    @property
    def is_idle(self) -> bool:
        """Whether it has no request that is answered now."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        if self._is_deaf or self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_READ:
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                self._refuse(status, f"the head has more than {MAX_HEAD_BYTES // 1024} KiB")

    def on_message_begin(self) -> None:
        self._is_in_head, self._head_bytes = True, 0
        if self._head_timer is None:
            self._wait_for_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        _stop(self._head_timer)
        self._head_timer = None
        if self._is_deaf or self.transport.is_closing():
            return
        if self.url.startswith(b"/"):
            super().on_headers_complete()
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, "the target must be a path")

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        has_body_left = not self.pipeline and self.cycle.more_body
        super().on_response_complete()
        if has_body_left:  # nobody will read the rest of the request
            self.transport.close()
        if self.transport.is_closing():
            self._abort_later()

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, "this is not a request of HTTP")

    def _unsupported_upgrade_warning(self) -> None:
        """Answer as if it had not asked; what comes after it is not read."""
        if self.cycle is not None:
            self._end_after_this_answer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            _stop(self._send_timer)

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection; one whose client has not taken the answer does not wait."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self._end_slow)

    def _end_slow(self) -> None:
        self._head_timer = None
        if self._is_in_head:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"no head came within {HEAD_S:g} s")
        else:
            self.transport.abort()

    def _abort_later(self) -> None:
        """End the connection if its client does not take what was sent."""
        _stop(self._send_timer)
        self._send_timer = self.loop.call_later(SEND_S, self.transport.abort)

    def _end_after_this_answer(self) -> None:
        """Read nothing more, and close when the request has its answer that has none yet."""
        if self.pipeline:
            self.transport.abort()
        self._is_deaf, self.cycle.keep_alive = True, False

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Answer without the application, and close."""
        if not self.is_idle:  # then it would stand within the answer to an earlier request
            self._end_after_this_answer()
            return
        body = f"{text}\n".encode()
        headers = {
            "Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body)),
            "Connection": "close", **OUR_HEADERS,
        }  # fmt: skip
        lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        self.transport.close()
        self._abort_later()


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _raise_limit_of_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES:
        most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(most, soft), hard))


class _PassOn(logging.Handler):
    """Writes uvicorn's errors to our log; its warnings are of clients that send no HTTP."""

    def __init__(self, write: Write) -> None:
        super().__init__(logging.ERROR)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"error": record.getMessage()}
        if record.exc_info:
            fields["traceback"] = logging.Formatter().formatException(record.exc_info)
        self._write("error", "web.error", **fields)


# The dashboard as `pgflowd web` serves it: with the logins of `[web]`.
class Served(NamedTuple):
    """The application, what ends it, and the key of its link, if it has one."""

    application: Guard
    dashboard: Dashboard
    key: str


def served(
    web: WebSettings, *, url: str, operator_url: str, owner: str, write: Write,
    redact: Iterable[str] = (), read_only: str = "",
) -> Served:  # fmt: skip
    """
    Return what is served. `owner` is the user of who comes by the link with the key; values of the
    keys in `redact` are not shown. `read_only` says why nobody may act. ConfigError E502: a file of
    logins cannot be used.
    """
    for name in ("users", "tokens"):
        if path := getattr(web, name):
            LoginFile(path, name).logins()  # a mistake ends the start, not the first login
    key = secrets.token_urlsafe(24) if web.auth == "key" else ""
    secret = read_secret(web.secret)
    login = LOGINS[web.auth](web, key=key, owner=owner, secret=secret, write=write)
    if web.auth == "none":
        read_only = 'auth in [web] is "none"'
    elif not operator_url:
        read_only = read_only or "operator_url in [web] is not set"
    operator_url = "" if read_only else operator_url
    dashboard = Dashboard(url, operator_url=operator_url, payloads=web.payloads, redact=redact)
    return Served(Guard(dashboard.routes(), login, write, read_only=read_only), dashboard, key)


# The dashboard for applications that mount it.
#
#     app.mount("/flows", pgflowd.web.app(url, user=user))
def app(
    url: str = "", *, user: FindUser, operator_url: str = "", payloads: str = "redacted",
    redact: Iterable[str] = LoggingSettings().redact,
) -> ASGIApp:  # fmt: skip
    """
    Return the dashboard of a database as an ASGI application.

    `url` is the database's; an empty one means the environment of libpq. `operator_url` connects
    as a member of `pgflow_operator`; without it nobody can act. `user` gets the ASGI scope of a
    request and returns its `User`, or None for somebody who may not see anything. `payloads` and
    `redact` are as in the config: how values are shown, and the keys whose values are not.
    """
    dashboard = Dashboard(url, operator_url=operator_url, payloads=payloads, redact=redact)
    read_only = "" if operator_url else "it is mounted without operator_url"
    return Guard(dashboard.routes(), Asked(user), log, read_only=read_only)
