"""
The dashboard for applications that mount it.

    app.mount("/flows", pgflowd.web.app(url, user=user))
"""

from __future__ import annotations

from starlette.types import ASGIApp

from pgflowd.web.application import Dashboard
from pgflowd.web.auth import Asked, FindUser
from pgflowd.web.guard import Guard
from pgflowd.web.records import StandardRecords


def app(url: str = "", *, user: FindUser, operator_url: str = "") -> ASGIApp:
    """
    Return the dashboard of a database as an ASGI application.

    `url` is the database's; an empty one means the environment of libpq. `operator_url` connects
    as a member of `pgflow_operator`; without it nobody can act. `user` gets the ASGI scope of a
    request and returns its `User`, or None for somebody who may not see anything.
    """
    dashboard = Dashboard(url, operator_url=operator_url)
    return Guard(dashboard.routes(), Asked(user), StandardRecords(), may_act=bool(operator_url))
