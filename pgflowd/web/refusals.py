"""
The error of a request that is not answered as asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from pgflowd.errors import PgflowdError


class Refused(PgflowdError):
    """Carries the status of the answer, and headers that belong to it."""

    default_code = "E508"

    def __init__(
        self,
        status: HTTPStatus,
        text: str,
        *,
        next: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(text, code=code, next=next)
        self.status = status
        self.headers = dict(headers or {})


class NotLoggedIn(Refused):
    """Nobody is known to make this request; `was_tried` if a wrong proof came with it."""

    default_code = "E509"

    def __init__(
        self, text: str, next: str, *, was_tried: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(HTTPStatus.UNAUTHORIZED, text, next=next, headers=headers)
        self.was_tried = was_tried
