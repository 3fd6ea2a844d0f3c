"""
Stage: one system at work in a fresh database: its client, its worker, and what they cost.

    with bench.stage("ours", ["single"]) as stage:
        slots = stage.slots(1_000)
        stage.call("start_many", "single", slots)
        stage.serve()
        stage.wait_until_marked(slots)
        stage.check({"single": 1_000})

A system is installed once, into a template; each stage has a copy. Handlers mark slots of a
shared file (`systems.effects`), so waiting costs the database nothing; only when all have been
marked is it asked whether it has written everything down. `check` compares effects and rows:
each handler exactly once, each row completed, none with work ahead.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from measure import cpu_s, family, parent
from systems import effects

HERE = Path(__file__).parent
NAP_S = 0.002
MAX_NAP_S = 0.05
LIMIT_S = 180.0
SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class Failed(Exception):
    """A system did not do what it was given."""


class Cost(NamedTuple):
    """CPU seconds, and kilobytes of write-ahead log."""

    worker_s: float
    server_s: float
    wal_kb: float

    def since(self, before: Cost) -> Cost:
        return Cost(*(now - then for now, then in zip(self, before, strict=True)))


class Bench:
    """The server, the file of effects, and the templates."""

    def __init__(self, dsn: str, directory: Path, peers: str) -> None:
        self.dsn = dsn
        self.directory = directory
        self.conn: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)
        self.postmaster = parent(self.conn.info.backend_pid)
        self.effects = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="bench-")) / "effects"
        effects.create(self.effects)
        self.starts, self.counts = effects.open_views(str(self.effects))
        self.next_slot = 0
        self.pythons = {"ours": sys.executable, "raw_pgmq": sys.executable}
        self.peers = peers
        self._installed: set[str] = set()
        self._numbers = itertools.count()

    def close(self) -> None:
        for system in self._installed:
            self.execute(f"drop database if exists bench_{system} with (force)")
        self.conn.close()
        self.effects.unlink()
        self.effects.parent.rmdir()

    def execute(self, statement: str) -> None:
        self.conn.execute(statement.encode())

    @contextmanager
    def stage(self, system: str, kinds: list[str], **environ: str) -> Iterator[Stage]:
        name = f"bench_{system}_{next(self._numbers)}"
        if system not in self._installed:
            self._install(system)
        self.execute(f"create database {name} template bench_{system} strategy file_copy")
        stage = Stage(self, system, name, kinds, environ)
        try:
            yield stage
        finally:
            stage.close()
            self.execute(f"drop database {name} with (force)")

    def _install(self, system: str) -> None:
        template = f"bench_{system}"
        self.execute(f"drop database if exists {template} with (force)")
        self.execute(f"create database {template}")
        stage = Stage(self, system, template, [], {})
        try:
            stage.call("install")
        finally:
            stage.close()
        self._installed.add(system)


class Stage:
    """One system, with a client that answers and perhaps a worker."""

    def __init__(
        self, bench: Bench, system: str, database: str, kinds: list[str], environ: dict[str, str]
    ) -> None:
        self.bench = bench
        self.system = system
        self.kinds = kinds
        self.url = url = _url(bench.dsn, database)
        self._environ = {
            **os.environ,
            "BENCH_DSN": url,
            effects.PATH: str(bench.effects),
            "BENCH_DIRECTORY": str(bench.directory),
            "PYTHONPATH": str(HERE),
            **environ,
        }
        self._log = (bench.directory / f"{database}.log").open("w+")
        self._worker: subprocess.Popen[bytes] | None = None
        self._client = subprocess.Popen(
            [bench.pythons.get(system, bench.peers), "-m", f"systems.{system}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **self._surroundings(),
        )
        self.told = self.call("hello")
        self.conn: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self._mine = frozenset({self.conn.info.backend_pid, bench.conn.info.backend_pid})

    def _surroundings(self) -> dict[str, Any]:
        return {
            "env": self._environ,
            "cwd": self.bench.directory,
            "stderr": self._log,
            "start_new_session": True,
            "preexec_fn": _end_with_the_driver,
        }

    # the client

    def call(self, *call: Any) -> Any:
        """Let the client do something; return its answer."""
        return self.timed(*call)[0]

    def timed(self, *call: Any) -> tuple[Any, int, int]:
        """The same, with the nanosecond in which it began and ended."""
        assert self._client.stdin and self._client.stdout
        self._client.stdin.write(json.dumps(call) + "\n")
        self._client.stdin.flush()
        line = self._client.stdout.readline()
        if not line:
            raise Failed(f"{self.system}: {call[0]} failed:\n{self.log()}")
        answer, began, ended = json.loads(line)
        return answer, began, ended

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()[-3_000:]

    # the worker

    def serve(self) -> None:
        """Start the worker; what is queued is analysed first, as it would be by and by."""
        self.conn.execute("vacuum analyze")
        self.conn.execute("checkpoint")
        command = self.call("worker", self.kinds)
        self._worker = subprocess.Popen(command, stdout=self._log, **self._surroundings())

    @property
    def pid(self) -> int:
        assert self._worker
        return self._worker.pid

    def stop(self) -> None:
        """Ask the worker to end; kill it and what it leaves behind if it does not."""
        if self._worker is None:
            return
        everyone = list(family(self._worker.pid))
        self._worker.terminate()
        try:
            self._worker.wait(15)
        except subprocess.TimeoutExpired:
            for pid in everyone:
                _kill(pid)
            self._worker.wait()
        self._worker = None

    def close(self) -> None:
        self.stop()
        if hasattr(self, "conn"):
            self.conn.close()
        assert self._client.stdin
        self._client.stdin.close()
        try:
            self._client.wait(10)
        except subprocess.TimeoutExpired:
            self._client.kill()
            self._client.wait()
        self._log.close()

    def cost(self) -> Cost:
        """What the worker with all its processes has cost so far, and PostgreSQL."""
        row = self.conn.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchone()
        assert row
        return Cost(cpu_s(self.pid), self.server_s(), int(row[0]) / 1e3)

    def server_s(self) -> float:
        """CPU seconds of PostgreSQL so far, without what our own questions cost."""
        return cpu_s(self.bench.postmaster, self._mine)

    # slots

    def slots(self, count: int) -> range:
        """Slots nobody has used."""
        first = self.bench.next_slot
        self.bench.next_slot += count
        if self.bench.next_slot > effects.SLOTS:
            raise Failed("more slots than the file of effects has")
        return range(first, first + count)

    def marked(self, slots: range) -> int:
        """How many handlers have begun."""
        starts = self.bench.starts[slots.start : slots.stop].tolist()
        return len(starts) - starts.count(0)

    def wait_until_marked(self, slots: range, count: int | None = None) -> int:
        """Wait for so many handlers, or all; return how many it was."""
        wanted = len(slots) if count is None else count
        deadline = time.monotonic() + LIMIT_S
        looked = time.monotonic()
        while (marked := self.marked(slots)) < wanted:
            if time.monotonic() > deadline or (self._worker and self._worker.poll() is not None):
                raise Failed(f"{self.system}: {marked} of {wanted} handlers:\n{self.log()}")
            # long looks at many slots are followed by long naps, so that they cost a twentieth
            time.sleep(min(max(NAP_S, 20 * (time.monotonic() - looked)), MAX_NAP_S))
            looked = time.monotonic()
        return marked

    # the database

    def rows(self, which: str) -> int:
        row = self.conn.execute(self.told[which].encode()).fetchone()
        assert row
        return int(row[0])

    def wait_until_written(self) -> None:
        """Wait until the database knows of no work any more."""
        deadline = time.monotonic() + LIMIT_S
        while unfinished := self.rows("unfinished"):
            if time.monotonic() > deadline:
                raise Failed(f"{self.system}: {unfinished} rows unfinished:\n{self.log()}")
            time.sleep(NAP_S)

    def check(self, slots: range, completed: int) -> None:
        """Fail unless every handler ran exactly once and every row is completed."""
        counts = self.bench.counts[slots.start : slots.stop].tolist()
        if (once := counts.count(1)) != len(counts):
            raise Failed(f"{self.system}: {once} of {len(counts)} handlers ran exactly once")
        if (rows := self.rows("completed")) != completed:
            raise Failed(f"{self.system}: {rows} rows completed, {completed} expected")
        if unfinished := self.rows("unfinished"):
            raise Failed(f"{self.system}: {unfinished} rows unfinished")


def _url(dsn: str, database: str) -> str:
    """The address as a URL that libpq, asyncpg and SQLAlchemy all understand."""
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    user, secret = parts.get("user", "postgres"), parts.get("password", "")
    host, port = parts.get("host", "127.0.0.1"), parts.get("port", 5432)
    login = f"{user}:{secret}" if secret else user
    if str(host).startswith("/"):
        return f"postgresql://{login}@/{database}?host={host}&port={port}"
    return f"postgresql://{login}@{host}:{port}/{database}"


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _end_with_the_driver() -> None:
    """Ask the kernel for SIGTERM when the driver is killed; to be called in the child."""
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGTERM)
