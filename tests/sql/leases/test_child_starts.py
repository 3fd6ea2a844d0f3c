"""Child runs are started once, cancelled with their parent, shown and pruned as families."""

from __future__ import annotations

import threading
from contextlib import suppress
from uuid import UUID

import psycopg
import pytest
from sql.leases.test_waits_for_runs import wait_for
from support.child_runs import begun, child_of, family, process, start_child, statuses
from support.covers import covers
from support.database import Row
from support.leases import LeaseDatabase

from pgflowd.db.query import execute
from pgflowd.db.waits import undecided_tasks
from pgflowd.testing.until import until

PARENTS = """
    select parent_run_id, parent_step, parent_index from pgflowd.runs where run_id = any (%s)
"""


def test_a_child_is_started_once_and_names_its_parent(own: LeaseDatabase) -> None:
    db, flow = own, own.flow()
    task = begun(db, db.flow())

    child = start_child(db, task, flow)
    assert start_child(db, task, flow) == child == child_of(task, flow)
    other = start_child(db, task, flow, "nr 2", delay_s=60, expires_s=90.5, labels={"a": "b"})

    assert db.rows(PARENTS, [child, other]) == 2 * [(task.run_id, "a", 0)]
    assert statuses(db, [child, other]) == ["started", "scheduled"]
    listed = "select run_id from pgflowd.list_children(%s, %s, %s)"
    assert set(db.column(listed, task.run_id, "a", 0)) == {child, other}
    known = db.value("select pgflowd.get_run(%s) -> 'run'", other)
    assert (known["parent_run_id"], known["labels"]) == (str(task.run_id), {"a": "b"})


def test_only_who_holds_the_task_starts_children(own: LeaseDatabase) -> None:
    flow, task = own.flow(), begun(own, own.flow())
    other = own.connect()
    with other.transaction():
        other.execute("select from pgflow.step_tasks where run_id = %s for update", [task.run_id])
        assert start_child(own, task, flow) is None
    with pytest.raises(psycopg.Error, match="there is no flow nowhere") as error:
        start_child(own, task, "nowhere")
    assert error.value.sqlstate == "PF002"

    own.lapse(task)
    own.claim(task.flow_slug, own.worker(task.flow_slug))
    with pytest.raises(psycopg.Error, match="holds no live lease") as error:
        start_child(own, task, flow)
    assert error.value.sqlstate == "PF001"
    assert own.column("select run_id from pgflow.runs") == [task.run_id]


@pytest.mark.parametrize("end", ["cancel", "expire"])
def test_the_end_of_a_parent_reaches_its_children_and_theirs(own: LeaseDatabase, end) -> None:
    db = own
    task, children = family(db, 2, 2)
    late = start_child(db, task, db.flow(), delay_s=60)
    done = start_child(db, task, flow := db.flow())
    db.complete(db.claim_one(flow, db.worker(flow)))
    assert late and done

    if end == "cancel":
        db.cancel(task.run_id)
    else:
        db.do("select pgflowd.reschedule(%s, expires_at => now())", task.run_id)
    process(db)
    until(lambda: (process(db), statuses(db, children))[1] == ["cancelled"] * 6, within_s=10)

    assert statuses(db, [late, done]) == ["cancelled", "completed"]
    reason = "select cancel_reason from pgflowd.run_status where run_id = %s"
    ended = "was cancelled" if end == "cancel" else "has expired"
    assert db.value(reason, late) == f"parent run {task.run_id} {ended}"


def test_a_child_that_is_due_with_its_parent_passes_its_end_on(own: LeaseDatabase) -> None:
    task, children = family(own, 2, 2)
    own.cancel(task.run_id)
    own.do("update pgflowd.runs set due_at = now() where run_id = any (%s)", children)

    until(lambda: (process(own), statuses(own, children))[1] == ["cancelled"] * 6, within_s=10)


def test_a_failure_of_a_parent_does_not_reach_its_children(own: LeaseDatabase) -> None:
    task, children = family(own, 2)
    own.fail(task, "boom", retry=False)
    process(own)
    assert own.status(task.run_id) == "failed"
    assert statuses(own, children) == ["started"] * 2


def test_children_that_are_locked_are_cancelled_later(own: LeaseDatabase) -> None:
    task, children = family(own, 3)
    other = own.connect()
    with other.transaction():
        other.execute("select from pgflow.runs where run_id = %s for update", [children[1]])
        own.cancel(task.run_id)
        process_once = "select done from pgflowd.process_due()"
        own.value(process_once)
        assert statuses(own, children) == ["cancelled", "started", "cancelled"]
    until(lambda: own.value(process_once) is not None and own.status(children[1]) == "failed")


def test_no_child_is_left_behind_by_a_cancel_that_meets_its_start(own: LeaseDatabase) -> None:
    flow, parent = own.flow(), own.flow()
    for _ in range(12):
        task, over = begun(own, parent), threading.Event()

        def start(task=task, over=over) -> None:
            with (
                suppress(psycopg.errors.RaiseException, psycopg.DatabaseError),
                psycopg.connect(own.dsn, autocommit=True) as conn,
            ):
                for number in range(50):
                    start_child(own, task, flow, f"nr {number}", conn)
                    over.set()

        starter = threading.Thread(target=start)
        starter.start()
        over.wait(10)
        own.cancel(task.run_id)
        starter.join()
        children = own.column(
            "select run_id from pgflowd.runs where parent_run_id = %s", task.run_id
        )
        assert children

        def all_cancelled(children: list[UUID] = children) -> bool:
            own.value("select done from pgflowd.process_due()")
            return set(statuses(own, children)) == {"cancelled"}

        until(all_cancelled, within_s=10)


def test_a_family_is_shown_from_whichever_of_its_runs(own: LeaseDatabase) -> None:
    task, (child, *below) = family(own, 1, 2)
    query = "select run_id, parent_run_id, depth, status from pgflowd.run_family(%s)"
    for run in (task.run_id, child, *below):
        assert own.rows(query, run) == [
            (task.run_id, None, 0, "started"),
            (child, task.run_id, 1, "started"),
            (below[0], child, 2, "started"),
            (below[1], child, 2, "started"),
        ]
    assert len(own.rows("select * from pgflowd.run_family(%s, 2)", child)) == 2
    alone = own.start(own.flow())
    assert own.rows(query, alone) == [(alone, None, 0, "started")]


def test_pruning_takes_families_whole(own: LeaseDatabase) -> None:
    whole, torn = family(own, 2, 1), family(own, 2, 1)
    for task, _ in (whole, torn):
        own.cancel(task.run_id)
    until(lambda: own.value("select pgflowd.process_due()") and own.open_runs() == [], 10)
    planned = start_of_ended(own)
    own.do("""
        update pgflow.runs set started_at = now() - interval '9 days',
                               failed_at = now() - interval '8 days'
    """)
    young = torn[1][-1]
    own.do("update pgflow.runs set failed_at = now() where run_id = %s", young)
    prune = "select deleted_runs from pgflow.prune_data_older_than('7 days', %s)"

    flow = own.value("select flow_slug from pgflow.runs where run_id = %s", whole[0].run_id)
    assert own.value(prune, [flow]) == 0
    assert own.value(prune, None) == 6  # with the planned one

    left = set(own.column("select run_id from pgflow.runs"))
    assert left == {torn[0].run_id, *torn[1]}
    assert planned not in own.column("select run_id from pgflowd.runs")
    own.do("update pgflow.runs set failed_at = started_at")
    assert own.value(prune, None) == 5


def start_of_ended(db: LeaseDatabase) -> UUID:
    """A run without a family that never began, and ended long ago."""
    query = "select run_id from pgflowd.start(%s, '{}', start_at => now() + interval '1 day')"
    run: UUID = db.value(query, db.flow())
    db.cancel(run)
    process(db)
    db.do("update pgflowd.runs set cancelled_at = now() - interval '8 days' where run_id = %s", run)
    return run


def test_a_child_may_have_a_singleton_key(own: LeaseDatabase) -> None:
    flow, task, other = own.flow(), begun(own, own.flow()), own.connect()
    holder = own.value("select run_id from pgflowd.start(%s, '{}', singleton_key => 'k')", flow)
    wishes = {"singleton": "k", "on_conflict": "existing"}
    with other.transaction():
        other.execute("select pgflowd._lock_key('k', true)")
        assert start_child(own, task, flow, **wishes) is None
    with pytest.raises(psycopg.Error, match="has the singleton key 'k'") as error:
        start_child(own, task, flow, "nr 2", **wishes | {"on_conflict": "reject"})
    assert error.value.sqlstate == "PF006"

    assert start_child(own, task, flow, **wishes) == holder
    own.cancel(holder)
    process(own)
    assert start_child(own, task, flow, **wishes) == holder, "it may have been waited for"
    listed = "select child_id, run_id from pgflowd.list_children(%s, 'a', 0)"
    assert own.rows(listed, task.run_id) == [(child_of(task, flow), holder)]
    for name in ("nr 3", "nr 4"):
        start_child(own, task, flow, name, singleton="k", actor="me")
    children = [child_of(task, flow, name) for name in ("nr 3", "nr 4")]
    assert statuses(own, children) == ["started", "blocked"]


def test_a_child_without_a_key_cannot_say_what_happens_at_a_conflict(own: LeaseDatabase) -> None:
    flow, task = own.flow(), begun(own, own.flow())

    with pytest.raises(psycopg.Error, match="needs a singleton key") as error:
        start_child(own, task, flow, on_conflict="existing")

    assert error.value.sqlstate == "PF009"


def test_a_parent_is_not_returned_as_its_own_child(own: LeaseDatabase) -> None:
    flow, task = own.flow(), begun(own, own.flow())
    own.do(HOLD, task.run_id)

    with pytest.raises(psycopg.Error, match="has the singleton key 'k' itself") as error:
        start_child(own, task, flow, singleton="k", on_conflict="existing")

    assert error.value.sqlstate == "PF006"


HOLD = """
insert into pgflowd.runs (run_id, flow_slug, state, singleton_key, holds_key)
select run_id, flow_slug, 'started', 'k', true from pgflow.runs where run_id = %s
on conflict (run_id) do update set singleton_key = 'k', holds_key = true
"""


def hold(db: LeaseDatabase, run: UUID) -> None:
    db.do(HOLD, run)


def await_runs(db: LeaseDatabase, task: Row, *runs: UUID, **ask: str) -> None:
    """Its handler waits for the end of these runs."""
    db.suspend(task, wait_for(*runs, **ask))
    process(db)


@covers("attack 8")
@pytest.mark.parametrize(("on_conflict", "generations"), [("wait", 1), ("replace", 1), ("wait", 2)])
def test_a_child_that_could_not_begin_before_a_run_above_it_ends_is_refused(
    own: LeaseDatabase, on_conflict: str, generations: int
) -> None:
    """It was blocked by its parent, which waited for it, for ever; or each cancelled the other."""
    top = task = begun(own, own.flow())
    flow = own.flow()
    for _ in range(generations - 1):
        start_child(own, task, between := own.flow())
        (task,) = own.claim(between, own.worker(between))
    hold(own, top.run_id)

    with pytest.raises(psycopg.Error, match=f"run {top.run_id} has the singleton key 'k'") as error:
        start_child(own, task, flow, singleton="k", on_conflict=on_conflict)
    assert error.value.sqlstate == "PF006"
    with pytest.raises(psycopg.Error, match=f"cannot begin after run {top.run_id}") as error:
        start_child(own, task, flow, after=[str(top.run_id)])
    assert error.value.sqlstate == "PF007"
    assert str(child_of(task, flow)) in str(error.value)

    assert own.value("select count(*) from pgflow.runs where flow_slug = %s", flow) == 0
    assert start_child(own, task, flow, singleton="other") == child_of(task, flow)


def test_a_child_whose_flow_gives_it_the_key_of_a_run_above_it_is_refused(
    own: LeaseDatabase,
) -> None:
    task, flow = begun(own, own.flow()), own.flow()
    own.do("""update pgflow.flows set starts = '{"singleton": "k"}' where flow_slug = %s""", flow)
    hold(own, task.run_id)

    with pytest.raises(psycopg.Error, match=f"run {task.run_id} has the singleton key 'k'"):
        start_child(own, task, flow)


@covers("attack 8")
def test_a_child_that_would_wait_for_who_waits_for_its_parent_is_refused(
    own: LeaseDatabase,
) -> None:
    task, far, near = (begun(own, own.flow()) for _ in range(3))
    await_runs(own, near, task.run_id)
    await_runs(own, far, near.run_id)
    hold(own, far.run_id)
    flow = own.flow()

    for wishes, state in (({"singleton": "k"}, "PF006"), ({"after": [str(near.run_id)]}, "PF007")):
        with pytest.raises(psycopg.Error) as error:
            start_child(own, task, flow, **wishes)
        assert error.value.sqlstate == state
    assert execute(own.conn, undecided_tasks()) == []


@covers("attack 8")
@pytest.mark.parametrize("way", ["await", "line"])
def test_runs_that_wait_for_each_other_are_told(own: LeaseDatabase, way: str) -> None:
    """Neither could be seen where it began."""
    first, second = begun(own, own.flow()), begun(own, own.flow())
    between = second.run_id
    if way == "line":
        hold(own, second.run_id)
        between = own.value(
            "select run_id from pgflowd.start(%s, '{}', singleton_key => 'k')", own.flow()
        )
    await_runs(own, first, between)
    assert execute(own.conn, undecided_tasks()) == []

    await_runs(own, second, first.run_id)

    (told,) = execute(own.conn, undecided_tasks())
    assert (told.kind, told.tasks) == ("cycle", 2)
    assert {told.run_id, told.name} <= {str(run) for run in (first.run_id, second.run_id, between)}
    own.cancel(second.run_id)
    process(own)
    assert execute(own.conn, undecided_tasks()) == []


def test_runs_that_wait_for_each_other_with_a_timeout_are_not_told(own: LeaseDatabase) -> None:
    first, second = begun(own, own.flow()), begun(own, own.flow())
    await_runs(own, first, second.run_id, until="2100-01-01T00:00:00Z")

    await_runs(own, second, first.run_id)

    assert execute(own.conn, undecided_tasks()) == []
