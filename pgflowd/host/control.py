"""
Control: the socket by which commands speak to a running daemon.

One request, one answer, each a line of JSON. The socket has mode 0600 in a directory of mode
0700, and only our own user and root are heard. A client gets 1 s and 4 KiB for its request;
at most 16 are served at a time, and none can hold up the loop. Whose socket it is a lock tells
(`Lock`), not the socket's presence: one left behind by a kill is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LONGEST_REQUEST = 4096
PATIENCE_S = 1.0
MOST_CLIENTS = 16
LONGEST_ANSWER = 16 * 1024 * 1024
COMMANDS = frozenset({"status", "metrics", "drain", "stop", "reload"})


class SocketInUse(Exception):
    """Another daemon has the socket."""


class NoPlace(Exception):
    """The socket cannot be where it should."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"{cause.filename}: {cause.strerror}" if cause.filename else str(cause))
        self.is_denied = isinstance(cause, PermissionError)


class Lock:
    """The lock that says whose socket it is; it ends with the process."""

    def __init__(self, socket_path: Path) -> None:
        try:
            self._handle = _open_lock(socket_path)
        except OSError as error:
            raise NoPlace(error) from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._handle)
            raise SocketInUse(str(socket_path)) from None

    def release(self) -> None:
        os.close(self._handle)


@dataclass(eq=False)
class ControlClient:
    """One connection: what it has sent, and what it is still to get."""

    socket: socket.socket
    until: float
    asked: bytes = b""
    answer: bytes = b""
    has_asked: bool = False
    is_answered: bool = False


@dataclass
class Request:
    """What a client wants."""

    client: ControlClient
    command: str
    arguments: dict[str, Any] = field(default_factory=dict)


class ControlSocket:
    """The daemon's end. All calls return at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clients: dict[int, ControlClient] = {}
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        before = os.umask(0o177)
        try:
            self._listener.bind(str(path))
        finally:
            os.umask(before)
        self._listener.listen(MOST_CLIENTS)

    def fileno(self) -> int:
        return self._listener.fileno()

    def accept(self) -> list[ControlClient]:
        """Take in those who knock; turn away strangers, and whoever comes when all are busy."""
        came = []
        with contextlib.suppress(OSError):  # nobody knocks, or no descriptor is left
            while True:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                if len(self.clients) >= MOST_CLIENTS or not _is_ours(connection):
                    connection.close()
                    continue
                client = ControlClient(connection, time.monotonic() + PATIENCE_S)
                self.clients[connection.fileno()] = client
                came.append(client)
        return came

    def read(self, client: ControlClient) -> Request | None:
        """Return the request once it is whole. What is wrong with it is answered here."""
        try:
            data = client.socket.recv(LONGEST_REQUEST + 1)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data = b""
        if not data or client.is_answered:
            self.drop(client)
            return None
        if client.has_asked:  # and waits for the answer; more is not heard
            return None
        client.asked += data
        if len(client.asked) > LONGEST_REQUEST:
            self.answer(client, {"error": f"a request has at most {LONGEST_REQUEST} bytes"})
        elif b"\n" in client.asked:
            return self._parsed(client)
        return None

    def _parsed(self, client: ControlClient) -> Request | None:
        try:
            asked = json.loads(client.asked.partition(b"\n")[0])
            command = asked.pop("command")
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
            command, asked = None, {}
        if not isinstance(command, str) or command not in COMMANDS:
            self.answer(client, {"error": f"the commands are {', '.join(sorted(COMMANDS))}"})
            return None
        client.has_asked = True
        return Request(client, command, asked)

    def answer(self, client: ControlClient, said: dict[str, Any]) -> None:
        """Answer a client; what does not fit at once follows by `write`."""
        if client.is_answered or client.socket.fileno() < 0:
            return
        client.answer = json.dumps(said, default=str).encode() + b"\n"
        client.is_answered = True
        client.until = time.monotonic() + PATIENCE_S
        self.write(client)

    def write(self, client: ControlClient) -> None:
        try:
            sent = client.socket.send(client.answer, socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.drop(client)
            return
        client.answer = client.answer[sent:]
        if not client.answer:
            self.drop(client)

    def drop(self, client: ControlClient) -> None:
        self.clients.pop(client.socket.fileno(), None)
        client.socket.close()

    def overdue(self, now: float) -> Iterator[ControlClient]:
        """Those whose time is over; a request that is being worked on has all the time."""
        for client in list(self.clients.values()):
            if client.until <= now:
                yield client

    def close(self) -> None:
        """Say no more, and leave no socket behind."""
        for client in list(self.clients.values()):
            self.drop(client)
        self.path.unlink(missing_ok=True)
        self._listener.close()


def ask(path: Path, command: str, timeout_s: float = 5.0, **arguments: Any) -> dict[str, Any]:
    """Ask a daemon, from a command. OSError if there is none; ValueError if it talks rubbish."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(timeout_s)
        line.connect(str(path))
        line.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
        data = bytearray()
        while chunk := line.recv(65536):
            data += chunk
            if len(data) > LONGEST_ANSWER:
                raise ValueError("the answer is too long")
    said = json.loads(bytes(data))
    if not isinstance(said, dict):
        raise ValueError("the answer is no object")
    return said


def _is_ours(connection: socket.socket) -> bool:
    """Whether the other end is our own user or root."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", data)
    return uid in {0, os.geteuid()}


def _open_lock(socket_path: Path) -> int:
    """Open the file of the lock; refuse a socket's place in which something else is."""
    _make_private(socket_path.parent)
    is_other = socket_path.is_file() or socket_path.is_dir()
    if is_other and not socket_path.is_symlink():  # that one is replaced, and harms nothing
        why = "there is something else, and no socket"
        raise FileExistsError(errno.EEXIST, why, str(socket_path))
    path = socket_path.with_name(socket_path.name + ".lock")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _make_private(directory: Path) -> None:
    """Make the runtime directory, for us alone; refuse one in which others may do things."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = directory.lstat()
    if stat.S_ISLNK(state.st_mode):
        raise PermissionError(f"{directory} is a symlink")
    if state.st_uid not in {0, os.geteuid()}:
        raise PermissionError(f"{directory} belongs to another user")
    if state.st_mode & 0o022 and not state.st_mode & stat.S_ISVTX:
        raise PermissionError(f"{directory} can be changed by other users")
