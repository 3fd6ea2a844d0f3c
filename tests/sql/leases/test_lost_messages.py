"""
Queued tasks whose message is gone: recovery sends a new one, and never a second one.
"""

from __future__ import annotations

import psycopg
import pytest
from support.covers import covers
from support.leases import LeaseDatabase

STALLED = "select step_slug, task_index, reason, started_at from pgflowd.stalled_tasks()"


def resend(db: LeaseDatabase) -> int:
    return int(db.value("select resent from pgflowd.resend()"))


def purge(db: LeaseDatabase, flow: str) -> None:
    db.rows("select pgmq.purge_queue(%s)", flow.lower())


@covers("outside 4", "database 21")
@pytest.mark.parametrize("how", ["purge", "delete", "archive"])
def test_a_task_whose_message_is_gone_gets_a_new_one(db: LeaseDatabase, how: str) -> None:
    flow = db.flow("a", "m*:a", "z:m")
    run = db.start(flow)
    worker = db.worker(flow)
    db.complete(db.claim_one(flow, worker), [1, 2, 3])
    first = db.claim_one(flow, worker, max_tasks=1)
    kept = set(db.queue(flow))
    if how == "purge":
        purge(db, flow)
    else:
        lost = list(kept - {first.msg_id})
        db.rows(f"select pgmq.{how}(%s, %s::bigint[])", flow.lower(), lost)

    indexes = sorted({0, 1, 2} - {first.task_index})
    assert db.rows(STALLED) == [("m", index, "its message is gone", None) for index in indexes]
    violated = db.rows("select * from pgflowd.violations()")
    assert {row.invariant for row in violated} == {"I5"}
    assert "the sweeper sends another one" in violated[0].detail
    assert (resend(db), resend(db)) == (2, 0)

    assert db.rows(STALLED) == []
    assert db.rows("select * from pgflowd.violations()") == []
    db.complete(first, "a")
    for task in db.claim(flow, worker):
        db.complete(task, "b")
    db.complete(db.claim_one(flow, worker), "end")
    assert db.status(run) == "completed"


@covers("outside 4")
def test_a_task_whose_message_is_there_gets_no_other(db: LeaseDatabase) -> None:
    flow = db.flow("a", "b", "c", max_attempts=9)
    db.start(flow)
    worker = db.worker(flow)
    db.fail(db.claim_one(flow, worker, max_tasks=1), delay="1 hour")
    db.claim_one(flow, worker, max_tasks=1)
    before = db.queue(flow)

    assert resend(db) == 0

    assert db.queue(flow) == before


@covers("outside 4")
@pytest.mark.parametrize("act", ["claim", "report", "delete", "retry"])
def test_a_message_that_another_transaction_moves_is_left_to_it(
    own: LeaseDatabase, act: str
) -> None:
    db = own
    flow = db.flow("a", "b", max_attempts=1)
    run = db.start(flow)
    worker = db.worker(flow)
    tasks = db.claim(flow, worker) if act in ("report", "retry") else []
    if act == "retry":
        db.fail(tasks[0])
    db.do("set lock_timeout = '1s'")

    other = db.connect()
    with other.transaction():
        if act == "claim":
            db.claim(flow, worker, conn=other)
        elif act == "report":
            db.complete(tasks[0], conn=other)
        elif act == "retry":
            db.retry(run, other)
        else:
            other.execute("select pgmq.delete(%s, array[1::bigint])", (flow,))
        assert resend(db) == 0

    assert resend(db) == (1 if act == "delete" else 0)
    messages = db.queue(flow).values()
    open_tasks = "select count(*) from pgflow.step_tasks where status in ('queued', 'started')"
    assert len(messages) == db.value(open_tasks)


@covers("outside 4")
def test_two_sweeps_at_once_send_one_message(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("a", "b")
    db.start(flow)
    purge(db, flow)
    db.do("set lock_timeout = '1s'")

    other = db.connect()
    with other.transaction():
        assert other.execute("select resent from pgflowd.resend()").fetchone() == (2,)
        assert resend(db) == 0

    assert resend(db) == 0
    assert len(db.queue(flow)) == 2


@covers("outside 4", "database 21")
def test_an_operator_requeues_or_fails_a_task_whose_message_is_gone(db: LeaseDatabase) -> None:
    flow = db.flow("a", "b", max_attempts=3)
    run = db.start(flow)
    worker = db.worker(flow)
    db.fail(db.claim_one(flow, worker, max_tasks=1), delay="0 s")
    purge(db, flow)

    requeue = "select pgflowd.requeue_task(%s, %s, 0, '60 s', 'anna')"
    spent = {step: db.task(run, step).attempts_count for step in "ab"}
    assert sorted(spent.values()) == [0, 1]
    for step in "ab":
        assert db.value(requeue, run, step)
        assert not db.value(requeue, run, step), "it has its message"
        assert db.task(run, step).attempts_count == spent[step]
    assert len(db.claim(flow, worker)) == 2

    other = db.start(flow)
    purge(db, flow)
    fail = "select pgflowd.give_up_task(%s, 'a', 0, '60 s', 'enough', 'anna')"
    assert db.value(fail, other)
    assert db.status(other) == "failed"
    assert db.task(other).error_message == "stalled, and given up by anna: enough"


@covers("outside 4")
def test_a_look_reads_some_pages_and_the_next_one_those_before(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.rows("select 1 from pgflow.start_flows(%s, array_fill('{}'::jsonb, array[6000]))", flow)
    oldest = own.value("select run_id from pgflow.runs order by ctid limit 1")
    own.rows("select pgmq.delete(%s, 1)", flow)
    pages = own.value("select pg_relation_size('pgflow.runs') / 8192")
    assert pages > 128

    looks, page = [], None
    while page is not None or not looks:
        found = own.row("select resent, next_page from pgflowd.resend(%s)", page)
        looks.append(found.resent)
        page = found.next_page
        assert len(looks) < 100

    assert looks == [0] * (len(looks) - 1) + [1]
    assert len(looks) == -(-pages // 128)
    assert own.task(oldest).message_id == 6001


def test_recovery_by_an_operator_sends_new_messages_too(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.start(flow)
    purge(own, flow)

    assert own.recover() == 1


def test_a_flow_whose_queue_is_gone_is_left_alone(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.start(flow)
    own.rows("select pgmq.drop_queue(%s)", flow)

    assert resend(own) == 0
    assert own.rows(STALLED) == []
    with pytest.raises(psycopg.errors.UndefinedTable):
        own.queue(flow)
