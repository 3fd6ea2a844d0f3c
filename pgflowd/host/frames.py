"""
Frames: what a worker and a runner say to each other over their socket.

A frame is two lengths of four bytes, a head (a JSON object, at most 64 KiB) and a body (bytes).
`Frames` assembles them from whatever pieces arrive, and refuses a length over its limit on
sight, with nothing allocated. Nothing is ever unpickled.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from pgflowd.core.plainjson import dumps, loads

MOST_HEAD = 64 * 1024
PIECE = 256 * 1024  # read at once, so that a large frame delays nobody

_LENGTHS = struct.Struct("!II")


class Frame(NamedTuple):
    head: dict[str, Any]
    body: bytes


class BadFrame(Exception):
    """What came is no frame. `is_too_large`: its body is over the limit."""

    def __init__(self, text: str, is_too_large: bool = False) -> None:
        super().__init__(text)
        self.is_too_large = is_too_large


def pack(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Return the frame for the wire."""
    text = dumps(head).encode()
    if len(text) > MOST_HEAD:
        raise ValueError(f"a head of {len(text)} bytes")
    return _LENGTHS.pack(len(text), len(body)) + text + body


class Frames:
    """Assembles frames from pieces."""

    def __init__(self, most_body: int) -> None:
        self._most_body = most_body
        self._data = bytearray()

    def feed(self, piece: bytes) -> None:
        self._data += piece

    @property
    def is_empty(self) -> bool:
        return not self._data

    def take(self) -> Frame | None:
        """Return the next whole frame, or None; raise BadFrame."""
        data = self._data
        if len(data) < _LENGTHS.size:
            return None
        of_head, of_body = _LENGTHS.unpack_from(data)
        if of_head > MOST_HEAD:
            raise BadFrame(f"a head of {of_head} bytes")
        if of_body > self._most_body:
            text = f"a body of {of_body} bytes, more than the {self._most_body} allowed"
            raise BadFrame(text, is_too_large=True)
        end = _LENGTHS.size + of_head + of_body
        if len(data) < end:
            return None
        head = _object(bytes(data[_LENGTHS.size : _LENGTHS.size + of_head]))
        body = bytes(data[_LENGTHS.size + of_head : end])
        del data[:end]
        return Frame(head, body)


def _object(text: bytes) -> dict[str, Any]:
    try:
        head = loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"a head that is no JSON: {text[:60]!r}") from error
    if not isinstance(head, dict):
        raise BadFrame(f"a head that is no object: {text[:60]!r}")
    return head
