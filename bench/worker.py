"""
What a worker costs: its own CPU per no-op task under load, its runners' and the server's.

    python bench/worker.py [--dsn URL] [--tasks N] [--runners N] [--quick]
                           [--lines N] [--keep-output all|failures|off] [--traces]

Makes a scratch database, queues single-step runs, lets one worker loose, and compares user and
system time from /proc before and after. Figures depend on the machine; take them as ratios.
CPU per task is far steadier than tasks per second. With `PROFILE=FILE` in the environment the
worker runs under cProfile and leaves its figures there. Of the embedded server all processes
count, of another one on this machine the backends of the scratch database.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from measure import own_cpu_s

from pgflowd.core.messages import Drain, Heartbeat, Ready, Wake
from pgflowd.core.settings.sections import (
    DaemonSettings,
    DatabaseSettings,
    LoggingSettings,
    Settings,
    SupervisorSettings,
    TelemetrySettings,
    WorkerSettings,
)
from pgflowd.core.settings.values import Ref
from pgflowd.core.supervision.tree import ServedFlow
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.host.fork import ForkedChild, fork
from pgflowd.host.logs import open_log
from pgflowd.host.process_tree import all_processes, in_session
from pgflowd.processes import exporter
from pgflowd.processes.worker import main as worker
from pgflowd.testing.scratch import ScratchServer
from pgflowd.testing.until import until

MODULE = """
from pgflowd import job

@job("noop", timeout=60)
def noop(run):
    for number in range(LINES): print("line", number, "of a handler that tells what it does")
    return run
"""


def start_exporter(settings: Settings) -> ForkedChild:
    """The process `exporter`, with a collector that takes whatever comes."""

    class Collector(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # so that connections are kept

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{collector.server_port}"
    log = open_log(settings.logging, process="exporter")
    child = fork(lambda channel: exporter.main(channel, settings, log), title="exporter")
    until(lambda: any(isinstance(each, Ready) for each in child.channel.receive()), 10)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    return child


def settings_of(dsn: str, directory: str, args: argparse.Namespace) -> Settings:
    return Settings(
        pgflowd=DaemonSettings(python_path=(directory,)),
        database=replace(DatabaseSettings(), url=Ref(dsn)),
        worker=WorkerSettings(max_concurrency=args.runners, keep_output=args.keep_output),
        supervisor=SupervisorSettings(control=f"{directory}/control.sock"),
        logging=LoggingSettings(level="warning", format="json"),
        telemetry=TelemetrySettings(traces="on" if args.traces else "off"),
    )


def start(settings: Settings) -> ForkedChild:
    served = ServedFlow("noop", "noop_flow", "noop_flow")
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


def measure(dsn: str, args: argparse.Namespace, postmaster: int | None) -> dict[str, float]:
    server, tasks = ScratchServer(dsn), 1000 if args.quick else args.tasks
    with server.database() as database, tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "noop_flow.py").write_text(MODULE.replace("LINES", str(args.lines)))
        conn = database.connect()
        settings = settings_of(database.dsn, directory, args)
        tracer = start_exporter(settings) if args.traces else None
        child = start(settings)
        warm(conn, child)
        query = "select pgflow.start_flow('noop', jsonb_build_object('n', n)) from"
        conn.execute(f"select count(*) from ({query} generate_series(1, {tasks}) as n) as started")
        traces_s = own_cpu_s(tracer.pid) if tracer else 0.0
        all_s, own_s = session_cpu_s(child.pid), own_cpu_s(child.pid)
        server_s = server_cpu_s(conn, postmaster)
        began = time.perf_counter()
        child.channel.send(Wake())
        left = "select count(*) from pgflow.runs where status = 'started'"
        until(lambda: conn.execute(left).fetchone() == (0,), 120)
        took_s = time.perf_counter() - began
        all_s, own_s = session_cpu_s(child.pid) - all_s, own_cpu_s(child.pid) - own_s
        server_s = server_cpu_s(conn, postmaster) - server_s
        child.channel.send(Drain(5.0))
        until(child.has_ended, 10)
        child.collect()
        conn.close()
        found = figures(tasks, took_s, own_s, all_s - own_s, server_s)
        if tracer:
            found |= end_exporter(tracer, traces_s, tasks)
        return found


def end_exporter(tracer: ForkedChild, before_s: float, tasks: int) -> dict[str, float]:
    """Let it send the spans of all; what it took, what became of them, and how long it goes on."""
    counts: dict[str, int] = {}
    began = time.perf_counter()

    def has_sent_all() -> bool:
        for each in tracer.channel.receive():
            if isinstance(each, Heartbeat):
                counts.update(each.numbers.get("spans", {}))
        return counts.get("sent", 0) >= 3 * tasks

    until(has_sent_all, 300)
    found = {"exporter_later_s": round(time.perf_counter() - began, 1)}
    took_s = own_cpu_s(tracer.pid) - before_s
    tracer.channel.send(Drain(5.0))
    until(tracer.has_ended, 10)
    tracer.collect()
    return {"exporter_us_per_task": round(took_s / tasks * 1e6), **found, **counts}


def session_cpu_s(worker: int) -> float:
    """The same for the worker, its zygote and its runners, those that ended included."""
    return sum(own_cpu_s(seen.pid) for seen in in_session(worker))


def server_cpu_s(conn: Any, postmaster: int | None) -> float:
    """The same for a server's processes; the look itself is among them."""
    if postmaster is not None:
        return sum(own_cpu_s(seen.pid) for seen in all_processes() if seen.parent == postmaster)
    query = "select pid from pg_stat_activity where datname = current_database()"
    return sum(own_cpu_s(pid) for (pid,) in conn.execute(query))


def warm(conn: Any, child: ForkedChild) -> None:
    conn.execute("select pgflow.start_flow('noop', '{}') from generate_series(1, 200)")
    child.channel.send(Wake())
    left = "select count(*) from pgflow.runs where status = 'started'"
    until(lambda: conn.execute(left).fetchone() == (0,), 30)


def figures(
    tasks: int, took_s: float, worker_s: float, runners_s: float, server_s: float
) -> dict[str, float]:
    return {
        "tasks_per_s": round(tasks / took_s),
        "worker_us_per_task": round(worker_s / tasks * 1e6),
        "runners_us_per_task": round(runners_s / tasks * 1e6),
        "server_us_per_task": round(server_s / tasks * 1e6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--dsn", help="a superuser's; default: an embedded server")
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--runners", type=int, default=10)
    parser.add_argument("--traces", action="store_true", help="write the spans of all runs")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--lines", type=int, default=0, help="that each handler prints")
    parser.add_argument("--keep-output", default="failures", choices=["all", "failures", "off"])
    args = parser.parse_args()
    if args.dsn:
        print(json.dumps(measure(args.dsn, args, None)))
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedPostgres(Path(directory) / "pg") as postgres,
    ):
        print(json.dumps(measure(postgres.dsn, args, postgres.pid)))


if __name__ == "__main__":
    main()
