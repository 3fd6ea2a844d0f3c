"""
Starts child runs, and reads what handlers, and `runs show --tree`, know of them.

A child is started under the lease of the task that wants it, as a checkpoint is saved. Queries of
workers return JSON as bytes, which is passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import starmap
from uuid import UUID

from pgflowd.core.documents.families import FamilyMember
from pgflowd.core.json import dumps
from pgflowd.core.statuses import RunStatus
from pgflowd.db.checkpoints import Key
from pgflowd.db.query import Query, Rows, only

MAX_READ_BYTES = 16 * 1024 * 1024  # of outputs in one answer, as they are stored


def start(task: Key, token: int, child_id: str, given: str) -> Query[bytes | None]:
    """Start a child from a JSON with flow, input and wishes, unless that was done before.

    Return the id of the run as JSON; None while another session has the task: call it again soon.
    """
    return Query(_START, (*task, token, child_id, given), _as_id)


def children(task: Key) -> Query[bytes]:
    """Return pairs of child and run that a task has started, as JSON."""
    query = "select child_id::text, run_id::text from pgflowd.list_children(%s, %s, %s)"
    return Query(query, task, lambda rows: dumps([list(row) for row in rows]).encode())


def read_runs(run_ids: Sequence[str]) -> Query[bytes]:
    """Return id, status, output and error of the first of these runs, one at least, as JSON.

    PF002 for an unknown one.
    """
    return Query(_READ_RUNS, (list(run_ids), MAX_READ_BYTES), _as_rows)


def family(run_id: UUID, most: int = 1000) -> Query[list[FamilyMember]]:
    """Return the family of a run: each run after its parent, and children by age."""

    def read(rows: Rows) -> list[FamilyMember]:
        members = starmap(FamilyMember, rows)
        return [replace(member, status=RunStatus(member.status)) for member in members]

    return Query(_FAMILY, (run_id, most), read)


def _as_id(rows: Rows) -> bytes | None:
    run_id = only(rows)
    return None if run_id is None else dumps(str(run_id)).encode()


def _as_rows(rows: Rows) -> bytes:
    return b"[%b]" % b",".join(
        b"[%b,%b,%b]"
        % (dumps([run_id, status])[1:-1].encode(), output or b"null", dumps(error).encode())
        for run_id, status, output, error in rows
    )


_START = "select pgflowd.start_child(%s, %s, %s, %s, %s, %s)"
_READ_RUNS = "select run_id::text, status, output, error from pgflowd.read_runs(%s::uuid[], %s)"
_FAMILY = """
select run_id, parent_run_id, parent_step, parent_index, depth, flow_slug, status, started_at,
       ended_at
  from pgflowd.run_family(%s, %s)
"""
