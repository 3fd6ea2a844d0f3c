"""
The socket by which workers and runners hand spans to the exporter, as datagrams of a few lines.

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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MAX_BYTES = 32 * 1024  # of a datagram, unless one span alone is larger
MAX_SPAN_BYTES = 128 * 1024  # the kernel refuses datagrams of more than its buffer, about 200 KiB

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

    def send(self, spans: Iterable[Mapping[str, Any]]) -> None:
        lines: list[bytes] = []
        size = 0
        for span in spans:
            line = _dumps(span).encode()
            if len(line) > MAX_SPAN_BYTES:
                self.lost += 1
                continue
            if lines and size + len(line) > MAX_BYTES:
                self._send(lines)
                lines, size = [], 0
            lines.append(line)
            size += len(line) + 1
        if lines:
            self._send(lines)

    def _send(self, lines: Sequence[bytes]) -> None:
        told = self.lost
        data = b"\n".join([b'{"lost":%d}' % told, *lines] if told else lines)
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.sendto(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, self._path)
        except OSError:
            self.lost += len(lines)
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
    spans: list[dict[str, Any]] = []
    lost = 0
    for line in datagram.split(b"\n"):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            lost += 1
        elif isinstance(found.get("lost"), int):
            lost += found["lost"]
        else:
            spans.append(found)
    return spans, lost
