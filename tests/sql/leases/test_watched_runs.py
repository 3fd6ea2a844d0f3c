"""The end of a run that is watched makes its row in pgflowd.runs due, however it ends."""

from __future__ import annotations

import threading
from uuid import UUID

import pytest
from support.leases import LeaseDatabase

DUE = "select run_id from pgflowd.runs where due_at <= now()"


def watched(db: LeaseDatabase, flow: str) -> UUID:
    run: UUID = db.start(flow)
    db.rows("select pgflowd._watch_runs(%s)", [run])
    assert db.column(DUE) == []
    return run


def end(db: LeaseDatabase, run: UUID, flow: str, way: str) -> None:
    worker = db.worker(flow)
    if way == "cancelled":
        db.cancel(run)
    elif way == "failed":
        db.fail(db.claim_one(flow, worker), "no")
    elif way == "completed":
        db.complete(db.claim_one(flow, worker))
    else:
        (task,) = db.upstream_claim(flow, worker)
        db.upstream_complete(task)


@pytest.mark.parametrize(
    "way", ["completed", "failed", "cancelled", "completed by another runtime"]
)
def test_the_end_of_a_watched_run_is_due(own: LeaseDatabase, way: str) -> None:
    flow = own.flow(max_attempts=1)
    run = watched(own, flow)
    end(own, run, flow, way)
    assert own.column(DUE) == [run]
    own.row("select * from pgflowd.process_due()")
    assert own.column(DUE) == []


def test_the_end_of_another_run_writes_no_row(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.start(flow)
    own.complete(own.claim_one(flow, own.worker(flow)))
    assert own.value("select count(*) from pgflowd.runs") == 0


def test_a_worker_of_another_runtime_needs_no_right_on_our_schema(own: LeaseDatabase) -> None:
    flow = own.flow()
    run = watched(own, flow)
    worker, conn = own.worker(flow), own.connect()
    conn.execute("begin; create role a_stranger; grant usage on schema pgflow, pgmq to a_stranger")
    for rights in ("all on all tables", "execute on all functions"):
        conn.execute(f"grant {rights} in schema pgflow, pgmq to a_stranger".encode())
    conn.execute("set local role a_stranger")
    (task,) = own.upstream_claim(flow, worker, conn)
    own.upstream_complete(task, conn=conn)
    conn.execute("reset role")
    assert own.column(DUE, conn=conn) == [run]
    conn.execute("rollback")


def test_a_run_that_ends_while_it_begins_to_be_watched_is_due(own: LeaseDatabase) -> None:
    flow, other = own.flow(), own.connect()
    runs = [own.start(flow) for _ in range(60)]
    tasks = own.claim(flow, own.worker(flow), max_tasks=len(runs))

    def watch() -> None:
        for run in runs:
            other.execute("select pgflowd._watch_runs(%s)", [[run]])

    watching = threading.Thread(target=watch)
    watching.start()
    for task in reversed(tasks):
        own.complete(task)
    watching.join()
    assert set(own.column(DUE)) == set(runs)
