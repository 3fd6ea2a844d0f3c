"""
Hashes passwords by scrypt, and compares them.

A comparison takes some 80 ms and 32 MiB, so two of them run at a time. For a name that does not
exist it takes as long.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets

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
