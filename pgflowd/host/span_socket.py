"""
The socket by which workers and runners hand spans to the exporter, as datagrams.

Nobody waits: what does not fit into the socket is lost, and so is all while there is no exporter.
The next datagram that gets through tells how many were. Spans that end together travel together,
since a socket holds few datagrams, however small they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MAX_SPANS = 64  # of a datagram
MAX_BYTES = 64 * 1024  # of a datagram, unless one span alone is larger; the kernel refuses 200 KiB

_dumps = json.JSONEncoder(separators=(",", ":"), default=str).encode


def socket_path(control: str) -> Path:
    """Where the exporter listens: beside the control socket."""
    return Path(control).absolute().with_suffix(".span")


class SpanSender:
    """Sends spans of this process; the socket is made with the first one."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._socket: socket.socket | None = None
        self.lost = 0  # that nobody has been told of

    def send(self, spans: Sequence[Mapping[str, Any]]) -> None:
        for first in range(0, len(spans), MAX_SPANS):
            self._send(spans[first : first + MAX_SPANS])

    def _send(self, spans: Sequence[Mapping[str, Any]]) -> None:
        told = self.lost
        data = _dumps([told, *spans]).encode()
        if len(data) > MAX_BYTES and len(spans) > 1:
            half = len(spans) // 2
            self._send(spans[:half])
            self._send(spans[half:])
            return
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.sendto(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, self._path)
        except OSError:
            self.lost += len(spans)
        else:
            self.lost -= told


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


def read_spans(datagram: bytes) -> tuple[list[dict[str, Any]], int]:
    """The spans of a datagram, and how many its sender has lost before, or are none."""
    try:
        lost, *spans = json.loads(datagram)
    except (ValueError, TypeError, RecursionError):
        return [], 1
    if not isinstance(lost, int):
        return [], 1
    sound = [each for each in spans if isinstance(each, dict)]
    return sound, lost + len(spans) - len(sound)
