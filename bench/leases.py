"""
Leases: what the proof of ownership costs, per task claimed and completed.

    python bench/leases.py [--dsn URL] [--tasks N] [--rounds N] [--quick]

Contestants, each on a queue of its own with single-step runs queued beforehand:

    pgmq        messages read and archived, nothing else: the floor
    bare        our core's set-based claim and completion, without leases
    leases      `pgflowd.report` and `pgflowd.claim` in one pipeline; history all, failures, off

Each combination of batch and connections runs once per round, all contestants interleaved, and
the medians over the rounds are printed: tasks/s, CPU of the server's backends and of the
clients per task, WAL bytes per task, the share of HOT updates of attempts. CPU is far steadier
than tasks per second on a busy machine; the ratios to `bare` and `pgmq` are what counts.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.reporting import MAX_REPORTS
from pgflowd.core.worker.task import TaskReport
from pgflowd.db import tasks
from pgflowd.db.query import execute_together
from pgflowd.db.schema import migrate
from pgflowd.embedded import EmbeddedPostgres

FORK = multiprocessing.get_context("fork")
TICK_US = 1_000_000 / os.sysconf("SC_CLK_TCK")
Connection = psycopg.Connection[Any]
Turns = Callable[[Connection, str, uuid.UUID, int], int]


def pgmq(conn: Connection, flow: str, worker: uuid.UUID, batch: int) -> int:
    """Read and archive until nothing is left; return how many."""
    done = 0
    ids: list[int] = []
    while True:
        with conn.pipeline():
            if ids:
                conn.execute("select pgmq.archive(%s, %s::bigint[])", (flow, ids))
            read = conn.execute("select msg_id from pgmq.read(%s, 60, %s)", (flow, batch))
        ids = [msg_id for (msg_id,) in read.fetchall()]
        if not ids:
            return done
        done += len(ids)


BARE = """
select run_id, step_slug, task_index
  from (select array_agg(msg_id) as ids from pgmq.read(%s, 60, %s)) as message
 cross join lateral pgflow._start_tasks(%s, message.ids, %s, 0)
"""


def bare(conn: Connection, flow: str, worker: uuid.UUID, batch: int) -> int:
    """Claim and complete by the core's functions alone."""
    done = 0
    runs: list[uuid.UUID] = []
    steps: list[str] = []
    indexes: list[int] = []
    while True:
        with conn.pipeline():
            if runs:
                lock = (
                    "select 1 from pgflow.runs where run_id = any(%s) order by 1 for no key update"
                )
                conn.execute(lock, (runs,))
                conn.execute(
                    "select pgflow._complete_tasks(%s, %s, %s, %s::text[]::jsonb[])",
                    (runs, steps, indexes, ['{"ok": true}'] * len(runs)),
                )
            claimed = conn.execute(BARE, (flow, batch, flow, worker))
        rows = claimed.fetchall()
        if not rows:
            return done
        runs, steps, indexes = (list(column) for column in zip(*rows, strict=True))
        done += len(rows)


def leases(conn: Connection, flow: str, worker: uuid.UUID, batch: int) -> int:
    """Claim and complete under leases."""
    done = 0
    reports: list[TaskReport] = []
    while True:
        chunks = [reports[at : at + MAX_REPORTS] for at in range(0, len(reports), MAX_REPORTS)]
        calls = [tasks.report(chunk) for chunk in chunks]
        *answers, claimed = execute_together(conn, [*calls, tasks.claim(flow, worker, batch)])
        verdicts = {answer.verdict for answered in answers for answer in answered}
        if not verdicts <= {"completed"}:
            raise AssertionError(f"reports were not recorded: {verdicts}")
        if not claimed:
            return done
        reports = [TaskReport(task, Outcome.COMPLETED, b'{"ok": true}') for task in claimed]
        done += len(claimed)


CONTESTANTS: dict[str, tuple[Turns, str]] = {
    "pgmq": (pgmq, "all"),
    "bare": (bare, "all"),
    "leases all": (leases, "all"),
    "leases failures": (leases, "failures"),
    "leases off": (leases, "off"),
}


def measure(dsn: str, name: str, batch: int, connections: int, total: int) -> dict[str, float]:
    """Let one contestant do `total` tasks, and tell what that took per task."""
    turns, history = CONTESTANTS[name]
    flow = f"bench_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(dsn, autocommit=True) as conn:
        fill(conn, name, flow, total)
        conn.execute("select pgflowd.set_setting('history', %s, 'bench')", (json.dumps(history),))
        conn.execute("vacuum analyze")
        conn.execute("checkpoint")
        start = FORK.Event()
        ready: Any = FORK.Queue()
        results: Any = FORK.Queue()
        args = (dsn, turns, flow, batch, ready, start, results)
        children = [FORK.Process(target=work, args=args) for _ in range(connections)]
        for child in children:
            child.start()
        for _ in children:
            ready.get()
        wal = lsn(conn)
        hot = stats(conn)
        began = time.perf_counter()
        start.set()
        done, server_us, client_us = (
            sum(part) for part in zip(*(results.get() for _ in children), strict=True)
        )
        wall_s = time.perf_counter() - began
        wal_bytes = lsn(conn) - wal
        for child in children:
            child.join()
        after = stats(conn)
    if done != total:
        raise AssertionError(f"{name} did {done} of {total} tasks")
    updates = after[0] - hot[0]
    return {
        "per_s": total / wall_s,
        "server_us": server_us / total,
        "client_us": client_us / total,
        "wal": wal_bytes / total,
        "hot": 100 * (after[1] - hot[1]) / updates if updates else float("nan"),
    }


def work(
    dsn: str, turns: Turns, flow: str, batch: int, ready: Any, start: Any, results: Any
) -> None:
    """One connection's share, in a process of its own."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        worker = uuid.uuid4()
        conn.execute(
            "insert into pgflow.workers (worker_id, queue_name, function_name)"
            " values (%s, %s, 'bench')",
            (worker, flow),
        )
        warm(conn, turns, worker, batch)
        pid = conn.info.backend_pid
        ready.put(True)
        start.wait()
        server, client = cpu_us(pid), time.process_time()
        done = turns(conn, flow, worker, batch)
        results.put((done, cpu_us(pid) - server, (time.process_time() - client) * 1_000_000))
        conn.execute("select pg_stat_force_next_flush()")


def warm(conn: Connection, turns: Turns, worker: uuid.UUID, batch: int) -> None:
    """Plan and prepare everything on a small flow of its own."""
    flow = f"warm_{uuid.uuid4().hex[:10]}"
    fill(conn, "pgmq" if turns is pgmq else "", flow, max(8, 2 * batch))
    turns(conn, flow, worker, batch)


def fill(conn: Connection, name: str, flow: str, total: int) -> None:
    """Queue that many tasks, or messages."""
    if name == "pgmq":
        conn.execute("select pgmq.create(%s)", (flow,))
        query = """
            select count(*) from pgmq.send_batch(%s, array(
              select jsonb_build_object('flow_slug', 'f', 'run_id', gen_random_uuid(),
                                        'step_slug', 'a', 'task_index', 0)
                from generate_series(1, %s)))"""
        conn.execute(query.encode(), (flow, total))
        return
    conn.execute("select pgflow.create_flow(%s)", (flow,))
    conn.execute("select pgflow.add_step(%s, 'a')", (flow,))
    query = """
        select count(*) from pgflow.start_flows(%s, array(
          select jsonb_build_object('n', n) from generate_series(1, %s) as n))"""
    conn.execute(query.encode(), (flow, total))


def lsn(conn: Connection) -> int:
    """Return how much WAL there is."""
    row = conn.execute("select pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])


def stats(conn: Connection) -> tuple[int, int]:
    """Return the updates of attempts, and the HOT ones among them."""
    row = conn.execute(
        "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables"
        " where schemaname = 'pgflowd' and relname = 'attempts'"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def cpu_us(pid: int) -> float:
    """Return the CPU time a process has used; zero for one on another machine."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * TICK_US


@contextmanager
def database(dsn: str | None) -> Iterator[str]:
    """A fresh database, on the given server or a durable one of our own."""
    if dsn is None:
        with (
            tempfile.TemporaryDirectory() as place,
            EmbeddedPostgres(Path(place), keep=False) as server,
            database(server.dsn) as made,
        ):
            yield made
        return
    name = f"l_bench_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"create database {name}".encode())
        made = psycopg.conninfo.make_conninfo(dsn, dbname=name)
        try:
            with psycopg.connect(made, autocommit=True) as conn:
                migrate(conn)
            yield made
        finally:
            admin.execute(f"drop database {name} with (force)".encode())


def main() -> None:
    """Run all rounds and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--dsn", help="a superuser's connection; an embedded server by default")
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--quick", action="store_true", help="one round of 500 tasks")
    args = parser.parse_args()
    if args.quick:
        args.tasks, args.rounds = 500, 1
    with database(args.dsn) as dsn:
        print_header()
        for batch in args.batches:
            for connections in args.connections:
                total = args.tasks if batch > 1 else max(500, args.tasks // 4)
                taken: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
                for _ in range(args.rounds):
                    for name in CONTESTANTS:
                        taken[name].append(measure(dsn, name, batch, connections, total))
                print_rows(batch, connections, taken)


def print_header() -> None:
    titles = ("tasks/s", "server µs", "client µs", "WAL B", "HOT %", "server/bare", "server/pgmq")
    sys.stdout.write(f"{'batch':>5} {'conns':>5}  {'contestant':<16}")
    sys.stdout.write("".join(f"{title:>12}" for title in titles) + "\n")


def print_rows(batch: int, connections: int, taken: dict[str, list[dict[str, float]]]) -> None:
    middle = {
        name: {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        for name, rounds in taken.items()
    }
    for name, row in middle.items():
        to_bare = row["server_us"] / (middle["bare"]["server_us"] or 1)
        to_pgmq = row["server_us"] / (middle["pgmq"]["server_us"] or 1)
        sys.stdout.write(
            f"{batch:>5} {connections:>5}  {name:<16}{row['per_s']:>12,.0f}"
            f"{row['server_us']:>12.1f}{row['client_us']:>12.1f}"
            f"{row['wal']:>12,.0f}{row['hot']:>12.0f}"
            f"{to_bare:>12.2f}{to_pgmq:>12.2f}\n"
        )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
