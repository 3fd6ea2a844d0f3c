"""
Frames: the messages on the socket between a worker and a runner.

A frame is two lengths of four bytes, a head (a JSON object, at most 64 KiB) and a body (bytes).
`Frames` assembles them from the pieces that arrive, and refuses a length over its limit before
it allocates anything. Nothing is ever unpickled.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, NamedTuple

from pgflowd.core.json import dumps, loads

MAX_HEAD = 64 * 1024  # long values are in the body
PIECE = 256 * 1024  # read at once, so that a large frame does not delay other runners

STEP = struct.Struct("@QQ")  # in the memory of a shared runner: whose step it is, and a number

_LENGTHS = struct.Struct("!II")
_buffer = memoryview(bytearray(PIECE))  # a process reads one frame at a time


class Frame(NamedTuple):
    head: dict[str, Any]
    body: bytes


class BadFrame(Exception):
    """The bytes are not a frame. `is_too_large`: its body is over the limit."""

    def __init__(self, text: str, is_too_large: bool = False) -> None:
        super().__init__(text)
        self.is_too_large = is_too_large


def pack(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Return the frame for the wire."""
    text = dumps(head).encode()
    if len(text) > MAX_HEAD:
        raise ValueError(f"a head of {len(text)} bytes")
    return _LENGTHS.pack(len(text), len(body)) + text + body


def receive(end: socket.socket, flags: int = 0) -> bytes:
    """Return what `end.recv(PIECE)` returns, which would allocate that much memory each time."""
    count = end.recv_into(_buffer, 0, flags)
    return bytes(_buffer[:count])


class Frames:
    """Assembles frames from pieces."""

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._data: bytes | bytearray = b""
        self._at = 0  # everything before it was taken

    def feed(self, piece: bytes) -> None:
        if self.is_empty:
            self._data = piece  # most often one whole frame
        elif isinstance(self._data, bytes):
            self._data = bytearray(self._data[self._at :]) + piece
        else:
            del self._data[: self._at]
            self._data += piece
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._data)

    def take(self) -> Frame | None:
        """Return the next whole frame, or None; raise BadFrame."""
        data = self._data
        start = self._at + _LENGTHS.size
        if len(data) < start:
            return None
        head_size, body_size = _LENGTHS.unpack_from(data, self._at)
        if head_size > MAX_HEAD:
            raise BadFrame(f"a head of {head_size} bytes")
        if body_size > self._max_body:
            text = f"a body of {body_size} bytes, more than the {self._max_body} allowed"
            raise BadFrame(text, is_too_large=True)
        end = start + head_size + body_size
        if len(data) < end:
            return None
        head = _object(data[start : start + head_size])
        if isinstance(data, bytes):
            body = data[start + head_size : end]
        else:
            body = bytes(memoryview(data)[start + head_size : end])
        self._at = end
        if body_size > PIECE and self.is_empty:  # or it would be kept until the next piece
            self._data, self._at = b"", 0
        return Frame(head, body)


def _object(text: bytes | bytearray) -> dict[str, Any]:
    try:
        head = loads(bytes(text))
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"the head is not valid JSON: {text[:60]!r}") from error
    if not isinstance(head, dict):
        raise BadFrame(f"the head is not an object: {text[:60]!r}")
    return head
