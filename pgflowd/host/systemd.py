"""
Reports our state to systemd, and feeds its watchdog.

Without a service manager nothing happens. The variables of the protocol are removed from the
environment when a Notifier is made, before any child starts, so no child can report in our name.
Nothing here waits: a message that finds no room is sent by the next `flush`.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any

import sdnotify  # type: ignore[import-untyped]

MAX_UNSENT = 32  # older messages are out of date
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """The connection to the service manager."""

    def __init__(self) -> None:
        self._systemd: Any = None
        if os.environ.get("NOTIFY_SOCKET"):  # without one it opens a socket, and closes none
            self._systemd = sdnotify.SystemdNotifier()
        if self.is_heard:
            self._systemd.socket.setblocking(False)
            self._systemd.debug = True  # it raises an error for a message that it cannot send
        self._unsent: deque[str] = deque(maxlen=MAX_UNSENT)
        self.watchdog_s = _watchdog_s()
        for name in _VARIABLES:
            os.environ.pop(name, None)

    @property
    def is_heard(self) -> bool:
        """Whether there is a service manager."""
        return self._systemd is not None and self._systemd.socket is not None

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def reloading(self) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={status}")

    def alive(self) -> None:
        """Feed the watchdog."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Ask for more time to start, reload or stop."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def flush(self) -> None:
        """Send the messages that found no room before, in order."""
        while self._unsent:
            try:
                self._systemd.notify(self._unsent[0])
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()
                return
            self._unsent.popleft()

    def _send(self, *lines: str) -> None:
        if self.is_heard:
            self._unsent.append("\n".join(line.replace("\n", " ") for line in lines))
            self.flush()


def _watchdog_s() -> float | None:
    """Return the watchdog's interval, if it watches this process."""
    watched_pid = os.environ.get("WATCHDOG_PID")
    if watched_pid not in (None, "", str(os.getpid())):
        return None
    given = os.environ.get("WATCHDOG_USEC", "")
    return int(given) / 1e6 if given.isdecimal() and int(given) > 0 else None
