"""
The place of the control socket: a path that other daemons and programs may want, too.

A lock next to the socket shows which daemon has it. A socket that a kill left behind is replaced;
anything else at the path is left alone: a file, a symlink, the socket of a program that listens.
Whoever cleans old files may remove our socket; `renew` makes it again. What we remove at our end is
what we made: files are compared by device and inode.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFLNK: "a symlink",
    stat.S_IFDIR: "a directory",
    stat.S_IFREG: "a file",
}  # anything else is a pipe or a device


class SocketInUse(Exception):
    """Another daemon has the socket."""


class SocketPathError(Exception):
    """The socket cannot be made at its path."""

    def __init__(self, text: str, *, is_denied: bool = False, is_taken: bool = False) -> None:
        super().__init__(text)
        self.is_denied = is_denied
        self.is_taken = is_taken  # by something that is there


class SocketPlace:
    """The lock and the listening socket; both end with the process."""

    def __init__(self, path: Path, backlog: int) -> None:
        self._path, self._backlog = path, backlog
        self._lock_path = path.with_name(path.name + ".lock")
        self._lock = self._take_lock()
        try:
            self.listener, self._inode = self._listen()
        except SocketPathError:
            self._leave_lock()
            raise

    @property
    def is_ours(self) -> bool:
        """Whether the lock is where we made it, so that no other daemon has the place."""
        return _inode_of(self._lock_path) == _inode(os.fstat(self._lock))

    @property
    def is_intact(self) -> bool:
        """Whether the socket is where we made it, too."""
        return self.is_ours and _inode_of(self._path) == self._inode

    def renew(self) -> None:
        """Make again what was removed. SocketInUse, SocketPathError: somebody else is there."""
        if not self.is_ours:
            lock = self._take_lock()
            os.close(self._lock)
            self._lock = lock
        if _inode_of(self._path) == self._inode:
            return
        listener, self._inode = self._listen()
        self.listener.close()
        self.listener = listener

    def leave(self) -> None:
        """Remove the socket and the lock, if they are ours."""
        if _inode_of(self._path) == self._inode:
            self._path.unlink(missing_ok=True)
        self.listener.close()
        self._leave_lock()

    def _take_lock(self) -> int:
        """Lock the file at the path; a daemon that ends may have removed the one that we opened."""
        try:
            _make_private(self._path.parent)
            while True:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                lock = os.open(self._lock_path, flags, 0o600)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os.close(lock)
                    raise SocketInUse(str(self._path)) from None
                if _inode_of(self._lock_path) == _inode(os.fstat(lock)):
                    return lock
                os.close(lock)
        except OSError as error:
            raise _path_error(error) from error

    def _leave_lock(self) -> None:
        """Remove the lock while we hold it, so that nobody else has it."""
        if self.is_ours:
            with contextlib.suppress(OSError):
                self._lock_path.unlink()
        os.close(self._lock)

    def _listen(self) -> tuple[socket.socket, tuple[int, int] | None]:
        _remove_stale(self._path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        before = os.umask(0o177)
        try:
            listener.bind(str(self._path))
        except OSError as error:
            listener.close()
            raise _path_error(error, str(self._path)) from error
        finally:
            os.umask(before)
        listener.listen(self._backlog)
        return listener, _inode_of(self._path)


def is_listening(path: Path) -> bool:
    """Whether a process has this socket open, as far as a connection tells."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # its queue is full, it is of another type, or we may not connect
            return True
    return True


def _remove_stale(path: Path) -> None:
    """Remove a socket on which nobody listens; refuse anything else."""
    try:
        mode = path.lstat().st_mode
        if not stat.S_ISSOCK(mode):
            kind = _KINDS.get(stat.S_IFMT(mode), "a pipe or device")
            raise SocketPathError(f"{path} is {kind}, not the socket of a daemon", is_taken=True)
        if is_listening(path):
            raise SocketPathError(f"another program listens at {path}", is_taken=True)
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _path_error(error) from error


def _make_private(directory: Path) -> None:
    """Make the runtime directory, private to us; refuse one that other users can change."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = directory.lstat()
    if stat.S_ISLNK(state.st_mode):
        raise PermissionError(f"{directory} is a symlink")
    if state.st_uid not in {0, os.geteuid()}:
        raise PermissionError(f"{directory} belongs to another user")
    if state.st_mode & 0o022 and not state.st_mode & stat.S_ISVTX:
        raise PermissionError(f"{directory} can be changed by other users")


def _path_error(error: OSError, path: str | None = None) -> SocketPathError:
    place = error.filename or path
    text = f"{place}: {error.strerror}" if place else str(error)
    return SocketPathError(text, is_denied=isinstance(error, PermissionError))


def _inode_of(path: Path) -> tuple[int, int] | None:
    try:
        return _inode(path.lstat())
    except OSError:
        return None


def _inode(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino
