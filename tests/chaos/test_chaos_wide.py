"""The checks of the chaos find each kind of error of wide runs, timers, and messages taken away."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import chaos  # noqa: F401  (which knows where the other houses are)
import chaos_faults
import chaos_messages
import chaos_wide
import psycopg
import pytest
from chaos_checks import ORACLE
from chaos_environment import TABLES
from support.leases import LeaseDatabase

from pgflowd.testing.scratch import ScratchDatabase

ANYWHERE: Any = None
LINE = """
insert into oracle (event, run_id, step_slug, task_index, token, output)
values (%s, %s, 'spreads', %s, %s, %s)
"""


class Known:
    """What the chaos knows of this database."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn, self.chance = conn, random.Random(1)
        self.in_doubt: dict[str, str] = {}
        self.acknowledged: dict[str, str] = {}

    def conn(self) -> psycopg.Connection[Any]:
        return self._conn


@pytest.fixture
def known(pgflow_db: ScratchDatabase) -> Iterator[Any]:
    with psycopg.connect(pgflow_db.dsn, autocommit=True) as conn:
        yield Known(conn)


@pytest.fixture
def db(pgflow_db: ScratchDatabase, known: Any) -> Iterator[LeaseDatabase]:
    """Wide runs that have ended, after each message was taken away, and their ledger."""
    db = LeaseDatabase(pgflow_db.dsn, "all")
    db.do(TABLES)
    db.do(ORACLE)
    db.do("select pgflow.create_flow('wide')")
    db.do("select pgflow.add_step('wide', 'spreads', step_type => 'map')")
    assert chaos_wide.wide(known, ANYWHERE) == "16 runs of 8 elements"
    assert chaos_wide.wide(known, ANYWHERE) == "", "not again while some are planned"
    db.do("update pgflowd.runs set due_at = now(), start_at = now()")
    db.do("select pgflowd.process_due(3)")
    db.do("delete from pgflowd.runs where state = 'planned'")
    worker = db.worker("wide")
    while tasks := db.claim("wide", worker, max_tasks=30):
        for task in tasks:
            for event, output in (("start", None), ("end", task.task_index)):
                line = (task.run_id, task.task_index, task.token, json.dumps(output))
                db.do(LINE, event, *line)
            db.do("insert into chaos_taken values (%s, 'spreads', %s)", *line[:2])
            db.complete(task, task.task_index)
    assert db.column("select count(*) from oracle") == [48]
    yield db
    db.close()


def found(db: LeaseDatabase) -> list[str]:
    """The names of what is wrong."""
    told = [
        *chaos_wide.troubles(SimpleNamespace(conn=lambda: db.conn)),  # type: ignore[arg-type]
        *chaos_messages.troubles(db.conn),
    ]
    return [trouble.split(":")[0] for trouble in told]


def an_element_that_was_not_executed(db: LeaseDatabase) -> None:
    db.do("delete from oracle where task_index = 7")
    db.do("delete from chaos_taken where task_index = 7")


def an_execution_without_an_attempt(db: LeaseDatabase) -> None:
    db.do(
        "insert into oracle (event, run_id, step_slug, task_index, token) "
        "select event, run_id, step_slug, 0, -1 from oracle where event = 'start' limit 1"
    )


def a_wide_run_that_never_begins(db: LeaseDatabase) -> None:
    db.do("select pgflowd.start('wide', '[1]', start_at => now() + interval '1 hour')")


def a_task_that_is_lost(db: LeaseDatabase) -> None:
    db.do("""
        update pgflow.step_tasks set status = 'queued', output = null, completed_at = null,
               started_at = null where task_index = 7
    """)


def a_task_that_failed_by_itself(db: LeaseDatabase) -> None:
    db.do(
        "update pgflow.step_tasks set status = 'failed', output = null, completed_at = null, "
        "failed_at = now() where task_index = 7"
    )


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (
            an_element_that_was_not_executed,
            "each element of a wide run was executed to its end once",
        ),
        (
            an_execution_without_an_attempt,
            "a handler of a wide run is executed for an attempt, and once for each",
        ),
        (a_wide_run_that_never_begins, "a wide run begins and ends"),
        (a_task_that_is_lost, "a task whose message was taken away ends"),
        (a_task_that_failed_by_itself, "one that failed has an attempt that failed"),
    ],
)
def test_what_went_wrong_is_found(db, wrong: Callable[[LeaseDatabase], None], name: str):
    assert found(db) == []

    wrong(db)

    assert found(db) == [name]


def test_a_task_that_completed_with_another_output_than_its_handlers_is_found(db):
    db.do("update pgflow.step_tasks set output = '70' where task_index = 7")

    assert found(db) == ["one that completed did so as its handler says, and once"]


def test_the_fault_that_takes_messages_away_writes_down_which(db, known):
    run = db.start("wide", list(range(40)))
    known.chance = SimpleNamespace(choice=lambda options: options[0], random=lambda: 1)

    told = chaos_faults.messages(known, ANYWHERE)

    taken = db.column("select task_index from chaos_taken where run_id = %s", run)
    assert 0 < len(taken) < 40
    assert told.startswith(f"{len(taken)} of q_wide")
    left = db.column("select (message ->> 'task_index')::int from pgmq.q_wide")
    assert sorted([*taken, *left]) == list(range(40))


def test_a_timer_that_is_due_in_many_looks_stands_still_and_one_that_moves_does_not(db):
    timers = chaos_wide.Timers()
    for second in ("1 hour", "2 hours"):
        db.do("select pgflowd.start('wide', '[1]', start_at => now() + %s::interval)", second)
    still = (
        "update pgflowd.runs set due_at = '2026-01-01' where start_at < now() + '90 min'::interval"
    )
    moves = "update pgflowd.runs set due_at = coalesce(due_at, now()) where state = 'planned'"
    db.do(still + " and state = 'planned'")
    for nr in range(chaos_wide.LATE_LOOKS - 1):
        db.do(
            moves.replace("coalesce(due_at, now())", f"'2026-01-01'::timestamptz + '{nr} s'")
            + " and start_at > now() + '90 min'::interval"
        )
        assert timers.look(db.conn) == []

    [trouble] = timers.look(db.conn)

    assert trouble.startswith("a timer stands still: ('run', 'wide', ")
    assert timers.look(db.conn) == [], "it is told once"
