"""Tabs without a browser: connections that ask for a stream, and read only what a test reads."""

from __future__ import annotations

import socket
from contextlib import closing

from support.dashboard import Running


def opened(served: Running, path: str) -> closing[socket.socket]:
    """A connection that has asked for a page or stream."""
    line = served.connection()
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.place}\r\n\r\n".encode())
    return closing(line)


def head_of(line: socket.socket) -> str:
    """The head of an answer."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += line.recv(1)
    return received.decode().lower()


def received(line: socket.socket, text: bytes) -> bytes:
    """What comes until a text has come."""
    found = b""
    while text not in found:
        part = line.recv(65536)
        assert part, found
        found += part
    return found
