"""
What a database costs that has grown: operations, sizes, and pruning beside full load.

    python bench/growth.py [--runs 10000 1000000] [--quick]

Starts a PostgreSQL with durable settings. A database gets finished runs of one task, made in bulk,
with statistics that were never gathered; the pages that each operation reads are counted when there
are few and when there are many. Then sessions start, claim and report as many tasks as they can,
with and without a prune of 100,000 runs beside them; a prune that is killed in the middle goes on.
Sizes are those of all tables, queues and archives, with their indexes. Prints the tables of
"Growth" in docs/background/benchmarks.md, as Markdown; all are of one run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.task import TaskReport
from pgflowd.db import flows, runs, tasks, waits
from pgflowd.db.doctor import DoctorRequest, examine
from pgflowd.db.query import Query, execute
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.scratch import ScratchServer
from pgflowd.testing.until import until

Connection = psycopg.Connection[Any]
Act = Callable[[], Any]

FILL = """
set session_replication_role = replica;
create temp table fresh as
  select (lpad(to_hex(1577836800000 + number * 1000), 12, '0') || '7'
          || right(md5(number::text), 19))::uuid as run_id,
         1000000000 + number as msg_id, timestamptz '2020-01-01' + number * interval '1 s' as moment
    from generate_series({first} + 1::bigint, {first} + {count}) as number;
insert into pgflow.runs (run_id, flow_slug, status, input, output, started_at, completed_at)
  select run_id, 'f', 'completed', '{{"n": 1}}', '{{"a": 1}}', moment, moment from fresh;
insert into pgflow.step_states (flow_slug, run_id, step_slug, status, remaining_tasks,
                                initial_tasks, created_at, started_at, completed_at, output)
  select 'f', run_id, 'a', 'completed', 0, 1, moment, moment, moment, '1' from fresh;
insert into pgflow.step_tasks (flow_slug, run_id, step_slug, message_id, status, attempts_count,
                               queued_at, started_at, completed_at, last_worker_id, output)
  select 'f', run_id, 'a', msg_id, 'completed', 1, moment, moment, moment, worker_id, '1'
    from fresh, (select worker_id from pgflow.workers limit 1) as worker;
insert into pgflowd.attempts (run_id, step_slug, task_index, flow_slug, worker_id, msg_id, attempt,
                              started_at, lease_until, ended_at, outcome)
  select run_id, 'a', 0, 'f', worker_id, msg_id, 1, moment, moment, moment, 'completed'
    from fresh, (select worker_id from pgflow.workers limit 1) as worker;
insert into pgmq.a_f (msg_id, enqueued_at, archived_at, vt, message)
  select msg_id, moment, moment, moment,
         jsonb_build_object('flow_slug', 'f', 'run_id', run_id, 'step_slug', 'a', 'task_index', 0)
    from fresh;
insert into pgflowd.runs (run_id, flow_slug, state, created_at, created_by, labels, singleton_key)
  select run_id, 'f', 'started', moment, 'bench', '{{"env": "prod"}}', run_id from fresh;
insert into pgflowd.checkpoints (run_id, step_slug, task_index, name, version, token, saved_at,
                                 data)
  select run_id, 'a', 0, 'signal paid 1', 1, 0, moment, '{{"got": 1}}' from fresh;
insert into pgflowd.signals (run_id, name, sent_at, is_new, step_slug, task_index, consumed_at)
  select run_id, 'paid', moment, false, 'a', 0, moment from fresh;
insert into pgflowd.actions (at, actor, action, flow_slug, run_id)
  select moment, 'bench', 'signal', 'f', run_id from fresh;
reset session_replication_role;
drop table fresh;
"""
TABLES = """
select class.oid::regclass::text
  from pg_class as class join pg_namespace as schema on schema.oid = class.relnamespace
 where schema.nspname in ('pgflow', 'pgflowd', 'pgmq') and class.relkind = 'r'
"""
PAGES_READ = """
select coalesce(sum(pg_stat_get_xact_blocks_fetched(class.oid)), 0)::bigint
  from pg_class as class
  left join pg_class as owner on owner.reltoastrelid = class.oid
  join pg_namespace as schema on schema.oid = coalesce(owner.relnamespace, class.relnamespace)
 where schema.nspname in ('pgflow', 'pgflowd', 'pgmq') and class.relkind in ('r', 'i', 't')
"""


class Grown:
    """A database with finished runs, some open ones, and the operations that are measured there."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.conn: Connection = psycopg.connect(dsn, autocommit=True)
        self.worker = uuid.uuid4()
        self.filled = 0
        self.conn.execute("select pgflow.create_flow('f'); select pgflow.add_step('f', 'a')")
        self.conn.execute("select pgflowd.watch_queue('f')")
        register = "insert into pgflow.workers (worker_id, queue_name, function_name)"
        self.conn.execute(f"{register} values (%s, 'f', 'bench')".encode(), (self.worker,))
        self.each_table("set (autovacuum_enabled = off)")
        self.start(20)

    def each_table(self, change: str) -> None:
        for (table,) in self.conn.execute(TABLES.encode()).fetchall():
            self.conn.execute(f"alter table {table} {change}".encode())

    def fill(self, count: int) -> None:
        """Add so many finished runs."""
        self.conn.execute(FILL.format(first=self.filled, count=count).encode())
        self.filled += count

    def start(self, count: int) -> None:
        query = "select count(*) from pgflow.start_flows('f', array_fill('{}'::jsonb, array[%s]))"
        self.conn.execute(query.encode(), (count,))

    def do(self, query: Query[Any]) -> Any:
        return execute(self.conn, query)

    def claim(self) -> list[Any]:
        found: list[Any] = self.do(tasks.claim("f", self.worker, 10))
        return found

    def pages(self, name: str) -> int:
        """The pages that an operation reads, at its second time in this session."""
        for _ in range(2):
            with self.conn.transaction(force_rollback=True):
                act = OPERATIONS[name](self)
                before = self._pages_read()
                act()
                read = self._pages_read() - before
        return read

    def _pages_read(self) -> int:
        row = self.conn.execute(PAGES_READ.encode()).fetchone()
        assert row
        return int(row[0])


def _report(db: Grown) -> Act:
    reports = [TaskReport(task, Outcome.COMPLETED, b"1") for task in db.claim()]
    return lambda: db.do(tasks.report(reports))


def _sweep(db: Grown) -> Act:
    db.claim()

    def act() -> None:
        db.do(tasks.sweep())
        db.do(tasks.resend(None, 500))
        db.do(waits.process_due())
        db.do(waits.refill_limits(None, 1000))
        db.do(waits.waiting_tasks())

    return act


def _doctor(db: Grown) -> Act:
    return lambda: [*examine(db.conn, DoctorRequest(60.0, False))]


OPERATIONS: dict[str, Callable[[Grown], Act]] = {
    "start": lambda db: lambda: db.start(1),
    "claim of ten": lambda db: lambda: db.claim(),
    "report of ten": _report,
    "sweep": _sweep,
    "`status`": lambda db: (
        lambda: db.conn.execute("select * from pgflowd.flow_status, pgflowd.worker_status")
    ),
    "`flows list`": lambda db: lambda: db.do(flows.list_flows()),
    "`runs list`": lambda db: lambda: db.do(runs.list_runs()),
    "`runs list --flow`": lambda db: lambda: db.do(runs.list_runs("f")),
    "`stalled list`": lambda db: lambda: db.do(waits.stalled_tasks(60.0)),
    "`doctor`": _doctor,
    "prune of a hundred": lambda db: (
        lambda: db.do(
            runs.prune_next(
                86400.0, None, None, labels={}, keep_failed=False, only_count=False, is_first=False
            )
        )
    ),
}


def pages_table(server: ScratchServer, counts: list[int]) -> list[str]:
    """What each operation reads, a column for each number of finished runs."""
    with server.database() as database:
        db = Grown(database.dsn)
        columns = []
        for count in counts:
            db.fill(count - db.filled)
            columns.append({name: db.pages(name) for name in OPERATIONS})
        db.conn.close()
    lines = [
        row("pages", *[f"{count:,} runs" for count in counts]),
        "|---|" + "---:|" * len(counts),
    ]
    return lines + [row(name, *[f"{each[name]:,}" for each in columns]) for name in OPERATIONS]


def row(name: str, *cells: str) -> str:
    return f"| {name} | {' | '.join(cells)} |"


SESSIONS = 4
AT_ONCE = 50  # tasks of one call
KEPT = """
select sum(pg_total_relation_size(class.oid))::bigint
  from pg_class as class join pg_namespace as schema on schema.oid = class.relnamespace
 where schema.nspname in ('pgflow', 'pgflowd', 'pgmq') and class.relkind = 'r'
"""


class Load:
    """Sessions that start, claim and report tasks, as fast as the server lets them."""

    def __init__(self, dsn: str) -> None:
        self._dsn, self._done = dsn, [0] * SESSIONS
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(SESSIONS)]
        for thread in self._threads:
            thread.start()

    def _work(self, number: int) -> None:
        start = "select count(*) from pgflow.start_flows('f', array_fill('{}'::jsonb, array[%s]))"
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            worker = conn.execute("select worker_id from pgflow.workers").fetchall()[0][0]
            while not self._is_over.is_set():
                conn.execute(start.encode(), (AT_ONCE,))
                claimed = execute(conn, tasks.claim("f", worker, AT_ONCE))
                reports = [TaskReport(task, Outcome.COMPLETED, b"1") for task in claimed]
                if reports:
                    execute(conn, tasks.report(reports))
                self._done[number] += len(reports)

    def per_second(self, over: Callable[[], bool]) -> float:
        """Tasks a second until something is over."""
        before, began = sum(self._done), time.perf_counter()
        until(over, 3600)
        return (sum(self._done) - before) / (time.perf_counter() - began)

    def close(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    @property
    def done(self) -> int:
        return sum(self._done)


def prune(dsn: str) -> subprocess.Popen[bytes]:
    """The command, which deletes all that is older than a day."""
    command = [sys.executable, "-m", "pgflowd", "runs", "prune", "--older-than", "1d", "--yes"]
    return subprocess.Popen([*command, "--database-url", dsn], stdout=subprocess.DEVNULL)


def seconds(count: float) -> Callable[[], bool]:
    ends_at = time.perf_counter() + count
    return lambda: time.perf_counter() >= ends_at


def beside_load(server: ScratchServer, count: int, alone_s: float) -> list[str]:
    """Tasks a second with and without a prune, and what a task leaves."""
    with server.database() as database:
        db = Grown(database.dsn)
        db.each_table("reset (autovacuum_enabled)")
        empty = size(db)
        load = Load(database.dsn)
        load.per_second(seconds(alone_s))
        load.close()
        executed = load.done
        left = (size(db) - empty) / executed
        db.fill(count)
        load = Load(database.dsn)
        before = load.per_second(seconds(alone_s))
        command, began = prune(database.dsn), time.perf_counter()
        beside = load.per_second(lambda: command.poll() is not None)
        took_s = time.perf_counter() - began
        after = load.per_second(seconds(alone_s))
        load.close()
        assert old_runs(db) == 0, f"{old_runs(db)} runs are left"
        db.conn.close()
    alone = (before + after) / 2
    assert beside > alone / 2, f"{beside:.0f} tasks a second beside a prune, {alone:.0f} without"
    return [
        row("", "measured"),
        "|---|---:|",
        row("tasks a second before and after a prune", f"{alone:,.0f}"),
        row(f"beside a prune of {count:,} runs", f"{beside:,.0f}"),
        row("ratio", f"{beside / alone:.2f}"),
        row("runs deleted a second meanwhile", f"{count / took_s:,.0f}"),
        row(f"bytes that a task left, of {executed:,} executed", f"{left:,.0f}"),
    ]


def sizes(server: ScratchServer, count: int) -> list[str]:
    """What deleting leaves of the files, and whether it goes on after a kill."""
    with server.database() as database:
        db = Grown(database.dsn)
        found = {"nothing": size(db)}
        db.fill(count)
        found[f"{count:,} finished runs"] = size(db)
        killed = prune(database.dsn)
        until(lambda: old_runs(db) < count * 2 / 3, 600)
        killed.kill()
        killed.wait()
        between = old_runs(db)
        prune(database.dsn).wait()
        assert old_runs(db) == 0, f"{old_runs(db)} runs are left"
        db.conn.execute("vacuum")
        found[f"all pruned, by one command that was killed with {between:,} left, and another"] = (
            size(db)
        )
        db.fill(count)
        found[f"{count:,} finished runs again"] = size(db)
        db.conn.close()
    nothing, first, _, again = found.values()
    assert again - nothing < 1.5 * (first - nothing), f"they grow from {first} to {again} bytes"
    lines = [row("the database keeps", "MB"), "|---|---:|"]
    return lines + [row(name, f"{kept / 1e6:,.0f}") for name, kept in found.items()]


def size(db: Grown) -> int:
    return int(db.conn.execute(KEPT.encode()).fetchall()[0][0])


def old_runs(db: Grown) -> int:
    query = "select count(*) from pgflow.runs where started_at < now() - interval '1 day'"
    return int(db.conn.execute(query.encode()).fetchall()[0][0])


def main() -> None:
    parser = argparse.ArgumentParser(description="What a database costs that has grown.")
    parser.add_argument("--runs", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    counts = [min(each, 100_000) if given.quick else each for each in given.runs]
    with (
        tempfile.TemporaryDirectory(prefix="pgflowd-growth-") as name,
        EmbeddedPostgres(Path(name) / "db") as postgres,
    ):
        server = ScratchServer(postgres.dsn)
        pruned, alone_s = (10_000, 5.0) if given.quick else (100_000, 30.0)
        print("\n".join(pages_table(server, counts)) + "\n", flush=True)
        print("\n".join(beside_load(server, pruned, alone_s)) + "\n", flush=True)
        print("\n".join(sizes(server, pruned)), flush=True)
        server.close()


if __name__ == "__main__":
    main()
