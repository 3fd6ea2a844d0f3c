"""
Absent: SQL null, where a value may also be JSON's null.

`None` among JSON values is JSON's null, which a handler may return and a client may send. A
column that holds nothing is `ABSENT`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent.ABSENT
