"""
The files of `[web] users`, `tokens` and `secret`: reads them, and adds a line.

A line of the first two is `NAME:RIGHTS:HASH`, where the rights are `view` or `act`. A changed file
counts from the next request on. Only its owner may read and change it (E502).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pgflowd.core.redact import one_line
from pgflowd.errors import ConfigError, Problem
from pgflowd.web.request_checks import Scope, host_of, is_loopback, values_of

MAX_BYTES = 1024 * 1024  # far above any number of users; an endless file ends here
LEAST_SECRET_BYTES = 16
RIGHTS = ("view", "act")
_NAME = re.compile(r"[^\s:#][^\s:]{0,63}")


@dataclass(frozen=True)
class LoginLine:
    """A line: who, whether he may act, and the hash of what proves it."""

    name: str
    may_act: bool
    hash: str


def is_name(name: str) -> bool:
    """Whether a line can hold it."""
    return bool(_NAME.fullmatch(name)) and name.isprintable()


class LoginFile:
    """The lines of a file, by name; read again when it has changed."""

    def __init__(self, path: str, key: str) -> None:
        self.path, self._key = Path(path), key
        self._state: tuple[int, int, int] | None = None
        self._logins: dict[str, LoginLine] = {}

    def logins(self) -> Mapping[str, LoginLine]:
        """Return the lines as they are now. ConfigError E502."""
        content, state = _read(self.path, self._key, self._state)
        if state != self._state:
            self._logins, self._state = self._parsed(content), state
        return self._logins

    def put(self, login: LoginLine) -> bool:
        """Write the line, in place of an older one of that name. Return whether there was one.
        ConfigError E502."""
        lines = [_HEAD[self._key]]
        if self.path.exists():
            content = _read(self.path, self._key)[0]
            self._parsed(content)  # a file with a mistake is not written
            lines = content.decode().splitlines()
        kept = [line for line in lines if line.partition(":")[0] != login.name]
        text = "\n".join([*kept, f"{login.name}:{RIGHTS[login.may_act]}:{login.hash}", ""])
        try:
            self._replace(text)
        except OSError as error:
            remedy = f"let the user of the dashboard own a directory {self.path.absolute().parent}"
            reason = f"{self.path} cannot be written: {error.strerror}"
            raise _unusable(self._key, reason, remedy) from None
        return len(kept) < len(lines)

    def _replace(self, text: str) -> None:
        """Write the file whole or not at all; it stays with its owner."""
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(handle)
                with suppress(FileNotFoundError):
                    before = self.path.stat()
                    os.fchown(handle, before.st_uid, before.st_gid)
            draft.replace(self.path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def _parsed(self, content: bytes) -> dict[str, LoginLine]:
        logins: dict[str, LoginLine] = {}
        try:
            lines = content.decode().splitlines()
        except UnicodeDecodeError:
            raise _unusable(self._key, f"{self.path} is not UTF-8") from None
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            name, rights, hashed = [*line.split(":", 2), "", ""][:3]
            fault = "has a name that an earlier line has" if name in logins else ""
            if not is_name(name) or rights not in RIGHTS or not hashed.strip():
                fault = "is not NAME:view:HASH or NAME:act:HASH"
            if fault:
                raise _unusable(self._key, f"line {number} of {self.path} {fault}")
            logins[name] = LoginLine(name, rights == "act", hashed.strip())
        return logins


_HEAD = {
    "users": "# Who may log in: NAME:RIGHTS:HASH. `pgflowd web passwd NAME` writes a line.",
    "tokens": "# Programs: NAME:RIGHTS:SHA256. `pgflowd web token NAME` writes a line.",
}


def read_secret(path: str) -> bytes:
    """Return what signs logins; without a path something new. ConfigError E502."""
    if not path:
        return secrets.token_bytes(32)
    content, _ = _read(Path(path), "secret")
    if len(content.strip()) < LEAST_SECRET_BYTES:
        text = f"{path} has less than {LEAST_SECRET_BYTES} bytes"
        remedy = f"write a random one: openssl rand -hex 32 > {path}"
        raise _unusable("secret", text, remedy)
    return hashlib.sha256(content.strip()).digest()


def new_token(name: str, *, may_act: bool) -> tuple[str, LoginLine]:
    """Return a token and its line, which has its hash only."""
    token = f"pgflowd_{secrets.token_urlsafe(32)}"
    return token, LoginLine(name, may_act, hashlib.sha256(token.encode()).hexdigest())


def owner_of(token: str, logins: Mapping[str, LoginLine]) -> LoginLine | None:
    """Return whose token it is."""
    hashed = hashlib.sha256(token.encode()).hexdigest()
    found = [each for each in logins.values() if hmac.compare_digest(each.hash, hashed)]
    return found[0] if found else None


def _read(
    path: Path, key: str, known: tuple[int, int, int] | None = None
) -> tuple[bytes, tuple[int, int, int]]:
    """Return the content and what tells whether it changes; nothing if it is as it was known."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        remedy = f"write one with `{_COMMAND[key]}`"
        raise _unusable(key, f"{path} cannot be read: {error.strerror}", remedy) from None
    with os.fdopen(handle, "rb") as file:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise _unusable(key, f"{path} is not a regular file")
        if state.st_mode & 0o077:
            text = f"{path} can be read or changed by others (mode {state.st_mode & 0o777:04o})"
            raise _unusable(key, text, f"chmod 600 {path}")
        if state.st_uid not in (0, os.geteuid()) and os.geteuid() != 0:
            raise _unusable(
                key, f"{path} belongs to another user", "its process and its owner must be the same"
            )
        version = (state.st_mtime_ns, state.st_size, state.st_ino)
        if version == known:
            return b"", version
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise _unusable(key, f"{path} has more than {MAX_BYTES // 1024} KiB")
    return content, version


_COMMAND = {
    "users": "pgflowd web passwd NAME",
    "tokens": "pgflowd web token NAME",
    "secret": "openssl rand -hex 32",
}


def _unusable(key: str, text: str, remedy: str | None = None) -> ConfigError:
    text = f"the file of [web] {key} cannot be used: {one_line(text, 300)}"
    return ConfigError([Problem("E502", text, None, remedy)])


# Logins that browsers keep, as signed cookies. Pure: the time is an argument.
#
# A second cookie says for a year that a name has logged in with this browser: see `failed_logins`.
#
# A cookie holds the name, its end, and a stamp. The stamp changes with the password, so a new
# password ends all logins of its user. The server keeps nothing.
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
        content = json.loads(base64.urlsafe_b64decode(body + "=="))  # too much of it is ignored
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
