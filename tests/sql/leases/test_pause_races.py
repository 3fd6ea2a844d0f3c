"""
Runs are paused and resumed at random, beside claims, reports, retries, signals, timers and cancels,
while sessions are killed: none is lost, and none begins while it is paused.
"""

from __future__ import annotations

import random
from contextlib import suppress
from threading import Event, Thread
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row
from support.covers import covers
from support.database import Row, key
from support.leases import LeaseDatabase

from pgflowd.testing.until import until

RUNS = 40
PAUSED = "select run_id from pgflowd.runs where paused_at is not null"
BEGUN = """
    select attempt.run_id from pgflowd.attempts as attempt join pgflowd.runs as run using (run_id)
     where attempt.started_at > run.paused_at
"""
LEFT = "select count(*) from pgflow.runs where status = 'started'"
KILL = """
    select pg_terminate_backend(pid) from pg_stat_activity
     where application_name = 'mortal' and datname = current_database() limit 1
"""


@covers("G19")
def test_no_task_is_lost_or_begins_while_its_run_is_paused(own: LeaseDatabase) -> None:
    flow, calm, over = own.flow("a", "b", "c:a+b", max_attempts=99), Event(), Event()
    runs, worker = [own.start(flow) for _ in range(RUNS)], own.worker(flow)
    own.set("crash_limit", 1000)

    def work(conn: psycopg.Connection[Any], chance: random.Random) -> None:
        for task in own.claim(flow, worker, max_tasks=5, lease="0.2 s", conn=conn):
            with suppress(psycopg.errors.DatabaseError):  # its run was cancelled, its lease lost
                end(own, task, chance, conn)

    def sweep(conn: psycopg.Connection[Any], chance: random.Random) -> None:
        conn.execute("select pgflowd.process_due(7)")
        conn.execute("select pgflowd.sweep('0 s')")

    def interrupt(conn: psycopg.Connection[Any], chance: random.Random) -> None:
        if calm.wait(0.005):
            return
        run = chance.choice(runs)
        deed = chance.choice(["pause(%s)", "resume(%s)", "signal(%s, 'paid')"])
        if run in runs[:6] and chance.random() < 0.05:
            deed = "cancel(%s, 'enough', 'me')"
        with suppress(psycopg.errors.DatabaseError), conn.transaction():  # it has ended
            conn.execute(f"select pgflowd.{deed}".encode(), [run])

    def live(act: Any, seed: int) -> None:
        chance = random.Random(seed)
        while not over.is_set():
            with (
                suppress(psycopg.OperationalError),
                psycopg.connect(own.dsn, autocommit=True, application_name="mortal",
                                row_factory=namedtuple_row) as conn,
            ):  # fmt: skip
                while not over.is_set():
                    act(conn, chance)

    acts = [work, work, sweep, interrupt, interrupt]
    threads = [Thread(target=live, args=(act, n)) for n, act in enumerate(acts)]
    for thread in threads:
        thread.start()
    wrong: list[Row] = []
    chance = random.Random(8)

    def enough_pauses() -> bool:
        wrong.extend(own.rows(BEGUN))
        if chance.random() < 0.03:
            own.rows(KILL)
        return bool(wrong) or own.value(LEFT) < RUNS / 3

    def all_ended() -> bool:
        for run in own.column(PAUSED):
            own.value("select pgflowd.resume(%s)", run)
        return bool(own.value(LEFT) == 0)

    try:
        until(enough_pauses, within_s=60)
        calm.set()
        until(all_ended, within_s=60)
    finally:
        over.set()
        for thread in threads:
            thread.join()

    assert wrong == []
    assert own.rows("select * from pgflowd.waits") == []
    assert own.rows("select * from pgflowd.violations()") == []


def end(db: LeaseDatabase, task: Row, chance: random.Random, conn: Any) -> None:
    """Report what a handler may: completed, failed with a delay, or that it waits."""
    drawn = chance.random()
    if drawn < 0.5:
        db.complete(task, conn=conn)
    elif drawn < 0.7:
        db.fail(task, delay=f"{chance.random() / 50} s", conn=conn)
    elif drawn < 0.85:
        db.suspend(task, {"kind": "sleep", "in_s": chance.random() / 50}, conn)
    else:
        name = f"signal paid {key(task).token}"
        wait = {"kind": "signal", "name": "paid", "in_s": 0.02, "checkpoint": name}
        db.suspend(task, wait, conn)
