"""
Checks the head of a request before anything else reads it. Pure: the ASGI scope decides.

The parser accepts two `Host` headers, none, and lengths of which two servers may believe different
ones. Such a request gets an error here, and its connection is closed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any

from pgflowd.core.redact import one_line
from pgflowd.web.refusals import Refused

METHODS = ("GET", "HEAD", "POST")
MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 64 * 1024
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SHOWN = 80  # of what a client has sent, in a message
_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:]+\]|[^:\[\]]+)(:(?P<port>[0-9]{1,5}))?")
_SAFE_NAME = re.compile(r"[A-Za-z0-9.:-]+")

Scope = Mapping[str, Any]


def values_of(scope: Scope, name: str) -> list[str]:
    """Every value of a header; its name in lower case."""
    wanted = name.encode()
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == wanted]


def value_of(scope: Scope, name: str) -> str | None:
    """The value of a header that may be there once. Refused: it is there twice."""
    values = values_of(scope, name)
    if len(values) > 1:
        raise _bad(f"the header {name} is there {len(values)} times; it may be there once")
    return values[0] if values else None


def check_head(scope: Scope) -> None:
    """Refuse what two servers may read differently, and what is too large."""
    if scope["method"] not in METHODS:
        allowed = ", ".join(METHODS)
        text = f"the method is {one_line(scope['method'], _SHOWN)}; it must be one of {allowed}"
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, text, headers={"Allow": allowed})
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        raise _bad("the address has the character NUL, which no name and no text has")
    size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    if size + len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_HEAD_BYTES:
        text = f"the headers have more than {MAX_HEAD_BYTES // 1024} KiB"
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
    _check_length(scope)


def check_names(scope: Scope) -> None:
    """Refuse a header like `X_Forwarded_User`: a proxy may guard only `X-Forwarded-User`."""
    for name, _ in scope["headers"]:
        if b"_" in name:
            shown = one_line(name.decode("latin-1"), _SHOWN)
            raise _bad(f"the header {shown} has a '_' in its name")


def _check_length(scope: Scope) -> None:
    length, coding = value_of(scope, "content-length"), value_of(scope, "transfer-encoding")
    if coding is not None and length is not None:
        raise _bad("Content-Length and Transfer-Encoding are both there; send one of them")
    if coding is not None and coding.strip().lower() != "chunked":
        raise _bad(f"the Transfer-Encoding is {one_line(coding, _SHOWN)}; it may be chunked")
    if coding is not None and scope.get("http_version") == "1.0":
        raise _bad("a request of HTTP/1.0 has no Transfer-Encoding")
    if length is None:
        return
    if not (length.isascii() and length.isdigit()):
        raise _bad(f"the Content-Length is {one_line(length, _SHOWN)}; it must be a number")
    if len(length) > 9 or int(length) > MAX_BODY_BYTES:
        raise too_large()


def too_large() -> Refused:
    """The refusal of a body that is too large."""
    text = f"the body has more than {MAX_BODY_BYTES // 1024} KiB"
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)


def host_of(scope: Scope) -> tuple[str, str]:
    """The name and the port of the one `Host` header, in lower case. Refused: there is none."""
    values = values_of(scope, "host")
    if len(values) != 1:
        raise _misdirected(f"there are {len(values)} Host headers; there must be one")
    match = _HOST.fullmatch(values[0].strip())
    if not match or not _SAFE_NAME.fullmatch(match["name"].strip("[]")):
        raise _misdirected(f"the Host is {one_line(values[0], _SHOWN)}, which is not a name")
    return match["name"].strip("[]").lower().removesuffix("."), match["port"] or ""


def check_host(scope: Scope, hosts: Collection[str]) -> None:
    """Refuse a name that is not ours: a page of somebody else may have had it lead to us."""
    name, _ = host_of(scope)
    if _canonical(name) not in hosts:
        text = f"the Host is {one_line(name, _SHOWN)}, under which this dashboard is not known"
        raise _misdirected(text, 'add it to hosts in [web], if it is right: hosts = ["NAME"]')


def known_hosts(listens_at: str, configured: Collection[str]) -> frozenset[str]:
    """The names under which a dashboard is known that listens at this host; "" is a Unix socket."""
    own = {listens_at} if listens_at else set()
    if not listens_at or _is_loopback(listens_at):
        own |= LOOPBACK
    names = {*own, "localhost", *configured}
    return frozenset(_canonical(each.lower().removesuffix(".")) for each in names)


def is_loopback(scope: Scope) -> bool:
    """Whether the browser calls us by a name of its own machine."""
    name, _ = host_of(scope)
    return name == "localhost" or _is_loopback(name)


def check_origin(scope: Scope) -> None:
    """Refuse a POST that a page of another site may have sent."""
    if scope["method"] != "POST":
        return
    site, origin = value_of(scope, "sec-fetch-site"), value_of(scope, "origin")
    name, port = host_of(scope)
    own = _origins(scope, name, port)
    if site == "same-origin":
        return
    if site is None and origin is not None and origin.lower() in own:
        return
    came = f"Sec-Fetch-Site: {site or 'absent'}, Origin: {origin or 'absent'}"
    text = f"this did not come from a page of the dashboard ({one_line(came, 200)})"
    next = f"it needs Sec-Fetch-Site: same-origin, or without it Origin: {' or '.join(own)}"
    raise Refused(HTTPStatus.FORBIDDEN, text, next=next)


def _origins(scope: Scope, name: str, port: str) -> list[str]:
    """Our own origins. A proxy may have had https and speak http to us, but not on loopback."""
    host = (f"[{name}]" if ":" in name else name) + (f":{port}" if port else "")
    came = f"{scope.get('scheme')}://" if scope.get("scheme") else "http://"
    starts = {came, "http://" if is_loopback(scope) else "https://"}
    return sorted(f"{start}{host}" for start in starts)


def _canonical(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _bad(text: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, text)


def _misdirected(text: str, next: str | None = None) -> Refused:
    return Refused(HTTPStatus.MISDIRECTED_REQUEST, text, next=next)
