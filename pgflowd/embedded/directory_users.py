"""
Tracks the processes that use a directory of an embedded server, also those that are killed.

Each user holds an exclusive flock on a file in `leases/`. The kernel releases it when the process
dies, however it dies. A check takes a shared lock, which is granted exactly when the user is gone;
several checks do not disturb each other. `lock` is held while the server is started or stopped, or
users change.

This file is also a program, the guard. There is one per directory: it sleeps until all users are
gone, and stops the server if the last of them was killed. It is started by its path and imports
no other module of pgflowd. A process that forks remains a user until its child is gone too.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Removed(Exception):
    """The directory was removed while we waited for its lock."""


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the lock of the directory."""
    path = home / "lock"
    try:
        descriptor = _open(path)
    except FileNotFoundError as error:
        raise Removed from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise Removed
        yield
    finally:
        os.close(descriptor)


class DirectoryUser:
    """This process as a user of the directory. Begins and ends under the lock."""

    def __init__(self, home: Path) -> None:
        directory = home / "leases"
        directory.mkdir(mode=0o700, exist_ok=True)
        self._path = directory / f"{os.getpid()}-{secrets.token_hex(4)}"
        self._descriptor = _open(self._path)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def leave(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def in_use(home: Path) -> bool:
    """Whether a living process uses the directory; remove files of dead ones. Under the lock."""
    living = False
    for path in _user_files(home):
        if _ended(path, wait=False):
            path.unlink(missing_ok=True)
        else:
            living = True
    return living


def postmaster(data: Path) -> int | None:
    """Return the pid of the server of this data directory, or None."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n")[0])
    except (OSError, ValueError):
        return None
    return pid if is_postmaster(pid, data) else None


def is_postmaster(pid: int, data: Path) -> bool:
    """Whether the process is the server of this data directory."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()  # empty if it is a zombie
    except OSError:
        return False
    return os.fsencode(data) in command.split(b"\0")


def ensure_guard(home: Path, data: Path) -> None:
    """Start the guard of this directory unless there is one. Under the lock, by a user."""
    os.close(_open(home / "guard"))
    if not _ended(home / "guard", wait=False):
        return
    # the shell ends at once, so the guard is not our child
    leave = 'exec </dev/null >/dev/null 2>&1; "$@" &'
    guard = [sys.executable, "-I", "-S", __file__, str(home), str(data)]
    subprocess.run(
        ["/bin/sh", "-c", leave, "sh", *guard], start_new_session=True, cwd="/", check=True
    )


def _guard(home: Path, data: Path) -> None:
    """Wait until the directory has no users; then stop the server if it still runs."""
    try:
        descriptor = os.open(home / "guard", os.O_RDWR | os.O_NOFOLLOW)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return  # the directory was removed already
    except BlockingIOError:
        return  # there is another guard, which sees the same users
    while True:
        for path in _user_files(home):
            _ended(path, wait=True)
        with locked(home):
            if not in_use(home):
                pid = postmaster(data)
                if pid:
                    os.kill(pid, signal.SIGINT)  # PostgreSQL's fast shutdown
                os.close(descriptor)  # still under the lock: the next user needs a new guard
                return


def _user_files(home: Path) -> list[Path]:
    directory = home / "leases"
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _ended(path: Path, *, wait: bool) -> bool:
    """Whether the holder of the file's lock is gone; with `wait`, return when it is."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _open(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), Path(sys.argv[2]))
