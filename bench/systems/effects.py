"""
Effects: what handlers leave behind, so that nobody has to believe a system's own books.

A handler has a slot, and `mark` writes there when it began and how often it ran. The file is
mapped by every process of the run, on CLOCK_MONOTONIC, which they share; a mark costs half a
microsecond. The driver reads the same file.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

SLOTS = 4_000_000
PATH = "BENCH_EFFECTS"  # the variable that names the file

_views: list[tuple[memoryview, memoryview]] = []


def create(path: Path) -> None:
    """Make the file: nanoseconds of the first start for each slot, then counts."""
    with path.open("wb") as file:
        file.truncate(SLOTS * 12)
    path.chmod(0o666)


def open_views(path: str) -> tuple[memoryview, memoryview]:
    """Map the file; return the starts and the counts."""
    with Path(path).open("r+b") as file:
        view = memoryview(mmap.mmap(file.fileno(), SLOTS * 12))
    return view[: SLOTS * 8].cast("q"), view[SLOTS * 8 :].cast("i")


def mark(slot: int) -> None:
    """Note that the handler of this slot begins."""
    began = time.monotonic_ns()
    if not _views:
        _views.append(open_views(os.environ[PATH]))
    starts, counts = _views[0]
    starts[slot] = starts[slot] or began
    counts[slot] += 1
