"""Definitions of code and database are compared, for workers and operators."""

from __future__ import annotations

import pytest
from support.covers import covers

from pgflowd import Flow, job
from pgflowd.core.definition.shape import Code
from pgflowd.db import flows
from pgflowd.db.definitions import define
from pgflowd.db.query import execute
from pgflowd.db.waits import list_schedules
from pgflowd.errors import DatabaseError


def flow(**options: int) -> Flow:
    made = Flow("shop", **options)

    @made.step(timeout=20)
    def first(run): ...

    @made.map(over=first, if_={"first": [{"kind": "x"}]}, when_unmet="fail")
    def second(item): ...

    return made


@pytest.fixture
def conn(database):
    return database.connect()


def test_what_was_deployed_is_the_same_with_all_options(conn):
    shape = flow(max_attempts=4, base_delay=2, timeout=30).shape()

    assert flows.compare(conn, "shop", shape) == flows.Comparison(exists=False)
    assert flows.deploy(conn, "shop", shape).is_new
    assert not flows.deploy(conn, "shop", shape).is_new
    assert flows.compare(conn, "shop", shape) == flows.Comparison(
        exists=True, flow_slug="shop", current="shop"
    )


@covers("promise 3")
def test_a_job_is_one_in_the_database_and_follows_the_code(conn):
    @job("mail")
    def send(run): ...

    kind = "select flow_type from pgflow.flows where flow_slug = 'mail'"
    flows.deploy(conn, "mail", send.flow.shape())
    flows.deploy(conn, "shop", flow().shape())
    assert conn.execute(kind).fetchone() == ("job",)
    assert conn.execute(kind.replace("mail", "shop")).fetchone() == ("flow",)
    conn.execute("update pgflow.flows set flow_type = 'flow'")  # as older releases left it

    assert define(conn, Code("mail", send.flow.shape()), "create").warnings == []

    assert conn.execute(kind).fetchone() == ("job",)


def test_options_tuned_in_the_database_are_reported_to_operators_and_workers(conn):
    shape = flow(timeout=30).shape()
    flows.deploy(conn, "shop", shape)
    conn.execute("update pgflow.flows set opt_timeout = 99")
    conn.execute("update pgflow.steps set opt_timeout = null where step_slug = 'first'")

    compared = flows.compare(conn, "shop", shape)
    warnings = define(conn, Code("shop", shape), "create").warnings

    assert compared.shape == []
    assert compared.options == [
        "timeout is 30 in the code, 99 in the database; the latter applies",
        "step first: timeout is 20 in the code, unset in the database; the latter applies",
    ]
    assert [(one.code, one.text) for one in warnings] == [
        ("W310", f"shop: {text}") for text in compared.options
    ]


@covers("database 11")
def test_a_worker_of_a_known_flow_waits_for_no_lock_that_anybody_may_hold(conn, database):
    flows.deploy(conn, "shop", flow().shape())
    stranger = database.connect(autocommit=False)
    stranger.execute("select pg_advisory_xact_lock(1, hashtext('shop'))")
    conn.execute("set lock_timeout = '2s'")

    assert define(conn, Code("shop", flow().shape()), "create") == ([], [])


@covers("newcomer 20")
def test_another_shape_is_refused_and_nothing_changes(conn):
    flows.deploy(conn, "shop", flow().shape())
    other = flow()

    @other.step
    def third(second): ...

    with pytest.raises(DatabaseError, match=r"E306 shop: .*: \+ step third, after second"):
        flows.deploy(conn, "shop", other.shape())

    assert flows.compare(conn, "shop", other.shape()).shape == ["+ step third, after second"]


def test_a_script_survives_every_quote(conn):
    made = Flow("shop")

    @made.step(if_={"it's": "$pgflowd$ \\ '"})
    def first(run): ...

    script = flows.script("shop", made.shape(), "shop.py:1")

    conn.execute(script.encode())
    assert flows.compare(conn, "shop", made.shape()) == flows.Comparison(
        exists=True, flow_slug="shop", current="shop"
    )


def test_nothing_in_the_name_of_a_file_is_run_as_sql(conn):
    made = Flow("shop")

    @made.step
    def first(run): ...

    script = flows.script("shop", made.shape(), "shop\nselect 1 / 0; --.py:1")

    conn.execute(script.encode())
    assert flows.compare(conn, "shop", made.shape()).exists


def test_schedules_follow_the_code_where_they_may_be_written(conn):
    made = Flow("ticking", cron="@daily")
    made.step(slug="a")(lambda run: run)
    assert define(conn, Code("ticking", made.shape()), "create").warnings == []
    conn.execute("update pgflowd.schedules set cron = '@hourly'")

    (warning,) = define(conn, Code("ticking", made.shape()), "verify").warnings
    assert warning.code == "W310" and "cron is '@daily' in the code" in warning.text
    assert [each.cron for each in execute(conn, list_schedules())] == ["@hourly"]
    assert define(conn, Code("ticking", made.shape()), "create").warnings == []
    assert [each.cron for each in execute(conn, list_schedules())] == ["@daily"]

    conn.execute("select pgflowd.remove_schedule('ticking')")
    conn.execute("select pgflowd.set_schedule('ticking', 'ticking', '@weekly')")
    (taken,) = define(conn, Code("ticking", made.shape()), "create").warnings
    assert taken.code == "E224" and "an operator has one of this name" in taken.text
    assert [each.cron for each in execute(conn, list_schedules())] == ["@weekly"]
