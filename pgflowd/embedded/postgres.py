"""
The context manager of the embedded PostgreSQL.

All users of a directory share one server: the first starts it, the last stops it. If the last one
is killed the guard stops it. A directory can be used again after any crash, of the server or of
its users. In `home`, which is the directory or the target of its link:

    lock, leases/, guard          the users: see `directory_users`
    server/, password, and more   the server: see `cluster`
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from unicodedata import category
from urllib.parse import quote

from pgflowd.core.redact import one_line
from pgflowd.embedded import directory_users
from pgflowd.embedded.account import account_for, home_for
from pgflowd.embedded.binaries import reachable, version, wheel_binaries
from pgflowd.embedded.cluster import Cluster
from pgflowd.errors import Unreachable


class EmbeddedPostgres:
    """
    A PostgreSQL in a directory, as a context manager.

    `options` are server settings and `port` is the port, if this user starts the server.
    `binaries` is a directory with other programs than the wheel's. Without `keep` the last user
    removes the directory. Inside the block `dsn`, `version` and the rest describe the server.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        options: Mapping[str, str] | None = None,
        binaries: str | Path | None = None,
        keep: bool = True,
        port: int = 0,
    ) -> None:
        self._directory = Path(directory).absolute()
        self._options = dict(options or {})
        self._binaries = Path(binaries) if binaries else None
        self._keep = keep
        self._port = port
        self._owner = 0

    def __enter__(self) -> EmbeddedPostgres:
        programs = self._binaries or wheel_binaries()
        self.version = version(programs)
        if any(category(char) in {"Cc", "Cs"} for char in str(self._directory)):
            name = one_line(str(self._directory), 200)
            raise Unreachable(
                f"PostgreSQL cannot keep data in {name}",
                next="choose a directory with a plain name",
            )
        for _ in range(10):
            try:
                self._join(programs)
            except directory_users.Removed:
                continue  # by the last user, meanwhile
            self._owner = os.getpid()
            return self
        raise Unreachable(f"other processes remove {self._directory} again and again")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._owner != os.getpid():
            return  # a forked copy of the user does not count as one
        self._owner = 0
        with directory_users.locked(self._home):
            if self._leave() and not self._keep:
                self._remove()

    def discard(self) -> bool:
        """Remove the directory unless it is in use; its data may be of any version or state."""
        if not self._directory.exists():
            return True
        account = account_for(self._directory / "server" / "data")
        self._home = home_for(self._directory, account)
        programs = reachable(self._binaries or wheel_binaries(), account)
        self._cluster = Cluster(self._home, programs, account)
        with directory_users.locked(self._home):
            if directory_users.in_use(self._home):
                return False
            self._cluster.stop()
            self._remove()
        return True

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._running.pid

    @property
    def port(self) -> int:
        """The port on loopback."""
        return self._running.port

    @property
    def dsn(self) -> str:
        """The superuser on the socket, which only we and the server's account can enter."""
        return self.dsn_for("postgres")

    def dsn_for(self, database: str) -> str:
        """The same for another database."""
        where = quote(str(self._running.socket_directory), safe="")
        return f"postgresql://postgres@/{quote(database)}?host={where}&port={self.port}"

    def tcp_dsn_for(self, database: str) -> str:
        """The same over loopback, with its password, for programs that want a host."""
        password = quote(self._cluster.password(), safe="")
        return f"postgresql://postgres:{password}@127.0.0.1:{self.port}/{quote(database)}"

    def _join(self, programs: Path) -> None:
        account = account_for(self._directory / "server" / "data")
        self._home = home_for(self._directory, account)
        self._cluster = Cluster(self._home, reachable(programs, account), account)
        with directory_users.locked(self._home):
            self._user = directory_users.DirectoryUser(self._home)
            try:
                self._cluster.make(self.version.split(".")[0])
                self._running = self._cluster.start(self._options, self._port)
                directory_users.ensure_guard(self._home, self._cluster.data)
            except BaseException:
                if self._leave() and not self._keep and not self._cluster.data.exists():
                    self._remove()
                raise

    def _leave(self) -> bool:
        """Stop being a user; stop the server if that was the last one. Under the lock."""
        self._user.leave()
        if directory_users.in_use(self._home):
            return False
        self._cluster.stop()
        return True

    def _remove(self) -> None:
        self._cluster.remove()
        if self._directory.is_symlink():
            self._directory.unlink()
