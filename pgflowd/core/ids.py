"""
Makes run ids, and reads those that users give.

A run id begins with its time, which keeps indexes compact. Screens show its last digits, which
differ most. Time and random bytes are arguments.
"""

from __future__ import annotations

import re
from typing import Any, TypeGuard
from uuid import NAMESPACE_OID, UUID, uuid5

_RUN_ID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")


def uuid7(unix_ms: int, random: bytes) -> UUID:
    """Make a UUID of version 7 (RFC 9562) from milliseconds since 1970 and ten random bytes."""
    number = (unix_ms & (2**48 - 1)) << 80 | int.from_bytes(random[:10], "big")
    number = number & ~(0xF << 76) | 7 << 76
    number = number & ~(0x3 << 62) | 0b10 << 62
    return UUID(int=number)


def child_id(run_id: str, step: str, task_index: int, flow: str, name: str) -> str:
    """The id of the run of this flow that a task starts under this name."""
    return str(uuid5(NAMESPACE_OID, f"pgflowd {run_id}/{step}#{task_index} {flow} {name}"))


def is_run_id(given: Any) -> TypeGuard[str]:
    """Whether it is the usual text of a run id."""
    return isinstance(given, str) and _RUN_ID.fullmatch(given) is not None


def run_id_of(given: Any) -> UUID:
    """The run id as a UUID, or ValueError or TypeError with what is wrong with it."""
    if isinstance(given, UUID):
        return given
    if not isinstance(given, str):
        hint = "; write .run_id behind it" if hasattr(given, "run_id") else ""
        raise TypeError(f"a run id is a UUID or its text, not {repr(given)[:80]}{hint}")
    try:
        return UUID(given)
    except ValueError:
        example = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"
        raise ValueError(f"{given[:80]!r} is not a run id, such as {example}") from None
