"""
SQL null, where a value may also be JSON's null.

Among JSON values `None` is JSON's null, which a handler may return and a client may send. A column
without a value is `SQL_NULL`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class SqlNull(Enum):
    """The type of `SQL_NULL`."""

    SQL_NULL = "sql null"

    def __repr__(self) -> str:
        return "SQL_NULL"

    def __bool__(self) -> bool:
        return False


SQL_NULL: Final = SqlNull.SQL_NULL
