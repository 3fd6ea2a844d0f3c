"""A worker whose calls to the database cannot succeed, or have to carry too much."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.covers import covers
from support.worker import PROFILE_T

from pgflowd.core.messages import Heartbeat
from pgflowd.testing.until import until

FLOW = """
    import os, time
    from support.oracle import note
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=3, base_delay=0, timeout={timeout})

    @flow.step
    def work(run, ctx):
        note(ctx, "start")
        while "gate" in run and not os.path.exists(run["gate"]):
            time.sleep(0.005)
        output = "x" * run.get("size", 1)
        note(ctx, "end", output)
        return output
"""
LARGE = """
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=1, timeout={timeout})

    @flow.step
    def work(run):  # notes nothing: a ledger of 96 MiB takes longer than the handlers
        with open(run["ended"], "a") as file: file.write("x")
        return "x" * run["size"]
"""
POISONED_CLAIMS = """
    create table public.poison (text text);
    create schema good;
    alter function pgflowd.claim(text, uuid, int, interval, text[], text[], boolean)
      set schema good;
    create function pgflowd.claim(
      flow_slug text, worker_id uuid, max_tasks int, lease interval default '30 s',
      with_run text[] default null, caps text[] default null, with_trace boolean default false)
    returns setof pgflowd.claimed_task language plpgsql as $$
    begin
      if exists (select from public.poison) then
        raise exception 'too large to build' using errcode = '54000';
      end if;
      return query select * from good.claim(flow_slug, worker_id, max_tasks, lease, with_run, caps);
    end $$;
"""
SLOW_REPORTS = """
    create function public.dawdle() returns trigger language plpgsql as $$
    begin
      perform pg_sleep(60);
      return new;
    end $$;
    create trigger dawdle before update on pgflow.step_tasks for each row
      when (new.status = 'completed' and length(new.output::text) > 1000)
      execute function public.dawdle();
"""

LOCKED_REPORTS = """
    create function public.wait() returns trigger language plpgsql as $$
    begin
      perform pg_advisory_xact_lock_shared(42);
      return new;
    end $$;
    create trigger wait before update on pgflow.step_tasks for each row
      when (new.status = 'completed') execute function public.wait();
"""


def last_numbers(worker) -> dict:
    """The numbers of the last heartbeat."""
    found: dict = {}
    for each in worker.receive():
        if isinstance(each, Heartbeat):
            found |= each.numbers
    return found


@covers("outside 1", "database 1")
def test_outcomes_are_recorded_while_no_claim_succeeds(start_worker, tmp_path):
    often = replace(PROFILE_T.supervisor, hang_timeout_s=1.0)  # so are heartbeats
    settings = replace(PROFILE_T, supervisor=often)
    worker = start_worker(FLOW.format(timeout=20), settings=settings)
    gate = tmp_path / "gate"
    run = worker.start_run({"gate": str(gate)})
    until(lambda: worker.runners)
    until(lambda: worker.outcomes(run) == [None])
    worker.conn.execute(POISONED_CLAIMS)
    worker.conn.execute("insert into public.poison values ('here')")

    later = worker.start_run()
    gate.touch()

    worker.completed(run)
    assert worker.status(later) == "started"
    until(lambda: last_numbers(worker).get("line_failures"), 12)
    error = last_numbers(worker)["line_error"]
    assert (error["code"], error["text"]) == ("54000", "too large to build")
    assert last_numbers(worker)["line_failing_s"] >= 0
    worker.conn.execute("truncate public.poison")
    worker.completed(later)
    until(lambda: last_numbers(worker)["line_failures"] == 0, 12)


@pytest.mark.own_session
@covers("database 3", "outside 2")
def test_a_report_that_takes_too_long_fails_its_task_for_good_and_holds_up_no_other(start_worker):
    short = replace(PROFILE_T, database=replace(PROFILE_T.database, statement_timeout_s=1.0))
    worker = start_worker(FLOW.format(timeout=20), settings=short)
    worker.conn.execute(SLOW_REPORTS)

    slow = worker.start_run({"size": 2000})
    until(lambda: worker.records("worker.error"))
    others = [worker.start_run() for _ in range(5)]

    assert worker.failed(slow, 20)
    for other in others:
        worker.completed(other)
    ((_, outcome, text),) = worker.attempts(slow)
    assert outcome == "failed"
    assert "the database could not record the outcome in 1 s" in text
    assert "an output of 2002 bytes" in text and "statement_timeout" in text


@pytest.mark.own_session
@covers("database 3")
def test_a_run_that_is_locked_is_no_report_that_takes_too_long(start_worker, tmp_path):
    settings = replace(
        PROFILE_T,
        database=replace(PROFILE_T.database, statement_timeout_s=1.0),
        supervisor=replace(PROFILE_T.supervisor, hang_timeout_s=1.0),
    )
    worker = start_worker(FLOW.format(timeout=20), settings=settings)
    gate = tmp_path / "gate"
    run = worker.start_run({"gate": str(gate)})
    until(lambda: worker.outcomes(run) == [None])

    with worker.conn.transaction():
        worker.conn.execute("select from pgflow.runs for update")
        gate.touch()
        until(lambda: last_numbers(worker).get("line_failures", 0) >= 4, 10)
        assert last_numbers(worker)["line_error"]["code"] == "55P03"

    worker.completed(run)
    assert worker.outcomes(run) == ["completed"]


@covers("outside 3", "database 3")
def test_large_outcomes_that_wait_for_a_lock_stay_in_their_runners(start_worker, tmp_path):
    """96 MiB; and none of their handlers is ended by its timeout meanwhile."""
    count, timeout_s = 8, 8
    ended = tmp_path / "ended"
    long = replace(PROFILE_T, recovery=replace(PROFILE_T.recovery, lease_s=20.0))
    worker = start_worker(LARGE.format(timeout=timeout_s), settings=long, max_concurrency=count)
    worker.conn.execute(LOCKED_REPORTS)
    before = peak_mib(worker.pid)  # pytest has forked it

    worker.conn.execute("select pg_advisory_lock(42)")
    given = {"ended": str(ended), "size": 12 * 1024 * 1024}
    runs = [worker.start_run(given) for _ in range(count)]
    until(lambda: ended.exists() and len(ended.read_text()) == count, 20)
    over = worker.value("select clock_timestamp() + make_interval(secs => %s)", timeout_s)
    until(lambda: worker.value("select clock_timestamp() > %s", over), timeout_s + 5)
    assert [worker.outcomes(run) for run in runs] == [[None]] * count
    assert len(worker.runners) >= count - 5  # 64 MiB are five of them
    worker.conn.execute("select pg_advisory_unlock(42)")

    for run in runs:
        worker.completed(run, 60)
        assert worker.outcomes(run) == ["completed"]
    assert peak_mib(worker.pid) - before < 250


def peak_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024
