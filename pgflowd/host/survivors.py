"""
The file that names our descendants, so that the next start can kill those that survived.

When supervisor and worker are killed together, a detached process of a handler survives. A process
is identified by pid and start time. While one member of a session lives, no other session can get
its number, so the rest of that session is killed with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

from pgflowd.host.process_tree import (
    ProcessStat,
    descendants,
    in_session,
    kill_session,
    read_stat,
    send_signal,
)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SurvivorFile:
    """The descendants of this process as a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = ""

    def write(self) -> None:
        """Write down all our descendants as they are now."""
        processes = [
            [stat.pid, stat.started_ticks, stat.session] for stat in descendants(os.getpid())
        ]
        text = json.dumps({"boot": _boot_id(), "processes": processes})
        if text == self._written:
            return
        new = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(text)
            new.rename(self._path)
            self._written = text

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def kill_survivors(self) -> list[ProcessStat]:
        """Kill what an earlier daemon left running, and return it."""
        survivors = self._survivors()
        killed = {stat.pid: stat for stat in survivors}
        for session in {stat.session for stat in survivors} - {os.getsid(0)}:
            killed |= {stat.pid: stat for stat in in_session(session)}
            kill_session(session)
        for stat in survivors:
            send_signal(stat.pid, signal.SIGKILL)
        return list(killed.values())

    def _survivors(self) -> list[ProcessStat]:
        try:
            written = json.loads(self._path.read_text())
            if written["boot"] != _boot_id():
                return []
            known = {(int(pid), int(started)) for pid, started, _ in written["processes"]}
        except (OSError, ValueError, KeyError, TypeError):
            return []
        alive = [stat for stat in (read_stat(pid) for pid, _ in known) if stat is not None]
        ours = [stat for stat in alive if (stat.pid, stat.started_ticks) in known]
        return [stat for stat in ours if not stat.is_zombie and stat.pid != os.getpid()]


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
