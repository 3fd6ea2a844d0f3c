"""Requests to the daemon's `[http]`: over a socket of our own, as hostile as a test wants."""

from __future__ import annotations

import json
import socket
from typing import Any, NamedTuple

TIMEOUT_S = 10.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


def connect(address: int | str) -> socket.socket:
    """Connect to a port of this machine, or to a Unix socket."""
    if isinstance(address, int):
        return socket.create_connection(("127.0.0.1", address), TIMEOUT_S)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(TIMEOUT_S)
    line.connect(address)
    return line


def get(address: int | str, path: str, method: str = "GET", **headers: str) -> Answer:
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    return send(address, f"{method} {path} HTTP/1.1\r\nHost: x\r\n{''.join(lines)}\r\n".encode())


def send(address: int | str, data: bytes) -> Answer:
    """Send bytes, and read the one answer until the connection is closed."""
    with connect(address) as line:
        line.sendall(data)
        return read(line)


def read(line: socket.socket) -> Answer:
    received = b""
    while part := line.recv(65536):
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = dict(each.split(": ", 1) for each in rest)
    return Answer(int(first.split()[1]), {k.lower(): v for k, v in headers.items()}, body.decode())


def status_of(address: int | str, path: str) -> int:
    """The status of an answer; 0 if nobody answers."""
    try:
        return get(address, path).status
    except (OSError, IndexError):
        return 0
