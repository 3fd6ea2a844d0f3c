"""
The socket by which workers and runners hand spans to the exporter, as datagrams.

Nobody waits: what does not fit into the socket is lost, and so is all while there is no exporter.
The next datagram that gets through tells how many were. What ends together travels together, since
a socket holds few datagrams, however small they are. A datagram is a list in JSON: how many spans
its sender has lost, and what it tells: a runner a span as a document, a worker a `Portion`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgflowd.core.worker.spans import Portion

MAX_BYTES = 128 * 1024  # of a datagram, unless one span alone is larger
MAX_DATAGRAM = 256 * 1024  # what the exporter reads; a larger span is lost
BUFFER_BYTES = 1 << 20  # of what the exporter has yet to read; the kernel may give less
_MOST_LOST = 1 << 40  # more than any sender can lose; the number is added to a counter

_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=str).encode


def socket_path(control: str) -> Path:
    """Where the exporter listens: beside the control socket."""
    return Path(control).absolute().with_suffix(".span")


class SpanSender:
    """Sends spans of this process; the socket is made with the first one."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._socket: socket.socket | None = None
        self.lost = 0  # that nobody has been told of

    def send(self, span: Mapping[str, Any]) -> None:
        """Send a span of a handler."""
        self._send([self.lost, span], 1)

    def send_portion(self, flow: str, portion: Portion) -> None:
        """Send what a worker's reports have ended."""
        told = {"flow": flow, **portion._asdict()}
        if not self._send([self.lost, told], portion.spans, may_be_large=False):
            halves = portion.halves()
            if halves is None:
                self._send([self.lost, told], portion.spans)
            else:
                for half in halves:
                    self.send_portion(flow, half)

    def _send(self, told: list[Any], count: int, *, may_be_large: bool = True) -> bool:
        """Return whether that was done; what is too large for a datagram is lost."""
        data = _dumps(told).encode()
        if len(data) > MAX_BYTES and not may_be_large:
            return False
        if len(data) > MAX_DATAGRAM:
            self.lost += count
            return True
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            self._socket.sendto(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, self._path)
        except OSError:
            self.lost += count
        else:
            self.lost -= told[0]
        return True


def listen(path: Path) -> socket.socket:
    """Make the exporter's end, in place of one that was left behind. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
    end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    before = os.umask(0o177)
    try:
        end.bind(str(path))
    except BaseException:
        end.close()
        raise
    finally:
        os.umask(before)
    return end


def read_datagram(datagram: bytes) -> tuple[list[Any], int]:
    """What a datagram tells, and how many spans its sender has lost before."""
    try:
        lost, *told = json.loads(datagram)
    except (ValueError, TypeError, RecursionError):
        return [], 1
    if type(lost) is not int or not 0 <= lost < _MOST_LOST:
        return [], 1
    return told, lost
