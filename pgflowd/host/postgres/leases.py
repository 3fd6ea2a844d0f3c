"""
Leases: who uses a directory, known even when users are killed.

Each user holds a file in `leases/` under an exclusive flock, which the kernel drops when the
process dies, however it dies. Whoever asks takes a shared lock: it is granted exactly when
the user is gone, and those who ask do not disturb each other. `lock` is held by whoever
starts or stops the server, or changes the leases.

This file is also a program, the guard: one per server, it sleeps until all users are gone
and stops the server if none of them did. It is run by path and imports nothing of ours.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the lock of the directory. FileNotFoundError if it was removed meanwhile."""
    path = home / "lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise FileNotFoundError(f"{path} was replaced")
        yield
    finally:
        os.close(descriptor)


class Lease:
    """One user's claim on the directory. To be taken and given back under the lock."""

    def __init__(self, home: Path) -> None:
        directory = home / "leases"
        directory.mkdir(mode=0o700, exist_ok=True)
        self._path = directory / f"{os.getpid()}-{secrets.token_hex(4)}"
        self._descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def give_back(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def in_use(home: Path) -> bool:
    """Tell whether a living process holds a lease; forget those of the dead. Under the lock."""
    living = False
    for path in _leases(home):
        if _ended(path, wait=False):
            path.unlink(missing_ok=True)
        else:
            living = True
    return living


def _leases(home: Path) -> list[Path]:
    directory = home / "leases"
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _ended(path: Path, *, wait: bool) -> bool:
    """Tell whether the lease's user is gone; with `wait`, return when he is."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def is_postmaster(pid: int, data: Path) -> bool:
    """Tell whether the process is the server of this data directory, and no zombie of it."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return os.fsencode(data) in command.split(b"\0")


def guard(home: Path, data: Path, pid: int) -> None:
    """Wait until nobody uses the directory; then stop the server, if it is still this one."""
    while is_postmaster(pid, data):
        for path in _leases(home):
            _ended(path, wait=True)
        with locked(home):
            if not in_use(home) and is_postmaster(pid, data):
                os.kill(pid, signal.SIGINT)  # PostgreSQL's fast shutdown
                return


if __name__ == "__main__":
    guard(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
