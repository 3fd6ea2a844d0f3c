"""
Logins that browsers keep, as signed cookies. Pure: the time is an argument.

A second cookie says for a year that a name has logged in with this browser: see `failed_logins`.

A cookie holds the name, its end, and a stamp. The stamp changes with the password, so a new
password ends all logins of its user. The server keeps nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import NamedTuple

from pgflowd.web.request_checks import Scope, host_of, is_loopback, values_of

LASTS_S = 12 * 3600
KNOWN_LASTS_S = 365 * 24 * 3600
KNOWN = "known"  # the stamp of a browser in which the name has logged in; it opens nothing


class BrowserSession(NamedTuple):
    """A login: who, and the stamp of what he has logged in with."""

    name: str
    stamp: str


class SignedCookies:
    """Signs and reads cookies."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, session: BrowserSession, now: float) -> str:
        """Return the value of a cookie that is valid from now on."""
        until = int(now + _lasts_s(session.stamp))
        content = {"name": session.name, "stamp": session.stamp, "until": until}
        body = _encoded(json.dumps(content).encode())
        return f"{body}.{self._signature(body)}"

    def read(self, value: str, now: float) -> BrowserSession | None:
        """Return the login of a cookie; None if it is over, or not ours."""
        body, _, signature = value.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(body).encode()):
            return None
        content = json.loads(base64.urlsafe_b64decode(_padded(body)))
        if content["until"] <= now:
            return None
        return BrowserSession(content["name"], content["stamp"])

    def _signature(self, body: str) -> str:
        return _encoded(hmac.digest(self._secret, body.encode(), "sha256"))


def cookie_name(scope: Scope, stamp: str = "") -> str:
    """
    The name of the cookie: dashboards of one machine, or of one proxy, have each their own, since
    browsers tell neither ports nor paths apart. Over https nobody else can set it.
    """
    suffix = scope.get("root_path", "").replace("/", "-") + (f"-{KNOWN}" if stamp == KNOWN else "")
    if is_loopback(scope):
        return f"pgflowd-{host_of(scope)[1] or '80'}{suffix}"
    return f"__Host-pgflowd{suffix}"


def cookies_in(scope: Scope, stamp: str = "") -> list[str]:
    """
    The values of our cookie in a request. There may be several: over http another port of this
    machine, or another path of this host, can add one of any name.
    """
    name = cookie_name(scope, stamp)
    pairs = [pair.strip().partition("=") for header in values_of(scope, "cookie")
             for pair in header.split(";")]  # fmt: skip
    return [value.strip('"') for key, _, value in pairs if key == name]


def set_cookie(scope: Scope, value: str, stamp: str = "") -> str:
    """The header that stores the cookie; an empty value removes it."""
    lasts_s = _lasts_s(stamp) if value else 0
    secure = "" if is_loopback(scope) else "; Secure"
    return (
        f"{cookie_name(scope, stamp)}={value}; Path=/; Max-Age={lasts_s}; HttpOnly;"
        f" SameSite=Strict{secure}"
    )


def stamp_of(text: str) -> str:
    """A stamp that tells nothing of the text."""
    return hashlib.sha256(f"pgflowd session {text}".encode()).hexdigest()[:16]


def _lasts_s(stamp: str) -> int:
    return KNOWN_LASTS_S if stamp == KNOWN else LASTS_S


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)
