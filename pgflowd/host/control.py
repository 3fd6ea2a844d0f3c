"""
The control socket, over which commands send requests to a running daemon.

One request, one answer, each a line of JSON. The socket has mode 0600 in a directory of mode 0700,
and only our own user and root are served. A client has 1 s and 4 KiB for its request. At most 16
clients are served at a time, and none of them can block the loop. `host.socket_place` decides
whether the path of the socket is ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgflowd.host.socket_place import SocketPlace

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
    is_waiting: bool = False
    is_answered: bool = False


@dataclass
class Request:
    """A client's request, parsed."""

    client: ControlClient
    command: str
    arguments: dict[str, Any] = field(default_factory=dict)


class ControlSocket:
    """The daemon's end. All calls return at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clients: dict[int, ControlClient] = {}
        self.place = SocketPlace(path, MAX_CLIENTS)

    def fileno(self) -> int:
        return self.place.listener.fileno()

    def accept(self) -> list[ControlClient]:
        """Accept clients; refuse other users, and any client while MAX_CLIENTS are served."""
        accepted = []
        with contextlib.suppress(OSError):  # no client waits, or no descriptor is left
            while True:
                connection, _ = self.place.listener.accept()
                connection.setblocking(False)
                if len(self.clients) >= MAX_CLIENTS or not _is_ours(connection):
                    connection.close()
                    continue
                client = ControlClient(connection, time.monotonic() + CLIENT_LIMIT_S)
                self.clients[connection.fileno()] = client
                accepted.append(client)
        return accepted

    def read(self, client: ControlClient) -> Request | None:
        """Return the request once it is complete. A bad request is answered here."""
        try:
            data = client.socket.recv(MAX_REQUEST + 1)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data = b""
        if not data or client.is_answered:
            self.drop(client)
            return None
        if client.is_waiting:  # for its answer; further input is ignored
            return None
        client.request += data
        if len(client.request) > MAX_REQUEST:
            self.answer(client, {"error": f"a request has at most {MAX_REQUEST} bytes"})
        elif b"\n" in client.request:
            return self._parsed(client)
        return None

    def _parsed(self, client: ControlClient) -> Request | None:
        try:
            arguments = json.loads(client.request.partition(b"\n")[0])
            command = arguments.pop("command")
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
            command, arguments = None, {}
        if not isinstance(command, str) or command not in COMMANDS:
            self.answer(client, {"error": f"the commands are {', '.join(sorted(COMMANDS))}"})
            return None
        client.is_waiting = True
        return Request(client, command, arguments)

    def answer(self, client: ControlClient, document: dict[str, Any]) -> None:
        """Answer a client; the rest that does not fit at once follows by `write`."""
        if client.is_answered or client.socket.fileno() < 0:
            return
        client.answer = json.dumps(document, default=str).encode() + b"\n"
        client.is_answered = True
        client.until = time.monotonic() + CLIENT_LIMIT_S
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
        """Yield the clients whose time is over; some of their requests may still be in work."""
        for client in list(self.clients.values()):
            if client.until <= now:
                yield client

    def close(self) -> None:
        """Close all connections, and remove the socket."""
        for client in list(self.clients.values()):
            self.drop(client)
        self.place.leave()


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
        if not _is_believed(daemon_socket, path):
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
    """Whether the client is our own user or root."""
    return _peer(connection) in {0, os.geteuid()}


def _is_believed(connection: socket.socket, path: Path) -> bool:
    """Whether our own user or root listens; root also asks whoever has the directory."""
    own = os.geteuid()
    return _is_ours(connection) or (own == 0 and _peer(connection) == path.parent.stat().st_uid)


def _peer(connection: socket.socket) -> int:
    """Return the user of the process that connected, or that began to listen."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", data)
    return int(uid)
