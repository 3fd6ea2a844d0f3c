"""
Serves the dashboard beside `pgflowd dev` and `pgflowd demo`.

It is `pgflowd web` in a child process, on this machine alone, whatever the project's config says of
logins. Without the extra `web` there is none, and a remark says how to get it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from pgflowd.cli.app import App
from pgflowd.cli.commands.web import INSTALL, is_installed
from pgflowd.core.exit_codes import ExitCode

LISTEN = "127.0.0.1:7460"  # another port if somebody has it
START_S = 30.0  # on a busy machine the imports alone take seconds
END_S = 10.0  # more than it takes to end its streams


class LocalWeb:
    """The dashboard of one database, and its link."""

    def __init__(self, app: App, arguments: Sequence[str], database_url: str) -> None:
        self._app, self._arguments, self._url = app, arguments, database_url
        self._process: subprocess.Popen[str] | None = None
        self._link: str | None = None

    def start(self) -> None:
        """Start it; it is not waited for."""
        if is_installed():
            self._process = self._served(LISTEN)

    def link(self) -> str | None:
        """Return the link as soon as it is served; None: it is not, and a remark says why."""
        if self._process is None:
            self._app.note(f"  for a dashboard in the browser: {INSTALL}")
            return None
        if self._link is None:
            self._link = self._read_link()
        if self._link is None:
            self._app.note("  the dashboard did not start; `pgflowd web` says why")
        return self._link

    def end(self) -> None:
        """Let it tell its browsers, and end it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close_pipe()

    def _read_link(self) -> str | None:
        line = self._line()
        if not line and self._process:  # the port is in use; or the config was wrong, until now
            is_taken = self._process.wait(END_S) == ExitCode.TRY_LATER
            self._close_pipe()
            self._process = self._served(f"127.0.0.1:{_free_port()}" if is_taken else LISTEN)
            line = self._line()
        with suppress(ValueError):
            return str(json.loads(line)["link"])
        return None

    def _close_pipe(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        self._process.stdout.close()

    def _line(self) -> str:
        """The line that it prints when it answers; empty if it has ended, or takes too long."""
        assert self._process is not None and self._process.stdout is not None
        if select.select([self._process.stdout], [], [], START_S)[0]:
            return self._process.stdout.readline()
        self._process.kill()
        return ""

    def _served(self, listen: str) -> subprocess.Popen[str]:
        from pgflowd.host.fork import set_death_signal

        words = [*self._arguments, "web", "--json", "--quiet", "--listen", listen]
        return subprocess.Popen(
            [sys.executable, "-m", "pgflowd", *words],
            env={
                **os.environ,
                "PGFLOWD__WEB__URL": self._url,
                "PGFLOWD__WEB__OPERATOR_URL": self._url,
                "PGFLOWD__WEB__AUTH": "key",
                "PGFLOWD__WEB__TOKENS": "",
                "PGFLOWD__WEB__SECRET": "",
                "PGFLOWD__WEB__BASE_PATH": "",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C ends this command, which then ends the dashboard
            preexec_fn=partial(set_death_signal, signal.SIGTERM),  # if this process is killed
        )


@contextmanager
def local_web(app: App, arguments: Sequence[str], database_url: str) -> Iterator[LocalWeb]:
    """Serve the dashboard of a database until the block ends."""
    web = LocalWeb(app, arguments, database_url)
    web.start()
    try:
        yield web
    finally:
        web.end()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
