"""
Worker line: the runner's end of the socket that joins it to its worker.

Blocking, since a runner has nothing else to wait for. Handlers' threads may log, ask and look
too: each frame is sent under a lock, and who asks keeps the others from reading his answer. A
copy of the runner that a handler made by `os.fork` sees that its pid is another, and is silent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Any

from pgflowd.host.frames import Frame, Frames, pack, receive

_NO_LIMIT = 2**32  # the worker is trusted


class WorkerGone(Exception):
    """The worker closed the line: end."""


class WorkerLine:
    """Frames to and from the worker."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(True)
        self._socket = end
        self._frames = Frames(_NO_LIMIT)
        self._sending = threading.Lock()
        self._reading = threading.Lock()  # held from a question to its answer
        self._pid = os.getpid()
        self.is_stopping = False

    @property
    def is_copy(self) -> bool:
        """Whether this process is a fork of the runner, made by a handler."""
        return os.getpid() != self._pid

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        if self.is_copy:
            return
        data = pack(head, body)
        try:
            with self._sending:
                self._socket.sendall(data)
        except OSError as error:
            raise WorkerGone from error

    def next_task(self) -> Frame:
        with self._reading:
            return self._next("task")

    def ask(self, head: dict[str, Any]) -> Frame:
        """Ask the worker, and wait for its answer."""
        with self._reading:
            self.send({"say": "ask", **head})
            return self._next("answer")

    def look(self) -> bool:
        """Whether the daemon drains, as far as was said until now."""
        if self.is_copy or self.is_stopping or not self._reading.acquire(blocking=False):
            return self.is_stopping
        try:
            with contextlib.suppress(OSError):  # nothing there
                self._frames.feed(receive(self._socket, socket.MSG_DONTWAIT))
            while frame := self._frames.take():
                self._heard(frame)
        finally:
            self._reading.release()
        return self.is_stopping

    def _next(self, wanted: str) -> Frame:
        while True:
            while frame := self._frames.take():
                if frame.head.get("do") == wanted:
                    return frame
                self._heard(frame)
            try:
                piece = receive(self._socket)
            except OSError as error:
                raise WorkerGone from error
            if not piece:
                raise WorkerGone
            self._frames.feed(piece)

    def _heard(self, frame: Frame) -> None:
        if frame.head.get("do") == "stopping":
            self.is_stopping = True
