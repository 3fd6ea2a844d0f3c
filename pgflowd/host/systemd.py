"""
Systemd: tells the service manager how we are, and feeds its watchdog.

Everything is silent without a service manager. The variables of the protocol are taken out of
the environment when a Notifier is made, before any child starts, so no child can speak in our
name. Nothing here waits: what finds no room is told by the next `flush`.
"""

from __future__ import annotations

import os
import time
from collections import deque

import sdnotify  # type: ignore[import-untyped]

MOST_UNTOLD = 32
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """The line to the service manager."""

    def __init__(self) -> None:
        self._systemd = sdnotify.SystemdNotifier()
        if self._systemd.socket is not None:
            self._systemd.socket.setblocking(False)
            self._systemd.debug = True  # it raises what it cannot send
        self._untold: deque[str] = deque(maxlen=MOST_UNTOLD)
        self.watchdog_s = _watchdog_s()
        for name in _VARIABLES:
            os.environ.pop(name, None)

    def ready(self, status: str) -> None:
        self._tell("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        self._tell(f"STATUS={text}")

    def reloading(self) -> None:
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._tell("STOPPING=1", f"STATUS={status}")

    def alive(self) -> None:
        """Feed the watchdog."""
        if self.watchdog_s is not None:
            self._tell("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Ask for more time to start, reload or stop."""
        self._tell(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def flush(self) -> None:
        """Tell what could not be told before, in order."""
        while self._untold:
            try:
                self._systemd.notify(self._untold[0])
            except BlockingIOError:
                return
            except OSError:
                self._untold.clear()
                return
            self._untold.popleft()

    def _tell(self, *lines: str) -> None:
        if self._systemd.socket is not None:
            self._untold.append("\n".join(line.replace("\n", " ") for line in lines))
            self.flush()


def _watchdog_s() -> float | None:
    """Return how often the watchdog wants to be fed, if it is meant for us."""
    for_whom = os.environ.get("WATCHDOG_PID")
    if for_whom not in (None, "", str(os.getpid())):
        return None
    given = os.environ.get("WATCHDOG_USEC", "")
    return int(given) / 1e6 if given.isdecimal() and int(given) > 0 else None
