"""The query that reads a part of an input or output, so that a large one is not sent whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from pgflowd.core.documents.values import ValueMember, ValuePart
from pgflowd.core.json import decode
from pgflowd.db.query import Query, Rows

MAX_MEMBERS = 200
MAX_BYTES = 64 * 1024


def value_part(
    run_id: UUID,
    step: str | None = None,
    task: int | None = None,
    what: Literal["input", "output"] = "output",
    path: Sequence[str] = (),
    start: int = 0,
    most: int = MAX_MEMBERS,
    max_bytes: int = MAX_BYTES,
) -> Query[ValuePart | None]:
    """
    Return what is at a path of a value of a run, of one of its steps, or of a task.

    `start` counts members, or the characters of a string. None: there is no such value.
    """

    def read(rows: Rows) -> ValuePart | None:
        if not rows:
            return None
        (_, kind, length, is_whole, value), *others = rows
        members = [ValueMember(*(*row[:4], decode(row[4]))) for row in others]
        return ValuePart(list(path), start, kind, length, is_whole, decode(value), members)

    params = (run_id, step, task, what, list(path), start, most, max_bytes)
    return Query(_VALUE_PART, params, read)


_VALUE_PART = """
select name, type, length, is_whole, value
  from pgflowd.value_part(%s, %s, %s, %s, %s::text[], %s, %s, %s)
"""
