"""The checks of the chaos find each kind of error of tasks that pass a gate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import chaos  # noqa: F401  (which knows where the other houses are)
import chaos_gates
import pytest
from chaos_checks import ORACLE
from support.leases import LeaseDatabase

from pgflowd.testing.scratch import ScratchDatabase

LINE = """
insert into oracle (event, run_id, step_slug, task_index, token, daemon, at, output)
values (%s, '00000000-0000-4000-8000-000000000000', %s, %s, %s, 'd0', %s, %s)
"""


def visit(db: LeaseDatabase, index: int, began: float, ended: float) -> None:
    for event, at in (("start", began), ("host", began), ("end", ended)):
        db.do(LINE, event, "visits", index, index, at, "7" if event == "host" else None)


@pytest.fixture
def db(pgflow_db: ScratchDatabase) -> Iterator[LeaseDatabase]:
    """Three visits of a host, two at once at most, and one who has what it needs."""
    found = LeaseDatabase(pgflow_db.dsn, "all")
    found.do(ORACLE)
    for index, (began, ended) in enumerate([(10, 20), (12, 18), (19, 30)]):
        visit(found, index, began, ended)
    found.do(LINE, "caps", "trains", 0, 9, 40, json.dumps(["80gb", "gpu"]))
    yield found
    found.close()


def found(db: LeaseDatabase, *, is_excused: bool = False) -> list[str]:
    """The names of what is wrong."""
    known: Any = SimpleNamespace(conn=lambda: db.conn)
    told = chaos_gates.troubles(known, lambda *_: is_excused)
    return [trouble.split(":")[0] for trouble in told]


def a_third_visit(db: LeaseDatabase) -> None:
    visit(db, 3, 13, 14)


def a_worker_without_caps(db: LeaseDatabase) -> None:
    db.do(LINE, "caps", "trains", 0, 10, 40, "[]")


def a_task_that_still_waits(db: LeaseDatabase) -> None:
    flow = db.flow()
    db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    db.suspend(task, {"kind": "need", "needs": ["tpu"]})


def test_nothing_is_wrong_where_all_went_well(db):
    assert found(db) == []


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (a_third_visit, "no more than two visit a host"),
        (a_worker_without_caps, "nobody executes what it lacks something for"),
        (a_task_that_still_waits, "nobody waits for a gate any more"),
    ],
)
def test_what_went_wrong_is_found(db, wrong: Callable[[LeaseDatabase], None], name: str):
    wrong(db)

    assert found(db) == [name]


def test_who_stood_still_is_excused(db):
    a_third_visit(db)

    assert found(db, is_excused=True) == []
