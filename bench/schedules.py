"""
How late ticks are on an idle daemon, and what schedules cost that are not due.

    python bench/schedules.py [--idle 10000] [--quick]

Starts a PostgreSQL with durable settings and a daemon. Its CPU and that of the server are measured
over the same time without schedules and with so many, which tick in a year, in turn. Then a
schedule ticks each second, and 1,000 tick at the same moment. Prints the tables of "Schedules" in
docs/background/benchmarks.md, as Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import psycopg
from measure import cpu_s
from waits import FLOW, daemon, ranked, row, value

from pgflowd.db import schema
from pgflowd.db.connection import connect
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.scratch import ScratchServer
from pgflowd.testing.until import until

AT_ONCE = 1000
ADD = """
insert into pgflowd.schedules (name, flow_slug, cron, due_at, ticks_from)
select 'idle ' || n, 'waits', '@yearly', moment, moment
  from generate_series(1, %s) as n, (select now() + interval '300 days' as moment) as due
"""
EACH_SECOND = "select pgflowd.set_schedule('tick', 'waits', '@every 1s', overlap => 'allow')"
LATE = """
select extract(epoch from run.started_at - ours.start_at)::float8 * 1000
  from pgflow.runs as run join pgflowd.runs as ours using (run_id)
 where ours.labels ->> 'schedule' = 'tick'
"""
ALL_AT_ONCE = """
insert into pgflowd.schedules (name, flow_slug, cron, due_at, ticks_from)
select 'all ' || n, 'waits', '@every 1h', now(), date_trunc('hour', now())
  from generate_series(1, %s) as n
"""
RESTS_S = 8.0  # until what was begun is over

Connection = psycopg.Connection[object]


def idle(conn: Connection, pids: tuple[int, int], count: int, rounds: int, s: float) -> list[str]:
    """The table of CPU without and with schedules, in milliseconds for each second."""
    used: dict[int, list[list[float]]] = {0: [[], []], count: [[], []]}
    for _ in range(rounds):
        for number in used:
            conn.execute("truncate pgflowd.schedules")
            conn.execute(ADD, (number,))
            conn.execute("analyze pgflowd.schedules")
            time.sleep(RESTS_S)
            before = [cpu_s(pid) for pid in pids]
            time.sleep(s)
            for found, pid, began in zip(used[number], pids, before, strict=True):
                found.append((cpu_s(pid) - began) / s * 1000)
    lines = [row("ms of CPU per second, median", *[f"{each:,} schedules" for each in used])]
    lines.append("| --- " + "| ---: " * len(used) + "|")
    for at, what in enumerate(("daemon", "server")):
        lines.append(row(what, *[f"{statistics.median(used[n][at]):.2f}" for n in used]))
    conn.execute("truncate pgflowd.schedules")
    return lines


def lateness(conn: Connection, ticks: int) -> list[str]:
    """The table of how late the runs of a schedule begin."""
    conn.execute(EACH_SECOND.encode())
    until(lambda: len(conn.execute(LATE).fetchall()) >= ticks, 60 + 2 * ticks)
    conn.execute("select pgflowd.pause_schedule('tick')")
    late = [float(str(ms)) for (ms,) in conn.execute(LATE).fetchall()]
    assert min(late) >= 0, "a tick came early"
    return ranked({"tick to run": late})


def at_once(conn: Connection, count: int) -> str:
    """How long it takes until all of many schedules have ticked that were due together."""
    conn.execute(ALL_AT_ONCE, (count,))
    began = time.perf_counter()
    left = "select count(*) from pgflowd.schedules where due_at < now()"
    until(lambda: value(conn, left) == 0, 120)
    return row(f"s, {count:,} schedules due at once", f"{time.perf_counter() - began:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What schedules cost.")
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="pgflowd-schedules-") as name,
        EmbeddedPostgres(Path(name) / "db") as postgres,
    ):
        server = ScratchServer(postgres.dsn)
        with server.database(schema=False) as database:
            with connect(database.dsn) as migrating:
                schema.migrate(migrating)
            with (
                psycopg.connect(database.dsn, autocommit=True) as conn,
                daemon(database.dsn, Path(name), FLOW) as process,
            ):
                until(lambda: value(conn, "select count(*) from pgflow.flows") == 1, 60)
                rounds, s = (1, 10.0) if given.quick else (5, 20.0)
                pids = (process.pid, postgres.pid)
                print("\n".join(idle(conn, pids, given.idle, rounds, s)))
                print("\n" + "\n".join(lateness(conn, 20 if given.quick else 100)))
                print(at_once(conn, AT_ONCE))
        server.close()


if __name__ == "__main__":
    main()
