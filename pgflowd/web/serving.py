"""
The dashboard as `pgflowd web` serves it: with the logins of `[web]`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import NamedTuple

from pgflowd.core.payloads import Payloads
from pgflowd.core.settings.web_section import WebSettings
from pgflowd.web.application import Dashboard
from pgflowd.web.auth import Login
from pgflowd.web.guard import Guard
from pgflowd.web.login_files import LoginFile, read_secret
from pgflowd.web.records import Records


class Served(NamedTuple):
    """The application, what ends it, and the key of its link, if it has one."""

    application: Guard
    dashboard: Dashboard
    key: str


def served(
    web: WebSettings, *, url: str, operator_url: str, owner: str, records: Records,
    redact: Iterable[str] = (),
) -> Served:  # fmt: skip
    """
    Return what is served. `owner` is the user of who comes by the link with the key; values of the
    keys in `redact` are not shown. ConfigError E502: a file of logins cannot be used.
    """
    for name in ("users", "tokens"):
        if path := getattr(web, name):
            LoginFile(path, name).logins()  # a mistake ends the start, not the first login
    key = secrets.token_urlsafe(24) if web.auth == "key" else ""
    login = Login(web, key=key, owner=owner, secret=read_secret(web.secret), records=records)
    payloads = Payloads(web.payloads, frozenset(key.lower() for key in redact))
    operator_url = "" if web.auth == "none" else operator_url
    dashboard = Dashboard(url, operator_url=operator_url, payloads=payloads)
    guard = Guard(dashboard.routes(), login, records, may_act=dashboard.operators is not None)
    return Served(guard, dashboard, key)
