"""
Proc: what /proc tells of processes: parent, session, start time; and of ours, its descriptors.

A process is told from a later one with the same pid by its start time. Whatever has ended
meanwhile is simply absent from the answers.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Seen:
    """A process as /proc showed it."""

    pid: int
    name: str
    state: str  # "Z": a zombie, that only waits to be reaped
    parent: int
    group: int
    session: int
    born: int  # start time, in clock ticks since boot

    @property
    def is_zombie(self) -> bool:
        return self.state in {"Z", "X"}


def look(pid: int) -> Seen | None:
    """Return what is known of a process, or None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    head, _, tail = text.rpartition(")")  # the name may hold anything, even ')'
    words = tail.split()
    name = head.partition("(")[2]
    return Seen(pid, name, words[0], int(words[1]), int(words[2]), int(words[3]), int(words[19]))


def everyone() -> Iterator[Seen]:
    """All processes that can be seen."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    yield from (seen for seen in map(look, pids) if seen is not None)


def in_session(session: int) -> list[Seen]:
    """The living processes of a Unix session."""
    return [seen for seen in everyone() if seen.session == session and not seen.is_zombie]


def command_line(pid: int) -> str:
    """Return a process's command line or title, or ""."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return data.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")


def streams() -> set[int]:
    """The descriptors of ours that are sockets or pipes, so that a fork would share them."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  no need for paths
            with contextlib.suppress(OSError):
                mode = os.fstat(int(name)).st_mode
                if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
                    found.add(int(name))
    return found


def counted(streams: int) -> str:
    """So many of them, in words."""
    return "1 socket or pipe" if streams == 1 else f"{streams} sockets or pipes"
