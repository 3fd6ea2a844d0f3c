"""
Stands around the dashboard: checks each request, finds its user, and limits what it may take.

Every answer leaves with our headers, those of errors too. An exception becomes a page
with a number, which is in the log beside its traceback.
"""

from __future__ import annotations

import json
import secrets
import time
import traceback
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgflowd.core.exit_codes import ExitCode, exit_for
from pgflowd.core.redact import one_line
from pgflowd.errors import Bug, ConfigError, PgflowdError
from pgflowd.web import request_checks as checks
from pgflowd.web.auth import Asked, Login, page_of
from pgflowd.web.rendering import back_of, look_of, render, root_of, wants_json
from pgflowd.web.request_checks import NotLoggedIn, Refusals, Refused, Write

AT_ONCE = 200  # requests, event streams not counted: those have a limit of their own
RETRY_AFTER_S = 2
_STREAM = "text/event-stream"
_LOOK = "/appearance"  # no action
_MAY_LOOK = "your login may look"
_OF_OTHERS = ("app", "router", "starlette.exception_handlers")
_FOR_EVERYBODY = "/assets/"  # the style of the login page


class Guard:
    """The dashboard, as others reach it."""

    def __init__(
        self, application: ASGIApp, auth: Asked | Login, write: Write, *, read_only: str = ""
    ) -> None:
        self._application, self._auth, self._write = application, auth, write
        self._read_only = read_only  # why nobody may act; empty: some may
        self._refusals = Refusals(write, time.monotonic)
        self._open: set[_Answer] = set()  # requests that are answered, without streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._application(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        answer = _Answer(scope, send, self._open)
        try:
            checks.check_head(scope)
            if len(self._open) >= AT_ONCE:
                raise Refused(
                    HTTPStatus.SERVICE_UNAVAILABLE, f"{AT_ONCE} requests are being answered",
                    next="try again in a moment", headers={"Retry-After": str(RETRY_AFTER_S)},
                )  # fmt: skip
            self._open.add(answer)
            await self._checked(scope, checks.limited(receive), answer)
        except Refused as refusal:
            is_first = isinstance(refusal, NotLoggedIn) and not refusal.was_tried
            if not is_first or answer.scope["method"] == "POST":  # no browser that is new here
                self._refusals.write(
                    code=refusal.code, status=int(refusal.status),
                    error=one_line(refusal.text, 300), method=answer.scope["method"][:16],
                    path=one_line(answer.scope["path"], 200), client=_client_of(answer.scope),
                )  # fmt: skip
            if refusal.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                await checks.discard(receive)
            await self._send_error(receive, answer, refusal, is_last=True)
        except ClientDisconnect:
            pass  # it has left before the end of its body
        except PgflowdError as error:
            await self._send_error(receive, answer, error)
        except Exception as error:
            number = secrets.token_hex(4)
            self._write(
                "error", "web.error", code="E901", number=number, path=one_line(scope["path"], 200),
                error=f"{type(error).__name__}: {error}"[:500], traceback=traceback.format_exc(),
            )  # fmt: skip
            text, remedy = f"unexpected exception, number {number}", f"look for {number} in the log"
            await self._send_error(receive, answer, Bug(text, next=remedy), is_last=True)
        finally:
            self._open.discard(answer)

    async def _checked(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        scope = answer.scope = self._auth.placed(scope)
        user, read_only = None, ""
        if not page_of(scope).startswith(_FOR_EVERYBODY):
            try:
                response = await self._auth.answer(scope, receive)
                if response is not None:
                    await response(scope, receive, answer.send)
                    return
                user = await self._auth.user_of(scope)
            except ConfigError as error:  # it is named in the log alone: strangers read the answer
                self._refusals.write(code=error.code, error=str(error))
                raise Refused(
                    HTTPStatus.SERVICE_UNAVAILABLE, "nobody can log in now", code=error.code,
                    next="the log of the dashboard says why",
                ) from None  # fmt: skip
            read_only = self._read_only or ("" if user.may_act else _MAY_LOOK)
            user = replace(user, may_act=not read_only)
            if not user.is_program:
                checks.check_origin(scope)
        find_user = partial(self._auth.user_of, scope)  # for streams, which ask again
        known = {"user": user, "find_user": find_user, "read_only": read_only}
        # without what an application that mounts us does with exceptions
        inner = {key: value for key, value in scope.items() if key not in _OF_OTHERS}
        inner["state"] = {**scope.get("state", {}), **known}
        await self._application(inner, receive, answer.send)
        path = page_of(scope)
        is_done = scope["method"] == "POST" and answer.status < HTTPStatus.BAD_REQUEST
        if user and is_done and path != _LOOK:
            shown = {"path": one_line(path, 200), "client": _client_of(scope)}
            self._write("info", "web.action", user=user.name, **shown)

    async def _send_error(
        self, receive: Receive, answer: _Answer, error: PgflowdError, *, is_last: bool = False
    ) -> None:
        """Answer with an error; after a refusal the rest of the connection is not read."""
        if answer.has_begun:
            return  # the server closes the connection, so nobody takes it for a whole answer
        scope = answer.scope
        response = error_response(scope, error)
        if is_last and str(scope.get("http_version", "1.1")).startswith("1"):
            response.headers["Connection"] = "close"
        await response(scope, receive, answer.send)


def _client_of(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None


class _Answer:
    """Sends an answer, with our headers."""

    def __init__(self, scope: Scope, send: Send, open: set[_Answer]) -> None:
        self.scope = scope  # as it came; later with its root path and client
        self._send, self._open = send, open
        self.has_begun, self.status = False, 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun, self.status = True, message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in OUR_HEADERS.items():
                headers.setdefault(name, value)
            if headers.get("content-type", "").startswith(_STREAM):
                headers["X-Accel-Buffering"] = "no"  # a proxy passes events on at once
                self._open.discard(self)
        await self._send(message)


OUR_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types pgflowd"
    ),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",  # but of the few files that pages load
}
KEPT_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}

_STATUSES = {
    ExitCode.USAGE: HTTPStatus.BAD_REQUEST,
    ExitCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    ExitCode.REFUSED: HTTPStatus.CONFLICT,
    ExitCode.DENIED: HTTPStatus.FORBIDDEN,
    ExitCode.UNREACHABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ExitCode.TRY_LATER: HTTPStatus.SERVICE_UNAVAILABLE,
    ExitCode.CONFIG: HTTPStatus.SERVICE_UNAVAILABLE,  # the schema is older, for example
    ExitCode.NO: HTTPStatus.CONFLICT,
    ExitCode.TIMED_OUT: HTTPStatus.SERVICE_UNAVAILABLE,
}


JSON = "application/json"


def as_json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """An answer with JSON."""
    return Response(json.dumps(value, ensure_ascii=False), status, media_type=JSON)


def download(value: Any, name: str) -> Response:
    """JSON as a file, which no browser shows as a page of ours."""
    answer = as_json(value)
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    answer.headers["Content-Security-Policy"] = "sandbox"
    return answer


def error_response(scope: Scope, error: PgflowdError) -> Response:
    """An error as the commands print it: a list under `errors`, or a page."""
    # the commands' exit code for it, translated
    status = _STATUSES.get(exit_for(error), HTTPStatus.INTERNAL_SERVER_ERROR)
    request, headers = Request(scope), {}
    if isinstance(error, Refused):
        status, headers = error.status, error.headers
    if wants_json(request):
        keys = ("code", "place", "text", "next")
        errors = [{key: getattr(problem, key) for key in keys} for problem in error.problems]
        answer = as_json({"errors": errors}, status)
    else:
        html = render(
            "error.html", root=root_of(request), status=status, problems=error.problems,
            look=look_of(request), back=back_of(request), command=["pgflowd", "doctor"],
        ).html  # fmt: skip
        answer = HTMLResponse(html, status)
    answer.headers.update(headers)
    return answer
