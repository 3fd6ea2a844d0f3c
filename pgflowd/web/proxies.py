"""
What the headers of a proxy tell, if the request comes from one that is trusted. Pure.

Anybody can send these headers. They count only from `[web] trusted_proxies`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from http import HTTPStatus

from pgflowd.core.redact import one_line
from pgflowd.core.settings.rules import UNIX
from pgflowd.web.refusals import NotLoggedIn, Refused
from pgflowd.web.request_checks import Scope, value_of, values_of

_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+")
MAX_NAME_CHARS = 200


class TrustedProxies:
    """The proxies whose headers count."""

    def __init__(self, trusted: Iterable[str]) -> None:
        words = set(trusted)
        self._has_unix = UNIX in words
        self._networks = [ipaddress.ip_network(each) for each in words - {UNIX}]

    def sent(self, scope: Scope) -> bool:
        """Whether the request comes from one of them."""
        client = scope.get("client")
        return self._trusts(client[0]) if client else self._has_unix

    def address_of(self, scope: Scope) -> str:
        """The address of the client: the last one that is not a trusted proxy's."""
        client = scope.get("client")
        address = client[0] if client else UNIX
        if not self.sent(scope):
            return str(address)
        forwarded = ",".join(values_of(scope, "x-forwarded-for"))
        for each in reversed([part.strip() for part in forwarded.split(",") if part.strip()]):
            if not _is_address(each):
                return str(address)  # what stands further left was not checked by a proxy of ours
            address = each
            if not self._trusts(each):
                break
        return str(address)

    def prefix_of(self, scope: Scope) -> str:
        """The path below which the proxy offers us, or nothing."""
        if not self.sent(scope):
            return ""
        prefix = (value_of(scope, "x-forwarded-prefix") or "").rstrip("/")
        if prefix and not _PREFIX.fullmatch(prefix):
            text = f"X-Forwarded-Prefix is {one_line(prefix, 80)}, which is not a path"
            raise Refused(HTTPStatus.BAD_REQUEST, text)
        return prefix

    def name_of_user(self, scope: Scope, header: str) -> str:
        """The user that the proxy names. Refused: there is none, or somebody else has sent it."""
        if not self.sent(scope):
            text = "this request did not come from a trusted proxy"
            next = "open the address of the proxy"
            raise NotLoggedIn(text, next, was_tried=bool(values_of(scope, header.lower())))
        names = values_of(scope, header.lower())
        if len(names) != 1:
            text = f"the proxy has sent the header {header} {len(names)} times; it must be once"
            next = f"let the proxy set {header} to the user's name"
            raise NotLoggedIn(text, next, was_tried=True)
        name = _decoded(names[0].strip())
        if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
            text = f"the header {header} is {one_line(name, 80) or 'empty'}, which is not a name"
            next = f"let the proxy set {header} to the user's name"
            raise NotLoggedIn(text, next, was_tried=True)
        return name

    def _trusts(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
            parsed = parsed.ipv4_mapped
        return any(parsed in network for network in self._networks)


def _decoded(name: str) -> str:
    """A header as UTF-8, if it is that."""
    try:
        return name.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return name


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
