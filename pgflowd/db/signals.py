"""
The queries that send signals to runs, answer approvals, and read what became of signals.

Whoever may start runs may send signals; to read them needs the rights of a viewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import starmap
from uuid import UUID

from pgflowd.core.documents.waits import ListedSignal
from pgflowd.core.json import decode
from pgflowd.db.query import Query, Rows


@dataclass(frozen=True)
class SignalReceipt:
    """A signal that was sent; before, if there was one with its key."""

    signal_id: int
    at: datetime  # now, by the database's clock; a new signal was sent then


def send(
    run_id: UUID, name: str, payload: str, actor: str | None, dedup: str | None
) -> Query[SignalReceipt]:
    return Query(_SEND, (run_id, name, payload, actor, dedup), _read_sent)


def answer(
    run_id: UUID, name: str, is_approved: bool, note: str, actor: str | None, dedup: str | None
) -> Query[SignalReceipt]:
    """Answer an approval."""
    return Query(_ANSWER, (run_id, name, is_approved, note, actor, dedup), _read_sent)


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


_SEND = "select pgflowd.signal(%s, %s, %s::jsonb, coalesce(%s::text, session_user), %s), now()"
_ANSWER = "select pgflowd.answer(%s, %s, %s, %s, %s::text, %s), now()"
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


def _read_sent(rows: Rows) -> SignalReceipt:
    return SignalReceipt(*rows[0])


def _read_listed(rows: Rows) -> list[ListedSignal]:
    return list(starmap(ListedSignal, ([*row[:3], decode(row[3]), *row[4:]] for row in rows)))
