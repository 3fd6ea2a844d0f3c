"""
What a role without any grant can hold stops nothing: decisions are taken under rows, not under
advisory locks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from sql.leases.test_step_limits import define, limited
from support.covers import covers
from support.leases import LeaseDatabase

from pgflowd.testing.until import until

KEYS = "select kind, name from pgflowd.locks order by 1, 2"
START = """
    select run_id, status from pgflowd.start(%s, '{}', singleton_key => %s, on_conflict => %s)
"""
CALLS = """
    select pg_stat_get_xact_function_calls('pgflowd._add_lock(text, text)'::regprocedure)
"""


@pytest.fixture
def held(own: LeaseDatabase) -> Iterator[LeaseDatabase]:
    """A session of a stranger holds all advisory locks that ever decided something."""
    define(own, "flow_held", limit={"slots": 1})
    own.value("select pgflowd.set_schedule('nightly', 'flow_held', '* * * * *', overlap => 'wait')")
    stranger = own.connect()
    stranger.execute("begin; create role a_stranger_with_locks; set role a_stranger_with_locks")
    for kind, name in (
        (1, "flow_held"),
        (1, "flow_new"),
        (2, "k"),
        (2, "schedule nightly"),
        (3, "flow_held/a"),
    ):
        stranger.execute("select pg_advisory_lock(%s, hashtext(%s))", (kind, name))
    stranger.execute("select pg_advisory_lock(4, 0)")
    stranger.execute("select pg_advisory_lock(4, 1)")
    own.do("set lock_timeout = '2s'")
    yield own
    stranger.close()


@covers("attack 4")
def test_starts_with_a_singleton_key_go_on(held: LeaseDatabase) -> None:
    first = held.row(START, "flow_held", "k", "reject")
    second = held.row(START, "flow_held", "k", "wait")
    assert (first.status, second.status) == ("started", "blocked")
    assert held.row(START, "flow_held", "k", "existing").run_id == first.run_id

    held.value("select pgflowd.cancel(%s, 'x', 'x')", first.run_id)
    held.rows("select * from pgflowd.process_due()")

    status = "select status from pgflowd.run_status where run_id = %s"
    assert held.value(status, second.run_id) == "started"


@covers("attack 4")
def test_schedules_tick(held: LeaseDatabase) -> None:
    ticked = held.value(
        "select pgflowd.tick(name, due_at, due_at + interval '1 h', array[due_at])"
        " from pgflowd.schedules"
    )
    assert ticked is True
    assert (
        held.value("select count(*) from pgflowd.runs where labels ->> 'schedule' = 'nightly'") == 1
    )


@covers("attack 4")
def test_tasks_with_a_limit_begin_and_their_places_are_passed_on(held: LeaseDatabase) -> None:
    for _ in range(3):
        held.start("flow_held")
    worker = held.worker("flow_held")
    for _ in range(3):
        (task,) = held.claim("flow_held", worker)
        held.complete(task)
    assert held.value("select count(*) from pgflow.runs where status = 'completed'") == 3


@covers("attack 4")
def test_flows_are_defined_tuned_and_paused(held: LeaseDatabase) -> None:
    define(held, "flow_new")
    held.value("select pgflowd.set_option('flow_held', 'a', 'limit', '2')")
    assert held.value("select pgflowd.pause_flow('flow_held')") == "paused"
    shape = json.dumps({"steps": [], "options": {}})
    held.value("select pgflow.ensure_flow_compiled('flow_new', %s::jsonb, true)", shape)


def test_runs_are_pruned_and_what_is_due_is_not_late(held: LeaseDatabase) -> None:
    assert held.value("select pruned from pgflowd.prune_expired(10)") == 0
    held.do("select pgflowd.start('flow_held', '{}', start_at => now() + interval '1 ms');")
    assert held.value("select done from pgflowd.process_due()") is not None


def test_a_name_is_decided_by_one_transaction_at_a_time(own: LeaseDatabase) -> None:
    """Whether its row is there, has just been made, or is being pruned."""
    other, third = own.connect(), own.connect()
    hold = "select pgflowd._lock_name('limit', 'x', false)"
    with other.transaction():
        assert other.execute(hold).fetchone() == (True,)  # makes it
        assert other.execute(hold).fetchone() == (True,), "one's own"
        assert own.value(hold) is False
    with other.transaction():
        assert other.execute(hold).fetchone() == (True,)  # locks it
        assert own.value(hold) is False
        with third.transaction():
            third.execute("select pgflowd._prune_locks(10)")  # passes over it
        assert own.value(hold) is False
    with third.transaction():
        third.execute("select pgflowd._prune_locks(10)")
        assert own.value(hold) is False
    assert own.rows(KEYS) == []
    assert own.value(hold) is True
    other.execute("begin; select pgflowd._lock_name('limit', 'y', false); rollback")
    assert own.value("select pgflowd._lock_name('limit', 'y', true)") is True


def test_names_that_nobody_has_locked_are_pruned_but_for_those_of_flows(own: LeaseDatabase) -> None:
    flow = limited(own)
    own.rows(START, flow, "k", "wait")
    own.claim(flow, own.worker(flow))
    own.rows("select * from pgflowd.process_due()")
    assert {row.kind for row in own.rows(KEYS)} >= {"flow", "limit", "singleton"}

    own.value("select pruned from pgflowd.prune_expired(10)")

    assert [tuple(row) for row in own.rows(KEYS) if row.kind != "work"] == [("flow", flow)]
    own.value("select pgflowd.delete_flow(%s)", flow)
    own.value("select pruned from pgflowd.prune_expired(10)")
    assert [row.name for row in own.rows(KEYS) if row.kind != "work"] == []


def test_a_flow_without_keys_and_limits_locks_no_name_but_that_of_its_definition(
    own: LeaseDatabase,
) -> None:
    flow = own.flow()
    own.do("delete from pgflowd.locks")
    own.start(flow)
    for task in own.claim(flow, own.worker(flow)):
        own.complete(task)

    assert own.rows(KEYS) == []


@covers("attack 20")
def test_of_a_locked_flow_no_key_is_locked(own: LeaseDatabase) -> None:
    """20,000 due runs with keys were as many locks, in memory, at each look."""
    flow, other = own.flow(), own.connect()
    for nr in range(5):
        own.rows(START, flow, f"k {nr}", "wait")
    own.do("update pgflowd.runs set due_at = now(); delete from pgflowd.locks")
    with other.transaction():
        other.execute("select from pgflow.flows for no key update")

        own.rows("select * from pgflowd.process_due()")

    assert own.value("select count(*) from pgflowd.locks where kind = 'singleton'") == 0


def test_a_key_that_is_locked_is_asked_for_once(own: LeaseDatabase) -> None:
    """Of each run in its line it was: two milliseconds each, where its row had just been made."""
    flow, other = own.flow(), own.connect()
    with other.transaction():
        other.execute(START.encode(), (flow, "k", "wait"))
        for _ in range(20):
            assert own.row(START, flow, "k", "wait").status == "blocked"
        own.do("select pgflowd.start(%s, '{}', start_at => now() + interval '1 ms')", flow)
        until(lambda: own.value("select max(due_at) < now() from pgflowd.runs"))
        own.do("set track_functions = 'all'")
        with own.conn.transaction():
            assert own.value("select count(*) from pgflowd._due_runs(10)") == 1
            assert own.value(CALLS) == 1
    own.rows("select * from pgflowd.process_due()")
    holders = "select count(*) from pgflowd.runs where holds_key"
    assert own.value(holders) == 1
