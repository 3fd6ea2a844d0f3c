"""
Servers of a test, which may be on any machine, may be killed, and may follow one another.

    primary = servers.start()
    standby = servers.start(copy_of=primary, port=…)
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pgflowd import Client
from pgflowd.errors import PgflowdError
from pgflowd.testing import plugin
from pgflowd.testing.until import until
from support.network import Machine

PROGRAM = Path(__file__).parent / "server_process.py"
WHO = "local all all trust\nhost all,replication all 0.0.0.0/0 scram-sha-256\n"
QUICK = {
    "fsync": "off",  # the kernel outlives what we kill
    "listen_addresses": "*",
    "wal_retrieve_retry_interval": "100ms",  # what a promotion waits for
}


class Server:
    """One PostgreSQL, on a machine of the test's network or on this one."""

    def __init__(
        self, directory: Path, machine: Machine | None, copy_of: Server | None = None
    ) -> None:
        self.address = machine.address if machine else "127.0.0.1"
        spec = {
            "directory": str(directory),
            "options": {**QUICK, "hba_file": str(directory.parent / "login")},
            "port": 5432 if machine else free_port(),
            "copy_of": f"{copy_of.url('')} application_name=standby" if copy_of else None,
        }
        self._process = subprocess.Popen(
            [*(machine.inside if machine else []), sys.executable, PROGRAM, json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        facts = json.loads(self._process.stdout.readline())
        self.pid, self.port, self.dsn = facts["pid"], facts["port"], facts["dsn"]
        self.password = copy_of.password if copy_of else facts["password"]

    def url(self, database: str = "postgres") -> str:
        """Where machines find it."""
        where = f"host={self.address} port={self.port} user=postgres password={self.password}"
        return f"{where} dbname={database}" if database else where

    def connect(self) -> psycopg.Connection[Any]:
        """A connection that needs no network."""
        return psycopg.connect(self.dsn, autocommit=True)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        self._process.communicate(timeout=30)


class Servers:
    """All servers of a test, which end with it."""

    def __init__(self) -> None:
        above = plugin.MEMORY if plugin.has_room(plugin.MEMORY) else None
        self._directory = Path(tempfile.mkdtemp(prefix="pgflowd-machines-", dir=above))
        self._directory.chmod(0o711)
        (self._directory / "login").write_text(WHO)
        self._running: list[Server] = []

    def start(self, machine: Machine | None = None, copy_of: Server | None = None) -> Server:
        directory = self._directory / f"server{len(self._running)}"
        server = Server(directory, machine, copy_of)
        self._running.append(server)
        return server

    def pair(self, *machines: Machine) -> tuple[Server, Server]:
        """A primary, and a standby without which nothing is committed."""
        one, two = machines or (None, None)
        primary = self.start(one)
        standby = self.start(two, copy_of=primary)
        with primary.connect() as conn:
            conn.execute("alter system set synchronous_standby_names = 'standby'")
            conn.execute("select pg_reload_conf()")
            query = "select from pg_stat_replication where sync_state = 'sync'"
            until(lambda: conn.execute(query).rowcount == 1, 10)
        return primary, standby

    def close(self) -> None:
        for server in reversed(self._running):
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def url_of(*servers: Server) -> str:
    """One connection string for whichever of them is the primary."""
    return _one_of([server.address for server in servers], servers)


def near_url_of(*servers: Server) -> str:
    """The same on their sockets, which no cable cuts."""
    return _one_of([str(conninfo_to_dict(server.dsn)["host"]) for server in servers], servers)


def _one_of(hosts: Sequence[str], servers: Sequence[Server]) -> str:
    ports = ",".join(str(server.port) for server in servers)
    login = f"user=postgres password={servers[0].password} dbname=postgres"
    return f"host={','.join(hosts)} port={ports} {login} target_session_attrs=read-write"


class Starter:
    """Starts runs, one after another, and remembers those that the database acknowledged."""

    def __init__(self, url: str) -> None:
        self.acknowledged: list[UUID] = []
        self._client = Client(url)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._start, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        while not self._is_over.wait(0.01):
            try:
                run = self._client.start_flow("flow", {"s": 0.03})
            except (PgflowdError, psycopg.Error):
                continue  # perhaps it was started, perhaps not
            self.acknowledged.append(run.run_id)

    def has_more_than(self, number: int, within_s: float = 10) -> None:
        until(lambda: len(self.acknowledged) > number, within_s)

    def ended(self) -> set[UUID]:
        self._is_over.set()
        self._thread.join(20)
        self._client.close()
        return set(self.acknowledged)


def open_runs(conn):
    return conn.execute("select from pgflow.runs where status = 'started'").rowcount


def completed_runs(conn):
    query = "select run_id from pgflow.runs where status = 'completed'"
    return {run_id for (run_id,) in conn.execute(query)}


def reported(daemon):
    """The runs of which a report was answered, by the worker's log."""
    return {UUID(each["run"]) for each in daemon.events("task.completed", verdict="completed")}


def recorded(conn):
    query = "select run_id from pgflowd.attempts where outcome = 'completed'"
    return {run_id for (run_id,) in conn.execute(query)}
