"""
What many flows cost: connections, processes, memory and CPU of a daemon whose flows all sleep.

    python bench/many_flows.py [--flows 60 250] [--seconds N] [--quick]

Starts a PostgreSQL with its default of 100 connections, and a daemon with so many no-op jobs, in
five modules. When all flows are registered and asleep it measures the daemon for some seconds, with
PostgreSQL beside it, and then the way from a start to the first line of a handler: of flows that
sleep, and once more of the same, which are awake then. Prints the tables of "Many flows" in
docs/background/benchmarks.md, as Markdown.
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
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from measure import cpu_s, parent, pss_mb

from pgflowd.db import schema
from pgflowd.db.connection import connect
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.until import until

MODULES = 5
STARTS = 20  # of single flows
LIMIT_S = 300.0
OF_THE_DAEMON = "application_name like 'many: %%' and datid is not null"


class Figures(NamedTuple):
    flows: int
    registered_s: float
    most: int
    connections: int
    processes: int
    pss_mb: float
    daemon_ms: float
    server_ms: float
    asleep_ms: float
    awake_ms: float


def write_project(directory: Path, flows: int, dsn: str) -> Path:
    """Write the modules and the config."""
    slugs = [f"job_{number}" for number in range(flows)]
    for module in range(MODULES):
        lines = ["import time", "from pgflowd import job"]
        for slug in slugs[module::MODULES]:
            lines += [f'@job("{slug}")', f"def {slug}(run): return time.time()"]
        (directory / f"jobs_{module}.py").write_text("\n".join(lines))
    config = directory / "pgflowd.toml"
    config.write_text(
        f"""
[pgflowd]
name = "many"
flows = {json.dumps([f"jobs_{module}" for module in range(MODULES)])}
python_path = [{json.dumps(str(directory))}]
[database]
url = {json.dumps(dsn)}
[worker]
sleep_after = "20s"
[supervisor]
control = {json.dumps(str(directory / "control"))}
"""
    )
    config.chmod(0o600)
    return config


def value(conn: psycopg.Connection[Any], query: str, *params: object) -> Any:
    row = conn.execute(query.encode(), params).fetchone()
    return row[0] if row else None


def start_s(conn: psycopg.Connection[Any], slug: str) -> float:
    """From the commit of a start to the first line of the handler."""
    run_id = value(conn, "select run_id from pgflow.start_flow(%s, '{}')", slug)
    began = time.time()
    query = "select output from pgflow.runs where run_id = %s and status = 'completed'"
    output = until(lambda: value(conn, query, run_id), LIMIT_S)
    return float(next(iter(output.values()))) - began


def measure(flows: int, seconds: float) -> Figures:
    """One daemon with so many flows."""
    with (
        tempfile.TemporaryDirectory(prefix="pgflowd-many-") as name,
        EmbeddedPostgres(Path(name) / "db", options={"max_connections": "100"}) as server,
    ):
        directory = Path(name)
        with connect(server.dsn) as migrating:
            schema.migrate(migrating)
        config = write_project(directory, flows, server.dsn)
        command = [sys.executable, "-m", "pgflowd", "serve", "-c", str(config)]
        with (directory / "log").open("wb") as log:
            began = time.monotonic()
            daemon = subprocess.Popen(command, stderr=log, stdout=log, cwd=directory)
        try:
            return _measured(flows, seconds, server.dsn, daemon.pid, began)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)


def _measured(flows: int, seconds: float, dsn: str, pid: int, began: float) -> Figures:
    count = f"select count(*) from pg_stat_activity where {OF_THE_DAEMON}"
    with psycopg.connect(dsn, autocommit=True) as conn:
        most = 0
        registered_s = None
        while True:
            held = value(conn, count)
            most = max(most, held)
            if registered_s is None and value(conn, "select count(*) from pgflow.flows") == flows:
                registered_s = time.monotonic() - began
            if registered_s is not None and held <= 2:
                break
            time.sleep(0.02)
        postmaster, mine = parent(conn.info.backend_pid), frozenset({conn.info.backend_pid})
        conn.execute("vacuum analyze")  # or autovacuum of a thousand new tables is measured
        time.sleep(2)  # what has just ended is reaped
        before = time.monotonic(), cpu_s(pid), cpu_s(postmaster, mine)
        time.sleep(seconds)
        lasted_s = time.monotonic() - before[0]
        daemon_ms = (cpu_s(pid) - before[1]) / lasted_s * 1000
        server_ms = (cpu_s(postmaster, mine) - before[2]) / lasted_s * 1000
        size_mb, processes = pss_mb(pid)
        connections = value(conn, count)
        slugs = [f"job_{number}" for number in range(min(STARTS, flows))]
        asleep = [start_s(conn, slug) for slug in slugs]
        awake = [start_s(conn, slug) for slug in slugs]
    return Figures(
        flows,
        registered_s,
        most,
        connections,
        processes,
        size_mb,
        daemon_ms,
        server_ms,
        statistics.median(asleep) * 1000,
        statistics.median(awake) * 1000,
    )


def table(found: list[Figures]) -> str:
    """The figures as Markdown."""
    rows = {
        "all registered after, s": [f"{each.registered_s:.0f}" for each in found],
        "connections at most, starting": [str(each.most) for each in found],
        "connections, all asleep": [str(each.connections) for each in found],
        "processes": [str(each.processes) for each in found],
        "memory (PSS), MB": [f"{each.pss_mb:.0f}" for each in found],
        "CPU ms/s, daemon + PostgreSQL": [
            f"{each.daemon_ms:.2f} + {each.server_ms:.2f}" for each in found
        ],
        "start to handler, asleep, ms (p50)": [f"{each.asleep_ms:.0f}" for each in found],
        "start to handler, awake, ms (p50)": [f"{each.awake_ms:.1f}" for each in found],
    }
    head = ["", *(f"{each.flows} flows" for each in found)]
    lines = [f"| {' | '.join(head)} |", f"| --- {'| ---: ' * len(found)}|"]
    lines += [f"| {name} | {' | '.join(values)} |" for name, values in rows.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="What many flows cost that sleep.")
    parser.add_argument("--flows", type=int, nargs="+", default=[60, 250])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    seconds = 20.0 if given.quick else given.seconds
    print(table([measure(flows, seconds) for flows in given.flows]))


if __name__ == "__main__":
    main()
