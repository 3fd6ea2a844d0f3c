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


def test_runs_are_found_by_their_last_digits(own: LeaseDatabase):
    flow = own.flow()
    first, second = own.start(flow), own.start(flow)

    def found(digits: str) -> list[object]:
        return [row.run_id for row in own.rows("select * from pgflowd.find_runs(%s)", digits)]

    assert found(first.hex[-8:]) == [first]
    assert found(second.hex) == [second]
    assert found("") == [second, first]
    assert found("zz") == []


def test_runs_are_listed_with_how_far_they_are_and_why_they_failed(own: LeaseDatabase):
    flow = own.flow("a", "b:a", max_attempts=1)
    failed, ended, active = (own.start(flow) for _ in range(3))
    worker = own.worker(flow)
    tasks = {task.run_id: task for task in own.claim(flow, worker)}
    own.fail(tasks[failed], "no such customer")
    own.complete(tasks[ended])
    own.rows("select pgflowd.cancel(%s, 'enough', 'anna')", ended)

    rows = {row.run_id: row for row in own.rows("select * from pgflowd.list_runs(%s)", flow)}

    assert {run: row.status for run, row in rows.items()} == {
        failed: "failed", ended: "cancelled", active: "started",
    }  # fmt: skip
    assert "no such customer" in rows[failed].error_message
    assert (rows[ended].steps, rows[ended].steps_done) == (2, 1)
    assert rows[active].ended_at is None


def test_the_steps_of_a_run_are_counted_by_status(own: LeaseDatabase):
    flow = own.flow("a", "m*:a", "z:m", max_attempts=4, timeout=30)
    run = own.start(flow)
    worker = own.worker(flow)
    own.complete(own.claim_one(flow, worker), [1, 2, 3])
    first, second = own.claim(flow, worker, max_tasks=2)
    own.complete(first)

    steps = {row.step_slug: row for row in own.rows("select * from pgflowd.run_steps(%s)", run)}

    assert list(steps) == ["a", "m", "z"]
    many = steps["m"]
    assert (many.step_type, many.deps, many.tasks) == ("map", ["a"], 3)
    assert (many.queued, many.running, many.completed, many.failed) == (1, 1, 1, 0)
    assert (many.attempts, many.max_attempts, many.timeout_s) == (1, 4, 30)
    assert many.running_since is not None and many.next_at is not None
    assert steps["z"].tasks == 0
    assert second is not None


def test_troubles_are_the_attempts_without_an_output(own: LeaseDatabase):
    flow = own.flow("a", "b", base_delay=9)
    run = own.start(flow)
    one, other = own.claim(flow, own.worker(flow))
    own.complete(other)
    own.fail(one, "boom")

    (trouble,) = own.rows("select * from pgflowd.run_troubles(%s)", run)

    assert (trouble.step_slug, trouble.attempt, trouble.max_attempts) == (one.step_slug, 1, 3)
    assert (trouble.outcome, trouble.error_message) == ("failed", "boom")
    assert trouble.next_at > trouble.ended_at
    later = own.rows("select * from pgflowd.run_troubles(%s, now() + interval '1 h')", run)
    assert later == []


def test_a_shape_has_the_options_in_force(own: LeaseDatabase):
    flow = own.flow("a", "m*:a", timeout=77)

    shape = own.value("select pgflowd.flow_shape(%s)", flow)

    assert [step["slug"] for step in shape["steps"]] == ["a", "m"]
    assert shape["steps"][1]["stepType"] == "map"
    assert shape["steps"][1]["dependencies"] == ["a"]
    assert shape["options"]["timeout"] == 77
    assert own.value("select pgflowd.flow_shape('nowhere')") is None


def test_flows_are_listed_with_their_open_work(own: LeaseDatabase):
    flow = own.flow("a", "b")
    own.start(flow)
    own.claim(flow, own.worker(flow), max_tasks=1)

    row = next(row for row in own.rows("select * from pgflowd.list_flows()")
               if row.flow_slug == flow)  # fmt: skip

    assert (row.steps, row.queued, row.running, row.active_runs, row.workers) == (2, 1, 1, 1, 1)
    assert row.is_watched and row.oldest_queued_at is not None
    assert own.value("select pgflowd.active_runs(%s)", flow) == 1


def test_a_requeued_task_goes_to_another_and_the_first_has_lost_it(own: LeaseDatabase):
    flow = own.flow()
    run = own.start(flow)
    task = own.claim_one(flow, own.worker(flow))
    assert stalled(own) == []
    assert not requeue(own, run)
    own.do(LAPSE)

    assert stalled(own) == [("a", 0, "its lease lapsed")]
    assert requeue(own, run)
    assert not requeue(own, run)

    again = own.claim_one(flow, own.worker(flow))
    assert again.token > task.token and again.attempt == 1
    with pytest.raises(psycopg.Error) as lost:
        own.complete(task)
    assert lost.value.sqlstate == "PF001"
    own.complete(again)
    assert own.status(run) == "completed"
    assert violated(own) == []


def test_a_task_of_a_worker_without_leases_is_stalled_after_its_timeout(own: LeaseDatabase):
    flow = own.flow(timeout=5)
    run = own.start(flow)
    own.claim_one(flow, own.worker(flow))
    own.do("delete from pgflowd.attempts")
    own.do(
        "update pgflow.step_tasks set queued_at = now() - interval '2 h',"
        " started_at = now() - interval '1 h'"
    )

    assert stalled(own) == [("a", 0, "its timeout has passed")]
    assert requeue(own, run)
    own.complete(own.claim_one(flow, own.worker(flow)))
    assert own.status(run) == "completed"


def test_a_task_given_up_fails_with_the_reason(own: LeaseDatabase):
    flow = own.flow()
    run = own.start(flow)
    own.claim_one(flow, own.worker(flow))
    assert not give_up(own, run)
    own.do(LAPSE)

    assert give_up(own, run)

    assert own.status(run) == "failed"
    assert own.task(run).error_message == "stalled, and given up by anna: gone"
    assert own.outcomes(run) == ["stalled"]
    assert violated(own) == []


def test_a_task_there_is_not_is_not_found(own: LeaseDatabase):
    run = own.start(own.flow())

    for act in (requeue, give_up):
        with pytest.raises(psycopg.Error) as missing:
            act(own, run, "nowhere")
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


def test_nothing_is_violated_by_any_ordinary_life(own: LeaseDatabase):
    flow = own.flow("a", "m*:a", "z:m", max_attempts=2)
    worker = own.worker(flow)
    runs = [own.start(flow) for _ in range(4)]
    own.rows("select pgflowd.cancel(%s, null, null)", runs[0])
    for task in own.claim(flow, worker):
        own.complete(task, [1, 2]) if task.run_id != runs[1] else own.fail(task)
    assert violated(own) == []
    for _ in range(3):
        for task in own.claim(flow, worker):
            own.fail(task) if task.run_id == runs[1] else own.complete(task, 5)
        assert violated(own) == []
    assert own.rows("select pgflowd.retry(%s, null)", runs[1])
    assert violated(own) == []
    statuses = sorted(own.status(run) for run in runs)
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
