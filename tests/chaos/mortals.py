"""
What soaks share: a place with a server of its own, and daemons whose processes are killed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from support.daemon import Daemon, DaemonSetup

from pgflowd.db import schema
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.host.process_tree import command_line
from pgflowd.testing.plugin import MEMORY, has_room

MANY_CONNECTIONS = {"max_connections": "200"}


class MortalDaemons:
    """Daemons that are started again when they have ended."""

    def __init__(
        self, setup: DaemonSetup, count: int, chance: random.Random, config: dict[str, Any]
    ) -> None:
        self._setup, self._chance, self._config = setup, chance, config
        self._daemons: dict[str, Daemon | None] = {f"d{n}": None for n in range(count)}
        self.killed: list[tuple[int, float]] = []  # pids, and when

    def start(self) -> None:
        for daemon in self.look_after():
            daemon.until("supervisor.ready", within_s=60)

    def look_after(self) -> list[Daemon]:
        """Start those that have ended; return all."""
        for name, daemon in self._daemons.items():
            if daemon is None or daemon.process.poll() is not None:
                self._daemons[name] = self._setup.start(name, **self._config)
        return [daemon for daemon in self._daemons.values() if daemon]

    def kill(self, kind: str) -> bool:
        """Kill a process of this kind, of any daemon. False if the daemon has none."""
        daemon = self._chance.choice(self.look_after())
        pids = [daemon.pid] if kind == "supervisor" else [
            seen.pid for seen in daemon.family() if f": {kind}" in command_line(seen.pid)
        ]  # fmt: skip
        if not pids:
            return False
        pid = self._chance.choice(pids)
        self.killed.append((pid, time.time()))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return True

    def drain(self) -> bool:
        """Let a daemon drain, and then end."""
        with suppress(ProcessLookupError):
            os.kill(self._chance.choice(self.look_after()).pid, signal.SIGTERM)
        return True


@contextmanager
def place(
    flows: str, options: Mapping[str, str] = MANY_CONNECTIONS
) -> Iterator[tuple[DaemonSetup, str]]:
    """A server with the schema, and its URL; daemons there serve the flows of this source."""
    room = MEMORY if has_room(MEMORY) else Path(tempfile.gettempdir())
    directory = Path(tempfile.mkdtemp(prefix="pgflowd-soak-", dir=room))
    directory.chmod(0o711)
    try:
        with EmbeddedPostgres(directory / "server", options=dict(options)) as server:
            with psycopg.connect(server.dsn, autocommit=True) as conn:
                schema.migrate(conn)
            setup = DaemonSetup(directory, server.dsn)
            setup.module("mortal_flows", flows)
            try:
                yield setup, server.dsn
            finally:
                setup.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
