"""The checks of the chaos find each kind of error of runs that schedules start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import chaos  # noqa: F401  (which knows where the other houses are)
import chaos_ticks
import pytest
from chaos_checks import ORACLE
from support.leases import LeaseDatabase

from pgflowd.testing.scratch import ScratchDatabase

START = """
select run_id from pgflowd.start(
  %s, '{}', start_at => timestamptz '2026-03-01T09:00:00Z' + %s * interval '1 second',
  labels => jsonb_build_object('schedule', 'ticking', 'scheduled_for', %s::text))
"""
LINE = "insert into oracle (event, run_id, output) values ('tick of', %s, %s)"


def tick(db: LeaseDatabase, second: int, told: int | None = None) -> None:
    flow = db.column("select flow_slug from pgflow.flows")[0]
    (run,) = db.column(START, flow, second, str(second))
    db.do(LINE, run, json.dumps(["ticking", str(second if told is None else told)]))


@pytest.fixture
def db(pgflow_db: ScratchDatabase) -> Iterator[LeaseDatabase]:
    """Three ticks, each with its run."""
    found = LeaseDatabase(pgflow_db.dsn, "all")
    found.do(ORACLE)
    found.do("create table chaos_pruned (run_id uuid, status text)")
    found.flow()
    for second in range(3):
        tick(found, second)
    yield found
    found.close()


def found(db: LeaseDatabase) -> list[str]:
    """The names of what is wrong."""
    known: Any = SimpleNamespace(conn=lambda: db.conn)
    return [trouble.split(":")[0] for trouble in chaos_ticks.troubles(known)]


def a_second_run(db: LeaseDatabase) -> None:
    tick(db, 1)


def a_tick_that_was_lost(db: LeaseDatabase) -> None:
    tick(db, 4)


def a_handler_that_is_wrong(db: LeaseDatabase) -> None:
    tick(db, 3, told=2)


def a_schedule_with_an_error(db: LeaseDatabase) -> None:
    flow = db.column("select flow_slug from pgflow.flows")[0]
    db.value("select pgflowd.set_schedule('bad', %s, 'never')", flow)
    db.do("update pgflowd.schedules set error = 'it cannot be read', failed_at = now()")


def test_nothing_is_wrong_where_all_went_well(db):
    assert found(db) == []


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (a_second_run, "each tick has one run at most"),
        (a_tick_that_was_lost, "each tick has a run"),
        (a_handler_that_is_wrong, "a handler knows its tick"),
        (a_schedule_with_an_error, "a schedule starts its runs"),
    ],
)
def test_what_went_wrong_is_found(db, wrong: Callable[[LeaseDatabase], None], name: str):
    wrong(db)

    assert found(db) == [name]
