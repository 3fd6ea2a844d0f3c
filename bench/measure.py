"""
Measure: what processes cost, from the kernel's books.

CPU is that of a process and all below it, in nanoseconds where they live, plus what the kernel
added to each for children it has reaped: so processes that come and go between two looks are
counted. Memory is PSS, which shares a page among those who map it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SCHEDULED = 2  # CPUCLOCK_SCHED: the clock of what the scheduler gave to a process


def family(pid: int) -> Iterator[int]:
    """A process and all that descend from it."""
    yield pid
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from family(int(child))
    except OSError:
        return  # it ended meanwhile


def cpu_s(pid: int, without: frozenset[int] = frozenset()) -> float:
    """CPU seconds of a process and all below it, those that have ended too."""
    return sum(own_cpu_s(one) for one in family(pid) if one not in without)


def own_cpu_s(pid: int) -> float:
    """CPU seconds of a process, also of one that has ended and is not reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        reaped = (int(fields[13]) + int(fields[14])) * TICK_S
        return reaped + time.clock_gettime((~pid << 3) | SCHEDULED)
    except OSError:
        return 0.0


def pss_mb(pid: int) -> tuple[float, int]:
    """Megabytes of a process and all below it, and how many processes these are."""
    sizes = [_pss_kb(one) for one in family(pid)]
    return sum(sizes) / 1024, sum(1 for size in sizes if size)


def _pss_kb(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:"), 0)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
