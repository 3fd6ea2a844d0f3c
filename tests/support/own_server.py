"""
A server of a test's own, in memory, with the schema: it may be stopped, crash, and start again.

    with OwnServer() as server:
        server.crash()
        server.start()
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from pgflowd.db import schema
from pgflowd.db.connection import connect
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.host.process_tree import read_stat
from pgflowd.testing import plugin
from pgflowd.testing.until import until
from support.daemon import is_gone


class OwnServer:
    """One directory with data, and the server of them while it runs."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        above = plugin.MEMORY if plugin.has_room(plugin.MEMORY) else None
        self._directory = Path(tempfile.mkdtemp(prefix="pgflowd-own-", dir=above))
        self._directory.chmod(0o711)
        self._options = options

    def __enter__(self) -> OwnServer:
        self.start()
        with connect(self.dsn) as conn:
            schema.migrate(conn)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self._directory)

    def start(self) -> None:
        """Start it where it was before."""
        self._running = EmbeddedPostgres(self._directory / "db", options=self._options)
        self._running.__enter__()
        self.dsn = self._running.dsn
        self.tcp_dsn = self._running.tcp_dsn_for("postgres")

    def stop(self) -> None:
        self._running.__exit__(None, None, None)

    def crash(self) -> None:
        """An immediate stop: no shutdown checkpoint, as after a crash."""
        postmaster = read_stat(self._running.pid)
        assert postmaster is not None
        os.kill(postmaster.pid, signal.SIGQUIT)
        until(lambda: is_gone(postmaster), 10)
        self.stop()
