"""
The memory of a backend that records outcomes is bounded by their size; bench/memory.py measures it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.covers import covers
from support.leases import LeaseDatabase, element

MB = 1 << 20
MOST = 14  # times the outputs; nine or ten are measured, and thirty were needed once


def peak_bytes(db: LeaseDatabase, count: int, size: int) -> int:
    """The peak of a backend that has reported so many outputs of this size, and ended their run."""
    flow = db.flow("m*" if count > 1 else "a")
    run = db.start(flow, [0] * count)
    tasks = db.claim(flow, db.worker(flow))
    conn = db.connect()
    output = '"' + "é" * (size // 2) + '"'

    db.report(*(element(task, output=output) for task in tasks), conn=conn)

    assert db.status(run) == "completed"
    status = Path(f"/proc/{conn.info.backend_pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


@covers("database 3")
@pytest.mark.parametrize(("count", "size_mb"), [(1, 16), (4, 4)])
def test_a_report_takes_a_small_multiple_of_its_outputs(
    own: LeaseDatabase, count: int, size_mb: int
) -> None:
    least = peak_bytes(own, count, 2)

    peak = peak_bytes(own, count, size_mb * MB)

    assert (peak - least) / (count * size_mb * MB) < MOST
