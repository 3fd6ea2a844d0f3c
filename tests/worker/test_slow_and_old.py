"""Lines that are slow, statements that last too long, clocks that jump, and many at one queue."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import count

import pytest
from support.covers import covers
from support.worker import PROFILE_T

from pgflowd.core.messages import Wake
from pgflowd.testing.until import until

FLOW = """
    import os, time
    from support.oracle import note
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=1, timeout=20)

    @flow.step
    def work(run, ctx):
        note(ctx, "start")
        if "begun" in run:
            open(run["begun"], "w").close()
        while "gate" in run and not os.path.exists(run["gate"]):
            time.sleep(0.01)
        note(ctx, "end", "x" * run.get("size", 0))
        return "x" * run.get("size", 0)

    @flow.step
    def after(work): return len(work)
"""


@covers("row 73")
def test_on_a_slow_line_a_worker_is_slower_and_right(start_worker, proxy):
    proxy.do("slow")
    worker = start_worker(FLOW, dsn=proxy.dsn)

    runs = [worker.start_run({"size": 10_000}) for _ in range(12)]  # 120 kB, 1 s at 1 Mbit/s

    assert [worker.output(run, 20) for run in runs] == [{"after": 10_000}] * 12
    assert {tuple(worker.outcomes(run)) for run in runs} == {("completed", "completed")}
    assert worker.records("worker.error") == []


ONCE_TOO_LONG = """
    create sequence tries;
    create function dawdle() returns trigger language plpgsql as $$
    begin
      if nextval('public.tries') = 1 then perform pg_sleep(60); end if;
      return new;
    end $$;
    create trigger dawdle before update on pgflow.step_tasks for each row
      when (new.status = 'completed') execute function dawdle();
"""


@pytest.mark.own_session
@covers("row 77")
def test_a_report_that_takes_longer_than_statement_timeout_is_sent_again(start_worker):
    hasty = replace(PROFILE_T, database=replace(PROFILE_T.database, statement_timeout_s=1.0))
    worker = start_worker(FLOW, settings=hasty)
    worker.conn.execute(ONCE_TOO_LONG)

    run = worker.start_run()

    assert worker.completed(run, 10)
    assert worker.outcomes(run) == ["completed"] * 2
    assert any("statement timeout" in r["error"] for r in worker.records("worker.error"))


@pytest.mark.own_session
@covers("row 74")
def test_locks_on_all_tables_are_waited_out_call_by_call(start_worker, database, tmp_path):
    long = replace(PROFILE_T, recovery=replace(PROFILE_T.recovery, lease_s=30.0))
    worker = start_worker(FLOW, settings=long)  # renewals have to wait as well, longer than 2 s
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    run = worker.start_run({"begun": str(begun), "gate": str(gate)})
    until(begun.exists)

    holder = database.connect(autocommit=False)
    holder.execute("lock pgflow.runs, pgflow.step_tasks, pgflow.workers in exclusive mode")
    gate.touch()
    until(lambda: any("lock timeout" in r["error"] for r in worker.records("worker.error")), 8)
    holder.rollback()

    assert worker.completed(run, 8)
    assert worker.outcomes(run) == ["completed"] * 2
    assert not worker.child.has_ended()


@covers("row 84")
def test_a_clock_that_jumps_by_an_hour_changes_nothing(start_worker, tmp_path):
    jumped = tmp_path / "jumped"

    def wind() -> None:
        """From when the file is there, it is an hour later, then earlier, at each look."""
        looks, real = count(), time.time
        time.time = lambda: real() + (jumped.exists() and (-1) ** next(looks) * 3600)

    without_oracle = "\n".join(line for line in FLOW.splitlines() if "note" not in line)
    worker = start_worker(without_oracle, before=wind)
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    run = worker.start_run({"begun": str(begun), "gate": str(gate)})
    until(begun.exists)
    jumped.touch()
    beats = "select count(*) from pgflow.workers where last_heartbeat_at > started_at + '3 s'"

    until(lambda: worker.value(beats), 8)  # longer than the lease
    assert worker.value("select pgflowd.recover_stalled('2 s')") == 0
    gate.touch()

    assert worker.completed(run)
    assert worker.outcomes(run) == ["completed"] * 2
    assert worker.completed(worker.start_run())
    assert worker.records("worker.error") == []


WORKERS = 20
RUNS = 200
CLAIMS = "select sum(total_time) / sum(calls) from pg_stat_user_functions where funcname = 'claim'"
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


@covers("row 100")
def test_many_workers_at_one_queue_neither_deadlock_nor_stampede(start_worker, database):
    database.connect().execute(f"alter database {database.name} set track_functions = 'pl'")
    workers = [start_worker(FLOW, ready=False, max_concurrency=2) for _ in range(WORKERS)]
    conn = workers[0].conn
    until(lambda: conn.execute("select from pgflow.workers").rowcount == WORKERS, 60)

    for _ in range(RUNS):
        workers[0].start("flow")
    for worker in workers:
        worker.send(Wake())

    query = "select count(*) = %s from pgflow.runs where status = 'completed'"
    until(lambda: conn.execute(query, (RUNS,)).fetchone() == (True,), 60)
    looks = [look for worker in workers for look in worker.records("worker.poll")]
    claimed = [look["claimed"] for look in looks]
    assert sum(claimed) == 2 * RUNS
    assert len(looks) < 4 * 2 * RUNS + 5 * WORKERS
    assert [r for worker in workers for r in worker.records("worker.error")] == []
    assert until(lambda: workers[0].value(CLAIMS)) < 250  # ms, on a machine that is full
    assert workers[0].value(DEADLOCKS) == 0
