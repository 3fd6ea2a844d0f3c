"""
Words that shells suggest, as the database knows them: runs, tasks, steps, daemons, settings.

What follows a word, after a blank, explains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pgflowd.cli.lookup import find_run
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import TaskStatus
from pgflowd.core.text import short_id, task_name

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.documents.waits import OpenTask


def recent_runs(conn: psycopg.Connection[Any]) -> list[str]:
    from pgflowd.db.query import execute
    from pgflowd.db.runs import list_runs

    found = execute(conn, list_runs(most=50))
    return [f"{short_id(row.run_id)} {row.flow_slug} {row.status}" for row in found]


def schedules(conn: psycopg.Connection[Any]) -> list[str]:
    from pgflowd.db.query import execute
    from pgflowd.db.schedules import list_schedules

    return [f"{each.name} {each.when}" for each in execute(conn, list_schedules())]


def daemons(conn: psycopg.Connection[Any]) -> list[str]:
    from pgflowd.db.daemons import list_daemons
    from pgflowd.db.query import execute

    return [f"{each.place} {each.state}" for each in execute(conn, list_daemons())]


def workers(conn: psycopg.Connection[Any]) -> list[str]:
    from pgflowd.db.daemons import list_daemons
    from pgflowd.db.query import execute

    return [
        f"{short_id(worker)} {flow.get('slug')} of {each.place}"
        for each in execute(conn, list_daemons())
        for flow in each.flows
        if (worker := flow.get("worker_id"))
    ]


def waiting_tasks(conn: psycopg.Connection[Any]) -> list[str]:
    from pgflowd.db.query import execute
    from pgflowd.db.waits import list_tasks

    found = execute(conn, list_tasks(statuses=[TaskStatus.WAITING], most=50))
    return [f"{task_name(*task.key)} {one_line(task.waits_for, 60)}" for task in found]


def open_tasks(conn: psycopg.Connection[Any]) -> list[str]:
    from pgflowd.db.query import execute
    from pgflowd.db.waits import list_tasks

    found = execute(conn, list_tasks(most=50))
    return [f"{task_name(*task.key)} {task.flow_slug} {task.status}" for task in found]


def stalled_tasks(conn: psycopg.Connection[Any]) -> list[str]:
    from pgflowd.db.query import execute
    from pgflowd.db.waits import stalled_tasks

    found = execute(conn, stalled_tasks(60.0))
    return [task_name(task.run_id, task.step_slug, task.task_index) for task in found]


def settings(conn: psycopg.Connection[Any]) -> list[str]:
    from pgflowd.db.daemons import list_settings
    from pgflowd.db.query import execute

    return [f"{each.name} {each.means}" for each in execute(conn, list_settings())]


def steps(conn: psycopg.Connection[Any], given: Mapping[str, Any]) -> Iterator[str]:
    """The steps of the run or flow that is given."""
    from pgflowd.db.flows import flow_shape
    from pgflowd.db.query import execute
    from pgflowd.db.runs import run_steps

    if "run" in given:
        found = execute(conn, run_steps(find_run(conn, given["run"])))
        yield from (step.step_slug for step in found)
    else:
        shape = execute(conn, flow_shape(given["flow"])) or {}
        yield from (step["slug"] for step in shape["steps"])


def approvals(conn: psycopg.Connection[Any], given: Mapping[str, Any]) -> Iterator[str]:
    yield from (task.step_slug for task in _waiting_in(conn, given["run"]) if task.is_approval)


def signal_names(conn: psycopg.Connection[Any], given: Mapping[str, Any]) -> Iterator[str]:
    yield from (task.name for task in _waiting_in(conn, given["run"]) if task.name)


def _waiting_in(conn: psycopg.Connection[Any], run: str) -> list[OpenTask]:
    from pgflowd.db.query import execute
    from pgflowd.db.waits import waits_of

    return execute(conn, waits_of(find_run(conn, run), 100))
