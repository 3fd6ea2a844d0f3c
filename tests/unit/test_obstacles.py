"""What is said of sessions, prepared transactions and slots that hinder a database."""

from __future__ import annotations

from typing import Any

import pytest
from support.covers import covers

from pgflowd.core.server_connections import (
    Holder,
    is_harmful,
    is_overfull,
    queue_problem,
    snapshot_problem,
)


def session(pid: str = "4711", **changes: Any) -> Holder:
    values: dict[str, Any] = {
        "application": "psql", "user": "anna", "database": "shop", "state": "idle in transaction",
        "age_s": 185.0,
    }  # fmt: skip
    return Holder("session", pid, **{**values, **changes})


@covers("database 5")
def test_a_full_queue_names_the_session_that_holds_it_and_how_to_end_it():
    problem = queue_problem(0.62, [session()])

    assert problem.code == "E319"
    assert problem.text == (
        "the server's notification queue is 62% full; once full, nothing starts or ends; a "
        "listener does not read it: pid 4711 (psql, user anna, database shop), idle in "
        "transaction for 3m05s"
    )
    assert problem.next == "end that session: `select pg_terminate_backend(4711)`"


def test_of_several_sessions_each_may_be_guilty():
    problem = queue_problem(0.2, [session("1"), session("2"), session("3")])

    assert "pid 1 (" in problem.text and " or pid 2 (" in problem.text
    assert "pid 3" not in problem.text


def test_without_a_session_in_sight_it_says_where_to_look():
    assert "pg_stat_activity" in (queue_problem(0.2, []).next or "")


@pytest.mark.parametrize(("share", "overfull"), [(0.0, False), (0.09, False), (0.1, True)])
def test_a_tenth_of_the_queue_is_too_much(share, overfull):
    assert is_overfull(share) is overfull


@covers("database 17")
@pytest.mark.parametrize(
    ("holder", "harmful"),
    [
        (session(age_s=600, transactions=200_000), True),
        (session(age_s=600, transactions=500), False),
        (session(age_s=20, transactions=200_000), False),
        (session(age_s=600, transactions=None), False),
        (Holder("slot", "standby_1", state="inactive", transactions=200_000), True),
        (session(age_s=None, transactions=200_000), True),
    ],
)
def test_a_snapshot_does_harm_when_it_is_old_and_much_has_happened_since(holder, harmful):
    assert is_harmful(holder) is harmful


@pytest.mark.parametrize(
    ("holder", "text", "remedy"),
    [
        (
            session(transactions=200_000),
            "pid 4711 (psql, user anna, database shop), idle in transaction for 3m05s, keeps the "
            "dead rows of the last 200000 transactions: claims slow down",
            "pg_terminate_backend(4711)",
        ),
        (
            Holder("prepared", "x'y", None, "anna", "shop", None, 60.0, 200_000),
            "prepared transaction x'y (user anna, database shop), in a transaction for 1m00s, "
            "keeps the dead rows of the last 200000 transactions: claims slow down",
            "rollback prepared 'x''y'",
        ),
        (
            Holder("slot", "standby_1", state="inactive", transactions=200_000),
            "replication slot standby_1 keeps the dead rows of the last 200000 transactions: "
            "claims slow down",
            "pg_drop_replication_slot('standby_1')",
        ),
    ],
)
def test_what_keeps_dead_rows_is_named_with_its_remedy(holder, text, remedy):
    problem = snapshot_problem(holder)

    assert (problem.code, problem.text) == ("E321", text)
    assert remedy in (problem.next or "")
