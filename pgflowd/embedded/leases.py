"""
Leases: who uses a directory, known even when users are killed.

Each user holds a file in `leases/` under an exclusive flock, which the kernel drops when the
process dies, however it dies. Whoever asks takes a shared lock: it is granted exactly when
the user is gone, and those who ask do not disturb each other. `lock` is held by whoever
starts or stops the server, or changes the leases.

This file is also a program, the guard: one per directory, it sleeps until all users are gone
and stops the server if the last of them was killed. It is run by path and imports nothing
of ours. A process that forks shares its lease with the child, until both are gone.
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


class Lease:
    """One user's claim on the directory. Taken and given back under the lock."""

    def __init__(self, home: Path) -> None:
        directory = home / "leases"
        directory.mkdir(mode=0o700, exist_ok=True)
        self._path = directory / f"{os.getpid()}-{secrets.token_hex(4)}"
        self._descriptor = _open(self._path)
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


def postmaster(data: Path) -> int | None:
    """Return the process of the server of this data directory, if there is one."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n")[0])
    except (OSError, ValueError):
        return None
    return pid if is_postmaster(pid, data) else None


def is_postmaster(pid: int, data: Path) -> bool:
    """Tell whether the process is the server of this data directory."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()  # empty if it is a zombie
    except OSError:
        return False
    return os.fsencode(data) in command.split(b"\0")


def ensure_guard(home: Path, data: Path) -> None:
    """Start the guard of this directory unless there is one. Under the lock, with a lease."""
    os.close(_open(home / "guard"))
    if not _ended(home / "guard", wait=False):
        return
    # the shell leaves the guard behind at once, so that it is nobody's child
    leave = 'exec </dev/null >/dev/null 2>&1; "$@" &'
    guard = [sys.executable, "-I", "-S", __file__, str(home), str(data)]
    subprocess.run(
        ["/bin/sh", "-c", leave, "sh", *guard], start_new_session=True, cwd="/", check=True
    )


def _guard(home: Path, data: Path) -> None:
    """Wait until nobody uses the directory; then stop the server, if it still runs."""
    try:
        descriptor = os.open(home / "guard", os.O_RDWR | os.O_NOFOLLOW)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return  # all is over and removed already
    except BlockingIOError:
        return  # there is a guard, who will see all leases we could see
    while True:
        for path in _leases(home):
            _ended(path, wait=True)
        with locked(home):
            if not in_use(home):
                pid = postmaster(data)
                if pid:
                    os.kill(pid, signal.SIGINT)  # PostgreSQL's fast shutdown
                os.close(descriptor)  # still under the lock: who comes next needs a new guard
                return


def _leases(home: Path) -> list[Path]:
    directory = home / "leases"
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _ended(path: Path, *, wait: bool) -> bool:
    """Tell whether the holder of the file's lock is gone; with `wait`, return when he is."""
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
