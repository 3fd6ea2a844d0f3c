"""The answers to requests: the headers that all of them have, and the statuses of errors."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from pgflowd.core.exit_codes import ExitCode, exit_for
from pgflowd.errors import PgflowdError
from pgflowd.web.rendering import Look, render
from pgflowd.web.request_checks import Refused

# What a request tells about the page that answers it: where it is, and how it shall look.
THEMES, TIMES = ("light", "dark"), ("local",)


def root_of(request: Request) -> str:
    """The path below which the dashboard is mounted."""
    return str(request.scope.get("root_path", ""))


def back_of(request: Request) -> str:
    """The address of this page below the dashboard's, with its parameters."""
    path = request.scope["path"].removeprefix(root_of(request)) or "/"
    query = request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def look_of(request: Request) -> Look:
    """How the user wants pages to look, as cookies say."""
    theme, times = request.cookies.get("theme", ""), request.cookies.get("times", "")
    return Look(theme if theme in THEMES else "", times if times in TIMES else "")


def leaver_of(request: Request) -> str:
    """The name of who can log out."""
    user = getattr(request.state, "user", None)
    return str(user.name) if user is not None and user.may_leave else ""


def wants_json(request: Request) -> bool:
    """Whether the answer is for a program or a script."""
    path = str(request.scope["path"]).removeprefix(root_of(request))
    return path.startswith(("/api/", "/live/", "/fragments/"))


SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types pgflowd"
    ),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
NOT_KEPT = {"Cache-Control": "no-store"}
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


def status_of(error: PgflowdError) -> HTTPStatus:
    """The status of an answer that is an error: the commands' exit code for it, translated."""
    if isinstance(error, Refused):
        return error.status
    return _STATUSES.get(exit_for(error), HTTPStatus.INTERNAL_SERVER_ERROR)


def headers_of(cache_control: str | None = None) -> dict[str, str]:
    """The headers that every answer has."""
    return {**SECURITY_HEADERS, **({} if cache_control else NOT_KEPT)}


def document(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """An answer with JSON."""
    return Response(json.dumps(value, ensure_ascii=False), status, media_type=JSON)


def download(value: Any, name: str) -> Response:
    """JSON as a file, which no browser shows as a page of ours."""
    answer = document(value)
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    answer.headers["Content-Security-Policy"] = "sandbox"
    return answer


def error_response(scope: Scope, error: PgflowdError) -> Response:
    """An error as the commands print it: a list under `errors`, or a page."""
    status, request = status_of(error), Request(scope)
    if wants_json(request):
        keys = ("code", "place", "text", "next")
        errors = [{key: getattr(problem, key) for key in keys} for problem in error.problems]
        answer = document({"errors": errors}, status)
    else:
        html = render(
            "error.html", root=root_of(request), status=status, problems=error.problems,
            look=look_of(request), back=back_of(request), command=["pgflowd", "doctor"],
        ).html  # fmt: skip
        answer = HTMLResponse(html, status)
    if isinstance(error, Refused):
        answer.headers.update(error.headers)
    return answer
