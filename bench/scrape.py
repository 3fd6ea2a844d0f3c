"""
What a scrape costs: of a daemon with many flows, each of six steps that have had a task.

    python bench/scrape.py [--flows N] [--scrapes N]

Starts a PostgreSQL and a daemon with `[http] listen`, lets each flow have a run, and scrapes once
in 1.2 s, since an answer may be a second old. Prints how long a scrape took, and the CPU of all
processes of the daemon for one, beyond what they take when nobody scrapes.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psycopg
from many_flows import LIMIT_S, MODULES, value, write_project
from measure import cpu_s

from pgflowd.db import schema
from pgflowd.db.connection import connect
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.until import until

PAUSE_S = 1.2  # longer than an answer is kept
STEPS = 6
STEP = "@{slug}.step\ndef step_{number}(run): return 1\n"


def write_flows(directory: Path, args: argparse.Namespace, dsn: str, port: int) -> Path:
    """Write the modules and the config, which turns `[http]` on and lets no worker sleep."""
    config = write_project(directory, args.flows, dsn)
    for module in range(MODULES):
        slugs = [f"job_{number}" for number in range(module, args.flows, MODULES)]
        lines = ["from pgflowd import Flow\n"]
        for slug in slugs:
            lines.append(f'{slug} = Flow("{slug}")\n')
            lines += [STEP.format(slug=slug, number=number) for number in range(STEPS)]
        (directory / f"jobs_{module}.py").write_text("".join(lines))
    text = config.read_text().replace('sleep_after = "20s"', 'sleep_after = "1h"')
    http = f'[http]\nlisten = "127.0.0.1:{port}"\n'
    config.write_text(text + http)
    return config


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def scrape(port: int) -> tuple[float, int]:
    """Seconds, and lines of the answer."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read()
    return time.perf_counter() - began, text.count(b"\n")


def have_runs(dsn: str, flows: int) -> None:
    """Let each flow have a run, once its worker has registered it."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        until(lambda: value(conn, "select count(*) from pgflow.flows") == flows, LIMIT_S)
        conn.execute("select pgflow.start_flow(flow_slug, '{}') from pgflow.flows")
        query = "select count(*) from pgflow.runs where status = 'completed'"
        until(lambda: value(conn, query) == flows, LIMIT_S)


def measured(args: argparse.Namespace, pid: int, port: int) -> dict[str, float]:
    lasts_s = args.scrapes * PAUSE_S
    until(lambda: scrape(port)[1] > args.flows, LIMIT_S)
    time.sleep(6)  # each heartbeat has told the numbers
    before_s = cpu_s(pid)
    time.sleep(lasts_s)
    idle_s, took, lines = cpu_s(pid) - before_s, [], 0
    before_s, ends = cpu_s(pid), time.monotonic() + lasts_s
    for number in range(args.scrapes):
        time.sleep(max(0.0, ends - lasts_s + number * PAUSE_S - time.monotonic()))
        took_s, lines = scrape(port)
        took.append(took_s)
    time.sleep(max(0.0, ends - time.monotonic()))
    cost_s = cpu_s(pid) - before_s - idle_s
    return {
        "lines": lines,
        "ms": round(statistics.median(took) * 1000, 1),
        "best_ms": round(min(took) * 1000, 1),
        "cpu_ms": round(cost_s / args.scrapes * 1000, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--flows", type=int, default=60)
    parser.add_argument("--scrapes", type=int, default=20)
    args = parser.parse_args()
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="pgflowd-scrape-") as name,
        EmbeddedPostgres(Path(name) / "db") as server,
    ):
        with connect(server.dsn) as migrating:
            schema.migrate(migrating)
        config = write_flows(Path(name), args, server.dsn, port)
        command = [sys.executable, "-m", "pgflowd", "serve", "-c", str(config)]
        with (Path(name) / "log").open("wb") as log:
            daemon = subprocess.Popen(command, stderr=log, stdout=log, cwd=name)
        try:
            have_runs(server.dsn, args.flows)
            print(json.dumps(measured(args, daemon.pid, port)))
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)


if __name__ == "__main__":
    main()
