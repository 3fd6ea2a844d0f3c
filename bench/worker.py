"""
What a worker costs: its own CPU per no-op task under load, its runners', and tasks per second.

    python bench/worker.py postgresql://postgres@host/postgres [tasks] [runners]

Makes a scratch database on that server, queues single-step runs, lets one worker loose, and
compares user and system time from /proc before and after. Figures depend on the machine; take
them as ratios. CPU per task is far steadier than tasks per second. With `PROFILE=FILE` in the
environment the worker runs under cProfile and leaves its figures there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pgflowd.core.messages import Drain, Ready, Wake
from pgflowd.core.served import Served
from pgflowd.core.settings import Daemon, Database, Logging, Settings, Worker
from pgflowd.core.settings_refs import Ref
from pgflowd.host.logs import open_log
from pgflowd.host.proc import in_session
from pgflowd.host.spawn import Child, fork
from pgflowd.processes import worker
from pgflowd.testing.scratch import ScratchServer
from pgflowd.testing.until import until

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MODULE = """
from pgflowd import job

@job("noop", timeout=60)
def noop(run): return run
"""


def cpu_s(pid: int) -> float:
    """User and system time of a process, with its reaped children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:13]) * TICK_S


def start(dsn: str, directory: str, runners: int) -> Child:
    settings = Settings(
        pgflowd=Daemon(python_path=(directory,)),
        database=replace(Database(), url=Ref(dsn)),
        worker=Worker(max_concurrency=runners),
        logging=Logging(level="info", format="json"),
    )
    served = Served("noop", "noop_flow", "noop_flow")
    log = open_log(settings.logging, process="worker")

    def main(channel: Any) -> int:
        if out := os.environ.get("PROFILE"):
            import cProfile

            profile = cProfile.Profile()
            try:
                return profile.runcall(worker.main, channel, settings, log, served)
            finally:
                profile.dump_stats(out)
        return worker.main(channel, settings, log, served)

    child = fork(main, title="pgflowd: worker noop", death_signal=signal.SIGTERM)
    until(lambda: any(isinstance(each, Ready) for each in child.channel.receive()), 10)
    return child


def main(dsn: str, tasks: int = 5000, runners: int = 10) -> None:
    server = ScratchServer(dsn)
    with server.database() as database, tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "noop_flow.py").write_text(MODULE)
        conn = database.connect()
        child = start(database.dsn, directory, runners)
        warm(conn, child)
        before = {seen.pid: cpu_s(seen.pid) for seen in in_session(child.pid)}
        query = "select pgflow.start_flow('noop', jsonb_build_object('n', n)) from"
        conn.execute(f"select count(*) from ({query} generate_series(1, {tasks}) as n) as started")
        began = time.perf_counter()
        child.channel.send(Wake())
        left = "select count(*) from pgflow.runs where status = 'started'"
        until(lambda: conn.execute(left).fetchone() == (0,), 120)
        took_s = time.perf_counter() - began
        used = {s.pid: cpu_s(s.pid) - before.get(s.pid, 0.0) for s in in_session(child.pid)}
        child.channel.send(Drain(5.0))
        until(child.has_ended, 10)
        child.collect()
        conn.close()
        of_worker = used.pop(child.pid)
        print(json.dumps(figures(tasks, took_s, of_worker, sum(used.values()))))


def warm(conn: Any, child: Child) -> None:
    conn.execute("select pgflow.start_flow('noop', '{}') from generate_series(1, 200)")
    child.channel.send(Wake())
    left = "select count(*) from pgflow.runs where status = 'started'"
    until(lambda: conn.execute(left).fetchone() == (0,), 30)


def figures(tasks: int, took_s: float, worker_s: float, runners_s: float) -> dict[str, float]:
    return {
        "tasks_per_s": round(tasks / took_s),
        "worker_us_per_task": round(worker_s / tasks * 1e6),
        "runners_us_per_task": round(runners_s / tasks * 1e6),
    }


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
