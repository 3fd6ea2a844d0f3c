"""The checks of the chaos find each kind of error of runs that begin later, or one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import chaos  # noqa: F401  (which knows where the other houses are)
import chaos_faults
import chaos_runs
import psycopg
import pytest
from chaos_checks import ORACLE
from support.leases import LeaseDatabase

from pgflowd.testing.scratch import ScratchDatabase

ANYWHERE: Any = None
LINE = """
insert into oracle (event, run_id, step_slug, task_index, token, daemon, at)
values (%s, %s, 'alone', 0, %s, 'd0', %s)
"""


@pytest.fixture
def db(pgflow_db: ScratchDatabase) -> Iterator[LeaseDatabase]:
    """Two runs of a key that have ended one after the other, as they should, and their ledger."""
    found = LeaseDatabase(pgflow_db.dsn, "all")
    found.do(ORACLE)
    found.do("create table chaos_retried (run_id uuid)")
    found.do("create table chaos_verbs (run_id uuid, verb text)")
    found.do("select pgflow.create_flow('single'); select pgflow.add_step('single', 'alone')")
    for _ in range(2):
        found.do("select pgflowd.start('single', '{}', singleton_key => 'k')")
    worker = found.worker("single")
    for at in (10, 20):
        found.do("select pgflowd.process_due()")
        task = found.claim_one("single", worker)
        for event, later in (("start", 0), ("end", 5)):
            found.do(LINE, event, task.run_id, task.token, at + later)
        found.complete(task)
    yield found
    found.close()


def found(db: LeaseDatabase, *, is_excused: bool = False) -> list[str]:
    """The names of what is wrong."""
    known: Any = SimpleNamespace(conn=lambda: db.conn)
    told = chaos_runs.troubles(known, lambda *_: is_excused)
    return [trouble.split(":")[0] for trouble in told]


def a_run_that_begins_early(db: LeaseDatabase) -> None:
    db.do("update pgflowd.runs set start_at = now() + interval '1 hour'")


def a_verb_without_its_action(db: LeaseDatabase) -> None:
    db.do("insert into chaos_verbs select run_id, 'cancel' from pgflow.runs")


def an_action_of_nobody(db: LeaseDatabase) -> None:
    db.do("select pgflowd._record_action('retry', 'chaos')")


def a_run_that_never_begins(db: LeaseDatabase) -> None:
    db.do("select pgflowd.start('single', '{}', start_at => now() + interval '1 hour')")


def a_run_that_overtakes(db: LeaseDatabase) -> None:
    db.do("update pgflowd.runs set created_at = now() - created_at + now()")


def a_run_that_begins_before_another_has_ended(db: LeaseDatabase) -> None:
    db.do(
        "update pgflowd.runs set labels = (select jsonb_build_object('after', run_id)"
        "                                    from pgflow.runs order by started_at desc limit 1)"
    )


def a_run_that_waits_for_ever(db: LeaseDatabase) -> None:
    db.do("insert into pgflowd.awaits select run_id, run_id from pgflow.runs")


def handlers_that_overlap(db: LeaseDatabase) -> None:
    db.do("update oracle set at = at + 7 where at = 15")


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (a_run_that_begins_early, "no run begins before its time"),
        (
            a_run_that_begins_before_another_has_ended,
            "no run begins before those for which it waits have ended",
        ),
        (a_run_that_waits_for_ever, "nobody waits for a run any more"),
        (a_run_that_never_begins, "every run begins"),
        (a_verb_without_its_action, "each verb that was called has left one action"),
        (an_action_of_nobody, "each verb that was called has left one action"),
        (a_run_that_overtakes, "runs of a key begin in the order of their starts"),
        (handlers_that_overlap, "handlers of two runs of a key do not overlap"),
    ],
)
def test_each_kind_of_error_is_found(
    db: LeaseDatabase, error: Callable[[LeaseDatabase], None], name: str
) -> None:
    assert found(db) == []
    error(db)
    assert found(db) == [name]


def test_the_fault_that_cancels_and_retries_remembers_what_it_called(db: LeaseDatabase) -> None:
    db.start("single")
    chance = SimpleNamespace(choice=lambda options: options[0])
    with psycopg.connect(db.dsn, autocommit=True) as conn:
        environment: Any = SimpleNamespace(conn=lambda: conn, chance=chance)
        told = chaos_faults.retry(environment, ANYWHERE)

    assert told == "1 runs, 1 of them cancelled before"

    assert db.column("select action from pgflowd.actions") == ["cancel", "retry"]
    assert found(db) == []


def test_an_overlap_while_something_stood_still_is_none(db: LeaseDatabase) -> None:
    handlers_that_overlap(db)
    assert found(db, is_excused=True) == []
