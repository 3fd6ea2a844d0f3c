"""A changed shape is a version: a flow of its own, to which starts by name go."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import psycopg
import pytest
from support.rows_read import rows_read

from pgflowd import Flow, Limit
from pgflowd.core.definition.schedule import schedules_json
from pgflowd.core.definition.shape import Code, facts_of
from pgflowd.db import flows
from pgflowd.db.definitions import define, set_option, unserved_versions, version_to_serve
from pgflowd.db.query import execute
from pgflowd.errors import DatabaseError
from pgflowd.testing.until import until


def shape(*steps: str, **options: object) -> dict:
    made = Flow("orders")
    for step in steps:
        slug, _, deps = step.partition(":")
        made.step(slug=slug, after=deps.split(",") if deps else (), **options)(lambda: 1)
    return made.shape()


FIRST, SECOND, THIRD = shape("a"), shape("a", "b:a"), shape("b")


@pytest.fixture
def conn(database):
    return database.connect()


@pytest.fixture
def orders(conn):
    """Deploy a shape of flow orders, as `flows deploy --yes`."""

    def deploy(shape: dict, **given: object) -> str:
        return flows.deploy(conn, "orders", shape, may_change=True, **given).flow_slug

    return deploy


def versions(conn) -> list[tuple]:
    query = "select version, flow_slug, is_current from pgflowd.versions order by version"
    return [tuple(row) for row in conn.execute(query).fetchall()]


def test_a_flow_whose_shape_has_not_changed_has_no_version(conn, orders):
    assert [orders(FIRST), orders(FIRST)] == ["orders", "orders"]
    assert versions(conn) == []


def test_a_changed_shape_is_the_next_version_and_an_old_one_becomes_current_again(conn, orders):
    orders(FIRST)
    conn.execute("create table kept as select pgflow.start_flow('orders', '{}')")

    assert [orders(SECOND), orders(SECOND), orders(THIRD)] == ["orders_2", "orders_2", "orders_3"]
    assert versions(conn) == [
        (1, "orders", False), (2, "orders_2", False), (3, "orders_3", True),
    ]  # fmt: skip
    assert orders(FIRST) == "orders"
    assert [row[2] for row in versions(conn)] == [True, False, False]
    assert conn.execute("select count(*) from pgflow.runs").fetchone() == (1,)


def test_starts_by_name_go_to_the_current_version_and_the_contract_starts_the_first(
    conn, orders, database
):
    orders(FIRST)
    planned = conn.execute(
        "select run_id from pgflowd.start('orders', '1', start_at => now() + interval '1 hour')"
    ).fetchone()[0]
    orders(SECOND)

    def flow_of(run: UUID) -> str:
        query = "select flow_slug from pgflowd.run_status where run_id = %s"
        return conn.execute(query, (run,)).fetchone()[0]

    client = database.client
    in_sql = conn.execute("select run_id from pgflowd.start('orders', '1')").fetchone()[0]
    by_contract = conn.execute("select (pgflow.start_flow('orders', '1')).run_id").fetchone()[0]
    assert flow_of(planned) == "orders"
    assert flow_of(in_sql) == "orders_2"
    assert flow_of(by_contract) == "orders"
    assert client.start_flow("orders", 1).flow_slug == "orders_2"
    assert client.start_flow("orders_2", 1).flow_slug == "orders_2"
    assert client.start_flow("orders", 1, labels={"a": "b"}).flow_slug == "orders_2"
    assert {run.flow_slug for run in client.start_flows("orders", [1, 2])} == {"orders_2"}
    assert len(conn.execute("select from pgflowd.list_runs('orders')").fetchall()) == 8
    assert len(conn.execute("select from pgflowd.list_runs('orders_2')").fetchall()) == 6


def test_a_key_means_the_same_run_in_every_version(conn, orders, database):
    orders(FIRST)
    run = database.client.start_flow("orders", 1, key="7")
    orders(SECOND)

    again = [database.client.start_flow(name, 1, key="7") for name in ("orders", "orders_2")]

    assert [each.run_id for each in again] == [run.run_id, run.run_id]


def test_a_rollback_makes_the_version_before_current(conn, orders):
    for each in (FIRST, SECOND, THIRD):
        orders(each)

    def roll_back() -> str:
        return conn.execute("select pgflowd.rollback_version('orders')").fetchone()[0]

    assert [roll_back(), roll_back()] == ["orders_2", "orders"]
    with pytest.raises(psycopg.Error, match="no version before the current one"):
        roll_back()
    assert orders(THIRD) == "orders_3"


def test_pruning_takes_old_versions_without_runs_and_leaves_the_first(conn, orders):
    for each in (FIRST, SECOND, THIRD, shape("c")):
        orders(each)
    conn.execute("select pgflow.start_flow('orders_2', '1')")

    pruned = conn.execute("select pgflowd.prune_versions('orders')").fetchone()[0]

    assert pruned == ["orders_3"]
    assert [row[0] for row in versions(conn)] == [1, 2, 4]
    assert orders(shape("d")) == "orders_5"


def test_no_version_is_pruned_with_a_run_that_is_being_planned(conn, orders, database):
    orders(FIRST)
    orders(SECOND)
    starter, pruner = database.connect(autocommit=False), database.connect()
    starter.execute("select pgflowd.start('orders', '1', start_at => now() + interval '1 day')")
    orders(FIRST)
    waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
    with ThreadPoolExecutor(1) as thread:
        pruning = thread.submit(pruner.execute, "select pgflowd.prune_versions('orders')")
        until(lambda: conn.execute(waits, (pruner.info.backend_pid,)).fetchone() == (True,))
        starter.commit()

        assert pruning.result().fetchone() == ([],)
    assert conn.execute("select flow_slug from pgflowd.runs").fetchall() == [("orders_2",)]


def undoable(*steps: str, undos: str) -> Flow:
    """A flow of such steps, `a*:b` a map over b, some of which have an undo."""
    flow = Flow("orders")
    for step in steps:
        slug, _, deps = step.partition(":")
        if slug.endswith("*"):
            flow.map(slug=slug[:-1], over=deps)(lambda item: item)
        else:
            flow.step(slug=slug, after=deps.split(",") if deps else ())(lambda: 1)
    for slug in undos:
        flow.undo(slug)(lambda ctx: None)
    return flow


def test_each_version_is_undone_by_the_flow_that_is_in_its_order(conn):
    def deploy(flow: Flow | None) -> None:
        assert flow is not None
        flows.deploy(conn, flow.slug, flow.shape(), may_change=True)

    def undone_by() -> list[str | None]:
        query = "select pgflowd._undo_flow(flow_slug) from pgflowd.versions where name = 'orders'"
        return [row[0] for row in conn.execute(f"{query} order by version").fetchall()]

    first = undoable("a", "b:a", "c:b", undos="ac")
    turned = undoable("c", "b:c", "a:b", undos="ac")
    mapped = undoable("b", "c*:b", "a:c", undos="ac")
    beside = undoable("a", "b", "c", undos="ac")

    for flow in (first, first.undo_flow, turned):
        deploy(flow)
    assert undone_by() == ["undo_orders", None]
    for flow in (turned.undo_flow, mapped, mapped.undo_flow):
        deploy(flow)
    assert undone_by() == ["undo_orders", "undo_orders_2", "undo_orders_3"]
    deploy(beside)  # any order is good for it
    assert undone_by()[-1] == "undo_orders_2"
    deploy(beside.undo_flow)
    assert undone_by() == ["undo_orders", "undo_orders_2", "undo_orders_3", "undo_orders_4"]

    pruned = [
        conn.execute("select pgflowd.prune_versions(%s)", (name,)).fetchone()[0]
        for name in ("undo_orders", "orders", "undo_orders")
    ]
    assert pruned == [[], ["orders_2", "orders_3"], ["undo_orders_2", "undo_orders_3"]]


def test_a_schedule_starts_the_current_version_and_each_tick_once(conn, orders):
    def tick() -> tuple:
        query = "select pgflowd.tick(name, due_at, due_at, %s) from pgflowd.schedules"
        conn.execute(query, (["2026-01-01T03:00Z"],))
        query = "select count(*), min(flow_slug) from pgflow.runs"
        return conn.execute(query).fetchone()

    def schedules() -> list[tuple]:
        return conn.execute("select name, flow_slug, cron from pgflowd.schedules").fetchall()

    daily, hourly = ({"schedules": schedules_json("orders", {"cron": cron})}
                     for cron in ("@daily", "@hourly"))  # fmt: skip
    orders(FIRST | daily)
    orders(SECOND | hourly)
    assert schedules() == [("orders", "orders", "@hourly")]
    assert tick() == (1, "orders_2")

    orders(THIRD | hourly)
    assert tick() == (1, "orders_2")
    conn.execute("select pgflowd.rollback_version('orders')")
    define(conn, Code("orders", THIRD | daily), "create")  # a worker whose code is not current
    assert schedules() == [("orders", "orders", "@hourly")]
    define(conn, Code("orders", SECOND | daily), "create")
    assert schedules() == [("orders", "orders", "@daily")]


def test_w322_an_old_version_that_may_undo_open_runs_needs_its_handlers(conn):
    old, new = undoable("a", "c:a", undos="ac"), undoable("c", undos="c")
    for flow in (old, old.undo_flow, new, new.undo_flow):
        flows.deploy(conn, flow.slug, flow.shape(), may_change=True)
    assert unserved_versions(conn, code(new.undo_flow)) == []

    conn.execute("select pgflow.start_flow('orders', '1')")

    (problem,) = unserved_versions(conn, code(new.undo_flow))
    assert problem.text == (
        "undo_orders: step undo_a of version 1 with 1 open run has no handler any more"
    )
    without = undoable("c", undos="")
    without.retired(since=2, slug="a")(lambda: 1)
    (problem,) = unserved_versions(conn, code(without))
    assert problem.text == (
        "orders: version 1 with 1 open run has undos, and the code has none any more"
    )
    new.retired(since=2, slug="a")(lambda: 1)
    assert unserved_versions(conn, code(new)) == []
    new.undo("a")(lambda a: None)
    assert unserved_versions(conn, code(new.undo_flow)) == []


def test_a_number_that_another_flow_has_is_passed_over(conn, orders):
    orders(FIRST)
    conn.execute("select pgflow.create_flow('Orders_2')")

    assert orders(SECOND) == "orders_3"
    assert [row[0] for row in versions(conn)] == [1, 3]


def test_a_name_that_is_too_long_for_versions_is_refused_and_nothing_changes(conn):
    name = "o" * 46
    flows.deploy(conn, name, FIRST)

    with pytest.raises(DatabaseError, match=r"E306 .* more than 47 characters"):
        flows.deploy(conn, name, SECOND, may_change=True)

    assert versions(conn) == []


def test_what_was_tuned_and_a_pause_go_on_in_the_next_version(conn, orders):
    orders(FIRST)
    conn.execute("select pgflowd.set_option('orders', 'a', 'timeout', '7')")
    conn.execute("select pgflowd.pause_flow('orders')")

    orders(SECOND)

    compared = flows.compare(conn, "orders", SECOND)
    assert [(each.step, each.database, each.is_tuned) for each in compared.values] == [
        ("a", 7, True)
    ]
    assert conn.execute("select count(*) from pgflowd.paused_flows").fetchone() == (2,)
    conn.execute("select pgflowd.resume_flow('orders')")
    conn.execute("select pgflowd.set_option('orders', 'a', 'timeout', '9')")
    assert conn.execute("select count(*) from pgflowd.paused_flows").fetchone() == (0,)
    timeouts = "select opt_timeout from pgflow.steps where step_slug = 'a'"
    assert conn.execute(timeouts).fetchall() == [(9,), (9,)]


def test_two_deployers_make_one_version(conn, orders, database):
    orders(FIRST)
    first, second = database.connect(autocommit=False), database.connect()
    first.execute("select pgflowd.deploy_version('orders', %s::jsonb)", (json.dumps(SECOND),))
    second.execute("set lock_timeout = '100ms'")

    with pytest.raises(psycopg.errors.LockNotAvailable):
        flows.deploy(second, "orders", SECOND, may_change=True)
    first.commit()

    assert flows.deploy(second, "orders", SECOND, may_change=True).flow_slug == "orders_2"
    assert len(versions(conn)) == 2


def code(flow: Flow) -> Code:
    return Code(flow.slug, flow.shape(), facts_of(flow.spec))


def changed() -> tuple[Flow, Flow]:
    old, new = Flow("orders"), Flow("orders")
    for flow in (old, new):
        flow.step(slug="validate")(lambda run: 1)
    old.step(slug="fraud")(lambda validate: 1)
    old.step(slug="charge")(lambda validate, fraud: 1)
    new.step(slug="charge")(lambda validate: 1)
    return old, new


def test_the_code_serves_old_versions_with_retired_handlers_only(conn, orders):
    old, new = changed()
    orders(old.shape())
    conn.execute("select pgflow.start_flow('orders', '1')")

    (problem,) = unserved_versions(conn, code(new))
    with pytest.raises(DatabaseError, match="W322 orders: step fraud of version 1 with 1 open run"):
        define(conn, code(new), "version")
    new.retired(since=2, slug="fraud")(lambda validate: 1)

    assert problem.code == "W322"
    assert "step fraud of version 1 with 1 open run has no handler any more" in problem.text
    assert unserved_versions(conn, code(new)) == []
    with pytest.raises(DatabaseError, match="E306"):
        define(conn, code(new), "create")
    define(conn, code(new), "version")
    assert version_to_serve(conn, code(new), "orders") == (flows_shape(conn, "orders"), 1)
    assert version_to_serve(conn, code(new), "orders_2") is None
    with pytest.raises(DatabaseError, match=r"W322 orders_2: .* parameter 'fraud'"):
        version_to_serve(conn, code(old), "orders_2")


def flows_shape(conn, slug: str) -> dict:
    return conn.execute("select pgflowd.flow_shape(%s)", (slug,)).fetchone()[0]


def test_what_is_served_is_the_current_version_and_those_with_open_runs(conn, orders):
    served = "select * from pgflowd.served_versions()"
    for each in (FIRST, SECOND, THIRD):
        orders(each)

    assert conn.execute(served).fetchall() == [("orders", ["orders_3"], [None])]
    for _ in range(2):
        conn.execute("select pgflow.start_flow('orders', '1')")
    conn.execute("select pgflowd.start('orders', '1', start_at => now() + interval '1 day')")
    conn.execute("select pgflowd.start('orders_2', '1', start_at => now() + interval '1 day')")
    assert conn.execute(served).fetchall() == [
        ("orders", ["orders", "orders_2", "orders_3"], [2, 1, None]),
    ]  # fmt: skip


def test_the_list_of_flows_has_the_current_version_and_counts_the_old_ones(conn, orders):
    orders(FIRST)
    conn.execute("select pgflow.start_flow('orders', '1')")
    orders(SECOND)
    listed = "select name, flow_slug, version, old_versions, old_runs from pgflowd.list_flows(%s)"

    assert conn.execute(listed, (False,)).fetchall() == [("orders", "orders_2", 2, 1, 1)]
    assert conn.execute(listed, (True,)).fetchall() == [
        ("orders", "orders_2", 2, 1, 1), (None, "orders", 1, 0, 0),
    ]  # fmt: skip
    conn.execute("select pgflowd.delete_flow('orders')")
    assert versions(conn) == []


def test_a_hundred_versions_cost_a_start_and_a_claim_what_one_costs(conn, orders):
    orders(FIRST)
    conn.execute("analyze")
    start = "select run_id from pgflowd.start('orders', '1')"
    listed = "select * from pgflowd.list_flows()"

    def rows(query: str) -> int:
        with conn.transaction(force_rollback=True):
            conn.execute(query.encode())
            return rows_read(conn, query)

    def claimed(slug: str) -> int:
        worker = uuid4()
        conn.execute("insert into pgflow.workers values (%s, %s, 'test')", (worker, slug))
        return rows(f"select * from pgflowd.claim('{slug}', '{worker}', 1)")

    one, claim_of_one = rows(start), claimed("orders")
    orders(SECOND)
    two, list_of_two = rows(start), rows(listed)
    for number in range(98):
        orders(shape(f"s{number}"))
    # while a test in another database is in a transaction, no scan learns what is dead for all
    conn.execute("vacuum pgflowd.versions")

    assert two - one <= 12
    assert rows(start) <= two + 4
    assert claimed("orders_100") <= claim_of_one
    assert rows(listed) <= list_of_two + 3 * 99  # the rows of the versions, and no others
    assert len(conn.execute(listed).fetchall()) == 1


def test_versions_share_the_limits_of_their_steps(conn, orders):
    two = Limit(2)
    orders(shape("a", limit=two))
    orders(shape("a", "b:a", limit=two))
    names = "select step_slug, limit_name from pgflowd.step_options order by 1, flow_slug"

    assert conn.execute(names).fetchall() == [
        ("a", "orders/a"), ("a", "orders/a"), ("b", "orders/b"),
    ]  # fmt: skip
    assert flows.compare(conn, "orders", shape("a", "b:a", limit=two)).options == []


def test_who_has_tuned_all_versions_is_told_of_each(conn, orders):
    orders(FIRST)
    orders(SECOND)
    with conn.transaction():
        execute(conn, set_option("orders", "a", "timeout", 7))

    for each in (FIRST, SECOND):
        (tuned,) = flows.compare(conn, "orders", each).values
        assert (tuned.tuned_by, tuned.database) == ("postgres", 7)


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ("pause_flow('orders')", "select count(*) = 2 from pgflowd.paused_flows"),
        ("set_option('orders', 'a', 'timeout', '7')",
         "select count(*) = 2 from pgflow.steps where opt_timeout = 7"),
        ("delete_flow('orders')", "select count(*) = 0 from pgflow.flows"),
    ],
)  # fmt: skip
def test_what_is_asked_of_a_name_during_a_deployment_counts_for_the_new_version(
    conn, orders, database, asked, left
):
    orders(FIRST)
    first, second = database.connect(autocommit=False), database.connect()
    first.execute("select pgflowd.deploy_version('orders', %s::jsonb)", (json.dumps(SECOND),))
    waiting = "select count(*) from pg_locks where locktype = 'transactionid' and not granted"
    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(second.execute, f"select pgflowd.{asked}")
        until(lambda: conn.execute(waiting).fetchone() == (1,))
        first.commit()
        asking.result()

    assert conn.execute(left).fetchone() == (True,)


def test_the_slug_of_a_version_is_no_other_flow(conn, orders):
    for each in (FIRST, SECOND):
        orders(each)
    other = Flow("orders_2")
    other.step(slug="a")(lambda: 1)

    for mode in ("create", "recreate", "version", "verify"):
        with pytest.raises(DatabaseError, match="E306 orders_2 is a version of flow orders"):
            define(conn, code(other), mode)
    with pytest.raises(psycopg.Error, match="orders_2 is a version of flow orders"):
        conn.execute("select pgflowd.deploy_version('orders_2', %s)", (json.dumps(FIRST),))


def test_to_recreate_a_flow_is_to_have_one_version_or_to_go_back_to_one(conn, orders):
    for each in (FIRST, SECOND):
        orders(each)
    run = conn.execute("select (pgflow.start_flow('orders', '1')).run_id").fetchone()[0]

    def served() -> str:
        return conn.execute("select pgflowd.current_flow('orders')").fetchone()[0]

    define(conn, Code("orders", FIRST), "recreate")
    assert served() == "orders"
    assert conn.execute("select run_id from pgflow.runs").fetchall() == [(run,)]
    define(conn, Code("orders", THIRD), "recreate")
    assert (served(), versions(conn)) == ("orders", [])
    assert conn.execute("select count(*) from pgflow.runs").fetchone() == (0,)


def test_a_version_whose_undos_would_have_too_long_a_slug_is_refused(conn):
    name = "o" * 42

    def flow(slug: str) -> dict:
        made = Flow(name)
        made.step(slug=slug)(lambda: 1)
        made.undo(slug)(lambda: 1)
        return made.shape()

    flows.deploy(conn, name, flow("a"))
    with pytest.raises(DatabaseError, match=r"E306 .* more than 42 characters"):
        flows.deploy(conn, name, flow("b"), may_change=True)


def test_a_version_tells_which_options_the_code_has_changed_and_which_stay_tuned(conn, orders):
    orders(shape("a", timeout=5, max_attempts=2))
    with conn.transaction():
        execute(conn, set_option("orders", "a", "timeout", 7))

    changed = shape("a", "b:a", timeout=6, max_attempts=4)
    deployed = flows.deploy(conn, "orders", changed, may_change=True)

    assert deployed.changes == ["step a: max_attempts 2 → 4"]
    assert [(one.code, one.text.split(" (by")[0]) for one in deployed.warnings] == [
        ("W310", "orders_2: step a: timeout is 6 in the code, 7 in the database")
    ]


def test_the_limits_of_a_name_are_those_of_all_versions(conn, orders):
    for steps in (("a",), ("a", "b:a")):
        orders(shape(*steps, limit=Limit(2)))
    limits = "select limit_key, steps, slots from pgflowd.list_limits('orders')"

    assert conn.execute(limits).fetchall() == [("orders/a", ["a"], 2), ("orders/b", ["b"], 2)]
