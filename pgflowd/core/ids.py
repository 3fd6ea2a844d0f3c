"""
Ids: run ids that begin with the time.

Ids in the order of time keep indexes compact, and their last digits, which differ most, are
what screens show. Time and chance are arguments.
"""

from __future__ import annotations

from uuid import UUID


def uuid7(unix_ms: int, chance: bytes) -> UUID:
    """Make a UUID of version 7 (RFC 9562) from milliseconds since 1970 and ten random bytes."""
    number = (unix_ms & (2**48 - 1)) << 80 | int.from_bytes(chance[:10], "big")
    number = number & ~(0xF << 76) | 7 << 76
    number = number & ~(0x3 << 62) | 0b10 << 62
    return UUID(int=number)
