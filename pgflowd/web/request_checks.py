"""
Checks the head of a request before anything else reads it. Pure: the ASGI scope decides.

The parser accepts two `Host` headers, none, and lengths of which two servers may believe different
ones. Such a request gets an error here, and its connection is closed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.types import Message, Receive

from pgflowd.core.redact import one_line
from pgflowd.core.settings.load import UNIX
from pgflowd.errors import PgflowdError


# The error of a request that is not answered as asked.
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


def check_names(scope: Scope) -> None:
    """Refuse a header like `X_Forwarded_User`: a proxy may guard only `X-Forwarded-User`."""
    for name, _ in scope["headers"]:
        if b"_" in name:
            shown = one_line(name.decode("latin-1"), _SHOWN)
            raise _bad(f"the header {shown} has a '_' in its name")


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
    # our own origins: a proxy may have had https and speak http to us, but not on loopback
    host = (f"[{name}]" if ":" in name else name) + (f":{port}" if port else "")
    schemes = {scope.get("scheme") or "http", "http" if is_loopback(scope) else "https"}
    own = sorted(f"{scheme}://{host}" for scheme in schemes)
    if site == "same-origin":
        return
    if site is None and origin is not None and origin.lower() in own:
        return
    came = f"Sec-Fetch-Site: {site or 'absent'}, Origin: {origin or 'absent'}"
    text = f"this did not come from a page of the dashboard ({one_line(came, 200)})"
    next = f"it needs Sec-Fetch-Site: same-origin, or without it Origin: {' or '.join(own)}"
    raise Refused(HTTPStatus.FORBIDDEN, text, next=next)


def ip_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a text is; None: it is something else."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _canonical(name: str) -> str:
    return str(ip_of(name) or name)


def _is_loopback(name: str) -> bool:
    address = ip_of(name)
    return address is not None and address.is_loopback


def _bad(text: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, text)


def _misdirected(text: str, next: str | None = None) -> Refused:
    return Refused(HTTPStatus.MISDIRECTED_REQUEST, text, next=next)


# What the headers of a proxy tell, if the request comes from one that is trusted. Pure.
#
# Anybody can send these headers. They count only from `[web] trusted_proxies`.
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
            if ip_of(each) is None:
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
            raise _bad(f"X-Forwarded-Prefix is {one_line(prefix, 80)}, which is not a path")
        return prefix

    def name_of_user(self, scope: Scope, header: str) -> str:
        """The user that the proxy names. Refused: there is none, or somebody else has sent it."""
        if not self.sent(scope):
            text = "this request did not come from a trusted proxy"
            next = "open the address of the proxy"
            raise NotLoggedIn(text, next, was_tried=bool(values_of(scope, header.lower())))
        names = values_of(scope, header.lower())
        next = f"let the proxy set {header} to the user's name"
        if len(names) != 1:
            text = f"the proxy has sent the header {header} {len(names)} times; it must be once"
            raise NotLoggedIn(text, next, was_tried=True)
        name = names[0].strip()
        with suppress(UnicodeDecodeError):  # which it is in, if it can be
            name = name.encode("latin-1").decode("utf-8")
        if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
            text = f"the header {header} is {one_line(name, 80) or 'empty'}, which is not a name"
            raise NotLoggedIn(text, next, was_tried=True)
        return name

    def _trusts(self, address: str) -> bool:
        parsed = ip_of(address)
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
            parsed = parsed.ipv4_mapped
        return parsed is not None and any(parsed in network for network in self._networks)


# Reads the body of a request, a form or JSON, within the limits.
READ_S = 10.0  # so long a client may take to send its body
MAX_FIELDS = 200
DISCARD_S = 2.0
MAX_DISCARDED_BYTES = 1024 * 1024
_FORM = "application/x-www-form-urlencoded"


def limited(receive: Receive) -> Receive:
    """Return a `receive` that refuses a body which is too large or comes too slowly."""
    read, is_whole, deadline = 0, False, asyncio.get_running_loop().time() + READ_S

    async def receive_within_limits() -> Message:
        nonlocal read, is_whole
        if is_whole:
            return await receive()  # waits until the client is gone
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            text = f"the body did not come within {READ_S:g} s"
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, text) from None
        read += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        if read > MAX_BODY_BYTES:
            raise too_large()
        return message

    return receive_within_limits


async def discard(receive: Receive) -> None:
    """Take the rest of a body that is too large: else who sends it does not read the answer."""
    taken = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_S):
            while taken < MAX_DISCARDED_BYTES:
                message = await receive()
                taken += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


async def read_form(request: Request) -> list[tuple[str, str]]:
    """Return the fields of a form and their values, as often as they are there."""
    given, body = type_of(request), await request.body()
    if given != _FORM and (given or body):
        text = f"the Content-Type is {one_line(given, 80) or 'absent'}; it must be {_FORM}"
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
    if body.count(b"&") >= MAX_FIELDS:
        text = f"the form has more than {MAX_FIELDS} fields"
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, errors="strict")
    except ValueError:
        raise _bad("the form is not UTF-8") from None


def type_of(request: Request) -> str:
    """What the body is, in lower case; empty if nothing says so."""
    return (value_of(request.scope, "content-type") or "").partition(";")[0].strip().lower()


@dataclass(frozen=True)
class User:
    """A person or a program that has logged in."""

    name: str
    may_act: bool = False  # else it may look
    is_program: bool = False  # it has sent a token
    may_leave: bool = False  # he has a login of ours, which he can end


# The names that the log of actions has of those who act here.
OF_DASHBOARD, OF_API = " (web)", " (api)"


def actor_of(user: User) -> str:
    """Who the log of actions says that it was."""
    return f"{user.name}{OF_API if user.is_program else OF_DASHBOARD}"


MOST = 20  # refusals that are logged within a period: a flood of them must not fill the disk
PERIOD_S = 10.0


Write = Callable[..., None]  # to a log: a level, an event, and its fields


def log(level: str, event: str, **fields: Any) -> None:
    """Write to Python's logging."""
    shown = " ".join(f"{name}={value!r}" for name, value in fields.items() if value is not None)
    logger = logging.getLogger("pgflowd.web")
    logger.log(logging.getLevelNamesMapping()[level.upper()], "%s %s", event, shown)


class Refusals:
    """Logs refused requests; of many within a short time the first, and then how many more."""

    def __init__(self, write: Write, clock: Callable[[], float]) -> None:
        self._write, self._clock = write, clock
        self._began, self._count = clock(), 0

    def write(self, **fields: Any) -> None:
        now = self._clock()
        if now - self._began >= PERIOD_S:
            if self._count > MOST:
                self._write("warning", "web.refused", count=self._count - MOST)
            self._began, self._count = now, 0
        self._count += 1
        if self._count <= MOST:
            self._write("warning", "web.refused", **fields)
