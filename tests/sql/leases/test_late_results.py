"""
What a handler has returned is kept and undone, whatever has happened to its run meanwhile; and a
run is told as undone only if nothing that was returned, or attempted, is left.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from support.covers import covers
from support.database import Row
from support.leases import LeaseDatabase, element
from support.undo import Step, UndoWorld, define, steps_of

from pgflowd.testing.scratch import ScratchDatabase

PAID = {"payment": 1}
VIOLATIONS = "select * from pgflowd.violations()"


@pytest.fixture(params=["all", "failures", "off"])
def db(pgflow_db: ScratchDatabase, request: pytest.FixtureRequest) -> Iterator[LeaseDatabase]:
    """Our own core, with each history."""
    database = LeaseDatabase(pgflow_db.dsn, request.param)
    yield database
    database.close()


def world_of(db: LeaseDatabase, *texts: str, **options: Any) -> UndoWorld:
    return UndoWorld(db, steps_of(*texts), options)


def original_of(world: UndoWorld, task: Row) -> Any:
    """What the undo handler of this task gets as the output."""
    query = "select output from pgflowd.read_original(%s, %s, %s, %s)"
    parts = ["output"]
    return world.db.value(query, task.run_id, task.step_slug, task.task_index, parts)


def report(db: LeaseDatabase, task: Row, outcome: str, output: Any = PAID, **more: Any) -> str:
    given = element(task, outcome, output=json.dumps(output), **more)
    return str(db.report(given)[0].verdict)


@covers("G22")
@pytest.mark.parametrize("output", [PAID, None, False, 0, "", []])
@pytest.mark.parametrize("outcome", ["completed", "timed_out", "released", "failed"])
def test_what_was_returned_when_the_run_had_ended_is_undone(
    db: LeaseDatabase, outcome: str, output: Any
) -> None:
    world = world_of(db, "a", "b!")
    run = db.start(world.flow)
    a, b = db.claim(world.flow, world.worker)
    db.fail(b)
    assert report(db, a, outcome, output) == "late"
    world.sweep()

    (undo,) = world.undo_tasks()
    assert original_of(world, undo) == output
    world.undo(undo)
    world.sweep()

    assert (world.status(run), world.undone) == ("undone", [("a", 0)])
    assert db.rows(VIOLATIONS) == []


@covers("G22")
def test_what_a_handler_returns_after_its_timeout_is_undone(db: LeaseDatabase) -> None:
    world = world_of(db, "a", "b!:a")
    run = db.start(world.flow)
    assert report(db, db.claim_one(world.flow, world.worker), "timed_out") == "failed"
    world.sweep()

    (undo,) = world.undo_tasks()
    assert original_of(world, undo) == PAID
    world.undo(undo)
    world.sweep()
    assert (world.status(run), world.undone) == ("undone", [("a", 0)])


@covers("G22")
def test_what_a_handler_returns_as_its_worker_stops_is_undone_unless_it_runs_again(
    db: LeaseDatabase,
) -> None:
    world = world_of(db, "a", "b!")
    runs = [db.start(world.flow), db.start(world.flow)]
    for task in db.claim(world.flow, world.worker, 4):
        if task.step_slug == "a":
            assert report(db, task, "released") == "queued"
        else:
            db.complete(task)
    for run in runs:
        if run == runs[1]:
            db.complete(db.claim_one(world.flow, world.worker, max_tasks=1), "of the second")
    outputs = {}
    for run in runs:
        if db.status(run) == "started":
            db.rows("select pgflowd.cancel(%s, 'no', 'me', true)", run)
        else:
            world.ask(run)
    world.sweep()
    for undo in world.undo_tasks():
        given = db.value(
            "select input ->> 'run_id' from pgflow.runs where run_id = %s", undo.run_id
        )
        outputs[db.status(uuid.UUID(given))] = original_of(world, undo)
        world.undo(undo)
    world.sweep()

    assert outputs == {"failed": PAID, "completed": "of the second"}
    assert [world.status(run) for run in runs] == ["undone", "undone"]


@covers("G22")
def test_an_output_that_fails_the_run_by_its_type_is_undone(db: LeaseDatabase) -> None:
    world = world_of(db, "a", "m!*:a")
    run = db.start(world.flow)
    assert db.complete(db.claim_one(world.flow, world.worker), PAID) == "failed"
    world.sweep()

    (undo,) = world.undo_tasks()
    assert original_of(world, undo) == PAID
    world.undo(undo)
    world.sweep()
    assert (world.status(run), world.undone) == ("undone", [("a", 0)])


def test_without_an_undo_the_history_keeps_no_more_than_before(db: LeaseDatabase) -> None:
    flow = db.flow("a", max_attempts=2)
    run, worker = db.start(flow), db.worker(flow)
    for _ in range(2):
        report(db, db.claim_one(flow, worker), "timed_out")
    assert db.outcomes(run) == db.kept("timed_out", "timed_out")


@covers("G22")
def test_a_worker_that_ends_a_handler_keeps_its_lease_until_it_has_reported(
    own: LeaseDatabase,
) -> None:
    world = world_of(own, "a", "b!")
    run = own.start(world.flow)
    a, b = own.claim(world.flow, world.worker)
    own.fail(b)
    own.do("update pgflowd.attempts set lease_until = now() + '1 s' where token = %s", a.token)

    query = "select token, verdict from pgflowd.heartbeat(%s, %s, '1 h')"
    assert own.rows(query, world.worker, [a.token]) == [(a.token, "cancel")]

    query = "select lease_until > now() + interval '50 min' from pgflowd.attempts where token = %s"
    assert own.value(query, a.token)
    own.rows("select * from pgflowd.process_due()")
    assert world.entry(run).undo_state == "wanted"
    assert own.complete(a, PAID) == "late"
    world.finish()
    assert (world.status(run), world.undone) == ("undone", [("a", 0)])


@covers("G22")
@pytest.mark.parametrize("when", ["before the plan", "while it is undone", "when it is undone"])
def test_what_comes_when_the_lease_was_lost_is_undone_too(own: LeaseDatabase, when: str) -> None:
    world = world_of(own, "a", "b", "c!")
    run = own.start(world.flow)
    a, b, c = own.claim(world.flow, world.worker)
    own.complete(b)
    own.fail(c)
    own.lapse(a)
    if when == "before the plan":
        own.do("update pgflowd.attempts set ended_at = now(), outcome = 'lost' where token = %s",
               a.token)  # fmt: skip
    else:
        world.sweep()
    if when == "when it is undone":
        world.finish()
        assert (world.status(run), world.undone) == ("undone", [("b", 0)])

    assert report(own, a, "completed") == "lost"

    assert world.status(run) == "undoing"
    world.finish()
    assert world.status(run) == "undone"
    assert sorted(world.undone) == [("a", 0), ("b", 0)]
    assert world.entry(run).undo_generation == (1 if when == "before the plan" else 2)
    assert own.rows(VIOLATIONS) == []
    assert report(own, a, "completed") == "lost", "and this changes nothing any more"
    assert world.status(run) == "undone"


def test_a_lost_result_and_the_end_of_the_undo_miss_each_other_never(own: LeaseDatabase) -> None:
    world = world_of(own, "a", "b", "c!")
    run = own.start(world.flow)
    a, b, c = own.claim(world.flow, world.worker)
    own.complete(b)
    own.fail(c)
    own.lapse(a)
    world.sweep()
    for task in world.undo_tasks():
        world.undo(task)

    other = own.connect()
    with other.transaction():  # the end of the undo is not committed
        own.rows("select * from pgflowd.process_due()", conn=other)
        given = element(a, "completed", output=json.dumps(PAID))
        later = own.meanwhile(lambda conn: own.report(given, conn=conn))
    assert later.result()[0].verdict == "lost"

    assert world.status(run) == "undoing"
    world.finish()
    assert (world.status(run), sorted(world.undone)) == ("undone", [("a", 0), ("b", 0)])


@covers("G22", "attack 10")
@pytest.mark.parametrize("by", ["a worker", "another runtime", "nobody that lived"])
def test_what_was_attempted_is_undone_though_the_run_was_tried_again(
    db: LeaseDatabase, by: str
) -> None:
    """Finding 10 of the audit: with history `off` it was told as undone, and was not."""
    world = UndoWorld(db, [Step("a", undo="attempted")], {"onFailure": "keep"})
    run = db.start(world.flow)
    if by == "another runtime":
        (task,) = db.upstream_claim(world.flow, world.worker)
        db.rows("select pgflow.fail_task(%s, %s, 0, 'no')", run, task.step_slug)
    elif by == "a worker":
        db.fail(db.claim_one(world.flow, world.worker))
    else:
        db.set("crash_limit", 1)
        task = db.claim_one(world.flow, world.worker)
        db.lapse(task)
        db.sweep()
    assert db.status(run) == "failed"
    assert db.retry(run) == 1

    db.rows("select pgflowd.cancel(%s, 'no', 'me', true)", run)
    world.finish()

    assert (world.status(run), world.undone) == ("undone", [("a", 0)])
    assert db.rows(VIOLATIONS) == []


def test_a_retry_keeps_no_attempt_for_steps_without_such_an_undo(db: LeaseDatabase) -> None:
    world = UndoWorld(db, steps_of("a", "b!"), {"onFailure": "keep"})
    run = world.failed_run("a", "b")
    before = db.value("select count(*) from pgflowd.attempts where run_id = %s", run)
    db.retry(run)
    assert db.value("select count(*) from pgflowd.attempts where run_id = %s", run) == before


@covers("G22")
def test_a_worker_that_died_after_its_handler_returned_is_undone_if_attempted(
    db: LeaseDatabase,
) -> None:
    world = world_of(db, "a?", "b", "c!")
    run = db.start(world.flow)
    a, b, c = db.claim(world.flow, world.worker)
    db.fail(c)
    for task in (a, b):
        db.lapse(task)

    world.finish()

    assert (world.status(run), world.undone) == ("undone", [("a", 0)])


def test_an_undo_that_returned_though_its_run_was_cancelled_has_undone(own: LeaseDatabase) -> None:
    world = world_of(own, "a", "b", "c!:a+b")
    run = world.failed_run("c")
    world.sweep()
    one, other = world.undo_tasks()
    own.rows("select pgflowd.cancel(%s, 'enough', 'me')", one.run_id)
    assert own.complete(one, None) == "late"
    assert own.fail(other) == "late"
    world.sweep()
    assert world.status(run) == "undo_failed"

    world.ask(run, again=True)
    world.finish()

    assert world.status(run) == "undone"
    assert world.undone == [(other.step_slug.removeprefix("undo_"), 0)]
    counted = own.rows("select step_slug, undone, failed, error from pgflowd.run_undos(%s)", run)
    assert sorted(counted) == [("a", 1, 0, None), ("b", 1, 0, None)]


def test_the_plan_of_a_version_without_undo_costs_nothing(own: LeaseDatabase) -> None:
    flow = f"flow_{uuid.uuid4().hex[:8]}"
    define(own, flow, steps_of("a!"))
    worker = own.worker(flow)
    run = own.start(flow)
    task = own.claim_one(flow, worker)
    own.cancel(run)
    own.do("update pgflowd.attempts set ended_at = now(), outcome = 'lost' where token = %s",
           task.token)  # fmt: skip
    assert report(own, task, "completed") == "lost"
    assert own.value("select output from pgflowd.attempts where token = %s", task.token) is None
