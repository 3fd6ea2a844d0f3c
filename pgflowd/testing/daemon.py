"""
A real daemon for a test, on the test's scratch database.

It is `pgflowd serve` with the project's own config; database, name, control socket and log are the
test's. It is ready when all its workers are up, and is stopped without a drain, or killed, at the
end. Its log is printed then, and pytest shows it under a failure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgflowd.testing.until import until

START_S = 60.0  # on a busy machine the flows' imports alone take seconds
STOP_S = 10.0  # a stop without a drain takes less than 1 s
LOG_CHARS = 20_000  # printed of the log, from its end


class StartedDaemon:
    """A running daemon: its `pid`, and its `log` so far."""

    def __init__(self, project: Path, dsn: str, directory: Path) -> None:
        self._log_path = directory / "log"
        environ = {key: value for key, value in os.environ.items() if key != "NOTIFY_SOCKET"}
        own = {
            "DATABASE__URL": dsn,
            "DATABASE__LISTEN_URL": "",
            "PGFLOWD__NAME": "test",
            "PGFLOWD__DEFINITIONS": "create",
            "SUPERVISOR__CONTROL": str(directory / "control"),
            "SUPERVISOR__DRAIN_TIMEOUT": "0s",
            "LOGGING__FORMAT": "text",
        }
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pgflowd", "serve"],
                stdout=log,
                stderr=log,
                cwd=project,
                env={**environ, **{f"PGFLOWD__{key}": value for key, value in own.items()}},
            )
        self.pid = self._process.pid

    @property
    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    def wait_until_ready(self) -> None:
        """Return when all its workers are up; AssertionError with the log if it ended."""
        until(
            lambda: "supervisor.ready" in self.log or self._process.poll() is not None,
            within_s=START_S,
        )
        if self._process.poll() is not None:
            raise AssertionError(f"the daemon did not start:\n{self.log[-LOG_CHARS:]}")

    def stop(self) -> None:
        """Stop it, without a drain; kill it if that takes too long."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def daemon_of(project: Path, dsn: str) -> Iterator[StartedDaemon]:
    """A daemon that serves the flows of the project, in the database."""
    with tempfile.TemporaryDirectory(prefix="pgflowd-test-") as directory:
        daemon = StartedDaemon(project, dsn, Path(directory))
        try:
            daemon.wait_until_ready()
            yield daemon
        finally:
            daemon.stop()
            sys.stdout.write(daemon.log[-LOG_CHARS:])
