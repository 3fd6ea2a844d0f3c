"""
Ids: run ids that begin with the time, and what users give for one.

Ids in the order of time keep indexes compact, and their last digits, which differ most, are
what screens show. Time and chance are arguments.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID


def uuid7(unix_ms: int, chance: bytes) -> UUID:
    """Make a UUID of version 7 (RFC 9562) from milliseconds since 1970 and ten random bytes."""
    number = (unix_ms & (2**48 - 1)) << 80 | int.from_bytes(chance[:10], "big")
    number = number & ~(0xF << 76) | 7 << 76
    number = number & ~(0x3 << 62) | 0b10 << 62
    return UUID(int=number)


def run_id_of(given: Any) -> UUID:
    """The run id meant, or ValueError or TypeError that says what is wrong with it."""
    if isinstance(given, UUID):
        return given
    if not isinstance(given, str):
        hint = "; write .run_id behind it" if hasattr(given, "run_id") else ""
        raise TypeError(f"a run id is a UUID or its text, not {repr(given)[:80]}{hint}")
    try:
        return UUID(given)
    except ValueError:
        example = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"
        raise ValueError(f"{given[:80]!r} is no run id, such as {example}") from None
