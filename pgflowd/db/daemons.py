"""Reads and writes the rows of daemons, which show all machines, and restarts workers of any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pgflowd.core.documents import encoded
from pgflowd.core.documents.daemons import ListedDaemon
from pgflowd.core.documents.told_status import told_status
from pgflowd.core.json import decode
from pgflowd.core.statuses import DaemonState
from pgflowd.db.query import Query, Rows, uuid_of

DAEMONS_LOOKED_AT = "look at daemons"  # on channel pgflowd


def tell_daemon(status: str) -> Query[None]:
    """Write the row of a daemon, from its status document as JSON."""
    return Query("select pgflowd.tell_daemon(%s::jsonb)", (status,), lambda rows: None)


def list_daemons(*, only_problems: bool = False) -> Query[list[ListedDaemon]]:
    """Return the daemons of all machines; perhaps with nothing of their status but problems."""

    def read(rows: Rows) -> list[ListedDaemon]:
        return [_listed(ListedDaemon(*row)) for row in rows]

    status = "jsonb_build_object('problems', status -> 'problems')" if only_problems else "status"
    return Query(_DAEMONS.format(status=status), (), read)


def look_at_daemons() -> Query[None]:
    """Ask for rows that are not older than two seconds, for a minute; nobody may hear it."""
    return Query("select pgflowd.look_at_daemons()", (), lambda rows: None)


_DAEMONS = """
select daemon_id, name, host, pid, version, started_at, heartbeat_at, age_s, state, is_silent,
       living, tasks, lapses_in_s, {status}::text
  from pgflowd.daemons()
"""


def _listed(row: ListedDaemon) -> ListedDaemon:
    """A row whose columns are as the database has them."""
    status = told_status(_decoded(row.status))
    status |= {
        "id": str(row.daemon_id),
        "started_at": encoded(row.started_at.replace(microsecond=0)),
    }
    state = row.state if row.state in list(DaemonState) else DaemonState.DEGRADED
    daemon_id = uuid_of(row.daemon_id)
    return replace(row, daemon_id=daemon_id, state=DaemonState(state), status=status)


def _decoded(text: Any) -> Any:
    """A status document; of one that is nested too deep nothing."""
    try:
        return decode(text)
    except RecursionError:
        return None
