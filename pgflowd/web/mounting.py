"""
The dashboard for applications that mount it.

    app.mount("/flows", pgflowd.web.app(url, user=user))
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp

from pgflowd.core.payloads import Payloads
from pgflowd.core.settings.sections import LoggingSettings
from pgflowd.web.application import Dashboard
from pgflowd.web.auth import Asked, FindUser
from pgflowd.web.guard import Guard
from pgflowd.web.records import StandardRecords


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
    shown = Payloads(payloads, frozenset(key.lower() for key in redact))
    dashboard = Dashboard(url, operator_url=operator_url, payloads=shown)
    read_only = "" if operator_url else "it is mounted without operator_url"
    return Guard(dashboard.routes(), Asked(user), StandardRecords(), read_only=read_only)
