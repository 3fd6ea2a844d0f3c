"""
Reads from /proc what the processes of a daemon use: processor time and memory.

The runners of a worker, its zygote and whatever handlers start are one; they share the worker's
Unix session. The time of a process that was waited for counts for the one that did so, and the
time of a child that was replaced is kept, so a sum never falls. Memory that processes share counts
for each of them.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pgflowd.core.supervision.kinds import SINGLE_KINDS, WORKER

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class UsedByProcess:
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
        ticks: dict[str, int] = {}
        resident: dict[str, float] = {}
        started: dict[str, tuple[int, int]] = {}
        for seen in _used_by(names, workers):
            name, own = names.get(seen.pid), seen.ticks
            is_child, slug = name is not None, workers.get(seen.session)
            if slug is not None and not is_child:
                name, own = f"runners {slug}", seen.ticks + seen.ticks_of_children
            if name is None:
                continue
            ticks[name] = ticks.get(name, 0) + own
            resident[name] = resident.get(name, 0.0) + seen.resident_bytes
            if is_child:
                started[name] = seen.pid, seen.started_ticks
            if is_child and slug is not None:
                runners = f"runners {slug}"
                started[runners] = started[name]
                ticks[runners] = ticks.get(runners, 0) + seen.ticks_of_children
        for name in started:
            self._add(name, started[name], ticks[name])
        seconds = {name: (now + before) / _TICKS for name, (_, now, before) in self._sums.items()}
        return {"process_cpu_seconds": seconds, "process_resident_bytes": resident}

    def _add(self, name: str, started: tuple[int, int], ticks: int) -> None:
        known, now, before = self._sums.get(name, (started, 0, 0))
        if known != started:
            now, before = 0, before + now
        self._sums[name] = started, max(now, ticks), before


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
