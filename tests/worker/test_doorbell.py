"""
The doorbell of a real worker (docs/background/doorbells.md).

No listener runs here and no fallback comes, so nothing but the worker itself finds a message.
"""

from __future__ import annotations

import os
import signal

import psycopg
import pytest
from support.covers import covers

from pgflowd.core.messages import Wake
from pgflowd.testing.until import until

DEAF = {"heartbeat_interval_s": 60.0, "notify_fallback_s": 600.0}
FLOW = """
    from pgflowd import Flow
    flow = Flow("flow")

    @flow.step
    def work(run): return 1
"""
OWNERS = "select owner::text from pgflowd.doorbells where queue = 'flow'"
UNCLAIMED = "select count(*) from pgmq.q_flow where read_ct = 0"
MANY = 4_000
START_MANY = "select count(*) from pgflow.start_flows('flow', array_fill('{}'::jsonb, array[%s]))"
OTHERS = """
select pg_terminate_backend(pid) from pg_stat_activity
 where datname = current_database() and application_name like %s
"""


def is_armed(worker):
    return worker.column(OWNERS) == [worker.worker_id]


def rests(worker):
    """Whether it is armed, and has looked at who may have missed that."""
    return is_armed(worker) and len(worker.records("worker.poll")) >= 2


@covers("G9")
def test_an_idle_worker_is_armed_and_a_drain_takes_its_doorbell_down(start_worker):
    worker = start_worker(FLOW, **DEAF)
    until(lambda: rests(worker))

    assert worker.drain() == 0

    assert worker.column(OWNERS) == []


@covers("G9")
def test_a_busy_worker_has_none_and_arms_when_no_work_is_left_to_claim(start_worker):
    worker = start_worker(FLOW, **DEAF)
    old = "select armed_at < clock_timestamp() - interval '1.1 s' from pgflowd.doorbells"
    until(lambda: worker.column(old) == [True])

    worker.value(START_MANY, MANY)
    worker.start_run()

    until(lambda: worker.column(OWNERS) == [], 20)
    assert worker.value(UNCLAIMED) > 0
    until(lambda: is_armed(worker), 60)
    assert worker.value(UNCLAIMED) == 0  # its runners may still have the last tasks
    until(lambda: worker.value("select count(*) from pgmq.q_flow") == 0)


@pytest.mark.own_session
@covers("G9")
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_transaction_from_before_the_arming_is_waited_for(start_worker, database, ends: str):
    worker = start_worker(FLOW, **DEAF)
    until(lambda: rests(worker))
    with psycopg.connect(database.dsn) as sender:
        sender.execute("select pgflow.start_flow('flow', '{}')")
        before = len(worker.records("worker.poll"))
        worker.rows(OTHERS, "%worker%")
        worker.send(Wake())  # it notices, connects again, arms, and looks

        until(lambda: len(worker.records("worker.poll")) >= before + 4, 20)
        assert is_armed(worker)
        sender.execute(ends.encode())

    until(lambda: worker.value("select count(*) from pgmq.q_flow") == 0)
    until(lambda: not worker.column("select 1 from pgflow.runs where status = 'started'"))
    runs = worker.column("select status from pgflow.runs")
    assert runs == (["completed"] if ends == "commit" else [])


@covers("G9")
def test_a_doorbell_that_the_server_has_lost_is_put_up_again(start_worker):
    worker = start_worker(FLOW, heartbeat_interval_s=60.0, notify_fallback_s=0.5)
    until(lambda: rests(worker))

    worker.do("truncate pgflowd.doorbells")

    until(lambda: is_armed(worker))


@covers("G9", "rule 12")
@pytest.mark.parametrize("is_busy", [False, True])
def test_after_a_kill_the_sweeper_takes_the_doorbell_down_and_a_successor_looks(
    start_worker, is_busy: bool
):
    worker = start_worker(FLOW, **DEAF)
    until(lambda: rests(worker))
    dead = worker.worker_id
    if is_busy:
        worker.value(START_MANY, MANY // 4)
        worker.start_run()
        until(lambda: worker.value("select count(*) from pgflow.runs where status = 'completed'"))
    os.kill(worker.pid, signal.SIGKILL)
    worker.ended()
    worker.value("select pgflow.start_flow('flow', '{}') is null")

    worker.rows("select pgflowd.sweep_dead(%s, 'killed')", dead)

    assert worker.column(OWNERS) == []
    successor = start_worker(FLOW, **DEAF)
    until(lambda: worker.value("select count(*) from pgmq.q_flow") == 0, 60)
    until(lambda: is_armed(successor), 20)
