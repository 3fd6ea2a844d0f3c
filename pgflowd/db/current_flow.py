"""
How starts name the flow that they mean: by its current version, where the database knows versions.

Whether it does, and this role may ask, is looked up once for a connection, and again after a while
if not; so a start stays one query.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from pgflowd.db.runs import CURRENT, EXACTLY

LOOK_AGAIN_S = 60.0  # whether a database without versions has some now

_looked: WeakKeyDictionary[Any, tuple[bool, float]] = WeakKeyDictionary()  # by connection


@dataclass(frozen=True)
class CurrentFlow:
    """A step of an operation: return the SQL for the flow in which runs of a name are started."""


def remembered(conn: Any) -> str | None:
    """What was found out about this connection; None: look."""
    knows, at = _looked.get(conn, (False, -LOOK_AGAIN_S))
    if not knows and time.monotonic() >= at + LOOK_AGAIN_S:
        return None
    return CURRENT if knows else EXACTLY


def remember(conn: Any, knows: bool) -> str:
    _looked[conn] = (knows, time.monotonic())
    return CURRENT if knows else EXACTLY
