"""
The dashboard as `pgflowd web` serves it: with the logins of `[web]`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import NamedTuple

from pgflowd.core.payloads import Payloads
from pgflowd.core.settings.sections import WebSettings
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
    login = Login(web, key=key, owner=owner, secret=read_secret(web.secret), records=records)
    payloads = Payloads(web.payloads, frozenset(key.lower() for key in redact))
    if web.auth == "none":
        read_only = 'auth in [web] is "none"'
    elif not operator_url:
        read_only = read_only or "operator_url in [web] is not set"
    operator_url = "" if read_only else operator_url
    dashboard = Dashboard(url, operator_url=operator_url, payloads=payloads)
    guard = Guard(dashboard.routes(), login, records, read_only=read_only)
    return Served(guard, dashboard, key)
