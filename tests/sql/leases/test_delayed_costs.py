"""
Messages that wait cost claims, sweeps and status nothing: neither those of a delayed step, nor
those of tasks that wait for their next attempt, nor those that wait for a worker.

Rows are counted, never time. The queue is vacuumed first, as autovacuum does: what is dead is
another matter.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from support.covers import covers
from support.leases import LeaseDatabase, element
from support.rows_read import rows_read

from pgflowd.db import workers

FEW = 150  # more than the messages that recovery looks at in any case
MANY = 2_500
MORE = 50  # rows that a statement may read more than before
COUNTED = 10_000  # messages that a status counts
START = "select count(*) from pgflow.start_flows(%s, array_fill('{}'::jsonb, array[%s::int]))"
SEND = "select count(*) from pgmq.send_batch(%s, array_fill('{}'::jsonb, array[%s::int]), 3600)"
Wait = Callable[[LeaseDatabase, str, uuid.UUID, int], None]


def for_their_step(db: LeaseDatabase, flow: str, worker: uuid.UUID, count: int) -> None:
    db.do("update pgflow.steps set opt_start_delay = 3600")
    db.rows(START, flow, count)


def for_their_next_attempt(db: LeaseDatabase, flow: str, worker: uuid.UUID, count: int) -> None:
    db.do("update pgflow.steps set opt_base_delay = 3600")
    db.rows(START, flow, count)
    while tasks := db.claim(flow, worker, max_tasks=200):
        db.report(*[element(task, "failed", error_message="x") for task in tasks])


def for_a_worker(db: LeaseDatabase, flow: str, worker: uuid.UUID, count: int) -> None:
    db.rows(START, flow, count)


def costs(db: LeaseDatabase, flow: str, worker: uuid.UUID) -> dict[str, int]:
    """The rows that each statement reads, at its second time; one task is ready for the claim."""
    due = workers.next_due(flow)
    calls = {
        "claim": ("select * from pgflowd.claim(%s, %s, 1)", flow, worker),
        "sweep": ("select * from pgflowd.sweep()",),
        "sweep_dead": ("select * from pgflowd.sweep_dead(%s, 'killed')", uuid.uuid4()),
        "requeue_stalled_tasks": ("select pgflow.requeue_stalled_tasks()",),
        "worker_status": ("select * from pgflowd.worker_status",),
        "next_due": (due.sql, *due.params),
        "renew_workers": ("select * from pgflowd.renew_workers(%s, '0 s')", [worker]),
    }
    found = {}
    db.do(f"vacuum pgmq.q_{flow}")
    for name, call in calls.items():
        for _ in range(2):
            with db.conn.transaction(force_rollback=True):
                found[name] = rows_read(db.conn, *call)
    return found


@covers("database 15")
@pytest.mark.parametrize("wait", [for_their_step, for_their_next_attempt, for_a_worker])
def test_messages_that_wait_cost_nothing(own: LeaseDatabase, wait: Wait) -> None:
    flow = own.flow(base_delay=0)
    worker = own.worker(flow)
    own.start(flow)
    at_work = own.claim_one(flow, worker)
    wait(own, flow, worker, FEW)
    own.do("update pgflow.steps set opt_start_delay = 0")
    own.start(flow)
    few = costs(own, flow, worker)
    ready = own.value(f"select count(*) from pgmq.q_{flow} where vt <= clock_timestamp()")

    wait(own, flow, worker, MANY)

    many = costs(own, flow, worker)
    if wait is for_a_worker:
        few["next_due"] += MANY  # they count what is ready
        few["renew_workers"] += MANY
    elif wait is for_their_next_attempt:
        own.start(flow)
        many = costs(own, flow, worker)
    assert ready == (FEW + 1 if wait is for_a_worker else 1)
    assert {name: (few[name], many[name]) for name in few if many[name] > few[name] + MORE} == {}
    own.lapse(at_work)
    assert own.sweep() == (1, 0), "what has stalled is found among them"


@covers("database 15")
def test_a_claim_on_own_reads_by_the_index_of_what_is_due(own: LeaseDatabase) -> None:
    flow = own.flow()
    worker = own.worker(flow)
    own.rows(SEND, flow, MANY)
    own.start(flow)
    own.do(f"vacuum pgmq.q_{flow}")

    with own.conn.transaction(force_rollback=True):
        claim = "select * from pgflowd.claim(%s, %s, 5)"
        assert rows_read(own.conn, claim, flow, worker) < 100
    with own.conn.transaction(force_rollback=True):
        assert len(own.claim(flow, worker)) == 1


@covers("database 15")
def test_status_counts_to_ten_thousand(own: LeaseDatabase) -> None:
    flow = own.flow()
    read = {}
    for _ in range(2):
        own.rows(SEND, flow, COUNTED + 2_000)
        own.do(f"vacuum pgmq.q_{flow}")
        with own.conn.transaction():
            count = len(read)
            read[count] = rows_read(own.conn, "select * from pgflowd.flow_status")

    status = own.row("select * from pgflowd.flow_status where flow_slug = %s", flow)
    assert (status.queued, status.running, status.delayed) == (0, 0, COUNTED)
    assert read[1] <= read[0] + MORE


def test_what_was_visible_for_longest_is_claimed_first(own: LeaseDatabase) -> None:
    flow = own.flow()
    worker = own.worker(flow)
    first, second, third = (own.start(flow) for _ in range(3))
    own.fail(own.claim_one(flow, worker, max_tasks=1), delay="0 s")

    assert [own.claim_one(flow, worker, max_tasks=1).run_id for _ in range(3)] == [
        second,
        third,
        first,
    ]


def test_a_retried_task_that_is_still_at_work_is_found_by_a_sweep(own: LeaseDatabase) -> None:
    """Its new message counts as read, though no claim has read it."""
    flow = own.flow("a", "b", base_delay=0)
    worker = own.worker(flow)
    for_their_step(own, flow, worker, FEW)
    own.do("update pgflow.steps set opt_start_delay = 0")
    run = own.start(flow)
    one, _other = own.claim(flow, worker)
    own.fail(one, retry=False)

    own.rows("select pgflowd.retry(%s, 'me')", run)

    assert own.crashed(worker) == 1


def test_recovery_and_status_start_no_parallel_workers(own: LeaseDatabase) -> None:
    """They would take longer than all else that is done, on a queue that was never analysed."""
    flow = own.flow()
    own.rows(SEND, flow, MANY)
    for name in ("parallel_setup_cost", "parallel_tuple_cost", "min_parallel_table_scan_size"):
        own.do(f"set {name} = 0")
    own.do("set min_parallel_index_scan_size = 0")

    observer = own.connect()

    def launched(query: str) -> int:
        counted = "select parallel_workers_to_launch from pg_stat_database"
        counted += " where datname = current_database()"
        before: int = own.value(counted, conn=observer)
        own.rows(query)
        own.rows("select pg_stat_force_next_flush()")
        return int(own.value(counted, conn=observer)) - before

    assert launched(f"select count(*) from pgmq.q_{flow}") > 0
    assert launched("select pgflow.requeue_stalled_tasks()") == 0
    assert launched("select * from pgflowd.sweep()") == 0
    assert launched("select * from pgflowd.flow_status") == 0


def test_a_queue_of_another_owner_needs_no_index(own: LeaseDatabase) -> None:
    own.do("select pgflow.create_flow('theirs')")
    own.do("drop index pgmq.q_theirs_read_idx; create role queue_owner; create role flow_definer")
    own.do("alter table pgmq.q_theirs owner to queue_owner")
    own.do("grant usage on schema pgflow, pgflowd, pgmq to flow_definer")
    own.do("grant all on all tables in schema pgflow, pgflowd, pgmq to flow_definer")
    own.do("grant execute on all functions in schema pgflow, pgflowd, pgmq to flow_definer")
    try:
        own.do("set role flow_definer")
        own.do("select pgflow.create_flow('theirs', 7)")
    finally:
        own.do("reset role")
        own.do("alter table pgmq.q_theirs owner to current_user")
        own.do("drop owned by queue_owner, flow_definer; drop role queue_owner, flow_definer")

    assert own.value("select to_regclass('pgmq.q_theirs_read_idx')") is None
