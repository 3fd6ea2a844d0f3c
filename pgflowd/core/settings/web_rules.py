"""
Checks the keys of [web]: who reaches the dashboard must be asked who he is (E501), a way to log in
needs what it reads (E106), and networks have no bits of a host (E105). Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator

from pgflowd.core.redact import one_line
from pgflowd.core.settings.keys import KeyPath
from pgflowd.core.settings.sections import Settings
from pgflowd.errors import Problem

UNIX = "unix"  # in trusted_proxies: whoever comes by the Unix socket


def contradictions_of_web(settings: Settings, invalid: Collection[KeyPath]) -> list[Problem]:
    """Return what is wrong with [web], except with keys whose own value is invalid."""
    return [
        Problem(code, text, settings.origin_of("web", key).place, remedy)
        for key, code, text, remedy in _found(settings)
        if ("web", key) not in invalid
    ]


def _found(settings: Settings) -> Iterator[tuple[str, str, str, str]]:
    """Each mistake: its key, code, text and remedy."""
    web = settings.web
    if web.auth in ("key", "none") and not web.address.is_local:
        text = f'[web] listen = {web.listen} is reached by others, and auth = "{web.auth}" is for'
        remedy = 'listen on 127.0.0.1 or unix:PATH, or set auth = "password" or "proxy"'
        yield "listen", "E501", f"{text} this machine", remedy
    if web.auth == "password" and not web.users:
        remedy = 'write users = "/etc/pgflowd/users", then `pgflowd web passwd NAME`'
        yield "auth", "E106", '[web] auth = "password" needs users', remedy
    if web.auth == "proxy" and not web.trusted_proxies:
        remedy = 'write trusted_proxies = ["127.0.0.1"], the address that the proxy comes from'
        yield "auth", "E106", '[web] auth = "proxy" needs trusted_proxies', remedy
    for each in web.trusted_proxies:
        if not _is_network(each):
            text = f"[web] trusted_proxies has {one_line(each, 60)}, which is not an address"
            yield "trusted_proxies", "E105", text, 'write for example "10.0.0.7", "10.0.0.0/24"'


def _is_network(text: str) -> bool:
    if text == UNIX:
        return True
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True
