"""
Finds out who makes a request.

`Login` is how the dashboard is served: a cookie, a token, or the header of a proxy; it also
answers the pages for logging in and out. `Asked` is how it is mounted: the application knows.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import inspect
import ipaddress
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope

from pgflowd.core.settings.sections import WebSettings
from pgflowd.errors import ConfigError, Problem
from pgflowd.web import request_checks as checks
from pgflowd.web.login_files import (
    KNOWN,
    BrowserSession,
    LoginFile,
    SignedCookies,
    cookies_in,
    owner_of,
    set_cookie,
    stamp_of,
)
from pgflowd.web.rendering import render
from pgflowd.web.request_checks import (
    NotLoggedIn,
    Records,
    Refused,
    TrustedProxies,
    User,
    read_form,
)

# Hashes passwords by scrypt, and compares them.
#
# A comparison takes some 80 ms and 32 MiB, so two of them run at a time. For a name that does not
# exist it takes as long.
_LOG2_N, _R, _P = 15, 8, 1
_MAX_MEMORY = 64 * 1024 * 1024  # scrypt needs 128 * r * n bytes
MAX_CHARS = 1000
LEAST_CHARS = 8
AT_ONCE = 2

_NOBODY = f"scrypt${_LOG2_N}${_R}${_P}$bm9ib2R5bm9ib2R5bm8=$" + "A" * 43 + "="


def hash_of(password: str) -> str:
    """Return the hash, with a new salt."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, _LOG2_N, _R, _P)
    parts = ["scrypt", _LOG2_N, _R, _P, _text(salt), _text(digest)]
    return "$".join(map(str, parts))


def is_right(password: str, hashed: str | None) -> bool:
    """Whether it is the password of this hash; None takes as long, and is nobody's."""
    try:
        kind, log2_n, r, p, salt, digest = (hashed or _NOBODY).split("$")
        if kind != "scrypt" or int(log2_n) > 20 or int(r) > 16 or int(p) > 4:
            return False
        made = _scrypt(password, base64.b64decode(salt), int(log2_n), int(r), int(p))
        return hmac.compare_digest(made, base64.b64decode(digest)) and hashed is not None
    except ValueError:  # somebody has edited the file
        return False


class PasswordChecks:
    """Compares passwords in threads, few at a time."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)

    async def is_right(self, password: str, hashed: str | None) -> bool:
        async with self._places:
            return await asyncio.to_thread(is_right, password, hashed)


def _scrypt(password: str, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=2**log2_n, r=r, p=p, maxmem=_MAX_MEMORY, dklen=32
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


# Counts failed logins, so that nobody can try many passwords. Pure: the time is an argument.
#
# They count for the address that they come from, and for all addresses, but for no name: else who
# knows a name could keep its owner out. A browser in which this name has logged in before counts
# for itself alone, so that strangers at its address, or at very many, do not keep it out either.
MOST = 5  # failures of one address or browser
MOST_OF_ALL = 30  # of all addresses; each costs 80 ms of a processor
WITHIN_S = 60.0
ALL = "all addresses"
_MAX_KEYS = 10_000  # a flood of addresses must not fill the memory


class FailedLogins:
    """The failures of the last minute, by what they count for."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}

    def wait_s(self, keys: Iterable[str], now: float) -> float:
        """Return how long these must wait for the next try; 0: not at all."""
        waits = [0.0]
        for key in keys:
            times = self._times.get(key, deque())
            while times and times[0] <= now - WITHIN_S:
                times.popleft()
            if len(times) >= _most(key):
                waits.append(times[0] + WITHIN_S - now)
        return max(waits)

    def add(self, keys: Iterable[str], now: float) -> None:
        """Count a try. It counts before its password is compared, so that many at once do too."""
        for key in keys:
            self._times.setdefault(key, deque(maxlen=_most(key))).append(now)
        while len(self._times) > _MAX_KEYS:
            del self._times[next(key for key in self._times if key != ALL)]

    def take_back(self, keys: Iterable[str]) -> None:
        """The last try of these was right."""
        for key in keys:
            times = self._times.get(key)
            if times:
                times.pop()
            if not times:
                self._times.pop(key, None)


def keys_of(address: str, known_browser: str | None) -> list[str]:
    """What the failures of a login count for; a home has a whole network of IPv6."""
    if known_browser is not None:
        return [f"browser {known_browser}"]
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return [ALL, f"address {address}"]
    if parsed.version == 6:
        address = str(ipaddress.ip_network((parsed, 64), strict=False))
    return [ALL, f"address {address}"]


def _most(key: str) -> int:
    return MOST_OF_ALL if key == ALL else MOST


FindUser = Callable[[Scope], Awaitable[User | None] | User | None]
"""Of an application that mounts the dashboard: who has sent this request."""


class Auth(Protocol):
    """How users are known."""

    def placed(self, scope: Scope) -> Scope:
        """Check for whom the request is, and return it with its root path and client."""

    async def user_of(self, scope: Scope) -> User:
        """Return who makes it. NotLoggedIn."""

    async def answer(self, scope: Scope, receive: Receive) -> Response | None:
        """Answer a request that is about logging in or out; None: it is not."""


class Asked:
    """The application that mounts the dashboard knows its users."""

    def __init__(self, find: FindUser) -> None:
        self._find = find

    def placed(self, scope: Scope) -> Scope:
        return scope

    async def user_of(self, scope: Scope) -> User:
        found = self._find(scope)
        user = await found if inspect.isawaitable(found) else found
        if user is None:
            raise NotLoggedIn("nobody is logged in", "log in to the application")
        if not isinstance(user, User):
            name = getattr(self._find, "__qualname__", type(self._find).__name__)
            text = f"{name}(scope) has returned the user of a request as {type(user).__name__}"
            remedy = "it must return a pgflowd.web.User, or None for a stranger"
            raise ConfigError([Problem("E103", text, next=remedy)])
        return user

    async def answer(self, scope: Scope, receive: Receive) -> Response | None:
        return None


class Login:
    """The dashboard asks for logins itself, as `[web] auth` says."""

    def __init__(
        self, web: WebSettings, *, key: str, owner: str, secret: bytes, records: Records
    ) -> None:
        self._web, self._records = web, records
        self._hosts = checks.known_hosts(web.address.host, web.hosts)
        self._proxies = TrustedProxies(web.trusted_proxies)
        self._tokens = LoginFile(web.tokens, "tokens") if web.tokens else None
        self._way = _way_of(web, key, owner, SignedCookies(secret), records)

    def placed(self, scope: Scope) -> Scope:
        checks.check_names(scope)
        checks.check_host(scope, self._hosts)
        root, path = self._proxies.prefix_of(scope), scope["path"]
        if root:
            path = root + path  # the proxy has taken it away
        elif root := self._web.base_path:
            path = _below(root, path)
        client = self._proxies.address_of(scope)
        return {
            **scope,
            "root_path": root,
            "path": path,
            "client": (client, 0),
            "pgflowd.peer": scope.get("client"),  # who has connected, maybe a proxy
        }

    async def user_of(self, scope: Scope) -> User:
        token = _bearer(scope)
        if token is not None and (self._tokens or self._web.auth != "proxy"):
            return self._program(token)
        return self._way.user_of(scope)

    def _program(self, token: str) -> User:
        login = owner_of(token, self._tokens.logins()) if self._tokens else None
        if login is None:
            next = "`pgflowd web token NAME` makes one" if self._tokens else "set tokens in [web]"
            headers = {"WWW-Authenticate": "Bearer"}
            text = "the token is not known"
            raise NotLoggedIn(text, next, was_tried=True, headers=headers)
        return User(login.name, login.may_act, is_program=True)

    async def answer(self, scope: Scope, receive: Receive) -> Response | None:
        if page_of(scope) == "/logout" and scope["method"] == "POST":
            checks.check_origin(scope)
            answer = see_other(scope, "/")
            answer.headers["Set-Cookie"] = set_cookie(scope, "")
            return answer
        return await self._way.answer(scope, receive)


class _ByKey:
    """Who has the link that was printed at the start is its user."""

    def __init__(self, key: str, owner: str, sessions: SignedCookies, records: Records) -> None:
        self._key, self._owner, self._sessions, self._records = key, owner, sessions, records

    def user_of(self, scope: Scope) -> User:
        for session in _sessions_in(scope, self._sessions):
            if session.stamp == _KEY_STAMP:
                return User(session.name, may_act=True, may_leave=True)
        next = "open the link that it has printed at its start"
        raise NotLoggedIn("this dashboard is opened by a link with a key", next)

    async def answer(self, scope: Scope, receive: Receive) -> Response | None:
        keys = parse_qs(scope["query_string"].decode("latin-1")).get("key")
        if not keys or scope["method"] == "POST":
            return None
        if not equal(keys[0], self._key):
            next = "open the link that was printed at the last start; each start has its own"
            raise NotLoggedIn("the key of this link is not right", next, was_tried=True)
        self._records.write("info", "web.login", user=self._owner, client=scope["client"][0])
        session = BrowserSession(self._owner, _KEY_STAMP)
        # A page and not a redirect: after one, a browser that came from another site
        # would not send the cookie. The page also takes the key from the address.
        html = render("entered.html", root=scope["root_path"]).html
        headers = {"Set-Cookie": set_cookie(scope, self._sessions.sign(session, time.time()))}
        return Response(html, headers=headers, media_type="text/html")


class _ByPassword:
    """Names and passwords, from the file of `[web] users`."""

    def __init__(self, users: LoginFile, sessions: SignedCookies, records: Records) -> None:
        self._users, self._sessions, self._records = users, sessions, records
        self._failed, self._checks = FailedLogins(), PasswordChecks()

    def user_of(self, scope: Scope) -> User:
        for session in _sessions_in(scope, self._sessions):
            login = self._users.logins().get(session.name)
            if login is not None and session.stamp == stamp_of(login.hash):
                return User(login.name, login.may_act, may_leave=True)
        raise NotLoggedIn("nobody is logged in", f"log in at {scope['root_path']}/login")

    async def answer(self, scope: Scope, receive: Receive) -> Response | None:
        if page_of(scope) != "/login":
            return self._to_login(scope)
        if scope["method"] != "POST":
            query = parse_qs(scope["query_string"].decode("latin-1"))
            return self._page(scope, own_path(query.get("next", ["/"])[0]))
        checks.check_origin(scope)
        form = dict(await read_form(Request(scope, receive)))
        name, password = form.get("name", ""), form.get("password", "")
        there = own_path(form.get("next", "/"))
        stamp = await self._stamp_for(scope, name, password)
        if stamp is None:
            return self._page(scope, there, failed=True)
        answer = see_other(scope, there)
        for each in (stamp, KNOWN):
            cookie = self._sessions.sign(BrowserSession(name, each), time.time())
            answer.headers.append("Set-Cookie", set_cookie(scope, cookie, each))
        return answer

    async def _stamp_for(self, scope: Scope, name: str, password: str) -> str | None:
        """Return the stamp of a login; None: the password is wrong. Refused: too many were."""
        client = scope["client"][0]
        keys = keys_of(client, self._known_browser(scope, name))
        if wait_s := self._failed.wait_s(keys, time.monotonic()):
            self._records.write("warning", "web.login_refused", user=name[:64], client=client)
            text = "too many logins have failed"
            wait = str(int(wait_s) + 1)
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS, text, next=f"try again in {wait} s",
                headers={"Retry-After": wait},
            )  # fmt: skip
        login = self._users.logins().get(name)
        self._failed.add(keys, time.monotonic())
        hashed = login.hash if login else None
        if not await self._checks.is_right(password[:MAX_CHARS], hashed) or login is None:
            self._records.write("warning", "web.login_failed", user=name[:64], client=client)
            return None
        self._failed.take_back(keys)
        self._records.write("info", "web.login", user=name, client=client)
        return stamp_of(login.hash)

    def _known_browser(self, scope: Scope, name: str) -> str | None:
        """A cookie of this browser that says that the name has logged in with it."""
        for cookie in cookies_in(scope, KNOWN):
            if self._sessions.read(cookie, time.time()) == BrowserSession(name, KNOWN):
                return cookie
        return None

    def _to_login(self, scope: Scope) -> Response | None:
        """Send a browser without a login to the page that asks for one."""
        accepts = checks.value_of(scope, "accept") or ""
        if scope["method"] == "POST" or "text/html" not in accepts or _bearer(scope) is not None:
            return None
        try:
            self.user_of(scope)
        except NotLoggedIn:
            query = scope["query_string"].decode("latin-1")
            wanted = page_of(scope) + (f"?{query}" if query else "")
            return see_other(scope, f"/login?{urlencode({'next': wanted})}")
        return None

    def _page(self, scope: Scope, there: str, *, failed: bool = False) -> Response:
        html = render(
            "login.html", root=scope["root_path"], there=there, failed=failed,
            needs_https=not checks.is_loopback(scope),
        ).html  # fmt: skip
        status = HTTPStatus.UNAUTHORIZED if failed else HTTPStatus.OK
        return Response(html, status, media_type="text/html")


class _ByProxy:
    """A proxy names the user."""

    def __init__(self, web: WebSettings) -> None:
        self._proxies = TrustedProxies(web.trusted_proxies)
        self._header, self._operators = web.proxy_user, frozenset(web.operators)

    def user_of(self, scope: Scope) -> User:
        peer = {**scope, "client": scope["pgflowd.peer"]}
        name = self._proxies.name_of_user(peer, self._header)
        return User(name, name in self._operators)

    async def answer(self, scope: Scope, receive: Receive) -> Response | None:
        return None


class _Everybody:
    """Whoever reaches it may look."""

    def user_of(self, scope: Scope) -> User:
        return User("")

    async def answer(self, scope: Scope, receive: Receive) -> Response | None:
        return None


def _way_of(
    web: WebSettings, key: str, owner: str, sessions: SignedCookies, records: Records
) -> _ByKey | _ByPassword | _ByProxy | _Everybody:
    if web.auth == "key":
        return _ByKey(key, owner, sessions, records)
    if web.auth == "password":
        return _ByPassword(LoginFile(web.users, "users"), sessions, records)
    return _ByProxy(web) if web.auth == "proxy" else _Everybody()


_KEY_STAMP = stamp_of("key")


def equal(given: str, right: str) -> bool:
    """Compare two texts in a time that tells nothing."""
    return hmac.compare_digest(given.encode(), right.encode())


def _below(base: str, path: str) -> str:
    """Return a path that begins with `base_path`."""
    if path == base:
        return f"{base}/"
    if not path.startswith(f"{base}/"):
        text = f"the dashboard is below {base}, and the address does not begin with it"
        next = f"open {base}/; a proxy must keep it, or send it as X-Forwarded-Prefix"
        raise Refused(HTTPStatus.NOT_FOUND, text, code="E507", next=next)
    return path


def page_of(scope: Scope) -> str:
    """The path below the root path."""
    return str(scope["path"]).removeprefix(scope.get("root_path", "")) or "/"


def own_path(text: str) -> str:
    """Return a path of ours; "/" for what a browser may take for another host."""
    is_ours = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_ours and text.isascii() else "/"


def see_other(scope: Scope, path: str) -> Response:
    """Send the browser to a path of ours."""
    return RedirectResponse(scope.get("root_path", "") + path, HTTPStatus.SEE_OTHER)


def _sessions_in(scope: Scope, sessions: SignedCookies) -> Iterator[BrowserSession]:
    """The logins of the cookies that we have signed."""
    return filter(None, (sessions.read(cookie, time.time()) for cookie in cookies_in(scope)))


def _bearer(scope: Scope) -> str | None:
    scheme, _, token = (checks.value_of(scope, "authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
