"""The verbs of tests of child runs, beside those of `LeaseDatabase`."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from pgflowd.core.ids import child_id
from pgflowd.testing.until import until
from support.database import Connection, Row, key
from support.leases import LeaseDatabase

START = "select pgflowd.start_child(%s, %s, %s, %s, %s, %s)"


def child_of(task: Row, flow: str, name: str = "nr 1") -> UUID:
    """The id of the child that a task starts under this name."""
    return UUID(child_id(str(task.run_id), task.step_slug, task.task_index, flow, name))


def start_child(
    db: LeaseDatabase, task: Row, flow: str, name: str = "nr 1", conn: Connection | None = None,
    **wishes: Any,
) -> UUID | None:  # fmt: skip
    """Start a child as a worker does; None if the task was locked."""
    given = json.dumps({"flow": flow, "input": {}, "wishes": wishes})
    run: UUID | None = db.value(START, *key(task), child_of(task, flow, name), given, conn=conn)
    return run


def begun(db: LeaseDatabase, flow: str) -> Row:
    """The task of a fresh run, claimed."""
    run = db.start(flow)
    (task,) = [one for one in db.claim(flow, db.worker(flow), 1000) if one.run_id == run]
    return task


def family(db: LeaseDatabase, *children: int) -> tuple[Row, list[UUID]]:
    """A task at work, and children of other flows that it has started; of these more, and so on."""
    task = begun(db, db.flow())
    return task, [
        child for n in range(children[0]) for child in _started(db, task, n, children[1:])
    ]


def _started(db: LeaseDatabase, task: Row, number: int, below: tuple[int, ...]) -> list[UUID]:
    flow = db.flow()
    child = start_child(db, task, flow, f"key {number}")
    assert child is not None
    found = [child]
    if below:
        (of_child,) = db.claim(flow, db.worker(flow))
        found += [each for n in range(below[0]) for each in _started(db, of_child, n, below[1:])]
    return found


def process(db: LeaseDatabase) -> None:
    """Do all that is due, as the sweeper does."""
    until(lambda: db.value("select done from pgflowd.process_due()") == 0, within_s=10)


def statuses(db: LeaseDatabase, runs: list[UUID]) -> list[str]:
    query = "select status from pgflowd.run_status where run_id = %s"
    return [db.value(query, run) for run in runs]
