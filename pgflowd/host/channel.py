"""
The pipe between the supervisor and a child.

A socket pair of whole messages (SOCK_SEQPACKET), so half a message cannot exist. Neither end ever
blocks. When the pipe is full, `send` drops a droppable message and keeps any other until `flush`
(wait for writability while `is_waiting`). `receive` returns the messages that are there, unreadable
ones included, and sets `at_end` when the other end is gone and nothing is left.

Between a worker and a runner there are frames: two lengths of four bytes, a head (a JSON object, at
most 64 KiB) and a body (bytes). `Frames` assembles them from the pieces that arrive, and refuses a
length over its limit before it allocates anything. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections import deque
from typing import Any, NamedTuple

from pgflowd.core.json import dumps, loads
from pgflowd.core.messages import MAX_MESSAGE_BYTES, Message, UnreadableMessage, decode, encode

MAX_MESSAGES = 64  # at once, so that a child that sends many does not delay the others


class Channel:
    """One end of the pipe; both ends are alike."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._kept: deque[bytes] = deque()
        self.at_end = False

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Return two joined ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    def fileno(self) -> int:
        """Return the descriptor, to wait for; -1 when closed."""
        return self._socket.fileno()

    @property
    def is_waiting(self) -> bool:
        """Whether a message is kept until the pipe has room."""
        return bool(self._kept)

    def send(self, message: Message) -> bool:
        """Send now, or keep, or drop; return False if it was dropped or the other end is gone."""
        data = encode(message)
        if len(data) > MAX_MESSAGE_BYTES:
            if message.droppable:
                return False
            raise ValueError(f"a {type(message).__name__} of {len(data)} bytes")
        if message.droppable:
            return not self._kept and self._write(data) is True
        self._kept.append(data)
        self.flush()
        return not self.at_end

    def flush(self) -> None:
        """Send kept messages as far as there is room."""
        while self._kept:
            written = self._write(self._kept[0])
            if written is False:
                return
            if written is None:
                self._kept.clear()
                return
            self._kept.popleft()

    def flush_all(self, within_s: float = 1.0) -> None:
        """Wait a short time until kept messages are sent; for a child that is leaving."""
        until = time.monotonic() + within_s
        while self._kept and (left := until - time.monotonic()) > 0:
            select.select([], [self], [], left)
            self.flush()

    def receive(self) -> list[Message | UnreadableMessage]:
        """Return the messages that are there, at most MAX_MESSAGES; never wait."""
        received: list[Message | UnreadableMessage] = []
        while len(received) < MAX_MESSAGES and not self.at_end:
            try:
                data, _, flags, _ = self._socket.recvmsg(MAX_MESSAGE_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except ConnectionResetError:
                continue  # raised once if the other end died with unread messages; ours are intact
            except OSError:
                self.at_end = True
                break
            if not data:
                self.at_end = True
            elif flags & socket.MSG_TRUNC:
                received.append(UnreadableMessage(f"more than {MAX_MESSAGE_BYTES} bytes"))
            else:
                received.append(decode(data))
        return received

    def receive_all(self) -> list[Message | UnreadableMessage]:
        """Return every message that an ended child left in the pipe."""
        received: list[Message | UnreadableMessage] = []
        while more := self.receive():
            received += more
        return received

    def close(self) -> None:
        """Close this end; the other end then reads the end of the stream."""
        self._kept.clear()
        with contextlib.suppress(OSError):
            self._socket.close()

    def _write(self, data: bytes) -> bool | None:
        """Return True when sent, False when there is no room, None when the other end is gone."""
        try:
            self._socket.send(data, socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return None
        return True


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
            why = f"a body of {body_size} bytes, more than the {self._max_body} allowed"
            raise BadFrame(why, is_too_large=True)
        end = start + head_size + body_size
        if len(data) < end:
            return None
        text = bytes(data[start : start + head_size])
        try:
            head = loads(text)
        except (ValueError, RecursionError) as error:
            raise BadFrame(f"the head is not valid JSON: {text[:60]!r}") from error
        if not isinstance(head, dict):
            raise BadFrame(f"the head is not an object: {text[:60]!r}")
        if isinstance(data, bytes):
            body = data[start + head_size : end]
        else:
            body = bytes(memoryview(data)[start + head_size : end])
        self._at = end
        if body_size > PIECE and self.is_empty:  # or it would be kept until the next piece
            self._data, self._at = b"", 0
        return Frame(head, body)
