"""
The queries that send signals to runs, answer approvals, and read what became of signals.

Whoever may start runs may send signals; to read them needs the rights of a viewer.
"""

from __future__ import annotations

from itertools import starmap
from uuid import UUID

from pgflowd.core.documents.waits import ListedSignal
from pgflowd.core.json import decode
from pgflowd.db.query import Query, Rows


def list_signals(
    run_id: UUID | None = None, only_open: bool = False, most: int = 20
) -> Query[list[ListedSignal]]:
    """Return the newest signals of a run, or of all."""
    return Query(_LIST, (run_id, only_open, most), _read_listed)


def get_signal(signal_id: int) -> Query[tuple[ListedSignal, bool] | None]:
    """Return a signal, and whether a task waits for one of this name."""

    def read(rows: Rows) -> tuple[ListedSignal, bool] | None:
        return (_read_listed([rows[0][:-1]])[0], rows[0][-1]) if rows else None

    return Query(_GET, (signal_id,), read)


_COLUMNS = """
signal_id, run_id, name, payload, dedup, sent_by, sent_at, step_slug, task_index, consumed_at,
session_role
"""
_LIST = f"select {_COLUMNS} from pgflowd.list_signals(%s, %s, %s)"
_GET = f"""
select {_COLUMNS}, exists (
         select from pgflowd.waits as wait
          where wait.run_id = signal.run_id and wait.kind = 'signal' and wait.name = signal.name)
  from pgflowd.signals as signal where signal_id = %s
"""


def _read_listed(rows: Rows) -> list[ListedSignal]:
    return list(starmap(ListedSignal, ([*row[:3], decode(row[3]), *row[4:]] for row in rows)))
