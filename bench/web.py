"""
What the dashboard costs: the first byte of each page, and 200 tabs that view one run.

    python bench/web.py [--runs 20000] [--tabs 200] [--seconds 10]

Starts a PostgreSQL with durable settings, writes so many ended runs into it, and `pgflowd web`
beside it. First each page is asked for eleven times. Then tabs view a run that is still, then one
whose tasks end four times a second. CPU is that of the web process, and of PostgreSQL with all its
processes, in percent of a core. Prints the tables of "The dashboard" in
docs/background/benchmarks.md, as Markdown.
"""

from __future__ import annotations

import argparse
import http.client
import json
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from measure import cpu_s, parent, pss_mb

from pgflowd import Flow
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.task import TaskReport
from pgflowd.db import schema, tasks
from pgflowd.db.connection import Limits, connect
from pgflowd.db.query import execute
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.until import until
from pgflowd.web.pages import PAGES
from pgflowd.web.rendering import address_of

Connection = psycopg.Connection[Any]
TIMES = 11
CHANGE_S = 0.25
OF_A_SESSION = 16  # streams; each address of this machine is one
FILL = """
set session_replication_role = replica;
insert into pgflow.runs (run_id, flow_slug, status, input, output, remaining_steps, started_at,
                         completed_at, failed_at)
  select (lpad(to_hex(1767225600000 + n * 1000), 12, '0') || '7' || right(md5(n::text), 19))::uuid,
         'bench', case when n %% 50 = 0 then 'failed' else 'completed' end, '[1]', '{}', 0, at,
         case when n %% 50 > 0 then at end, case when n %% 50 = 0 then at end
    from generate_series(1, %(runs)s) as n
   cross join lateral (select now() - (%(runs)s - n) * interval '1 s' as at) as moment;
insert into pgflow.step_states (flow_slug, run_id, step_slug, status, remaining_tasks,
                                initial_tasks, created_at, started_at, completed_at, failed_at,
                                output)
  select 'bench', run.run_id, 'work', run.status, 0, 1, run.started_at, run.started_at,
         run.completed_at, run.failed_at, case run.status when 'completed' then '[1]'::jsonb end
    from pgflow.runs as run where run.status <> 'started';
reset session_replication_role;
analyze pgflow.runs; analyze pgflow.step_states;
"""


class Web:
    """A dashboard in a process of its own."""

    def __init__(self, dsn: str, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        config = folder / "pgflowd.toml"
        config.write_text(
            f'[database]\nurl = "{dsn}"\n[web]\nauth = "none"\nlisten = "127.0.0.1:{self.port}"\n'
        )
        command = [sys.executable, "-m", "pgflowd.cli.main", "web", "-c", str(config)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(self.answers, within_s=30)

    def answers(self) -> bool:
        try:
            return self.get("/")[2] == 200
        except OSError:
            return False

    def get(self, path: str) -> tuple[float, int, int]:
        """Milliseconds to the first byte, bytes, status."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        line.connect()
        began = time.perf_counter()
        line.request("GET", path)
        answer = line.getresponse()
        first_ms = (time.perf_counter() - began) * 1000
        body = answer.read()
        line.close()
        return first_ms, len(body), answer.status

    @contextmanager
    def tabs(self, path: str, many: int) -> Iterator[Tabs]:
        """Streams of a page, each read as soon as something comes."""
        lines = []
        for number in range(many):
            source = (f"127.0.0.{2 + number // OF_A_SESSION}", 0)
            line = socket.create_connection(("127.0.0.1", self.port), 30, source)
            request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n"
            line.sendall(request.encode())
            lines.append(line)
        reading = Tabs(lines)
        reading.start()
        try:
            until(lambda: reading.begun == many, within_s=60)
            yield reading
        finally:
            reading.stop()
            for line in lines:
                line.close()


class Tabs(threading.Thread):
    """Reads the streams of all tabs."""

    def __init__(self, lines: list[socket.socket]) -> None:
        super().__init__(daemon=True)
        self._selector = selectors.DefaultSelector()
        self._begun: set[int] = set()
        self._goes_on = True
        self.received = 0
        for line in lines:
            self._selector.register(line, selectors.EVENT_READ)

    @property
    def begun(self) -> int:
        """How many have had a fragment."""
        return len(self._begun)

    def run(self) -> None:
        while self._goes_on:
            for key, _ in self._selector.select(0.1):
                data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                self.received += len(data)
                if b"event: fragment" in data:
                    self._begun.add(key.fd)

    def stop(self) -> None:
        self._goes_on = False
        self.join()


class Busy:
    """A run of a map of 10,000 elements, one of which ends four times a second."""

    def __init__(self, conn: Connection) -> None:
        self._conn, self._worker = conn, uuid.uuid4()
        flow = Flow("bench")
        flow.map(slug="work")(lambda item: item)
        conn.execute("select pgflowd.define('bench', %s)", [json.dumps(flow.shape())])
        conn.execute(
            "insert into pgflow.workers (worker_id, queue_name, function_name)"
            " values (%s, 'bench', 'bench')",
            [self._worker],
        )
        start = "select run_id from pgflow.start_flow('bench', %s::jsonb)"
        found = conn.execute(start, [json.dumps(list(range(10_000)))]).fetchone()
        assert found is not None
        self.run_id: uuid.UUID = found[0]

    def step(self) -> None:
        (task,) = execute(self._conn, tasks.claim("bench", self._worker, 1))
        execute(self._conn, tasks.report([TaskReport(task, Outcome.COMPLETED, b"1")]))


def first_bytes(web: Web, run_id: uuid.UUID) -> None:
    print("| page | first byte, ms: median | largest | kB |\n| --- | ---: | ---: | ---: |")
    words = {"run": run_id, "flow": "bench", "step": "work", "code": "E301", "words": "x"}
    for page in PAGES:
        if "{daemon}" in page.path:
            continue  # none is there
        for view in ("", *page.views):
            path = page.path.format(**words) + (f"?view={view}" if view else "")
            taken = [web.get(path) for _ in range(TIMES)][1:]
            assert {status for _, _, status in taken} == {200}, path
            times = [ms for ms, _, _ in taken]
            name = path.replace(str(run_id), "RUN")
            print(
                f"| `{name}` | {statistics.median(times):.1f} | {max(times):.1f} |"
                f" {taken[0][1] / 1000:.0f} |"
            )
    sizes = [web.get(f"/{address_of(name)}")[1] for name in ("pgflowd.js", "pgflowd.css")]
    print(f"\nScript and style: {sum(sizes) / 1000:.0f} kB.\n")


def shares(web: Web, postmaster: int, seconds: float, busy: Busy | None) -> tuple[float, float]:
    """CPU of the web process and of PostgreSQL, in percent of a core."""
    before, began = (cpu_s(web.process.pid), cpu_s(postmaster)), time.monotonic()
    while (took := time.monotonic() - began) < seconds:
        if busy is not None:
            busy.step()
        time.sleep(CHANGE_S)
    after = cpu_s(web.process.pid), cpu_s(postmaster)
    web_s, server_s = (now - then for now, then in zip(after, before, strict=True))
    return 100 * web_s / took, 100 * server_s / took


def live(
    web: Web, conn: Connection, postmaster: int, busy: Busy, tabs: int, seconds: float
) -> None:
    print("| | web, % of a core | PostgreSQL | kB/s to all tabs |\n| --- | ---: | ---: | ---: |")

    def measured(name: str, reading: Tabs | None, does: Busy | None) -> None:
        received = reading.received if reading else 0
        own, server = shares(web, postmaster, seconds, does)
        rate = (reading.received - received) / seconds / 1000 if reading else 0.0
        print(f"| {name} | {own:.1f} | {server:.1f} | {rate:.0f} |")

    measured("no tab, a run that is still", None, None)
    measured("no tab, four changes a second", None, busy)
    with web.tabs(f"/live/runs/{busy.run_id}", tabs) as reading:
        measured(f"{tabs} tabs, a run that is still", reading, None)
        measured(f"{tabs} tabs, four changes a second", reading, busy)
        query = "select count(*) from pg_stat_activity where application_name = 'pgflowd web'"
        (connections,) = conn.execute(query).fetchone() or (0,)
        mb, _ = pss_mb(web.process.pid)
        print(f"\n{connections} connections with those of pages, {mb:.0f} MB.")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--tabs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres(Path(folder) / "db") as server,
        connect(server.dsn, limits=Limits(statement_s=0)) as conn,
    ):
        schema.migrate(conn)
        busy = Busy(conn)
        conn.execute(FILL % {"runs": options.runs})  # several statements take no parameters
        print(f"{options.runs:,} runs, Python {sys.version.split()[0]}\n")
        web = Web(server.dsn, Path(folder))
        try:
            first_bytes(web, busy.run_id)
            postmaster = parent(conn.info.backend_pid)
            live(web, conn, postmaster, busy, options.tabs, options.seconds)
        finally:
            web.process.terminate()
            web.process.wait(10)


if __name__ == "__main__":
    main()
