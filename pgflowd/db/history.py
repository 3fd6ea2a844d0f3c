"""The queries about what happened: in a run, by people, and to tasks that failed for good."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import starmap
from uuid import UUID

from pgflowd.core.documents.history import DeadLetter, EventPage, PersonAction, RunEvent
from pgflowd.core.json import decode
from pgflowd.db.query import Query, Rows


def timeline(
    run_id: UUID,
    after: datetime | None = None,
    before: datetime | None = None,
    most: int | None = None,
) -> Query[list[RunEvent]]:
    """
    Return what happened in a run, in the order of time: `after` this moment, or at it, and
    `before` that one; the newest `most`, and what has the moment of the oldest of these.
    """

    def read(rows: Rows) -> list[RunEvent]:
        return list(starmap(RunEvent, ([*row[:6], decode(row[6])] for row in rows)))

    return Query(_TIMELINE, (run_id, after, before, most), read)


def event_page(run_id: UUID, before: datetime | None, most: int) -> Query[EventPage]:
    """Return the newest events of a run, or of those before a moment."""
    query = timeline(run_id, None, before, most)

    def read(rows: Rows) -> EventPage:
        events = query.read(rows)
        return EventPage(events, events[0].at if len(events) >= most else None)

    return Query(query.sql, query.params, read)


def list_actions(
    run_id: UUID | None = None,
    after: datetime | None = None,
    actor: str | None = None,
    most: int = 20,
) -> Query[list[PersonAction]]:
    """Return the newest things that people did, the newest first."""

    def read(rows: Rows) -> list[PersonAction]:
        return list(
            starmap(PersonAction, ([*row[:9], row[9] and decode(row[9]), row[10]] for row in rows))
        )

    return Query(_ACTIONS, (run_id, after, actor, most), read)


def dead_letters(
    flow_slug: str | None = None, since_s: float | None = None, most: int = 20
) -> Query[list[DeadLetter]]:
    """Return the tasks that failed for good, those of the newest runs first."""
    since = None if since_s is None else timedelta(seconds=since_s)
    return Query(_DEAD, (flow_slug, since, most), lambda rows: list(starmap(DeadLetter, rows)))


_TIMELINE = """
select at, event, step_slug, task_index, token, actor, detail::text
  from pgflowd.run_timeline(%s, %s, %s, %s)
"""
_ACTIONS = """
select action_id, at, actor, action, flow_slug, run_id, step_slug, task_index, reason, data,
       session_role
  from pgflowd.list_actions(%s, %s, %s, %s)
"""
_DEAD = """
select run_id, step_slug, task_index, flow_slug, attempts, token, outcome, error_type,
       error_message, failed_at
  from pgflowd.list_dead(%s, %s, %s)
"""
