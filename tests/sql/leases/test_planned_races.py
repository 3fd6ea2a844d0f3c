"""
Four sweeps, cancels, other times and expiries race for the same planned runs, and sessions are
killed meanwhile: each run begins once or never, and never too early or too late.
"""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from uuid import UUID

import psycopg
from support.covers import covers
from support.leases import LeaseDatabase

from pgflowd.testing.until import until

RUNS = 240
PLAN = """
    select run_id from pgflowd.start(%s, '{}', start_at => clock_timestamp() + %s::interval,
                                     expires_at => clock_timestamp() + %s::interval)
"""
LEFT = "select count(*) from pgflowd.runs where state = 'planned'"
WRONG = """
    select run_id, status from pgflowd.run_status
     where started_at < start_at or started_at >= expires_at
        or (status = 'scheduled') or (started_at is null and status not in ('cancelled', 'expired'))
"""
KILL = """
    select pg_terminate_backend(pid) from pg_stat_activity
     where application_name = 'sweep' and datname = current_database() limit 1
"""


@covers("G15")
def test_each_planned_run_begins_once_or_never(own: LeaseDatabase) -> None:
    flow, over, chance = own.flow(), threading.Event(), random.Random(7)
    runs: list[UUID] = [
        own.value(PLAN, flow, f"{chance.random() / 2 + 0.01} s", f"{chance.random() * 2 + 0.6} s")
        for _ in range(RUNS)
    ]

    def sweep() -> None:
        while not over.is_set():
            with (
                suppress(psycopg.OperationalError),
                psycopg.connect(own.dsn, autocommit=True, application_name="sweep") as conn,
            ):
                while not over.is_set():
                    conn.execute("select pgflowd.process_due(7)")

    def cancel(some: list[UUID]) -> None:
        with psycopg.connect(own.dsn, autocommit=True) as conn:
            for run in some:
                with suppress(psycopg.errors.DatabaseError):  # it has expired already
                    conn.execute("select pgflowd.cancel(%s, 'enough', 'me')", [run])

    def postpone(some: list[UUID]) -> None:
        with psycopg.connect(own.dsn, autocommit=True) as conn:
            for run in some:
                with suppress(psycopg.errors.DatabaseError):  # it has begun or ended already
                    later = "select pgflowd.reschedule(%s, clock_timestamp() + interval '0.1 s')"
                    conn.execute(later, [run])

    shuffled = chance.sample(runs, RUNS)
    threads = [threading.Thread(target=sweep) for _ in range(4)]
    threads += [threading.Thread(target=cancel, args=(shuffled[:60],))]
    threads += [threading.Thread(target=postpone, args=(shuffled[40:120],))]
    for thread in threads:
        thread.start()
    try:
        until(lambda: bool(own.rows(KILL)) and own.value(LEFT) == 0, within_s=60)
    finally:
        over.set()
        for thread in threads:
            thread.join()

    assert own.rows(WRONG) == []
    assert own.value("select count(*) from pgflowd.run_status") == RUNS
    worker = own.worker(flow)
    while own.claim(flow, worker, max_tasks=100):
        pass
    assert own.value("select count(*) from pgflowd.attempts") == own.value(
        "select count(*) from pgflow.step_tasks where status = 'started'"
    )
