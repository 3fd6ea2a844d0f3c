"""
Tasks that wait for the end of runs: whatever the interleaving of ends, waits, sweeps and deaths of
sweeps, each goes on once, when the last of its runs has ended.
"""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from support.child_runs import begun, process, start_child
from support.covers import covers
from support.database import Row
from support.leases import LeaseDatabase

from pgflowd.testing.until import until

WAITS = "select count(*) from pgflowd.waits"
ENDS = "select name, data from pgflowd.checkpoints where run_id = %s order by name"
KILL = """
    select pg_terminate_backend(pid) from pg_stat_activity
     where application_name = 'sweep' and datname = current_database() limit 1
"""


def wait_for(*runs: UUID | None, checkpoint: str = "runs 1", **more: Any) -> dict[str, Any]:
    return {"kind": "runs", "runs": list(map(str, runs)), "checkpoint": checkpoint, **more}


def children(db: LeaseDatabase, task: Row, flow: str, number: int) -> list[UUID]:
    found = [start_child(db, task, flow, f"nr {n}") for n in range(number)]
    return [run for run in found if run is not None]


def work(db: LeaseDatabase, flow: str, most: int = 1000, conn: Any = None) -> int:
    """Complete so many tasks."""
    tasks = db.claim(flow, db.worker(flow), most, conn=conn)
    for task in tasks:
        db.complete(task, conn=conn)
    return len(tasks)


def test_a_task_goes_on_when_the_last_of_a_thousand_runs_has_ended(own: LeaseDatabase) -> None:
    task, flow = begun(own, own.flow()), own.flow()
    start = "select run_id from pgflow.start_flows(%s, array_fill('{}'::jsonb, array[1000]))"
    runs = own.column(start, flow)

    assert own.suspend(task, wait_for(*runs)).verdict == "queued"
    process(own)
    complete = "select count(pgflowd.complete(run_id, step_slug, task_index, token, '1')) from {}"
    claimed = "pgflowd.claim(%s, %s, 999)"
    assert own.value(complete.format(claimed), flow, own.worker(flow)) == 999
    process(own)
    assert (own.value(WAITS), own.value("select count(*) from pgflowd.awaits")) == (1, 1)

    assert work(own, flow) == 1
    process(own)
    assert own.rows(ENDS, task.run_id) == [("runs 1", {"ended": True})]
    assert own.value("select count(*) from pgflowd.awaits") == 0
    again = own.claim_one(task.flow_slug, own.worker(task.flow_slug))
    read = "select run_id, status, output, error from pgflowd.read_runs(%s, 1000000)"
    assert own.rows(read, runs) == [(run, "completed", {"a": 1}, None) for run in runs]
    own.complete(again)


def test_runs_that_fail_are_cancelled_expire_or_are_deleted_have_ended(own: LeaseDatabase) -> None:
    task, flow, doomed = begun(own, own.flow()), own.flow(max_attempts=1), own.flow()
    runs = children(own, task, flow, 3)
    runs += [start_child(own, task, flow, "late", delay_s=60, expires_s=90)]
    runs += children(own, task, doomed, 1)
    own.suspend(task, wait_for(*runs, uuid4()))
    process(own)
    own.fail(own.claim_one(flow, own.worker(flow), max_tasks=1), "boom")
    own.cancel(runs[1])
    process(own)
    assert own.value(WAITS) == 1

    own.do("select pgflow.delete_flow_and_data(%s)", doomed)
    own.do("update pgflowd.runs set expires_at = now(), due_at = now() where start_at is not null")
    work(own, flow)
    until(lambda: (process(own), own.value(WAITS))[1] == 0)

    assert own.rows(ENDS, task.run_id) == [("runs 1", {"ended": True})]
    status = "select status, error from pgflowd.read_runs(%s, 1000000)"
    found = dict(zip(runs, [row.status for row in own.rows(status, runs[:4])], strict=False))
    assert sorted(found.values()) == ["cancelled", "completed", "expired", "failed"]
    with pytest.raises(psycopg.Error, match="was deleted, or never started") as error:
        own.rows(status, runs)
    assert error.value.sqlstate == "PF002"


def test_a_wait_that_times_out_leaves_nothing_that_a_later_one_waits_for(
    own: LeaseDatabase,
) -> None:
    parent, flow = own.flow(), own.flow()
    task = begun(own, parent)
    first, second = children(own, task, flow, 2)
    own.suspend(task, wait_for(first, in_s=0))
    process(own)
    assert own.rows(ENDS, task.run_id) == [("runs 1", {"timeout": True})]

    own.suspend(own.claim_one(parent, own.worker(parent)), wait_for(second, checkpoint="runs 2"))
    process(own)
    for one in own.claim(flow, own.worker(flow)):
        if one.run_id == second:
            own.complete(one)
    process(own)

    assert own.rows(ENDS, task.run_id)[1] == ("runs 2", {"ended": True})
    assert own.value(WAITS) == 0


@pytest.mark.parametrize("open_one", ["the end of the child", "the wait of the parent"])
def test_an_open_transaction_holds_up_nobody_and_nothing_is_missed(
    own: LeaseDatabase, open_one: str
) -> None:
    task, flow, other = begun(own, own.flow()), own.flow(), own.connect()
    (child,) = children(own, task, flow, 1)
    with other.transaction():
        if open_one == "the end of the child":
            work(own, flow, conn=other)
            own.suspend(task, wait_for(child))
        else:
            own.suspend(task, wait_for(child), conn=other)
            work(own, flow)
        own.value("select done from pgflowd.process_due()")
        assert own.column("select kind from pgflowd.waits where due_at <= now()") == []
    until(lambda: (process(own), own.rows(ENDS, task.run_id))[1] == [("runs 1", {"ended": True})])


@covers("G21")
def test_parents_and_children_race_and_sweepers_are_killed(own: LeaseDatabase) -> None:
    parent, flow, over, chance = own.flow(), own.flow(), threading.Event(), random.Random(3)
    number = 50

    def sweep() -> None:
        while not over.is_set():
            with (
                suppress(psycopg.OperationalError),
                psycopg.connect(own.dsn, autocommit=True, application_name="sweep") as conn,
            ):
                while not over.is_set():
                    conn.execute("select pgflowd.process_due(5)")

    def end_children() -> None:
        with psycopg.connect(own.dsn, autocommit=True) as conn:
            worker = own.worker(flow)
            while not over.is_set():
                for row in conn.execute("select * from pgflowd.claim(%s, %s, 3)", (flow, worker)):
                    complete = "select pgflowd.complete(%s, %s, %s, %s, '1')"
                    conn.execute(complete, (row[1], row[2], row[5], row[7]))

    threads = [threading.Thread(target=sweep) for _ in range(3)]
    threads += [threading.Thread(target=end_children) for _ in range(2)]
    for thread in threads:
        thread.start()
    worker = own.worker(parent)
    own.do("select pgflow.start_flows(%s, array_fill('{}'::jsonb, array[%s]))", parent, number)

    def all_completed() -> bool:
        for task in own.claim(parent, worker, 5):
            if own.rows(ENDS, task.run_id):
                own.complete(task)
            else:
                runs = children(own, task, flow, chance.randrange(1, 5))
                own.suspend(task, wait_for(*runs))
        own.do(KILL)
        ended = "select count(*) from pgflow.runs where flow_slug = %s and status = 'completed'"
        return own.value(ended, parent) == number

    try:
        until(all_completed, within_s=60)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert own.value("select count(*) from pgflow.runs where status <> 'completed'") == 0
    assert own.value("select count(*) from pgflowd.awaits") == 0
    suspended = "select count(*) from pgflowd.attempts where outcome = 'suspended'"
    assert own.value(suspended) == number


@pytest.mark.parametrize("runs", [None, [], {}, ["x"]])
def test_a_wait_for_no_runs_is_refused(own: LeaseDatabase, runs: Any) -> None:
    task = begun(own, own.flow())
    answer = own.suspend(task, {"kind": "runs", "runs": runs, "checkpoint": "runs 1"})
    assert answer.sqlstate in ("22023", "22P02")
    assert own.status(task.run_id) == "started"


def test_a_wait_for_runs_that_nobody_will_end_is_a_violation(own: LeaseDatabase) -> None:
    task, flow = begun(own, own.flow()), own.flow()
    own.suspend(task, wait_for(*children(own, task, flow, 1)))
    own.do("create temp table kept as select * from pgflowd.awaits; delete from pgflowd.awaits")
    found = own.rows("select invariant, run_id, detail from pgflowd.violations()")
    assert [row[:2] for row in found] == [("I15", task.run_id)]
    own.do("insert into pgflowd.awaits select * from kept")
