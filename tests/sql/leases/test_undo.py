"""
Undo: what the tasks of a run did is undone by another run, in reverse order, once nobody is at work
on it any more.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg
import pytest
from support.covers import covers
from support.leases import LeaseDatabase, element
from support.undo import Step, UndoWorld, steps_of

from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.task import TaskReport
from pgflowd.db import tasks
from pgflowd.db.query import execute

DIAMOND = ("a", "b:a", "m*:a", "c:b+m")


@pytest.fixture
def shop(own: LeaseDatabase) -> UndoWorld:
    """A diamond with a map of three."""
    return UndoWorld(own, steps_of(*DIAMOND))


def order_of(undone: list[tuple[str, int]]) -> list[str]:
    return list(dict.fromkeys(slug for slug, _ in undone))


@covers("G22")
@pytest.mark.parametrize("history", ["all", "failures", "off"])
def test_what_completed_is_undone_in_reverse_order(own: LeaseDatabase, history: str) -> None:
    own.set("history", history)
    world = UndoWorld(own, steps_of(*DIAMOND))
    run = world.failed_run("c")
    assert (own.status(run), world.status(run)) == ("failed", "undoing")

    world.finish()

    assert world.status(run) == "undone"
    assert sorted(world.undone) == [("a", 0), ("b", 0), ("m", 0), ("m", 1), ("m", 2)]
    assert order_of(world.undone)[-1] == "a"
    assert own.rows("select * from pgflowd.violations()") == []


def test_the_undo_knows_what_it_undoes_and_why(shop: UndoWorld) -> None:
    run = shop.failed_run("c")
    shop.sweep()
    assert shop.undo_run(run).input == {
        "run_id": str(run), "generation": 1, "cause": "boom",
        "plan": {"a": [0], "b": [0], "m": [0, 1, 2]},
    }  # fmt: skip


@covers("G22")
@pytest.mark.parametrize("history", ["all", "failures", "off"])
def test_nothing_is_undone_while_a_lease_lives_and_late_results_are(
    own: LeaseDatabase, history: str
) -> None:
    own.set("history", history)
    world = UndoWorld(own, steps_of("a!", "b:a", "c:a", "d:a", "e?:a", "f!:e"))
    run = own.start(world.flow)
    own.complete(own.claim_one(world.flow, world.worker))
    b, c, d, e = own.claim(world.flow, world.worker)
    own.fail(d)
    own.rows("select * from pgflowd.process_due()")
    assert world.entry(run).undo_state == "wanted"
    assert own.complete(b) == "late"
    assert own.fail(e) == "late"
    own.rows("select * from pgflowd.process_due()")
    assert world.entry(run).undo_state == "wanted"

    own.lapse(c)
    world.finish()

    assert world.status(run) == "undone"
    assert sorted(world.undone) == [("b", 0), ("e", 0)]
    with pytest.raises(psycopg.Error) as lost:
        own.complete(c)
    assert lost.value.sqlstate == "PF001"
    assert own.rows("select * from pgflowd.violations()") == []


def test_a_sweep_that_began_before_the_last_report_breaks_no_invariant(own: LeaseDatabase) -> None:
    world, sweeper = UndoWorld(own, steps_of("a", "b")), own.connect()
    run = own.start(world.flow)
    a, b = own.claim(world.flow, world.worker)
    own.fail(b)
    with sweeper.transaction():
        sweeper.execute("select now()")
        assert own.complete(a) == "late"
        sweeper.execute("select * from pgflowd.process_due()")
    assert world.undo_run(run).status == "started"
    assert own.rows("select * from pgflowd.violations()") == []
    world.finish()
    assert world.undone == [("a", 0)]


def test_the_workers_are_woken_while_an_undo_waits_for_them(shop: UndoWorld) -> None:
    shop.db.start(shop.flow)
    shop.db.complete(shop.db.claim_one(shop.flow, shop.worker), [1, 2])
    first, *_ = shop.db.claim(shop.flow, shop.worker)
    shop.db.fail(first)
    listener = shop.db.connect()
    listener.execute("listen pgflowd")
    shop.db.rows("select * from pgflowd.process_due()")
    told = [each.payload for each in listener.notifies(timeout=5, stop_after=1)]
    assert told == [shop.flow]


def test_a_person_who_has_a_task_holds_up_no_undo(own: LeaseDatabase) -> None:
    world = UndoWorld(own, steps_of("a", "b"))
    run = own.start(world.flow)
    own.rows("select * from pgflowd.task_claim(%s, null, '1 day', 'jane')", world.flow)
    world.work(lambda task: False)
    world.sweep()
    assert world.status(run) == "undone"


def test_a_worker_of_another_runtime_counts_until_its_timeout(own: LeaseDatabase) -> None:
    world = UndoWorld(own, steps_of("a", "b:a", "c:a"))
    run = own.start(world.flow)
    own.complete(own.claim_one(world.flow, world.worker))
    first, second = own.upstream_claim(world.flow, own.worker(world.flow))
    own.rows("select pgflow.fail_task(%s, %s, 0, 'no')", run, first.step_slug)
    own.rows("select * from pgflowd.process_due()")
    assert world.entry(run).undo_state == "wanted"

    own.age(second, "61 s")
    world.finish()

    assert world.undone == [("a", 0)]


@covers("G22")
def test_one_undo_that_fails_stops_no_other(shop: UndoWorld) -> None:
    shop.failing |= {("m", 1), ("b", 0)}
    run = shop.failed_run("c")

    shop.finish()

    assert shop.status(run) == "undo_failed"
    assert sorted(shop.undone) == [("a", 0), ("m", 0), ("m", 2)]
    undo = shop.undo_run(run)
    assert undo.status == "completed"
    assert shop.db.outcomes(undo.run_id, "undo_b") == ["failed"]
    rows = shop.db.rows("select * from pgflowd.run_undos(%s) order by step_slug", run)
    assert [tuple(row) for row in rows] == [
        ("a", 1, 1, 0, 0, None), ("b", 1, 0, 1, 0, "no such payment"),
        ("m", 3, 2, 1, 0, "no such payment"),
    ]  # fmt: skip
    assert shop.db.rows("select * from pgflowd.violations()") == []


@covers("G22")
def test_again_undoes_what_is_left_in_order(shop: UndoWorld) -> None:
    shop.failing |= {("m", 1), ("a", 0)}
    run = shop.failed_run("c")
    shop.finish()
    assert shop.ask(run) == "repeated"
    shop.undone.clear()
    shop.failing = {("a", 0)}

    assert shop.ask(run, again=True) == "wanted"
    assert shop.ask(run, again=True) == "repeated"
    shop.finish()
    assert (shop.status(run), shop.undone) == ("undo_failed", [("m", 1)])
    shop.failing.clear()
    assert shop.ask(run, again=True) == "wanted"
    shop.finish()

    assert (shop.status(run), shop.undone) == ("undone", [("m", 1), ("a", 0)])
    assert shop.undo_run(run).input["generation"] == 3
    assert shop.undo_run(run).input["cause"] == "asked for by jane: withdrawn"
    with pytest.raises(
        psycopg.Error, match=r"no undo of run .* has failed: it is undone"
    ) as refused:
        shop.ask(run, again=True)
    assert refused.value.sqlstate == "PF005"
    assert shop.db.rows("select * from pgflowd.violations()") == []


@pytest.mark.parametrize("outcome", ["failed", "timed_out", "crashed"])
@pytest.mark.parametrize("history", ["all", "failures", "off"])
def test_whatever_fails_settles_once_its_attempts_are_used_up(
    own: LeaseDatabase, outcome: str, history: str
) -> None:
    own.set("history", history)
    world = UndoWorld(
        own, [Step("a", options={"of_undo": {"maxAttempts": 2}}), Step("b", ["a"], None)]
    )
    run = world.failed_run("b")
    world.sweep()
    for verdict in ("queued", "completed"):
        (task,) = world.undo_tasks()
        (answer,) = own.report(element(task, outcome, error_message="no", error_type="CardError"))
        assert answer.verdict == verdict
    assert answer.run_status == "completed"
    kept = own.column("select outcome from pgflowd.attempts where run_id = %s", task.run_id)
    assert kept == ([outcome, outcome] if history != "off" else [])
    assert own.task(task.run_id, "undo_a").output == {"$undo_failed": {"message": "no"}}
    world.sweep()
    assert world.status(run) == "undo_failed"


def test_an_undo_that_is_given_up_settles(own: LeaseDatabase) -> None:
    world = UndoWorld(own, steps_of("a", "b!:a"))
    run = world.failed_run("b")
    world.sweep()
    (task,) = world.undo_tasks()
    own.lapse(task)
    query = "select pgflowd.give_up_task(%s, %s, 0, '0 s', 'no hope', 'jane')"
    assert own.value(query, task.run_id, task.step_slug)
    world.sweep()
    assert world.status(run) == "undo_failed"
    assert own.rows("select * from pgflowd.violations()") == []


def test_who_ends_its_workers_is_set_aside(own: LeaseDatabase) -> None:
    world = UndoWorld(own, steps_of("a", "b!:a"))
    own.set("crash_limit", 1)
    run = world.failed_run("b")
    world.sweep()
    (task,) = world.undo_tasks()
    own.crashed(world.undo_worker)
    assert own.waits(task.run_id) == [("undo_a", 0, "quarantined")]
    assert world.status(run) == "undoing"
    own.value("select pgflowd.task_fail(%s, 'undo_a', 0, 'no hope', true, 'jane')", task.run_id)
    world.sweep()
    assert world.status(run) == "undo_failed"


def test_a_task_that_does_not_settle_fails_as_ever(own: LeaseDatabase) -> None:
    world = UndoWorld(own, [Step("a", options={"exhausted": "skip"}), Step("b", ["a"])])
    run = world.failed_run("a")
    assert world.status(run) == "completed"
    assert world.entry is not None
    assert own.rows("select * from pgflowd.runs") == []


# -- when a run is undone -----------------------------------------------------------------------


@pytest.mark.parametrize(("options", "fails", "cancelled"), [
    ({}, "undoing", "cancelled"),
    ({"onFailure": "keep", "onCancel": "undo"}, "failed", "undoing"),
])  # fmt: skip
def test_a_flow_says_when_its_runs_are_undone(
    own: LeaseDatabase, options: dict[str, Any], fails: str, cancelled: str
) -> None:
    world = UndoWorld(own, steps_of("a", "b:a"), options)
    assert world.status(world.failed_run("b")) == fails
    run = own.start(world.flow)
    own.cancel(run)
    assert world.status(run) == cancelled


def test_a_completed_run_is_undone_if_somebody_asks(shop: UndoWorld) -> None:
    run = shop.failed_run()
    assert shop.status(run) == "completed"

    prune, other = "select pgflowd.prune('-1 s')", shop.db.connect()
    with other.transaction():
        assert shop.ask(run, conn=other) == "wanted"
        assert shop.db.value(prune) == 0, "somebody has asked, and not committed yet"
    assert shop.db.value(prune) == 0
    assert shop.ask(run) == "repeated"
    shop.finish()

    assert shop.status(run) == "undone"
    assert sorted(shop.undone) == [("a", 0), ("b", 0), ("c", 0), ("m", 0), ("m", 1), ("m", 2)]
    assert order_of(shop.undone)[0] == "c"
    assert shop.db.status(run) == "completed"


def test_a_cancel_may_ask_for_the_undo(shop: UndoWorld) -> None:
    run = shop.db.start(shop.flow)
    shop.db.complete(shop.db.claim_one(shop.flow, shop.worker), [1])
    query = "select pgflowd.cancel(%s, 'withdrawn', 'jane', true)"
    assert shop.db.value(query, run) == "cancelled"
    assert shop.db.value(query, run) == "repeated"
    shop.finish()
    assert (shop.status(run), shop.undone) == ("undone", [("a", 0)])
    assert shop.undo_run(run).input["cause"] == "cancelled by jane: withdrawn"

    other = shop.db.start(shop.flow)
    shop.db.cancel(other)
    assert shop.status(other) == "cancelled"
    assert shop.db.value(query, other) == "repeated"
    assert shop.status(other) == "undoing"


def test_what_cannot_be_undone_is_refused(own: LeaseDatabase) -> None:
    world, plain = UndoWorld(own, steps_of("a")), own.flow()
    other = own.start(plain)
    own.complete(own.claim_one(plain, own.worker(plain)))
    run, unknown = own.start(world.flow), uuid.uuid4()
    own.rows("select pgflowd.start(%s, '{}', key => 'later', start_at => now() + interval '1 h')",
             world.flow)  # fmt: skip
    (later,) = own.column("select run_id from pgflowd.runs")
    cases = [
        (run, False, "PF003", "it is started"), (later, False, "PF003", "it is scheduled"),
        (unknown, False, "PF002", "no run"), (other, False, "PF022", "no step of flow"),
    ]  # fmt: skip
    for given, again, state, text in cases:
        with pytest.raises(psycopg.Error, match=text) as refused:
            world.ask(given, again)
        assert refused.value.sqlstate == state
    for given in (other, own.start(plain)):
        with pytest.raises(psycopg.Error) as refused:
            own.value("select pgflowd.cancel(%s, '', '', true)", given)
        assert refused.value.sqlstate == "PF022"
    world.work()
    with pytest.raises(psycopg.Error, match="it is completed") as refused:
        world.ask(run, again=True)
    assert refused.value.sqlstate == "PF005"


@covers("G22")
def test_an_undo_and_a_retry_exclude_each_other(shop: UndoWorld) -> None:
    run = shop.failed_run("c")
    for status in ("undoing", "undone"):
        assert shop.status(run) == status
        with pytest.raises(psycopg.Error) as refused:
            shop.db.retry(run)
        assert refused.value.sqlstate == "PF005"
        shop.finish()
    with pytest.raises(psycopg.Error, match="has not failed"):
        shop.db.retry(shop.undo_run(run).run_id)


def test_the_run_that_undoes_is_not_tried_again_once_it_has_failed(shop: UndoWorld) -> None:
    run = shop.failed_run("c")
    shop.sweep()
    undo = shop.undo_run(run).run_id
    task = shop.undo_tasks()[0]
    shop.db.cancel(undo)
    shop.db.rows("select * from pgflowd.process_due()")
    assert shop.status(run) == "undoing", "its handler is at work, and none may begin beside it"
    assert shop.ask(run, again=True) == "repeated"
    shop.db.lapse(task)
    shop.sweep()
    assert shop.status(run) == "undo_failed"
    with pytest.raises(psycopg.Error, match="it undoes another one") as refused:
        shop.db.retry(undo, cancelled=True)
    assert refused.value.sqlstate == "PF005"
    shop.ask(run, again=True)
    shop.finish()
    assert shop.status(run) == "undone"
    assert shop.db.rows("select * from pgflowd.violations()") == []


@covers("G22")
@pytest.mark.parametrize("first", ["cancel", "undo"])
def test_who_asks_at_the_same_moment_gets_one_undo(own: LeaseDatabase, first: str) -> None:
    world = UndoWorld(own, steps_of("a", "b!:a"), {"onCancel": "undo"})
    run = own.start(world.flow)
    own.complete(own.claim_one(world.flow, world.worker))
    if first == "undo":
        world.work()
    conn = own.connect()
    with conn.transaction():
        answer = own.cancel(run, conn) if first == "cancel" else world.ask(run, conn=conn)
        other = own.meanwhile(lambda conn: world.ask(run, conn=conn))
    assert (answer, other.result()) == ("cancelled" if first == "cancel" else "wanted", "repeated")
    world.finish()
    assert (world.status(run), world.undone) == ("undone", [("a", 0)])
    assert own.value("select count(*) from pgflowd.runs where undo_of is not null") == 1


# -- what there is to undo ----------------------------------------------------------------------


def test_nothing_to_undo_is_undone_at_once(own: LeaseDatabase) -> None:
    world = UndoWorld(own, steps_of("a", "b:a"))
    run = world.failed_run("a")
    world.sweep()
    assert world.status(run) == "undone"
    assert own.value("select count(*) from pgflow.runs") == 1
    assert own.rows("select * from pgflowd.violations()") == []


@pytest.mark.parametrize("elements", [0, 1])
def test_maps_of_any_length_are_undone(own: LeaseDatabase, elements: int) -> None:
    world = UndoWorld(own, steps_of("a", "m*:a", "c:m"))
    run = own.start(world.flow)
    own.complete(own.claim_one(world.flow, world.worker), list(range(elements)))
    world.work(lambda task: task.step_slug != "c")
    world.finish()
    assert world.status(run) == "undone"
    assert len(world.undone) == elements + 1


def test_a_map_of_ten_thousand_is_undone_in_batches(own: LeaseDatabase) -> None:
    world = UndoWorld(own, steps_of("m*", "c!:m"))
    run = own.start(world.flow, list(range(10_000)))

    indexes = json.dumps([*range(10_000)]).encode()

    def work(flow: str, worker: Any) -> None:
        while claimed := execute(own.conn, tasks.claim(flow, worker, 200)):
            reports = [
                TaskReport(task, Outcome.FAILED, error_message="no")
                if task.step == "c"
                else TaskReport(task, Outcome.COMPLETED, indexes if task.step == "list_m" else b"1")
                for task in claimed
            ]
            execute(own.conn, tasks.report(reports))

    work(world.flow, world.worker)
    world.sweep()
    work(world.undo_flow, world.undo_worker)
    world.sweep()

    assert world.status(run) == "undone"
    told = own.row("select tasks, undone from pgflowd.run_undos(%s)", run)
    assert (told.tasks, told.undone) == (10_000, 10_000)
    assert own.rows("select * from pgflowd.violations()") == []


def test_of_a_chain_only_the_first_step_may_have_an_undo(own: LeaseDatabase) -> None:
    world = UndoWorld(own, steps_of("a", "b!:a", "c!:b"))
    run = world.failed_run("c")
    world.finish()
    assert (world.status(run), world.undone) == ("undone", [("a", 0)])


def test_a_skipped_step_is_not_undone_but_for_its_late_results(own: LeaseDatabase) -> None:
    steps = [Step("a"), Step("m", ["a"], is_map=True, options={"exhausted": "skip"}),
             Step("c", ["a"], None), Step("d", ["c"], None)]  # fmt: skip
    world = UndoWorld(own, steps)
    run = own.start(world.flow)
    own.complete(own.claim_one(world.flow, world.worker), [1, 2, 3])
    tasks = own.claim(world.flow, world.worker)
    first, second, third = (task for task in tasks if task.step_slug == "m")
    own.fail(first)
    assert own.complete(second) == "late"
    assert own.fail(third) == "late"
    own.complete(next(task for task in tasks if task.step_slug == "c"))
    world.work(lambda task: task.step_slug != "d")
    world.finish()
    assert world.status(run) == "undone"
    assert sorted(world.undone) == [("a", 0), ("m", 1)]


def test_a_flow_of_a_hundred_steps_with_undos(own: LeaseDatabase) -> None:
    steps = [Step(f"s{nr}", [f"s{nr - 1}"] if nr % 10 else []) for nr in range(100)]
    world = UndoWorld(own, [*steps, Step("last", [f"s{nr}9" if nr else "s9" for nr in range(10)])])
    run = world.failed_run("last")
    world.finish()
    assert (world.status(run), len(world.undone)) == ("undone", 100)


# -- what waits for a run -----------------------------------------------------------------------


@covers("G22")
def test_a_run_has_ended_for_others_when_its_undo_has(own: LeaseDatabase) -> None:
    world = UndoWorld(own, steps_of("a", "b:a"))
    start = """
        select run_id from pgflowd.start(%s, '{}', singleton_key => %s, after => %s::uuid[],
                                         after_mode => 'ended')
    """
    first = own.value(start, world.flow, "k", None)
    in_line = own.value(start, world.flow, "k", None)
    after = own.value(start, world.flow, None, [first])
    world.work(lambda task: task.step_slug != "b")
    world.sweep()
    assert [world.status(run) for run in (first, in_line, after)] == [
        "undoing", "blocked", "blocked",
    ]  # fmt: skip
    assert own.rows("select * from pgflowd.violations()") == []

    world.finish()

    assert [world.status(run) for run in (first, in_line, after)] == [
        "undone", "started", "started",
    ]  # fmt: skip
    assert own.rows("select * from pgflowd.violations()") == []


def test_who_begins_only_after_what_completed_never_does_after_an_undo(shop: UndoWorld) -> None:
    run = shop.failed_run()
    shop.ask(run)
    query = "select run_id from pgflowd.start(%s, '{}', after => %s)"
    after = shop.db.value(query, shop.flow, [run])
    shop.finish()
    assert shop.status(after) == "cancelled"
    reason = shop.db.value("select cancel_reason from pgflowd.runs where run_id = %s", after)
    assert reason == f"run {run} did not complete: it is undone (E428)"


def test_children_of_what_is_undone_are_cancelled(own: LeaseDatabase) -> None:
    world, child = UndoWorld(own, steps_of("a", "b:a")), own.flow()
    run = own.start(world.flow)
    task = own.claim_one(world.flow, world.worker)
    children = "insert into pgflowd.runs (run_id, flow_slug, parent_run_id) values (%s, %s, %s)"
    other = own.start(child)
    own.do(children, other, child, run)
    own.complete(task)
    world.work(lambda task: task.step_slug != "b")
    world.finish()
    assert world.status(run) == "undone"
    assert world.status(other) == "cancelled"


# -- what may be amiss --------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["flow", "step"])
def test_an_undo_that_is_not_deployed_is_tried_again(own: LeaseDatabase, missing: str) -> None:
    world = UndoWorld(own, steps_of("a", "b:a"))
    run = world.failed_run("b")
    own.rows("select pgflow.delete_flow_and_data(%s)", world.undo_flow)
    if missing == "step":
        own.rows("select pgflow.create_flow(%s)", world.undo_flow)
    notices: list[Any] = []
    own.conn.add_notice_handler(lambda each: notices.append((each.sqlstate, each.message_primary)))
    own.rows("select * from pgflowd.process_due()")
    ((state, text),) = notices
    assert (state, f"undo_{world.flow} has no step undo_a" in text) == ("PF013", True)
    assert world.status(run) == "undoing"
    found = own.column("select invariant from pgflowd.violations()")
    assert found == ["I22", "I22"]

    own.rows("select pgflow.delete_flow_and_data(%s)", world.undo_flow)
    world.__post_init__()
    own.do("update pgflowd.runs set due_at = now() where run_id = %s", run)
    world.finish()
    assert world.status(run) == "undone"


def test_an_undo_has_failed_when_the_flow_that_undoes_is_deleted(shop: UndoWorld) -> None:
    run = shop.failed_run("c")
    shop.sweep()
    shop.db.rows("select pgflow.delete_flow_and_data(%s)", shop.undo_flow)
    shop.sweep()
    assert shop.status(run) == "undo_failed"
    assert shop.db.rows("select * from pgflowd.violations()") == []


def test_an_undo_ends_though_what_it_undoes_is_deleted(shop: UndoWorld) -> None:
    run = shop.failed_run("c")
    shop.sweep()
    undo = shop.undo_run(run).run_id
    shop.db.rows("select pgflow.delete_flow_and_data(%s)", shop.flow)
    shop.finish()
    assert shop.status(undo) == "completed"
    assert shop.db.rows("select * from pgflowd.violations()") == []


def test_what_is_being_undone_is_not_pruned(shop: UndoWorld) -> None:
    run = shop.failed_run("c")
    shop.sweep()
    shop.db.do("""update pgflow.runs set started_at = started_at - interval '9 d',
                  failed_at = failed_at - interval '8 d'""")
    prune = "select * from pgflow.prune_data_older_than('7 d', null)"
    assert shop.db.row(prune).deleted_runs == 0
    shop.finish()
    assert shop.status(run) == "undone"
    assert shop.db.row(prune).deleted_runs == 0  # its undo is younger
    undo = "update pgflow.runs set completed_at = completed_at - interval '8 d'"
    shop.db.do(undo)
    assert shop.db.row(prune).deleted_runs == 2
    assert shop.db.rows("select * from pgflowd.runs") == []


def test_the_list_has_undos_only_if_asked(shop: UndoWorld) -> None:
    run = shop.failed_run("c")
    shop.finish()
    undo = shop.undo_run(run).run_id
    listed = "select run_id, status, undo_of from pgflowd.list_runs({})"
    assert [tuple(row) for row in shop.db.rows(listed.format(""))] == [(run, "undone", None)]
    both = shop.db.rows(listed.format("with_undos => true"))
    assert {tuple(row) for row in both} == {(run, "undone", None), (undo, "completed", run)}
    own = shop.db.rows(listed.format(f"flow_slug => 'undo_{shop.flow}'"))
    assert [row.run_id for row in own] == [undo]
    for status, found in (("undone", [run]), ("failed", []), ("undoing", [])):
        rows = shop.db.rows(listed.format(f"statuses => array['{status}']"))
        assert [row.run_id for row in rows] == found


def test_an_undo_is_told_to_who_follows_the_run(shop: UndoWorld) -> None:
    run = shop.failed_run("c")
    listener = shop.db.connect()
    listener.execute(f'listen "pgflow:run:{run}"')
    shop.db.rows("select pgflowd.follow(array[%s]::uuid[], false)", run)
    shop.finish()
    told = [each.payload for each in listener.notifies(timeout=5, stop_after=2)]
    assert ["run:undoing" in told[0], "run:undone" in told[1]] == [True, True]


@covers("G22")
def test_a_run_that_is_replaced_while_it_is_due_is_undone_before_the_next_begins(
    own: LeaseDatabase,
) -> None:
    world = UndoWorld(own, steps_of("a", "b:a"), {"onCancel": "undo"})
    query = """
        select run_id from pgflowd.start(%s, '{}', singleton_key => 'k', on_conflict => 'replace')
    """
    first = own.value(query, world.flow)
    (task,) = own.claim(world.flow, world.worker)
    own.complete(task)
    second = own.value(query, world.flow)
    own.do("update pgflowd.runs set due_at = now()")

    world.finish()

    assert (world.status(first), world.undone) == ("undone", [("a", 0)])
    assert world.status(second) == "started"
    assert own.rows("select * from pgflowd.violations()") == []


def test_what_an_undo_returns_is_no_failure_whatever_it_says(own: LeaseDatabase) -> None:
    world = UndoWorld(own, steps_of("a", "b!:a"))
    for returned in ("$undo_failed", ["$undo_failed"]):
        run = world.failed_run("b")
        world.sweep()
        (task,) = world.undo_tasks()
        own.complete(task, returned)
        world.sweep()

        assert world.status(run) == "undone"
