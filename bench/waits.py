"""
What waiting tasks cost, and how punctually they go on.

    python bench/waits.py [--waiting 0 100000 1000000] [--quick]

Starts a PostgreSQL with durable settings. For each number of waiting tasks a database has so many,
all asleep for a year; the calls of workers and of the sweeper are measured in each, in turn, so
that noise meets all alike. Then 20,000 waits are due at once, and are freed by calls as the sweeper
makes them. At last a daemon serves a flow whose tasks sleep until a moment, or wait for a signal.
Prints the tables of "Waits" in docs/background/benchmarks.md, as Markdown.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from pgflowd.core.statuses import Outcome
from pgflowd.core.waiting import Wait, WaitKind
from pgflowd.core.worker.task import TaskReport
from pgflowd.db import schema, tasks, waits
from pgflowd.db.connection import connect
from pgflowd.db.query import execute
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.scratch import ScratchServer
from pgflowd.testing.until import until

Connection = psycopg.Connection[Any]
DUE_AT_ONCE = 20_000
IDLE_S = 0.2  # afterwards worker and sweeper sleep
FLOW = """
import time
from datetime import datetime
from pgflowd import Flow
flow = Flow("waits")

@flow.step
def nap(run, ctx):
    if "until" in run:
        ctx.sleep(until=datetime.fromisoformat(run["until"]))
    elif "signal" in run:
        ctx.wait_signal(run["signal"], timeout="1h")
    return time.time()
"""
FILL = """
set session_replication_role = replica;
create temp table fresh as
  select gen_random_uuid() as run_id, n from generate_series(1, {count}) as n;
insert into pgflow.runs (run_id, flow_slug, input, remaining_steps)
  select run_id, 'f', '{{}}', 1 from fresh;
insert into pgflow.step_states (flow_slug, run_id, step_slug, status, remaining_tasks,
                                initial_tasks, started_at)
  select 'f', run_id, 'a', 'started', 1, 1, now() from fresh;
insert into pgflow.step_tasks (flow_slug, run_id, step_slug, message_id, status)
  select 'f', run_id, 'a', 1000000000 + n, 'queued' from fresh;
insert into pgflowd.waits (run_id, step_slug, task_index, flow_slug, kind, checkpoint, due_at)
  select run_id, 'a', 0, 'f', 'sleep', 'sleep 1', now() + interval '{due_in}' from fresh;
reset session_replication_role;
drop table fresh;
"""


class Waiting:
    """A database in which so many tasks wait, and the calls that are measured there."""

    def __init__(self, dsn: str, count: int) -> None:
        self.count = count
        self.conn: Connection = psycopg.connect(dsn, autocommit=True)
        self.worker = uuid.uuid4()
        self.took_ms: dict[str, list[float]] = {}
        self.conn.execute("select pgflow.create_flow('f')")
        self.conn.execute("select pgflow.add_step('f', 'a')")
        register = "insert into pgflow.workers (worker_id, queue_name, function_name)"
        self.conn.execute(f"{register} values (%s, 'f', 'bench')".encode(), (self.worker,))
        self.fill(count, "1 year")
        self.conn.execute("vacuum analyze")

    def fill(self, count: int, due_in: str) -> None:
        self.conn.execute(FILL.format(count=count, due_in=due_in).encode())

    def measure(self) -> None:
        """One round: ten tasks are started, claimed, suspended, freed, claimed and completed."""
        start = "select count(*) from pgflow.start_flows('f', array_fill('{}'::jsonb, array[10]))"
        self.conn.execute(start.encode())
        claimed = self.timed("claim of ten", lambda: self._claim())
        wait = Wait(WaitKind.SLEEP, checkpoint="sleep 1", in_s=0.0)
        suspended = [TaskReport(task, Outcome.SUSPENDED, wait=wait) for task in claimed]
        self.timed("report that suspends ten", lambda: self.do(tasks.report(suspended)))
        self.timed("look that frees ten", lambda: self.do(waits.process_due()))
        again = self._claim()
        assert len(again) == 10, f"{len(again)} tasks were freed"
        reports = [TaskReport(task, Outcome.COMPLETED, b"1") for task in again]
        self.timed("report of ten", lambda: self.do(tasks.report(reports)))
        self.timed("look at nothing due", lambda: self.do(waits.process_due()))
        self.timed("idle sweep", lambda: self.do(tasks.sweep()))

    def freed_s(self, count: int) -> float:
        """The time in which so many that are due at once get their messages."""
        self.fill(count, "-1 s")
        began, done = time.perf_counter(), 0
        while found := self.do(waits.process_due()).done:
            done += found
        assert done == count, f"{done} of {count} were freed"
        return time.perf_counter() - began

    def _claim(self) -> Any:
        return self.do(tasks.claim("f", self.worker, 10))

    def do(self, query: Any) -> Any:
        return execute(self.conn, query)

    def timed(self, what: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        found = call()
        self.took_ms.setdefault(what, []).append((time.perf_counter() - began) * 1000)
        return found


def beside_waiting(server: ScratchServer, counts: list[int], rounds: int) -> list[str]:
    """The table of calls, a column for each number of waiting tasks; and the mass of timers."""
    with databases(server, len(counts)) as dsns:
        found = [Waiting(dsn, count) for dsn, count in zip(dsns, counts, strict=True)]
        lines = compared(found, rounds, "wait")
        freed = [each.freed_s(DUE_AT_ONCE) for each in found]
        for each in found:
            each.conn.close()
    return [*lines, row(f"s, {DUE_AT_ONCE:,} due at once freed", *[f"{s:.2f}" for s in freed])]


def compared(found: Sequence[Waiting], rounds: int, word: str) -> list[str]:
    """The table of what each call took in each database, measured in turn."""
    for _ in range(rounds):
        for each in found:
            each.measure()
    lines = [row("ms, median", *[f"{each.count:,} {word}" for each in found])]
    lines.append("| --- " + "| ---: " * len(found) + "|")
    for what in found[0].took_ms:
        lines.append(row(what, *[f"{statistics.median(e.took_ms[what]):.2f}" for e in found]))
    return lines


@contextmanager
def databases(server: ScratchServer, count: int) -> Iterator[list[str]]:
    if count == 0:
        yield []
        return
    with server.database() as one, databases(server, count - 1) as others:
        yield [one.dsn, *others]


def punctuality(dsn: str, directory: Path, number: int) -> list[str]:
    """The table of a daemon's lateness."""
    with psycopg.connect(dsn, autocommit=True) as conn, daemon(dsn, directory, FLOW):
        until(lambda: value(conn, "select count(*) from pgflow.flows") == 1, 60)
        timers = _timers(conn, number)
        signals = [_signal_ms(conn) for _ in range(number // 2)]
        starts = [_start_ms(conn) for _ in range(number // 2)]
    rows = {
        "due to message": timers[0],
        "due to handler": timers[1],
        "signal to handler": signals,
        "start to handler, for comparison": starts,
    }
    return ranked(rows)


def ranked(rows: dict[str, list[float]]) -> list[str]:
    """The table of milliseconds: the middle, the slowest hundredth, the slowest."""
    lines = [row("ms", "p50", "p99", "max"), "| --- | ---: | ---: | ---: |"]
    for what, found in rows.items():
        found.sort()
        cells = (statistics.median(found), found[int(len(found) * 0.99)], found[-1])
        lines.append(row(what, *[f"{each:.1f}" for each in cells]))
    return lines


@contextmanager
def daemon(dsn: str, directory: Path, flows: str) -> Iterator[subprocess.Popen[bytes]]:
    (directory / "waits_flow.py").write_text(flows)
    config = directory / "pgflowd.toml"
    config.write_text(
        f"""
[pgflowd]
name = "waits"
flows = ["waits_flow"]
python_path = [{json.dumps(str(directory))}]
[database]
url = {json.dumps(dsn)}
[supervisor]
control = {json.dumps(str(directory / "control"))}
"""
    )
    config.chmod(0o600)
    command = [sys.executable, "-m", "pgflowd", "serve", "-c", str(config)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, cwd=directory)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _timers(conn: Connection, number: int) -> tuple[list[float], list[float]]:
    """Tasks that sleep until moments 50 ms apart; how late their messages and handlers were."""
    first = datetime.now(UTC) + timedelta(seconds=5)
    moments = {
        _start(conn, until=moment.isoformat()): moment.timestamp()
        for moment in (first + timedelta(milliseconds=50 * n) for n in range(number))
    }
    ended = "select count(*) = %s from pgflow.runs where status = 'completed'"
    until(lambda: value(conn, ended, number), 60 + number / 20)
    query = """
        select run_id, extract(epoch from queued_at)::float8, output::text::float8
          from pgflow.step_tasks where status = 'completed'
    """
    late = [
        (queued - moments[run], woke - moments[run]) for run, queued, woke in conn.execute(query)
    ]
    assert min(min(each) for each in late) >= 0, "a sleep ended early"
    return [queued * 1000 for queued, _ in late], [woke * 1000 for _, woke in late]


def _signal_ms(conn: Connection) -> float:
    """From the commit of a signal to the line after the wait for it."""
    run = _start(conn, signal="go")
    until(lambda: value(conn, "select count(*) from pgflowd.waits"), 10)
    time.sleep(IDLE_S)
    conn.execute("select pgflowd.signal(%s, 'go')", (run,))
    return _late_ms(conn, run)


def _start_ms(conn: Connection) -> float:
    """From the commit of a start to the first line of the handler."""
    time.sleep(IDLE_S)
    return _late_ms(conn, _start(conn))


def _late_ms(conn: Connection, run: uuid.UUID) -> float:
    """From now to the moment that the handler returns."""
    sent_at = time.time()
    query = "select output ->> 'nap' from pgflow.runs where run_id = %s and status = 'completed'"
    return (float(until(lambda: value(conn, query, run), 10)) - sent_at) * 1000


def _start(conn: Connection, **run: str) -> uuid.UUID:
    found: uuid.UUID = value(conn, "select run_id from pgflow.start_flow('waits', %s)", Jsonb(run))
    return found


def value(conn: Connection, query: str, *params: object) -> Any:
    found = conn.execute(query.encode(), params).fetchone()
    return found[0] if found else None


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="What waiting tasks cost.")
    parser.add_argument("--waiting", type=int, nargs="+", default=[0, 100_000, 1_000_000])
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    counts = [each for each in given.waiting if each <= 100_000 or not given.quick]
    with (
        tempfile.TemporaryDirectory(prefix="pgflowd-waits-") as name,
        EmbeddedPostgres(Path(name) / "db") as postgres,
    ):
        server = ScratchServer(postgres.dsn)
        print("\n".join(beside_waiting(server, counts, 50 if given.quick else 300)))
        with server.database(schema=False) as database:
            with connect(database.dsn) as migrating:
                schema.migrate(migrating)
            print(
                "\n" + "\n".join(punctuality(database.dsn, Path(name), 40 if given.quick else 200))
            )
        server.close()


if __name__ == "__main__":
    main()
