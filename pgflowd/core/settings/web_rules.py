"""
Checks the keys of [web]: who reaches the dashboard must be asked who he is (E501), a way to log in
needs what it reads (E106), and names, addresses and paths have their form (E105). Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator

from pgflowd.core.redact import one_line
from pgflowd.core.settings.keys import KeyPath
from pgflowd.core.settings.sections import Settings
from pgflowd.errors import Problem

UNIX = "unix"  # in trusted_proxies: whoever comes by the Unix socket
_HEADER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9a-fA-F:]+")
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")


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
    if web.auth in ("key", "none") and web.listen and not web.address.is_local:
        text = f'[web] listen = {web.listen} is reached by others, and auth = "{web.auth}" is for'
        remedy = 'listen on 127.0.0.1 or unix:PATH, or set auth = "password" or "proxy"'
        yield "listen", "E501", f"{text} this machine", remedy
    if not web.listen:
        yield "listen", "E105", "[web] listen is empty", 'write "127.0.0.1:7460" or "unix:PATH"'
    if web.auth == "password" and not web.users:
        remedy = 'write users = "/etc/pgflowd/users", then `pgflowd web passwd NAME`'
        yield "auth", "E106", '[web] auth = "password" needs users', remedy
    if web.auth == "proxy" and not web.trusted_proxies:
        remedy = 'write trusted_proxies = ["127.0.0.1"], the address that the proxy comes from'
        yield "auth", "E106", '[web] auth = "proxy" needs trusted_proxies', remedy
    if not _HEADER.fullmatch(web.proxy_user):
        text = (
            f"[web] proxy_user is {one_line(web.proxy_user, 60)}; it must be the name of a header"
        )
        yield "proxy_user", "E105", text, 'write for example "X-Forwarded-User"'
    for each in web.trusted_proxies:
        if not _is_network(each):
            text = f"[web] trusted_proxies has {one_line(each, 60)}, which is not an address"
            yield "trusted_proxies", "E105", text, 'write for example "10.0.0.7", "10.0.0.0/24"'
    for each in web.hosts:
        if not _HOST.fullmatch(each):
            text = f"[web] hosts has {one_line(each, 60)}, which is not the name of a host"
            yield "hosts", "E105", text, "write the name alone, without https:// and without a port"
    if web.base_path and not _BASE_PATH.fullmatch(web.base_path):
        text = f"[web] base_path is {one_line(web.base_path, 60)}; it must be a path"
        yield "base_path", "E105", text, 'write for example "/flows", without a / at the end'


def _is_network(text: str) -> bool:
    if text == UNIX:
        return True
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True
