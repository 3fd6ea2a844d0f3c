"""
The account under which the embedded server runs.

PostgreSQL refuses to run as root. An ordinary user runs the server as itself (no account). Root
runs it as the owner of the data, else as `postgres`, else as `nobody`. Such an account cannot
enter every directory, so `home_for` finds a place that it can enter: the directory itself, or one
in `/var/lib/pgflowd` to which the directory becomes a symbolic link.
"""

from __future__ import annotations

import fcntl
import os
import pwd
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

    def may_run(self, program: Path) -> bool:
        return run_as(self, ["test", "-x", program]).returncode == 0

    def may_enter(self, directory: Path) -> bool:
        return self.may_run(directory)


def run_as(
    account: Account | None, command: Sequence[str | Path], timeout_s: float = 120.0
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
            timeout=timeout_s,
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
        if account and not account.may_enter(directory) and _is_empty(directory):
            _move_elsewhere(directory)
    home = directory.resolve()
    if account and not account.may_enter(home):
        if not home.exists() or account.may_enter(home):  # made again meanwhile
            raise Removed
        raise Unreachable(
            f"the embedded PostgreSQL runs as user {account.uid}, which cannot enter {home}",
            next="choose another directory",
        )
    return home


def _is_empty(directory: Path) -> bool:
    try:
        return not any(directory.iterdir())
    except FileNotFoundError as error:
        raise Removed from error


def _move_elsewhere(directory: Path) -> None:
    """Replace an empty directory by a link to a directory that other users can enter."""
    ELSEWHERE.mkdir(mode=0o711, parents=True, exist_ok=True)
    target = Path(tempfile.mkdtemp(prefix=f"{directory.name}-", dir=ELSEWHERE))
    target.chmod(0o711)
    directory.rmdir()
    directory.symlink_to(target)


@contextmanager
def _flocked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
