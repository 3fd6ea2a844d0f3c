"""
The socket between a worker and its zygote, and the fork that begins it.

A message is a JSON object that arrives whole or not at all (SOCK_SEQPACKET), with descriptors
attached. The worker's end never blocks; the zygote's end only waits. The zygote stays in the
worker's Unix session and dies with it.
"""

from __future__ import annotations

import array
import contextlib
import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import setproctitle

from pgflowd.core.json import dumps, loads
from pgflowd.host.fork import (
    close_all_except,
    hide_memory,
    prepare_child,
    reopen_stdin,
    start_process,
)

MAX_MESSAGE = 64 * 1024
PART = MAX_MESSAGE // 5  # characters, up to four bytes each, of a text that may be longer
MAX_DESCRIPTORS = 4  # a runner's socket, stdout and stderr; a memory, where tasks share a runner


@dataclass(frozen=True)
class ZygoteMessage:
    """A message, and the descriptors that came with it."""

    message: dict[str, Any]
    descriptors: list[int]


@dataclass
class Zygote:
    """A forked zygote, seen from its worker."""

    pid: int
    pidfd: int
    socket: ZygoteSocket


def fork_zygote(main: Callable[[ZygoteSocket], int], title: str) -> Zygote:
    """Fork a process that runs `main`."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()

    def live() -> int:
        prepare_child(parent)
        close_all_except({0, 1, 2, theirs.fileno()})
        reopen_stdin()
        hide_memory(False)  # else its own oom_score_adj would be unwritable
        setproctitle.setproctitle(title)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        return main(ZygoteSocket(theirs))

    process = start_process(live, title)
    theirs.close()
    ours.setblocking(False)
    pid = int(process.pid)
    return Zygote(pid, os.pidfd_open(pid), ZygoteSocket(ours))


class ZygoteSocket:
    """One end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._kept: deque[tuple[bytes, list[int]]] = deque()
        self._parts = ""
        self.at_end = False

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_waiting(self) -> bool:
        """Whether a message is kept until there is room."""
        return bool(self._kept)

    def send(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        """Send now, or keep until there is room. Descriptors are closed here once they are sent."""
        self._kept.append((dumps(message).encode(), descriptors or []))
        self.flush()

    def send_long(self, message: dict[str, Any]) -> None:
        """Send a message of any length, in parts."""
        text = dumps(message)
        for start in range(0, len(text), PART):
            is_last = start + PART >= len(text)
            self.send({"part": text[start : start + PART], "last": is_last})

    def flush(self) -> None:
        while self._kept:
            data, descriptors = self._kept[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            try:
                self._socket.sendmsg([data], rights if descriptors else [])
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.at_end = True
            self._kept.popleft()
            for number in descriptors:
                os.close(number)

    def receive(self) -> ZygoteMessage | None:
        """Return the next message; None: none now, or never again (`at_end`)."""
        while True:
            try:
                data, numbers, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE, MAX_DESCRIPTORS)
            except (BlockingIOError, InterruptedError):
                return None
            except OSError:
                data, numbers = b"", []
            if not data:
                self.at_end = True
                return None
            message = loads(data)
            if "part" not in message:
                return ZygoteMessage(message, list(numbers))
            self._parts += message["part"]
            if message["last"]:
                whole, self._parts = self._parts, ""
                return ZygoteMessage(loads(whole), [])

    def close(self) -> None:
        for _, descriptors in self._kept:
            for number in descriptors:
                os.close(number)
        self._kept.clear()
        with contextlib.suppress(OSError):
            self._socket.close()
