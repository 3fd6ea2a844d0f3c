"""
A real pgbouncer in transaction mode, as docs/operate/high-availability.md configures it.

    with PgBouncer(database.dsn) as bouncer:
        connect(bouncer.url(database.dsn))
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgflowd.embedded.postgres import account_for
from pgflowd.testing.until import until
from support.pages import blocks_of
from support.servers import free_port

PAGE = "docs/operate/high-availability.md"
PROGRAM = "/usr/sbin/pgbouncer"


class PgBouncer:
    """One pgbouncer, for all databases of the server of this DSN."""

    def __init__(self, dsn: str) -> None:
        found = shutil.which(PROGRAM)
        assert found, "this test needs Debian's package `pgbouncer`; run `make peers`"
        self._server = conninfo_to_dict(dsn)
        self._port, self._password = free_port(), secrets.token_urlsafe()
        self._directory = Path(tempfile.mkdtemp(prefix="pgflowd-pgbouncer-"))
        self._directory.chmod(0o711)
        self._account = account_for(self._directory / "data")

    def __enter__(self) -> PgBouncer:
        config = self._directory / "pgbouncer.ini"
        config.write_text(self._configuration())
        logins = self._directory / "userlist.txt"
        logins.write_text(f'"{self._server["user"]}" "{self._password}"\n')
        if self._account:
            os.chown(logins, self._account.uid, self._account.gid)
        logins.chmod(0o600)
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [PROGRAM, config],
                user=self._account.uid if self._account else None,
                group=self._account.gid if self._account else None,
                extra_groups=[] if self._account else None,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        until(self._answers, 10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait(10)
        shutil.rmtree(self._directory)

    def url(self, dsn: str) -> str:
        """The way to the database of a DSN that leads through here."""
        return make_conninfo(
            dsn, host="127.0.0.1", port=self._port, password=self._password, sslmode="disable"
        )

    def _configuration(self) -> str:
        (text,) = blocks_of(PAGE, "ini")
        server = f"host={self._server['host']} port={self._server.get('port', 5432)}"
        here = {
            "host=10.0.0.1 port=5432": server,
            "10.0.0.4": "127.0.0.1",
            "6432": str(self._port),
            "/etc/pgbouncer": str(self._directory),
        }
        for word, other in here.items():
            text = text.replace(word, other)
        return text + "unix_socket_dir =\n"

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
            return True
        return False
