"""
The control socket, over which commands send requests to a running daemon.

One request, one answer, each a line of JSON. The socket has mode 0600 in a directory of mode 0700,
and only our own user and root are served. A client has 1 s and 4 KiB for its request. At most 16
clients are served at a time, and none of them can block the loop.

Other daemons and programs may want the path of the socket, too. A lock next to it shows which
daemon has it. A socket that a kill left behind is replaced; anything else at the path is left
alone: a file, a symlink, the socket of a program that listens. Whoever cleans old files may remove
our socket; `renew` makes it again. What we remove at our end is what we made: files are compared by
device and inode. `other_daemons` finds those that another user or session of ours has started under
the same name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import selectors
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

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
            # make the runtime directory, private to us; refuse one that other users can change
            directory = self._path.parent
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = directory.lstat()
            if stat.S_ISLNK(state.st_mode):
                raise PermissionError(f"{directory} is a symlink")
            if state.st_uid not in {0, os.geteuid()}:
                raise PermissionError(f"{directory} belongs to another user")
            if state.st_mode & 0o022 and not state.st_mode & stat.S_ISVTX:
                raise PermissionError(f"{directory} can be changed by other users")
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
        """Listen in place of a socket on which nobody listens; refuse anything else."""
        path = self._path
        try:
            mode = path.lstat().st_mode
            if not stat.S_ISSOCK(mode):
                text = f"{path} is {_KINDS.get(stat.S_IFMT(mode), 'a pipe or device')}"
                raise SocketPathError(f"{text}, not the socket of a daemon", is_taken=True)
            if is_listening(path):
                raise SocketPathError(f"another program listens at {path}", is_taken=True)
            path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _path_error(error) from error
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        except OSError as error:
            listener.close()
            raise _path_error(error, str(path)) from error
        finally:
            os.umask(before)
        listener.listen(self._backlog)
        return listener, _inode_of(path)


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


_PLACES = (("/run", "pgflowd"), ("/run", "user/*/pgflowd"), ("/tmp", "pgflowd-*"))


@dataclass(frozen=True)
class OtherDaemon:
    """The socket of a daemon, and the name of its user."""

    socket: Path
    user: str


def other_daemons(name: str) -> Iterator[OtherDaemon]:
    """Yield the daemons of this name, in whichever runtime directory they listen."""
    for top, pattern in _PLACES:
        with contextlib.suppress(OSError):
            for path in sorted(Path(top).glob(f"{pattern}/{name}.sock")):
                with contextlib.suppress(OSError):
                    state = path.lstat()
                    may_ask = os.geteuid() in {0, state.st_uid}
                    if stat.S_ISSOCK(state.st_mode) and may_ask and is_listening(path):
                        yield OtherDaemon(path, owner_of(path) or "?")


def owner_of(path: Path) -> str | None:
    """Return the user to whom a path belongs, or else its directory."""
    for place in (path, path.parent):
        with contextlib.suppress(OSError):
            uid = place.lstat().st_uid
            try:
                return pwd.getpwuid(uid).pw_name
            except KeyError:
                return str(uid)
    return None


MAX_REQUEST = 4096  # bytes; a request is a command with a few arguments
CLIENT_LIMIT_S = 1.0  # to send a request, and to read the answer
MAX_CLIENTS = 16  # each takes a descriptor, for a short time
MAX_ANSWER = 16 * 1024 * 1024  # bytes; far above the status of thousands of flows
COMMANDS = frozenset({"status", "metrics", "drain", "stop", "reload", "wake"})


@dataclass(eq=False)
class ControlClient:
    """One connection: the bytes it has sent, and the answer still to be written."""

    socket: socket.socket
    until: float
    request: bytes = b""
    answer: bytes = b""
    is_waiting: bool = False  # its request is complete; further input is ignored


class ControlSocket:
    """The daemon's end. All calls return at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clients: list[ControlClient] = []
        self.place = SocketPlace(path, MAX_CLIENTS)

    def attend(
        self,
        selector: selectors.BaseSelector,
        serve: Callable[[ControlClient, str, dict[str, Any]], None],
    ) -> None:
        """Serve requests from now on: `serve` gets a client, its command and the arguments. The
        loop of the selector calls the data of each key that is ready."""
        self._selector, self._serve = selector, serve
        self._attend_listener()

    def renew(self) -> None:
        """Make the socket again. SocketInUse, SocketPathError: somebody else is there."""
        if self.place.listener in self._selector.get_map():
            self._selector.unregister(self.place.listener)
        try:
            self.place.renew()
        finally:
            self._attend_listener()

    @property
    def due(self) -> float | None:
        """When the next client has used up its time."""
        return min((client.until for client in self.clients), default=None)

    def drop_overdue(self, now: float) -> None:
        for client in list(self.clients):
            if client.until <= now:
                self._drop(client)

    def answer(self, client: ControlClient, document: Mapping[str, Any]) -> None:
        """Answer a client; what does not fit at once follows when there is room."""
        if client.answer or client not in self.clients:
            return
        client.answer = json.dumps(document, default=str).encode() + b"\n"
        client.until = time.monotonic() + CLIENT_LIMIT_S
        self._write(client)

    def close(self) -> None:
        """Close all connections, and remove the socket."""
        for client in list(self.clients):
            self._drop(client)
        self.place.leave()

    def _accept(self) -> None:
        """Accept clients, and refuse other users; while MAX_CLIENTS are served the others wait."""
        with contextlib.suppress(OSError):  # no client waits, or no descriptor is left
            while len(self.clients) < MAX_CLIENTS:
                connection, _ = self.place.listener.accept()
                connection.setblocking(False)
                if not _is_ours(connection):
                    connection.close()
                    continue
                client = ControlClient(connection, time.monotonic() + CLIENT_LIMIT_S)
                self.clients.append(client)
                read = partial(self._read, client)
                self._selector.register(connection, selectors.EVENT_READ, read)
        self._attend_listener()

    def _attend_listener(self) -> None:
        """Accept clients while there is room for one."""
        has_room = len(self.clients) < MAX_CLIENTS
        if has_room == (self.place.listener in self._selector.get_map()):
            return
        if has_room:
            self._selector.register(self.place.listener, selectors.EVENT_READ, self._accept)
        else:
            self._selector.unregister(self.place.listener)

    def _read(self, client: ControlClient) -> None:
        """Serve a request once it is complete. A bad one is answered here."""
        try:
            data = client.socket.recv(MAX_REQUEST + 1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._drop(client)
        if not data or client.is_waiting:
            return
        client.request += data
        if len(client.request) > MAX_REQUEST:
            self.answer(client, {"error": f"a request has at most {MAX_REQUEST} bytes"})
        elif b"\n" in client.request:
            client.is_waiting = True
            try:
                arguments = json.loads(client.request.partition(b"\n")[0])
                command = arguments.pop("command")
            except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
                command, arguments = None, {}
            if isinstance(command, str) and command in COMMANDS:
                self._serve(client, command, arguments)
            else:
                self.answer(client, {"error": f"the commands are {', '.join(sorted(COMMANDS))}"})

    def _write(self, client: ControlClient) -> None:
        try:
            sent = client.socket.send(client.answer, socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            sent = len(client.answer)  # nobody reads it
        client.answer = client.answer[sent:]
        if client.answer:
            write = partial(self._write, client)
            self._selector.modify(client.socket, selectors.EVENT_WRITE, write)
        else:
            self._drop(client)

    def _drop(self, client: ControlClient) -> None:
        if client in self.clients:
            self.clients.remove(client)
            self._selector.unregister(client.socket)
            client.socket.close()
            self._attend_listener()


def ask(path: Path, command: str, timeout_s: float = 5.0, **arguments: Any) -> dict[str, Any]:
    """
    Send a request from a command. OSError: no daemon; ValueError: not a valid answer.

    BlockingIOError: so many others wait for the daemon that there was no room in time.
    PermissionError: the socket is another user's, who may have taken the name of our directory.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon_socket:
        limit = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1_000_000))
        daemon_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        daemon_socket.connect(str(path))  # with a timeout of Python's it would not wait for room
        daemon_socket.settimeout(timeout_s)
        # our own user or root listens; root also asks whoever has the directory
        if not _is_ours(daemon_socket) and not (
            os.geteuid() == 0 and _peer(daemon_socket) == path.parent.stat().st_uid
        ):
            raise PermissionError(f"another user listens at {path}")
        daemon_socket.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
        data = bytearray()
        while chunk := daemon_socket.recv(65536):
            data += chunk
            if len(data) > MAX_ANSWER:
                raise ValueError("the answer is too long")
    answer = json.loads(bytes(data))
    if not isinstance(answer, dict):
        raise ValueError("the answer is not a JSON object")
    return answer


def _is_ours(connection: socket.socket) -> bool:
    """Whether the other end is our own user or root."""
    return _peer(connection) in {0, os.geteuid()}


def _peer(connection: socket.socket) -> int:
    """Return the user of the process that connected, or that began to listen."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", data)
    return int(uid)
