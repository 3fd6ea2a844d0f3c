"""
The answers to requests: the headers that all of them have, and the statuses of errors.
"""

from __future__ import annotations

from http import HTTPStatus

from pgflowd.core.exit_codes import ExitCode, exit_for
from pgflowd.errors import PgflowdError

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


def status_of(error: PgflowdError) -> HTTPStatus:
    """The status of an answer that is an error: the commands' exit code for it, translated."""
    return _STATUSES.get(exit_for(error), HTTPStatus.INTERNAL_SERVER_ERROR)
