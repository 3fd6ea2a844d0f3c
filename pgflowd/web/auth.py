"""
Finds out who makes a request.

`LOGINS` are how the dashboard is served: with a cookie, a token, or the header of a proxy; they
also answer the pages for logging in and out. `Asked` is how it is mounted: the application knows.
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
from typing import Any
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive, Scope

from pgflowd.core.settings.sections import WebSettings
from pgflowd.errors import ConfigError, Problem
from pgflowd.web import login_files
from pgflowd.web import request_checks as checks
from pgflowd.web.login_files import KNOWN, BrowserSession, LoginFile, SignedCookies
from pgflowd.web.rendering import render
from pgflowd.web.request_checks import NotLoggedIn, Refused, TrustedProxies, User, Write

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
    texts = [base64.b64encode(each).decode() for each in (salt, digest)]
    return "$".join(map(str, ["scrypt", _LOG2_N, _R, _P, *texts]))


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


def _scrypt(password: str, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=2**log2_n, r=r, p=p, maxmem=_MAX_MEMORY, dklen=32
    )


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
    parsed = checks.ip_of(address)
    if parsed is not None and parsed.version == 6:
        address = str(ipaddress.ip_network((parsed, 64), strict=False))
    return [ALL, f"address {address}"]


def _most(key: str) -> int:
    return MOST_OF_ALL if key == ALL else MOST


FindUser = Callable[[Scope], Awaitable[User | None] | User | None]
"""Of an application that mounts the dashboard: who has sent this request."""


class Asked:
    """The application that mounts the dashboard knows its users."""

    def __init__(self, find: FindUser) -> None:
        self._find = find

    def placed(self, scope: Scope) -> Scope:
        return scope

    async def answer(self, scope: Scope, receive: Receive) -> Response | None:
        return None

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


class Login:
    """The dashboard asks for logins itself. Of `auth = "none"`: whoever reaches it may look."""

    def __init__(
        self, web: WebSettings, *, key: str, owner: str, secret: bytes, write: Write
    ) -> None:
        self._web, self._key, self._owner, self._write = web, key, owner, write
        self._hosts = checks.known_hosts(web.address.host, web.hosts)
        self._proxies = TrustedProxies(web.trusted_proxies)
        self._tokens = LoginFile(web.tokens, "tokens") if web.tokens else None
        self._cookies = SignedCookies(secret)

    def placed(self, scope: Scope) -> Scope:
        """Check for whom the request is, and return it with its root path and client."""
        checks.check_names(scope)
        checks.check_host(scope, self._hosts)
        root, path, base = self._proxies.prefix_of(scope), scope["path"], self._web.base_path
        if root:
            path = root + path  # the proxy has taken it away
        elif base and path == base:
            root, path = base, f"{base}/"
        elif base and not path.startswith(f"{base}/"):
            text = f"the dashboard is below {base}, and the address does not begin with it"
            next = f"open {base}/; a proxy must keep it, or send it as X-Forwarded-Prefix"
            raise Refused(HTTPStatus.NOT_FOUND, text, code="E507", next=next)
        return {
            **scope,
            "root_path": root or base,
            "path": path,
            "client": (self._proxies.address_of(scope), 0),
            "pgflowd.peer": scope.get("client"),  # who has connected, maybe a proxy
        }

    async def user_of(self, scope: Scope) -> User:
        """Return who makes it. NotLoggedIn."""
        token = _bearer(scope)
        if token is None or not (self._tokens or self._web.auth != "proxy"):
            return self._person(scope)
        login = login_files.owner_of(token, self._tokens.logins()) if self._tokens else None
        if login is None:
            next = "`pgflowd web token NAME` makes one" if self._tokens else "set tokens in [web]"
            headers = {"WWW-Authenticate": "Bearer"}
            text = "the token is not known"
            raise NotLoggedIn(text, next, was_tried=True, headers=headers)
        return User(login.name, login.may_act, is_program=True)

    async def answer(self, scope: Scope, receive: Receive) -> Response | None:
        """Answer a request that is about logging in or out; None: it is not."""
        if page_of(scope) != "/logout" or scope["method"] != "POST":
            return await self._enter(scope, receive)
        checks.check_origin(scope)
        answer = see_other(scope, "/")
        answer.headers["Set-Cookie"] = login_files.set_cookie(scope, "")
        return answer

    def _person(self, scope: Scope) -> User:
        """Who makes a request without a token."""
        return User("")

    async def _enter(self, scope: Scope, receive: Receive) -> Response | None:
        """Answer a request that is about logging in."""
        return None

    def _sessions(self, scope: Scope) -> Iterator[BrowserSession]:
        """The logins of the cookies that we have signed."""
        return filter(
            None, (self._cookies.read(each, time.time()) for each in login_files.cookies_in(scope))
        )

    def _remember(self, scope: Scope, answer: Response, name: str, stamp: str) -> None:
        """Let the browser send from now on that this name has logged in with it."""
        cookie = self._cookies.sign(BrowserSession(name, stamp), time.time())
        answer.headers.append("Set-Cookie", login_files.set_cookie(scope, cookie, stamp))


class KeyLogin(Login):
    """Who has the link that was printed at the start is its user."""

    _STAMP = login_files.stamp_of("key")

    def _person(self, scope: Scope) -> User:
        for session in self._sessions(scope):
            if session.stamp == self._STAMP:
                return User(session.name, may_act=True, may_leave=True)
        next = "open the link that it has printed at its start"
        raise NotLoggedIn("this dashboard is opened by a link with a key", next)

    async def _enter(self, scope: Scope, receive: Receive) -> Response | None:
        keys = parse_qs(scope["query_string"].decode("latin-1")).get("key")
        if not keys or scope["method"] == "POST":
            return None
        if not hmac.compare_digest(keys[0].encode(), self._key.encode()):
            next = "open the link that was printed at the last start; each start has its own"
            raise NotLoggedIn("the key of this link is not right", next, was_tried=True)
        self._write("info", "web.login", user=self._owner, client=scope["client"][0])
        # A page and not a redirect: after one, a browser that came from another site
        # would not send the cookie. The page also takes the key from the address.
        answer = HTMLResponse(render("entered.html", root=scope["root_path"]).html)
        self._remember(scope, answer, self._owner, self._STAMP)
        return answer


class PasswordLogin(Login):
    """Names and passwords, from the file of `[web] users`."""

    def __init__(self, web: WebSettings, **more: Any) -> None:
        super().__init__(web, **more)
        self._users = LoginFile(web.users, "users")
        self._failed, self._comparisons = FailedLogins(), asyncio.Semaphore(AT_ONCE)

    def _person(self, scope: Scope) -> User:
        for session in self._sessions(scope):
            login = self._users.logins().get(session.name)
            if login is not None and session.stamp == login_files.stamp_of(login.hash):
                return User(login.name, login.may_act, may_leave=True)
        raise NotLoggedIn("nobody is logged in", f"log in at {scope['root_path']}/login")

    async def _enter(self, scope: Scope, receive: Receive) -> Response | None:
        if page_of(scope) != "/login":  # send a browser without a login to the page that asks
            accepts = checks.value_of(scope, "accept") or ""
            is_browser = "text/html" in accepts and _bearer(scope) is None
            if scope["method"] == "POST" or not is_browser:
                return None
            try:
                self._person(scope)
            except NotLoggedIn:
                asked = scope["query_string"].decode("latin-1")
                wanted = page_of(scope) + (f"?{asked}" if asked else "")
                return see_other(scope, f"/login?{urlencode({'next': wanted})}")
            return None
        if scope["method"] != "POST":
            query = parse_qs(scope["query_string"].decode("latin-1"))
            return self._page(scope, own_path(query.get("next", ["/"])[0]))
        checks.check_origin(scope)
        form = dict(await checks.read_form(Request(scope, receive)))
        name, there = form.get("name", ""), own_path(form.get("next", "/"))
        stamp = await self._stamp_for(scope, name, form.get("password", ""))
        if stamp is None:
            return self._page(scope, there, failed=True)
        answer = see_other(scope, there)
        for each in (stamp, KNOWN):
            self._remember(scope, answer, name, each)
        return answer

    async def _stamp_for(self, scope: Scope, name: str, password: str) -> str | None:
        """Return the stamp of a login; None: the password is wrong. Refused: too many were."""
        client = scope["client"][0]
        # a cookie of this browser that says that the name has logged in with it
        known = BrowserSession(name, KNOWN)
        cookies = (each for each in login_files.cookies_in(scope, KNOWN)
                   if self._cookies.read(each, time.time()) == known)  # fmt: skip
        keys = keys_of(client, next(cookies, None))
        if wait_s := self._failed.wait_s(keys, time.monotonic()):
            self._write("warning", "web.login_refused", user=name[:64], client=client)
            wait = str(int(wait_s) + 1)
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS, "too many logins have failed",
                next=f"try again in {wait} s", headers={"Retry-After": wait},
            )  # fmt: skip
        login = self._users.logins().get(name)
        self._failed.add(keys, time.monotonic())
        async with self._comparisons:
            hashed = login.hash if login else None
            right = await asyncio.to_thread(is_right, password[:MAX_CHARS], hashed)
        if login is None or not right:
            self._write("warning", "web.login_failed", user=name[:64], client=client)
            return None
        self._failed.take_back(keys)
        self._write("info", "web.login", user=name, client=client)
        return login_files.stamp_of(login.hash)

    def _page(self, scope: Scope, there: str, *, failed: bool = False) -> Response:
        html = render(
            "login.html", root=scope["root_path"], there=there, failed=failed,
            needs_https=not checks.is_loopback(scope),
        ).html  # fmt: skip
        return HTMLResponse(html, HTTPStatus.UNAUTHORIZED if failed else HTTPStatus.OK)


class ProxyLogin(Login):
    """A proxy names the user."""

    def _person(self, scope: Scope) -> User:
        peer = {**scope, "client": scope["pgflowd.peer"]}
        name = self._proxies.name_of_user(peer, self._web.proxy_user)
        return User(name, name in self._web.operators)


LOGINS = {"key": KeyLogin, "password": PasswordLogin, "proxy": ProxyLogin, "none": Login}


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


def _bearer(scope: Scope) -> str | None:
    scheme, _, token = (checks.value_of(scope, "authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
