"""Options of flows have three values: of the code, of the last deployment, of the database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from pgflowd import Flow, Limit
from pgflowd.core.definition.shape import Code
from pgflowd.db import flows
from pgflowd.db.connection import translated
from pgflowd.db.definitions import define, set_option
from pgflowd.db.query import execute
from pgflowd.errors import NotFound
from pgflowd.testing.until import until


def shop(timeout: int | None = None, **options: object) -> dict:
    made = Flow("shop", timeout=timeout)
    made.step(slug="first", **options)(lambda run: 1)
    return made.shape()


@pytest.fixture
def conn(database):
    return database.connect()


def tune(conn, *option: object) -> object:
    with translated(conn):
        return execute(conn, set_option(*option))


def in_database(conn) -> tuple[int, int | None]:
    query = "select opt_timeout from pgflow.flows"
    (of_flow,) = conn.execute(query).fetchone()
    (of_step,) = conn.execute("select opt_timeout from pgflow.steps").fetchone()
    return of_flow, of_step


def test_what_the_code_changes_is_written_and_told(conn):
    flows.deploy(conn, "shop", shop(timeout=20, max_attempts=2))

    deployed = flows.deploy(conn, "shop", shop(timeout=25, max_attempts=2, crash_limit=4))
    gone = define(conn, Code("shop", shop()), "create")

    assert deployed.changes == ["timeout 20 → 25", "step first: crash_limit unset → 4"]
    assert gone.changes == [
        "timeout 25 → 60",
        "step first: crash_limit 4 → unset",
        "step first: max_attempts 2 → unset",
    ]
    assert (deployed.warnings, gone.warnings) == ([], [])
    assert flows.compare(conn, "shop", shop()) == flows.Comparison(
        exists=True, flow_slug="shop", current="shop"
    )


def test_what_was_tuned_stays_until_both_say_the_same(conn):
    flows.deploy(conn, "shop", shop(timeout=20))
    tune(conn, "shop", "", "timeout", 30)

    tuned = flows.deploy(conn, "shop", shop(timeout=25))
    (values,) = flows.compare(conn, "shop", shop(timeout=25)).values
    agreed = flows.deploy(conn, "shop", shop(timeout=30))
    followed = flows.deploy(conn, "shop", shop(timeout=40))

    assert (values.code, values.deployed, values.database, values.is_tuned) == (25, 25, 30, True)
    assert [(one.code, one.next) for one in tuned.warnings] == [
        ("W310", "`pgflowd flows deploy shop --take-code` writes that of the code")
    ]
    assert "25 in the code, 30 in the database (by postgres, 20" in tuned.warnings[0].text
    assert values.tuned_by == "postgres" and values.tuned_at is not None
    assert (tuned.changes, agreed.changes) == ([], [])
    assert followed.changes == ["timeout 30 → 40"]
    assert in_database(conn) == (40, None)


def test_take_code_writes_what_the_code_says(conn):
    flows.deploy(conn, "shop", shop(timeout=20))
    tune(conn, "shop", "first", "timeout", 30)

    taken = flows.deploy(conn, "shop", shop(timeout=20), take_code=True)

    assert taken.changes == ["step first: timeout 30 → unset"]
    assert flows.compare(conn, "shop", shop(timeout=20)).values == []


def test_verify_writes_nothing(conn):
    flows.deploy(conn, "shop", shop(timeout=20))

    defined = define(conn, Code("shop", shop(timeout=25)), "verify")

    assert defined.changes == []
    assert [(one.code, one.next) for one in defined.warnings] == [
        ("W310", "run `pgflowd flows deploy shop`")
    ]
    assert in_database(conn) == (20, None)


def test_whether_there_is_a_limit_follows_the_code_and_its_places_are_tuned(conn):
    flows.deploy(conn, "shop", shop(limit=Limit(5)))
    tune(conn, "shop", "first", "limit", 2)

    tuned = flows.deploy(conn, "shop", shop(limit=Limit(6, name="hosts"))).changes
    gone = flows.deploy(conn, "shop", shop()).changes
    back = flows.deploy(conn, "shop", shop(limit=Limit(7)))

    assert tuned == ["step first: name of the limit unset → hosts"]
    assert "step first: limit 2 → unset" in gone
    assert back.changes == ["step first: limit unset → 7"]
    assert back.warnings == []


def test_a_flow_of_another_runtime_is_not_tuned(conn):
    conn.execute("select pgflow.create_flow('shop', timeout => 20)")
    conn.execute("select pgflow.add_step('shop', 'first', timeout => 5)")
    same = shop(timeout=20)
    same["steps"][0]["options"] = {"timeout": 5}

    flows.deploy(conn, "shop", same)
    deployed = flows.deploy(conn, "shop", shop(timeout=21))

    assert deployed.warnings == []
    assert deployed.changes == ["timeout 20 → 21", "step first: timeout 5 → unset"]


def test_options_that_cannot_be_are_refused(conn):
    flows.deploy(conn, "shop", shop())

    for key, value in [("timeout", 0), ("timeout", "x"), ("crashLimit", 1001), ("none", 1),
                       ("maxAttempts", 1.5), ("onCrashLimit", "stay")]:  # fmt: skip
        with pytest.raises(
            psycopg.errors.InvalidParameterValue, match=rf"option {key} of a step cannot be"
        ):
            tune(conn, "shop", "first", key, value)
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match="option startDelay of a flow cannot be 1"
    ):
        tune(conn, "shop", "", "startDelay", 1)
    for flow, step, key in [
        ("shop", "first", "limit"),
        ("shop", "x", "timeout"),
        ("x", "", "timeout"),
    ]:
        with pytest.raises(NotFound):
            tune(conn, flow, step, key, 1)


def test_two_deployers_and_an_operator_at_the_same_moment(conn, database):
    """Whoever comes first: what the operator says stays, else it is what the last code says."""
    flows.deploy(conn, "shop", shop(timeout=20))
    first, second, third = (database.connect(autocommit=False) for _ in range(3))
    blocked = "select count(*) from pg_locks where locktype = 'transactionid' and not granted"

    def wait() -> None:
        until(lambda: conn.execute(blocked).fetchone() == (1,))

    for each in (first, second, third):
        each.execute("select 1")
    with ThreadPoolExecutor(1) as thread:
        flows.deploy(first, "shop", shop(timeout=21))  # holds the definition
        deploying = thread.submit(flows.deploy, second, "shop", shop(timeout=22))
        wait()
        first.commit()
        assert deploying.result().changes == ["timeout 21 → 22"]
        tuning = thread.submit(execute, third, set_option("shop", "", "timeout", 90))
        wait()
        second.commit()
        assert tuning.result() == 22
        first.execute("select 1")
        deploying = thread.submit(flows.deploy, first, "shop", shop(timeout=23))
        wait()
        third.commit()
        assert deploying.result().changes == []
    first.commit()

    assert in_database(conn) == (90, None)
