"""
Reads from /proc what the processes of a daemon use: processor time and memory.

The runners of a worker, its zygote and whatever handlers start are one; they share the worker's
Unix session. The time of a process that was waited for counts for the one that did so, and the
time of a child that was replaced is kept, so a sum never falls. Memory that processes share counts
for each of them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from typing import Any, NamedTuple

from pgflowd.core.supervision.kinds import SINGLE_KINDS, WORKER

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class UsedByProcess(NamedTuple):
    """What a process uses: its own processor time, that of its ended children, and memory."""

    pid: int
    session: int
    started_ticks: int
    ticks: int
    ticks_of_children: int
    resident_bytes: int


class ProcessUse:
    """What was seen of each process, so that no sum falls when a child is replaced."""

    def __init__(self) -> None:
        # by name: pid and start of its process; the ticks of it, and of those before it
        self._sums: dict[str, tuple[tuple[int, int], int, int]] = {}

    def of(self, status: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        """Return what the processes in the status document use, by metric."""
        names = {status["pid"]: "supervisor"}
        names |= {status[kind.name]["pid"]: kind.name for kind in SINGLE_KINDS}
        workers = {flow["pid"]: flow["slug"] for flow in status["flows"]}
        names |= {pid: WORKER.child_id(slug) for pid, slug in workers.items()}
        names.pop(None, None)
        ticks, resident = defaultdict[str, int](int), defaultdict[str, float](float)
        started: dict[str, tuple[int, int]] = {}
        for seen in _used_by(names, workers):
            name, slug = names.get(seen.pid), workers.get(seen.session)
            runners = f"runners {slug}"
            if name is not None:
                ticks[name] += seen.ticks
                started[name] = seen.pid, seen.started_ticks
                if slug is not None:
                    ticks[runners] += seen.ticks_of_children
                    started[runners] = started[name]
            elif slug is not None:
                ticks[runners] += seen.ticks + seen.ticks_of_children
            if name is not None or slug is not None:
                resident[name or runners] += seen.resident_bytes
        for name in started:
            known, now, before = self._sums.get(name, (started[name], 0, 0))
            if known != started[name]:
                now, before = 0, before + now
            self._sums[name] = started[name], max(now, ticks[name]), before
        seconds = {name: (now + before) / _TICKS for name, (_, now, before) in self._sums.items()}
        return {"process_cpu_seconds": seconds, "process_resident_bytes": resident}


def _used_by(names: Container[int], sessions: Container[int]) -> Iterator[UsedByProcess]:
    """Processes by their ids or sessions, parents first: one that ends meanwhile is missed rather
    than counted twice. Of the others, which may be many, only the session is asked for."""
    with os.scandir("/proc") as entries:
        pids = sorted(int(entry.name) for entry in entries if entry.name.isdecimal())
    for pid in pids:
        try:
            if pid not in names and os.getsid(pid) not in sessions:
                continue
            with open(f"/proc/{pid}/stat", "rb", 0) as file:  # noqa: PTH123  there may be many
                text = file.read()
        except OSError:
            continue
        words = text.rpartition(b")")[2].split()  # the name may hold anything, even ')'
        user, system, user_of_children, system_of_children = map(int, words[11:15])
        yield UsedByProcess(
            pid,
            int(words[3]),
            int(words[19]),
            user + system,
            user_of_children + system_of_children,
            int(words[21]) * _PAGE,
        )
