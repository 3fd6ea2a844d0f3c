"""The checks of the chaos find each kind of error of memos, waits and signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import chaos  # noqa: F401  (which knows where the other houses are)
import chaos_waits
import pytest
from chaos_checks import ORACLE
from chaos_environment import TABLES
from support.child_runs import start_child
from support.leases import LONG_SLEEP, LeaseDatabase, element

from pgflowd.testing.scratch import ScratchDatabase

SIGNAL = {"kind": "signal", "name": "go", "checkpoint": "signal go 1"}


@pytest.fixture
def db(pgflow_db: ScratchDatabase) -> Iterator[LeaseDatabase]:
    """A run of `waiting`, with a task of each of its steps, and an empty ledger."""
    found = LeaseDatabase(pgflow_db.dsn, "all")
    found.do(TABLES)
    found.do(ORACLE)
    found.do("select pgflow.create_flow('waiting')")
    for step in ("prepares", "asks", "writes"):
        found.rows("select pgflow.add_step('waiting', %s)", step)
    found.start("waiting", {"s": 5})
    yield found
    found.close()


def tasks(db: LeaseDatabase) -> dict[str, Any]:
    return {task.step_slug: task for task in db.claim("waiting", db.worker("waiting"))}


def told(db: LeaseDatabase, event: str, token: int, output: str) -> None:
    """Write a line of the ledger."""
    query = """
        insert into oracle (event, run_id, flow_slug, step_slug, task_index, token, at, output)
        select %s, run_id, 'waiting', 'prepares', 0, %s, extract(epoch from clock_timestamp()),
               %s::jsonb
          from pgflow.runs
    """
    db.do(query, event, token, output)


def found(db: LeaseDatabase, signalled: set[int] | None = None) -> list[str]:
    """The names of what is wrong."""
    known = SimpleNamespace(conn=lambda: db.conn, signalled=signalled or set())
    return [trouble.split(":")[0] for trouble in chaos_waits.troubles(known)]


def a_memo_that_runs_again(db: LeaseDatabase) -> None:
    told(db, "ran", 1, '["drawn", 1]')
    told(db, "kept", 1, '["drawn", 1]')
    told(db, "ran", 2, '["drawn", 2]')


def a_memo_that_changes(db: LeaseDatabase) -> None:
    for value in (1, 2):
        told(db, "ran", 1, f'["drawn", {value}]')
        told(db, "kept", 1, f'["drawn", {value}]')


def a_memo_that_nobody_computed(db: LeaseDatabase) -> None:
    told(db, "kept", 1, '["drawn", 1]')


def a_row_without_its_memo(db: LeaseDatabase) -> None:
    db.do("insert into chaos_rows values (gen_random_uuid(), 'prepares', 0, 1, 'memo', 0.5)")


def a_memo_without_its_row(db: LeaseDatabase) -> None:
    db.do("""
        insert into pgflowd.checkpoints (run_id, step_slug, task_index, name, token, data)
        select run_id, 'prepares', 0, 'row', 1, '0.5' from pgflow.runs
    """)


def a_row_of_an_attempt_that_failed(db: LeaseDatabase) -> None:
    task = tasks(db)["writes"]
    db.fail(task)
    row = "insert into chaos_rows values (%s, 'writes', 0, %s, 'step')"
    db.do(row, task.run_id, task.token)


def a_step_without_its_row(db: LeaseDatabase) -> None:
    db.complete(tasks(db)["writes"])


def a_sleep_that_ends_early(db: LeaseDatabase) -> None:
    task = tasks(db)["prepares"]
    db.suspend(task, LONG_SLEEP | {"in_s": 5})
    db.free(task)
    tasks(db)


def a_task_that_passes_its_wait(db: LeaseDatabase) -> None:
    db.complete(tasks(db)["prepares"])


def a_signal_that_its_task_did_not_see(db: LeaseDatabase) -> None:
    task = tasks(db)["asks"]
    db.do("select pgflowd.signal(%s, 'go', '7')", task.run_id)
    db.suspend(task, SIGNAL)
    db.do("select pgflowd.process_due()")
    db.report(element(tasks(db)["asks"], output='"none"'))


def begun_parent(db: LeaseDatabase, children: int) -> Any:
    """A task of a parent that is to start two children, and has started so many."""
    for flow, step in (("parents", "begets"), ("begotten", "grows")):
        db.do("select pgflow.create_flow(%s)", flow)
        db.do("select pgflow.add_step(%s, %s)", flow, step)
    db.start("parents", {"n": 2})
    (task,) = db.claim("parents", db.worker("parents"))
    for n in range(children):
        start_child(db, task, "begotten", f"key {n}")
    return task


SEEN = [["completed", {"grows": 0}], ["completed", {"grows": 2}]]


def a_child_that_was_not_started(db: LeaseDatabase) -> None:
    db.complete(begun_parent(db, 1), SEEN)


def a_child_of_nobody(db: LeaseDatabase) -> None:
    db.complete(begun_parent(db, 2), SEEN)
    db.start("begotten")


def a_parent_that_goes_on_early(db: LeaseDatabase) -> None:
    db.complete(begun_parent(db, 2), SEEN[:1])


def a_run_that_is_still_awaited(db: LeaseDatabase) -> None:
    db.do("insert into pgflowd.awaits (awaited, run_id) select run_id, run_id from pgflow.runs")


def a_task_that_still_waits(db: LeaseDatabase) -> None:
    db.suspend(tasks(db)["prepares"])


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (a_memo_that_runs_again, "a memo runs no more once it is kept"),
        (a_memo_that_changes, "what was kept is the same for every attempt"),
        (a_memo_that_nobody_computed, "what a memo returns was computed by it"),
        (a_row_without_its_memo, "the rows of a memo are there exactly if it is"),
        (a_memo_without_its_row, "the rows of a memo are there exactly if it is"),
        (
            a_row_of_an_attempt_that_failed,
            "the rows of a step are there exactly if its attempt completed",
        ),
        (a_step_without_its_row, "the rows of a step are there exactly if its attempt completed"),
        (a_sleep_that_ends_early, "no wait ends early"),
        (a_task_that_passes_its_wait, "a task waits once"),
        (a_signal_that_its_task_did_not_see, "each wait has one signal or its timeout"),
        (a_child_that_was_not_started, "each child was started once"),
        (a_child_of_nobody, "each child has a parent"),
        (
            a_parent_that_goes_on_early,
            "a parent goes on when its children have ended, and sees how",
        ),
        (a_run_that_is_still_awaited, "nobody waits for the end of a run any more"),
        (a_task_that_still_waits, "nothing waits any more"),
    ],
)
def test_each_kind_of_error_is_found(
    db: LeaseDatabase, error: Callable[[LeaseDatabase], None], name: str
) -> None:
    error(db)

    assert found(db) == [name]


def test_where_all_is_well_nothing_is_found_and_a_lost_signal_is(db: LeaseDatabase) -> None:
    task = tasks(db)["asks"]
    number = db.value("select pgflowd.signal(%s, 'go', '7')", task.run_id)
    db.suspend(task, SIGNAL)
    db.do("select pgflowd.process_due()")
    db.report(element(tasks(db)["asks"], output="7"))

    assert found(db, {number}) == []
    assert found(db, {number + 1}) == ["signals were acknowledged and are lost"]
