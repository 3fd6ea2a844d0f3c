"""
Systemd: tells the service manager how we are, and feeds its watchdog.

Everything is silent without a service manager. The variables of the protocol are taken out of
the environment when a Notifier is made, before any child starts, so no child can speak in our
name. Nothing here waits: a message that finds no room is lost, and the next one follows.
"""

from __future__ import annotations

import os
import time

import sdnotify  # type: ignore[import-untyped]

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """The line to the service manager."""

    def __init__(self) -> None:
        self._systemd = sdnotify.SystemdNotifier()
        if self._systemd.socket is not None:
            self._systemd.socket.setblocking(False)
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

    def _tell(self, *lines: str) -> None:
        self._systemd.notify("\n".join(line.replace("\n", " ") for line in lines))


def _watchdog_s() -> float | None:
    """Return how often the watchdog wants to be fed, if it is meant for us."""
    for_whom = os.environ.get("WATCHDOG_PID")
    if for_whom not in (None, "", str(os.getpid())):
        return None
    given = os.environ.get("WATCHDOG_USEC", "")
    return int(given) / 1e6 if given.isdecimal() and int(given) > 0 else None
