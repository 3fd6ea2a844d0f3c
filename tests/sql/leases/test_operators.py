"""
Operators: the functions behind `pgflowd runs`, `flows`, `stalled` and `doctor`, on every core.
"""

from __future__ import annotations

import threading

import psycopg
import pytest
from support.covers import covers
from support.leases import LeaseDatabase

from pgflowd.testing.until import until

LAPSE = "update pgflowd.attempts set lease_until = now() - interval '1 h' where ended_at is null"


def stalled(db: LeaseDatabase) -> list[tuple[str, int, str]]:
    rows = db.rows("select * from pgflowd.stalled_tasks()")
    return [(row.step_slug, row.task_index, row.reason) for row in rows]


def requeue(db: LeaseDatabase, run, step: str = "a", index: int = 0) -> bool:
    query = "select pgflowd.requeue_task(%s, %s, %s, '60 s', 'anna')"
    return bool(db.value(query, run, step, index))


def give_up(
    db: LeaseDatabase, run, step: str = "a", index: int = 0, reason: str | None = "gone"
) -> bool:
    query = "select pgflowd.give_up_task(%s, %s, %s, '60 s', %s, 'anna')"
    return bool(db.value(query, run, step, index, reason))


def violated(db: LeaseDatabase) -> list[str]:
    return [row.invariant for row in db.rows("select * from pgflowd.violations()")]


def test_runs_are_found_by_their_last_digits(any_core: LeaseDatabase):
    flow = any_core.flow()
    first, second = any_core.start(flow), any_core.start(flow)

    def found(digits: str) -> list[object]:
        return [row.run_id for row in any_core.rows("select * from pgflowd.find_runs(%s)", digits)]

    assert found(first.hex[-8:]) == [first]
    assert found(second.hex) == [second]
    assert found("") == [second, first]
    assert found("zz") == []


def test_runs_are_listed_with_how_far_they_are_and_why_they_failed(any_core: LeaseDatabase):
    flow = any_core.flow("a", "b:a", max_attempts=1)
    failed, ended, active = (any_core.start(flow) for _ in range(3))
    worker = any_core.worker(flow)
    tasks = {task.run_id: task for task in any_core.claim(flow, worker)}
    any_core.fail(tasks[failed], "no such customer")
    any_core.complete(tasks[ended])
    any_core.rows("select pgflowd.cancel(%s, 'enough', 'anna')", ended)

    rows = {row.run_id: row for row in any_core.rows("select * from pgflowd.list_runs(%s)", flow)}

    assert {run: row.status for run, row in rows.items()} == {
        failed: "failed", ended: "cancelled", active: "started",
    }  # fmt: skip
    assert "no such customer" in rows[failed].error_message
    assert (rows[ended].steps, rows[ended].steps_done) == (2, 1)
    assert rows[active].ended_at is None


def test_the_steps_of_a_run_are_counted_by_status(any_core: LeaseDatabase):
    flow = any_core.flow("a", "m*:a", "z:m", max_attempts=4, timeout=30)
    run = any_core.start(flow)
    worker = any_core.worker(flow)
    any_core.complete(any_core.claim_one(flow, worker), [1, 2, 3])
    first, second = any_core.claim(flow, worker, max_tasks=2)
    any_core.complete(first)

    steps = {
        row.step_slug: row for row in any_core.rows("select * from pgflowd.run_steps(%s)", run)
    }

    assert list(steps) == ["a", "m", "z"]
    many = steps["m"]
    assert (many.step_type, many.deps, many.tasks) == ("map", ["a"], 3)
    assert (many.queued, many.running, many.completed, many.failed) == (1, 1, 1, 0)
    assert (many.attempts, many.max_attempts, many.timeout_s) == (1, 4, 30)
    assert many.running_since is not None and many.next_at is not None
    assert steps["z"].tasks == 0
    assert second is not None


def test_troubles_are_the_attempts_without_an_output(any_core: LeaseDatabase):
    flow = any_core.flow("a", "b", base_delay=9)
    run = any_core.start(flow)
    one, other = any_core.claim(flow, any_core.worker(flow))
    any_core.complete(other)
    any_core.fail(one, "boom")

    (trouble,) = any_core.rows("select * from pgflowd.run_troubles(%s)", run)

    assert (trouble.step_slug, trouble.attempt, trouble.max_attempts) == (one.step_slug, 1, 3)
    assert (trouble.outcome, trouble.error_message) == ("failed", "boom")
    assert trouble.next_at > trouble.ended_at
    later = any_core.rows("select * from pgflowd.run_troubles(%s, now() + interval '1 h')", run)
    assert later == []


def test_a_shape_has_the_options_in_force(any_core: LeaseDatabase):
    flow = any_core.flow("a", "m*:a", timeout=77)

    shape = any_core.value("select pgflowd.flow_shape(%s)", flow)

    assert [step["slug"] for step in shape["steps"]] == ["a", "m"]
    assert shape["steps"][1]["stepType"] == "map"
    assert shape["steps"][1]["dependencies"] == ["a"]
    assert shape["options"]["timeout"] == 77
    assert any_core.value("select pgflowd.flow_shape('nowhere')") is None


def test_flows_are_listed_with_their_open_work(any_core: LeaseDatabase):
    flow = any_core.flow("a", "b")
    any_core.start(flow)
    any_core.claim(flow, any_core.worker(flow), max_tasks=1)

    row = next(row for row in any_core.rows("select * from pgflowd.list_flows()")
               if row.flow_slug == flow)  # fmt: skip

    assert (row.steps, row.queued, row.running, row.active_runs, row.workers) == (2, 1, 1, 1, 1)
    assert row.is_watched and row.oldest_queued_at is not None
    assert any_core.value("select pgflowd.active_runs(%s)", flow) == 1


def test_a_requeued_task_goes_to_another_and_the_first_has_lost_it(any_core: LeaseDatabase):
    flow = any_core.flow()
    run = any_core.start(flow)
    task = any_core.claim_one(flow, any_core.worker(flow))
    assert stalled(any_core) == []
    assert not requeue(any_core, run)
    any_core.do(LAPSE)

    assert stalled(any_core) == [("a", 0, "its lease lapsed")]
    assert requeue(any_core, run)
    assert not requeue(any_core, run)

    again = any_core.claim_one(flow, any_core.worker(flow))
    assert again.token > task.token and again.attempt == 1
    with pytest.raises(psycopg.Error) as lost:
        any_core.complete(task)
    assert lost.value.sqlstate == "PF001"
    any_core.complete(again)
    assert any_core.status(run) == "completed"
    assert violated(any_core) == []


def test_a_task_of_a_worker_without_leases_is_stalled_after_its_timeout(any_core: LeaseDatabase):
    flow = any_core.flow(timeout=5)
    run = any_core.start(flow)
    any_core.claim_one(flow, any_core.worker(flow))
    any_core.do("delete from pgflowd.attempts")
    any_core.do(
        "update pgflow.step_tasks set queued_at = now() - interval '2 h',"
        " started_at = now() - interval '1 h'"
    )

    assert stalled(any_core) == [("a", 0, "its timeout has passed")]
    assert requeue(any_core, run)
    any_core.complete(any_core.claim_one(flow, any_core.worker(flow)))
    assert any_core.status(run) == "completed"


def test_a_task_given_up_fails_with_the_reason(any_core: LeaseDatabase):
    flow = any_core.flow()
    run = any_core.start(flow)
    any_core.claim_one(flow, any_core.worker(flow))
    assert not give_up(any_core, run)
    any_core.do(LAPSE)

    assert give_up(any_core, run)

    assert any_core.status(run) == "failed"
    assert any_core.task(run).error_message == "stalled, and given up by anna: gone"
    assert any_core.outcomes(run) == ["stalled"]
    assert violated(any_core) == []


def test_a_task_there_is_not_is_not_found(any_core: LeaseDatabase):
    run = any_core.start(any_core.flow())

    for act in (requeue, give_up):
        with pytest.raises(psycopg.Error) as missing:
            act(any_core, run, "nowhere")
        assert missing.value.sqlstate == "PF002"


def test_of_a_requeue_and_a_report_under_way_the_first_wins(own: LeaseDatabase):
    flow = own.flow()
    run = own.start(flow)
    task = own.claim_one(flow, own.worker(flow))
    own.do(LAPSE)
    reporting = own.connect()
    reporting.execute("begin")
    own.complete(task, conn=reporting)
    answers: list[bool] = []
    other = own.connect()

    def act() -> None:
        query = "select pgflowd.requeue_task(%s, 'a', 0, '60 s', 'anna')"
        answers.append(own.value(query, run, conn=other))

    thread = threading.Thread(target=act)
    thread.start()
    until(lambda: own.value(
        "select count(*) from pg_locks where not granted and pid = %s", other.info.backend_pid
    ))  # fmt: skip
    reporting.execute("commit")
    thread.join(timeout=20)

    assert answers == [False]
    assert own.status(run) == "completed"


def test_nothing_is_violated_by_any_ordinary_life(any_core: LeaseDatabase):
    flow = any_core.flow("a", "m*:a", "z:m", max_attempts=2)
    worker = any_core.worker(flow)
    runs = [any_core.start(flow) for _ in range(4)]
    any_core.rows("select pgflowd.cancel(%s, null, null)", runs[0])
    for task in any_core.claim(flow, worker):
        any_core.complete(task, [1, 2]) if task.run_id != runs[1] else any_core.fail(task)
    assert violated(any_core) == []
    for _ in range(3):
        for task in any_core.claim(flow, worker):
            any_core.fail(task) if task.run_id == runs[1] else any_core.complete(task, 5)
        assert violated(any_core) == []
    assert any_core.rows("select pgflowd.retry(%s, null)", runs[1])
    assert violated(any_core) == []
    statuses = sorted(any_core.status(run) for run in runs)
    assert statuses == ["completed", "completed", "failed", "started"]


@covers("database 13")
def test_to_look_at_some_runs_costs_the_same_however_many_there_are(own: LeaseDatabase):
    own.do("vacuum analyze pgflow.runs, pgflow.step_states, pgflow.step_tasks, pgflowd.attempts")
    flow = own.flow("a", "b:a")

    few = pages_of_five_hundred_runs(own, flow, in_all=1000)
    many = pages_of_five_hundred_runs(own, flow, in_all=6000)

    assert many < 2 * few  # indexes may have grown by a level


def pages_of_five_hundred_runs(own: LeaseDatabase, flow: str, in_all: int) -> int:
    """Pages that a look at the invariants of 500 runs reads, in a session without plans."""
    starts = "select count(*) from pgflow.start_flows(%s, array_fill('{}'::jsonb, array[%s]))"
    own.value(starts, flow, in_all - own.value("select count(*) from pgflow.runs"))
    listing = "select array_agg(run_id) from (select run_id from pgflow.runs limit 500) as run"
    look = "explain (analyze, buffers, format json) select * from pgflowd.run_violations(%s)"
    with own.connect() as conn:
        runs = own.value(listing, conn=conn)
        for _ in range(2):  # the first time reads catalogs
            plan = own.value(look, runs, conn=conn)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
