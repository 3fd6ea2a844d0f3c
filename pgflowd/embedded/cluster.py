"""
Makes, starts and stops the server of one data directory.

    home/            owned by the calling user; `postgres` describes its other files
      password       of the superuser, for TCP
      port           of the last start, taken again if it is free
      sockets        a link to the socket's directory, if the path of `server` is too long
      server/        owned by the server's account, closed to all others
        data/        made under another name, then renamed, so it is always complete
        log, log.1   of this start and the one before
        .s.PGSQL.*   the socket

The socket trusts every user that can enter its directory. TCP listens on loopback only, where any
local user can connect, and asks for the password. A crash of the server leaves files with its pid.
If another process has that pid by now PostgreSQL refuses to start, so the pid is replaced.
PostgreSQL's own check for shared memory of orphans still protects the data. Call these functions
under the lock of the directory.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pgflowd.embedded.account import Account, run_as
from pgflowd.embedded.directory_users import is_postmaster, postmaster
from pgflowd.errors import Unreachable

_ERROR_LINE = re.compile("(error|ERROR|FATAL|PANIC|HINT|DETAIL): |could not |cannot ")
START_LIMIT_S = 60  # the default of pg_ctl
STOP_LIMIT_S = 30  # for a fast stop, then for an immediate one
SOCKET_PATH_LIMIT = 107 - len("/.s.PGSQL.65535")  # the limit of the kernel
IMPOSSIBLE_PID = 2**22 + 1  # above the kernel's largest
_SHORT_PLACES = ("/tmp", "/var/tmp", "/dev/shm")
_NAP_S = 0.01  # a server is ready within some 100 ms
_PORT_TAKEN = "Address already in use"
_WORTH_ANOTHER_TRY = (
    _PORT_TAKEN,  # another port is tried
    "is still in use",  # by orphans of a killed server, which end within a moment
)


@dataclass(frozen=True)
class RunningServer:
    """A server that accepts connections."""

    pid: int
    port: int
    socket_directory: Path


class Cluster:
    """The server of one home, run by `binaries` as `account`."""

    def __init__(self, home: Path, binaries: Path, account: Account | None) -> None:
        self.data = home / "server" / "data"
        self.log = home / "server" / "log"
        self._home = home
        self._binaries = binaries
        self._account = account

    def password(self) -> str:
        """Return the superuser's password."""
        return (self._home / "password").read_text().strip()

    def make(self, major: str) -> None:
        """Make the data directory unless there is one, which must be of this major version."""
        server = self.data.parent
        server.mkdir(mode=0o700, exist_ok=True)
        self._hand_over(server)
        if self.data.exists():
            made_by = _version_of(self.data)
            if made_by != major:
                raise Unreachable(
                    f"the data in {self.data} are of version {made_by}; this PostgreSQL is {major}",
                    next=f"remove {self._home} if you do not need them",
                )
            return
        for half_made in server.glob("making-*"):
            shutil.rmtree(half_made, ignore_errors=True)  # its initdb may still be writing
        making = server / f"making-{secrets.token_hex(4)}"
        self._initdb(making)
        making.rename(self.data)

    def start(self, options: Mapping[str, str], wanted: int = 0) -> RunningServer:
        """Start the server if it is down, on the wanted port; return when it is ready."""
        port_file = self._home / "port"
        last_port = port_file.read_text().strip() if port_file.exists() else ""
        deadline = time.monotonic() + START_LIMIT_S
        port = wanted or _free_port(int(last_port) if last_port.isdigit() else 0)
        if postmaster(self.data) is None and self.log.exists():
            self.log.replace(self.log.with_name("log.1"))
        while postmaster(self.data) is None:
            self._replace_dead_pids()
            log = self._try_to_start(port, options)
            if postmaster(self.data) is None:
                if wanted and _PORT_TAKEN in log:
                    raise Unreachable(
                        f"port {wanted} is taken on 127.0.0.1", next="choose another one"
                    )
                may_retry = any(sign in log for sign in _WORTH_ANOTHER_TRY)
                if not may_retry or wanted or time.monotonic() > deadline:
                    raise Unreachable(f"the embedded PostgreSQL did not start: {_cause(log)}")
                port = _free_port(0)
        running = self._wait_until_ready(deadline)
        port_file.write_text(f"{running.port}\n")
        return running

    def stop(self) -> None:
        """Stop the server, if it runs, and return when it is gone."""
        output = ""
        for mode in ("fast", "immediate"):
            if postmaster(self.data) is None:
                return
            output = self._run("pg_ctl", "stop", "-m", mode, "-t", str(STOP_LIMIT_S))
        if postmaster(self.data) is not None:
            raise Unreachable(f"the embedded PostgreSQL does not stop: {output}")

    def remove(self) -> None:
        """Remove all there is of a stopped server."""
        if (self._home / "sockets").is_symlink():
            shutil.rmtree((self._home / "sockets").readlink(), ignore_errors=True)
        # renamed first, so that a process that joins now begins with an empty directory
        removing = f"{self._home.name}.removing-"
        self._home.rename(self._home.with_name(removing + secrets.token_hex(4)))
        for path in self._home.parent.iterdir():
            if path.name.startswith(removing):  # this one, and what killed removers left
                shutil.rmtree(path, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self._binaries / program), "-D", str(self.data), *arguments]
        return run_as(self._account, command).stdout.strip()

    def _initdb(self, making: Path) -> None:
        password = self._home / "password"
        password.unlink(missing_ok=True)
        password.touch(mode=0o600)
        password.write_text(secrets.token_urlsafe(24) + "\n")
        self._hand_over(password)
        flags = ["-U", "postgres", f"--pwfile={password}", "--encoding=UTF8", "--locale=C"]
        trust = ["--auth-local=trust", "--auth-host=scram-sha-256"]
        initdb = [str(self._binaries / "initdb"), "-D", str(making), "--no-instructions"]
        ended = run_as(self._account, [*initdb, *flags, *trust])
        if ended.returncode != 0:
            raise Unreachable(f"cannot make a database in {making}: {_cause(ended.stdout)}")

    def _try_to_start(self, port: int, options: Mapping[str, str]) -> str:
        """Start once; return the end of the log, which names the cause of a failure."""
        log_began = self.log.stat().st_size if self.log.exists() else 0
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": str(self._socket_directory()),
            **options,
        }
        flags = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in settings.items())
        limit = ["-w", "-t", str(START_LIMIT_S)]
        output = self._run("pg_ctl", "start", *limit, "-l", str(self.log), "-o", flags)
        if not self.log.exists():
            return output
        with self.log.open("rb") as log:
            log.seek(log_began)
            return log.read()[-2000:].decode(errors="replace").strip()

    def _wait_until_ready(self, deadline: float) -> RunningServer:
        """Return the server once the eighth line of its pid file says that it is ready."""
        while time.monotonic() < deadline and postmaster(self.data) is not None:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            if len(lines) > 7 and lines[7].strip() == "ready":
                return RunningServer(int(lines[0]), int(lines[3]), Path(lines[4]))
            time.sleep(_NAP_S)
        raise Unreachable(f"the embedded PostgreSQL did not become ready; its log is {self.log}")

    def _socket_directory(self) -> Path:
        """Return the server's own directory, or a short one: a socket's path is limited."""
        server = self.data.parent
        if len(os.fsencode(server)) <= SOCKET_PATH_LIMIT and "," not in str(server):
            return server
        link = self._home / "sockets"
        if link.is_symlink():
            if link.exists() and _closed_to_others(link.stat(), server.stat().st_uid):
                return link.readlink()
            link.unlink()
        writable = [place for place in _SHORT_PLACES if os.access(place, os.W_OK | os.X_OK)]
        short = Path(tempfile.mkdtemp(prefix="pgflowd-", dir=writable[0] if writable else None))
        self._hand_over(short)
        link.symlink_to(short)
        return short

    def _replace_dead_pids(self) -> None:
        """Replace the pid of a dead server in its files.

        Nothing else is changed: a process that was killed meanwhile may just have started a server.
        """
        locks = self._socket_directory().glob(".s.PGSQL.*.lock")
        for path in (self.data / "postmaster.pid", *locks):
            try:
                pid = int(path.read_text().split("\n")[0])
            except (OSError, ValueError):
                continue
            if not is_postmaster(pid, self.data):
                run_as(self._account, ["sed", "-i", f"1s/^ *{pid} *$/{IMPOSSIBLE_PID}/", path])

    def _hand_over(self, path: Path) -> None:
        if self._account:
            os.chown(path, self._account.uid, self._account.gid, follow_symlinks=False)


def _closed_to_others(status: os.stat_result, owner: int) -> bool:
    return status.st_uid == owner and stat.S_IMODE(status.st_mode) == 0o700


def _version_of(data: Path) -> str:
    try:
        return (data / "PG_VERSION").read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return "unknown"


def _cause(log: str) -> str:
    """Return the lines of a log that look like errors, else all of them."""
    errors = [line for line in log.splitlines() if _ERROR_LINE.search(line)]
    return " / ".join(errors or log.splitlines())


def _free_port(wanted: int) -> int:
    """Return the wanted port if it is free, else one that is free now."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            free: int = probe.getsockname()[1]
            return free
    raise Unreachable("no port is free on 127.0.0.1")
