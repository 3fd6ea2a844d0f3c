"""
Lists stalled tasks, and requeues or fails them for an operator.

`requeue_task` and `give_up_task` return False, and change nothing, if the task is not stalled. They
raise NotFound if it does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import starmap
from typing import Any

import psycopg

from pgflowd.core.documents.flows import StalledTask
from pgflowd.core.finding import Finding, ok, warning
from pgflowd.core.text import counted, short_id
from pgflowd.core.undecided import CYCLE, problem_of
from pgflowd.db.query import Query, execute
from pgflowd.db.waits import undecided_tasks

Connection = psycopg.Connection[Any]


def stalled_tasks(stale_threshold_s: float) -> Query[list[StalledTask]]:
    """Return the stalled tasks, oldest first."""
    params = (timedelta(seconds=stale_threshold_s),)
    return Query(_STALLED, params, lambda rows: list(starmap(StalledTask, rows)))


def findings_of_stalled(conn: Connection, stale_threshold_s: float) -> Iterator[Finding]:
    """Say which runs wait for each other, and which tasks are stalled."""
    for one in execute(conn, undecided_tasks()):
        if one.kind == CYCLE:
            problem = problem_of(one)
            yield warning(problem.text, problem.next or "", problem.code)
    found = execute(conn, stalled_tasks(stale_threshold_s))
    if not found:
        yield ok("no task is stalled")
        return
    oldest = found[0]
    task = f"{short_id(oldest.run_id)}/{oldest.step_slug}#{oldest.task_index}"
    text = f"{counted(len(found), 'task')}, the oldest {task}"
    yield warning(text, "see `pgflowd stalled list`")


_STALLED = """
select run_id, step_slug, task_index, flow_slug, worker_id, attempt, started_at, stalled_at,
       times, reason
  from pgflowd.stalled_tasks(%s)
"""
