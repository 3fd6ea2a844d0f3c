"""The attacker of the chaos gets nothing; and the judge sees each thing that one may get."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import chaos  # noqa: F401  (which knows where the other houses are)
import chaos_attacks
import chaos_rights
import pytest
from support.leases import LeaseDatabase

from pgflowd.testing.scratch import ScratchDatabase

FLOWS = """
select pgflow.create_flow(one.flow), pgflow.add_step(one.flow, one.step)
  from (values ('chain', 'a'), ('single', 'a'), ('parents', 'begets'), ('begotten', 'grows'))
       as one (flow, step)
"""


@pytest.fixture
def db(pgflow_db: ScratchDatabase) -> Iterator[LeaseDatabase]:
    """The flows of the chaos, one run, and the users of the attacker."""
    found = LeaseDatabase(pgflow_db.dsn, "all")
    chaos_rights.prepare(found.conn)
    found.rows(FLOWS)
    found.start("chain")
    yield found
    found.close()


@pytest.fixture
def environment(db: LeaseDatabase) -> Any:
    def hold_up_all(_: float, release: Callable[[], None]) -> None:
        release()

    return SimpleNamespace(
        conn=lambda: db.conn, dsn=db.dsn, chance=random.Random(7), troubles=[],
        in_doubt={}, acknowledged={}, rights=chaos_rights.rights(db.conn),
        hold_up_all=hold_up_all,
    )  # fmt: skip


def found(environment: Any) -> list[str]:
    told = [*environment.troubles, *chaos_attacks.troubles(environment)]
    return [trouble.split(":")[0] for trouble in told]


def a_right(db: LeaseDatabase) -> None:
    db.do(f"grant delete on pgflow.runs to {chaos_rights.STARTER}")


def a_superuser(db: LeaseDatabase) -> None:
    db.do(f"alter role {chaos_rights.STRANGER} createdb")


def a_membership(db: LeaseDatabase) -> None:
    db.do(f"grant pgflow_owner to {chaos_rights.STRANGER}")


def another_body(db: LeaseDatabase) -> None:
    db.do("create or replace function pgflow.is_local() returns boolean language sql return true")


def a_forged_child(db: LeaseDatabase) -> None:
    run = db.start("parents", {"n": 1})
    (task,) = db.claim("parents", db.worker("parents"))
    db.complete(task, [["completed", {"grows": 1000}]])
    assert db.status(run) == "completed"


@pytest.mark.parametrize(("breaks", "names"), [
    (lambda db: None, []),
    (a_right, ["a right that is gone", "a right that was not there"]),
    (a_superuser, ["a right that is gone", "a right that was not there"]),
    (a_membership, ["a right that was not there"]),
    (another_body, ["a right that is gone", "a right that was not there"]),
    (a_forged_child, ["a child's output was forged"]),
])  # fmt: skip
def test_each_gain_is_found(
    db: LeaseDatabase, environment: Any, breaks: Callable[[LeaseDatabase], None], names: list[str]
) -> None:
    breaks(db)
    assert sorted(found(environment)) == names


def test_the_attacker_gets_nothing(db: LeaseDatabase, environment: Any) -> None:
    place: Any = None
    users = {chaos_attacks.attack(environment, place) for _ in range(12)}

    assert found(environment) == []
    worker = db.worker("parents")
    (task,) = db.claim("parents", worker, 1)
    ids = [chaos_attacks.child_id(str(task.run_id), "begets", 0, "begotten", f"key {n}")
           for n in range(3)]  # fmt: skip
    assert users == set(chaos_rights.USERS)
    assert set(ids) < set(environment.acknowledged)
