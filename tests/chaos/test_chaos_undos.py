"""The checks of the chaos find each kind of error of undos; and the short chaos of random ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import chaos  # noqa: F401  (which knows where the other houses are)
import chaos_undos
import pytest
import undos
from chaos_checks import ORACLE
from support.covers import covers
from support.leases import LeaseDatabase
from support.undo import UndoWorld, steps_of

from pgflowd.testing.scratch import ScratchDatabase

LINE = """
insert into oracle (event, run_id, flow_slug, step_slug, task_index, token, daemon, at, output)
values (%s, %s, %s, %s, 0, 1, 'd0', %s, %s)
"""


def note(world: UndoWorld, event: str, run: Any, step: str, at: float) -> None:
    flow = world.undo_flow if event == "undid" else world.flow
    output = json.dumps([str(run), step, 0]) if event == "undid" else None
    world.db.do(LINE, event, run, flow, step, at, output)


@pytest.fixture
def world(pgflow_db: ScratchDatabase) -> Iterator[UndoWorld]:
    """A saga that was undone, as its handlers have written down."""
    db = LeaseDatabase(pgflow_db.dsn, "all")
    found = UndoWorld(db, steps_of("books", "charges:books", "breaks!:charges"), flow="saga")
    run = found.failed_run("breaks")
    found.finish()
    db.do(ORACLE)
    for event, step, at in (("end", "books", 10), ("end", "charges", 20),
                            ("undid", "charges", 30), ("undid", "books", 40)):  # fmt: skip
        note(found, event, run, step, at)
    yield found
    db.close()


def found(world: UndoWorld) -> list[str]:
    """The names of what is wrong."""
    known: Any = SimpleNamespace(conn=lambda: world.db.conn)
    told = chaos_undos.troubles(known, lambda *_: False)
    return [trouble.split(":")[0] for trouble in told]


def an_undo_that_failed(world: UndoWorld) -> None:
    world.db.do("update pgflowd.runs set undo_state = 'undo_failed' where undo_state is not null")


def a_task_that_was_forgotten(world: UndoWorld) -> None:
    world.db.do("delete from oracle where event = 'undid' and output ->> 1 = 'charges'")


def an_undo_of_nothing(world: UndoWorld) -> None:
    world.db.do("delete from oracle where event = 'end' and step_slug = 'charges'")


def the_first_that_is_undone_first(world: UndoWorld) -> None:
    world.db.do("update oracle set at = 29 where output ->> 1 = 'books'")


def a_late_handler(world: UndoWorld) -> None:
    world.db.do("update oracle set at = 50 where event = 'end' and step_slug = 'books'")


def a_result_that_was_thrown_away(world: UndoWorld) -> None:
    a_task_that_was_forgotten(world)
    where = "where flow_slug = 'saga' and step_slug = 'charges'"
    world.db.do("update pgflow.step_tasks set status = 'failed', completed_at = null,"
                f" failed_at = now() {where}")  # fmt: skip
    world.db.do("update pgflowd.attempts set outcome = 'late', error_type = 'Cancelled' " + where)
    world.db.do("update oracle set token = one.token from pgflowd.attempts as one"
                " where one.flow_slug = 'saga' and one.step_slug = 'charges'"
                " and oracle.event = 'end' and oracle.step_slug = 'charges'")  # fmt: skip


@pytest.mark.parametrize(("breaks", "name"), [
    (lambda world: None, None),
    (a_result_that_was_thrown_away, "what returned though its run had ended is undone"),
    (an_undo_that_failed, "every saga is undone"),
    (a_task_that_was_forgotten, "what completed is undone"),
    (an_undo_of_nothing, "nothing else is undone"),
    (the_first_that_is_undone_first, "what came later is undone first"),
    (a_late_handler, "nothing is executed once the undo has begun"),
])  # fmt: skip
def test_each_error_is_found(
    world: UndoWorld, breaks: Callable[[UndoWorld], None], name: str | None
) -> None:
    breaks(world)
    assert sorted(set(found(world))) == ([name] if name else [])


@covers("G22")
def test_random_runs_are_undone_while_processes_and_the_server_are_killed() -> None:
    """A small one of `make undos`."""
    seed = random.SystemRandom().randrange(10**6)

    seen = undos.survive(seed, runs=12, daemons=1)

    assert seen.wrong == [], f"make undos SEED={seed}"
    assert seen.seen["undone"] > 10, seen.seen


@covers("G22")
def test_of_branches_that_return_as_another_fails_each_is_undone_exactly_once() -> None:
    seed = random.SystemRandom().randrange(10**6)

    seen = undos.survive(seed, runs=16, daemons=1, is_calm=True)

    assert seen.wrong == [], f"python tests/chaos/undos.py --calm --seed {seed}"
    assert seen.seen["undone"] > 10 and not seen.seen["excused"], seen.seen
