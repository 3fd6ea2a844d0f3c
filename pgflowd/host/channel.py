"""
The pipe between the supervisor and a child.

A socket pair of whole messages (SOCK_SEQPACKET), so half a message cannot exist. Neither end ever
blocks. When the pipe is full, `send` drops a droppable message and keeps any other until `flush`
(wait for writability while `is_waiting`). `receive` returns the messages that are there, unreadable
ones included, and sets `at_end` when the other end is gone and nothing is left.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import deque

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
