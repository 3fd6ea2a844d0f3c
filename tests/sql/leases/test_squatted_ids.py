"""
Ids and keys that anybody can compute: of children, of ticks, of undos, of runs with a key.

Nobody can be given one of another's, and a run that has one all the same is not believed.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg
import pytest
from support.child_runs import begun, child_of, start_child
from support.covers import covers
from support.leases import LeaseDatabase
from support.undo import UndoWorld, steps_of

from pgflowd.testing.until import until

TICK = "schedule nightly 1772355600.000000"
AT = "to_timestamp(1772355600)"


def start(db: LeaseDatabase, flow: str, **wishes: Any) -> Any:
    names = "".join(f", {name} => %s" for name in wishes)
    query = f"select run_id from pgflowd.start(%s, '{{}}'{names})"
    return db.value(query, flow, *wishes.values())


@covers("attack 3", "attack 17")
@pytest.mark.parametrize("has_wishes", [True, False])
def test_a_run_that_has_the_id_of_a_child_is_not_its_output(
    own: LeaseDatabase, has_wishes: bool
) -> None:
    task, flow, echo = begun(own, own.flow()), own.flow(), own.flow()
    squatted = child_of(task, flow)
    if has_wishes:
        start(own, echo, run_id=squatted, labels=json.dumps({"x": "y"}))
    else:
        own.value("select pgflow.start_flow_with_states(%s, '{}', %s)", echo, squatted)

    child = start_child(own, task, flow)

    query = "select flow_slug, parent_run_id from pgflowd.runs where run_id = %s"
    assert child != squatted and tuple(own.row(query, child)) == (flow, task.run_id)
    assert start_child(own, task, flow) == child
    own.do("delete from pgflowd.runs where run_id = %s", squatted)
    own.do("delete from pgflow.step_tasks where run_id = %s", squatted)
    own.do("delete from pgflow.step_states where run_id = %s", squatted)
    own.do("delete from pgflow.runs where run_id = %s", squatted)
    assert start_child(own, task, flow) == child
    listed = "select run_id from pgflowd.list_children(%s, 'a', 0) where child_id = %s"
    assert own.column(listed, task.run_id, squatted) == [child]


def test_a_run_that_has_the_key_and_the_id_of_a_child_gets_no_parent(own: LeaseDatabase) -> None:
    task, flow = begun(own, own.flow()), own.flow()
    squatted = child_of(task, flow)
    start(own, flow, run_id=squatted, singleton_key="k")

    assert start_child(own, task, flow, singleton="k", on_conflict="existing") == squatted

    query = "select parent_run_id from pgflowd.runs where run_id = %s"
    assert own.column(query, squatted) == [None]


@covers("attack 3")
@pytest.mark.parametrize(
    "wishes", [{"key": TICK}, {"singleton_key": "schedule nightly"}], ids=["key", "singleton"]
)
def test_a_key_of_a_schedule_is_given_to_nobody(own: LeaseDatabase, wishes: Any) -> None:
    with pytest.raises(psycopg.Error, match="belong to schedules") as caught:
        start(own, own.flow(), **wishes)

    assert caught.value.diag.sqlstate == "PF009"


def test_an_id_that_is_made_of_a_key_is_given_to_nobody(own: LeaseDatabase) -> None:
    flow = own.flow()
    taken = own.value("select pgflowd._run_id_of_key(%s, 'invoice 7')", flow)

    for query in (
        "select pgflowd.start(%s, '{}', run_id => %s)",
        "select pgflow.start_flow_with_states(%s, '{}', %s)",
    ):
        with pytest.raises(psycopg.Error, match=f"cannot be given the id {taken}") as caught:
            own.value(query, flow, taken)
        assert caught.value.diag.sqlstate == "PF009"

    assert start(own, flow, key="invoice 7") == taken
    assert start(own, flow, run_id=uuid.uuid5(uuid.NAMESPACE_URL, "invoice/8"))


@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_a_schedule_tells_that_its_key_is_taken(own: LeaseDatabase, overlap: str) -> None:
    flow = own.flow()
    own.value("select pgflowd.set_schedule('nightly', %s, '@daily', overlap => %s)", flow, overlap)
    wish = "key" if overlap == "allow" else "singleton_key"
    value = TICK if overlap == "allow" else "schedule nightly"  # as an older release let it be
    squatted = own.value(
        f"select run_id from pgflowd._start(%s, '{{}}', {wish} => %s)", flow, value
    )
    own.do(f"update pgflowd.schedules set due_at = {AT}, ticks_from = {AT}")

    own.value(f"select pgflowd.tick('nightly', {AT}, 'infinity', array[{AT}])")

    error = own.value("select error from pgflowd.schedules")
    assert f"run {squatted} has a key of schedule 'nightly', and is no run of it" in error


@covers("attack 3")
def test_an_undo_takes_the_next_id_where_its_own_is_taken(own: LeaseDatabase) -> None:
    world = UndoWorld(own, steps_of("a", "b:a"))
    run = world.failed_run("b")
    squatted = own.value("select pgflowd._undo_run_id(%s, 1)", run)
    plan = {"run_id": str(run), "generation": 1, "plan": {"a": [0]}}
    own.value("select pgflow.start_flow(%s, %s, %s)", world.undo_flow, json.dumps(plan), squatted)
    while tasks := world.undo_tasks():
        for task in tasks:
            own.complete(task, "forged")

    world.finish()

    assert world.status(run) == "undone"
    assert world.undone == [("a", 0)]
    assert world.undo_run(run).run_id != squatted
    until(lambda: own.rows("select * from pgflowd.violations()") == [], within_s=5)
