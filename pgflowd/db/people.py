"""
The queries by which a person works on tasks: claim one, keep it for longer, complete it,
fail it, release it.

Without an actor the person is the user of the connection. Without a token a task is one that the
person has claimed, or that nobody has.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pgflowd.core.documents.flows import TaskKey
from pgflowd.core.documents.people import HeldTask
from pgflowd.core.json import decode
from pgflowd.db.query import Query, Rows, only


def claim(
    flow_slug: str | None, caps: Sequence[str], lease_s: float, actor: str | None
) -> Query[HeldTask | None]:
    """Take a task of a flow, or of any, that needs these caps, or nothing, if there is one."""

    def read(rows: Rows) -> HeldTask | None:
        return HeldTask(*rows[0][:8], *map(_decoded, rows[0][8:])) if rows else None

    given = (list(caps), timedelta(seconds=lease_s), actor)
    if flow_slug is None:
        return Query(_CLAIM_OF_ANY, given, read)
    return Query(_CLAIM, (flow_slug, *given), read)


def extend(task: TaskKey, lease_s: float, actor: str | None, token: int | None) -> Query[datetime]:
    """Let the lease of a claimed task last for so long from now; returns when it ends."""
    return Query(_EXTEND, (*task, timedelta(seconds=lease_s), actor, token), only)


def complete(task: TaskKey, output: str, actor: str | None, token: int | None) -> Query[str]:
    """Complete a task; `output` is JSON."""
    return Query(_COMPLETE, (*task, output, actor, token), only)


def fail(
    task: TaskKey, reason: str | None, final: bool, actor: str | None, token: int | None
) -> Query[str]:
    """Fail an attempt; if it is final there is no other one."""
    return Query(_FAIL, (*task, reason, final, actor, token), only)


def release(
    task: TaskKey, delay_s: float, needs: Sequence[str], actor: str | None, token: int | None
) -> Query[str]:
    """Give a task back, for anybody after the delay, or for who has what it needs."""
    params = (*task, timedelta(seconds=delay_s), list(needs) or None, actor, token)
    return Query(_RELEASE, params, only)


def _decoded(value: bytes | None) -> object:
    return None if value is None else decode(value)


_HELD = """
select run_id, step_slug, task_index, task.flow_slug, token, attempt, max_attempts, lease_until,
       input, flow_input
"""
_CLAIM_OF_ANY = _HELD + "from pgflowd.task_claim(null, %s::text[], %s, %s) as task"
_CLAIM = f"""{_HELD}
  from unnest(pgflowd.flows_of(%s)) as version (flow_slug)
 cross join lateral pgflowd.task_claim(version.flow_slug, %s::text[], %s, %s) as task
 limit 1
"""  # of the oldest version that has one; of those after it none is asked for
_EXTEND = "select pgflowd.task_extend(%s, %s, %s, %s, %s, %s)"
_COMPLETE = "select pgflowd.task_complete(%s, %s, %s, %s::jsonb, %s, %s)"
_FAIL = "select pgflowd.task_fail(%s, %s, %s, %s, %s, %s, %s)"
_RELEASE = "select pgflowd.task_release(%s, %s, %s, %s, %s::text[], %s, %s)"
