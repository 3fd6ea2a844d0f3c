"""
Measures how much memory a backend takes to record outcomes, as a multiple of their outputs.

    python bench/memory.py [--dsn URL] [--quick]

Each report is made as a worker makes it, on a connection of its own, and ends its run. The peak is
the kernel's (VmHWM), less that of the same report with outputs of a few bytes, so what a backend
always needs, and what it shares with others, is not in it.
"""

from __future__ import annotations

import argparse
import uuid
from pathlib import Path
from typing import Any

import psycopg
from leases import database

from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.task import TaskReport
from pgflowd.db import tasks
from pgflowd.db.query import execute

MB = 1 << 20
SIZES_MB = (1, 16, 50)  # of the output of one task
ELEMENTS, ELEMENT_MB = 10, 15  # of a map, which a worker reports together by default


def peak_kb(dsn: str, count: int, size: int) -> int:
    """Return the peak of a backend that reports so many tasks, each with an output of that size."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        flow, worker = f"flow_{uuid.uuid4().hex[:8]}", uuid.uuid4()
        map_or_single = "map" if count > 1 else "single"
        conn.execute("select pgflow.create_flow(%s)", (flow,))
        conn.execute("select pgflow.add_step(%s, 'a', step_type => %s)", (flow, map_or_single))
        conn.execute(
            "insert into pgflow.workers (worker_id, queue_name, function_name)"
            " values (%s, %s, 'bench')",
            (worker, flow),
        )
        run_input = f"[{','.join('0' * count)}]"
        conn.execute("select from pgflow.start_flow(%s, %s::jsonb)", (flow, run_input))
        claimed = execute(conn, tasks.claim(flow, worker, count))
        output = b'"' + "é".encode() * (size // 2) + b'"'
        reports = [TaskReport(task, Outcome.COMPLETED, output) for task in claimed]
        answers = execute(conn, tasks.report(reports))
        if {answer.run_status for answer in answers} != {"completed"}:
            raise AssertionError(
                f"the report of {count} x {size} bytes was not recorded: {answers}"
            )
        status = Path(f"/proc/{conn.info.backend_pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line[:6] == "VmHWM:")


def row(dsn: str, count: int, size_mb: int) -> dict[str, Any]:
    least, peak = peak_kb(dsn, count, 2), peak_kb(dsn, count, size_mb * MB)
    taken_mb = (peak - least) / 1024
    return {"what": f"{count} x {size_mb} MB", "mb": taken_mb, "ratio": taken_mb / count / size_mb}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--dsn", help="a superuser's connection, on this machine; default: embedded"
    )
    parser.add_argument("--quick", action="store_true", help="without the largest ones")
    args = parser.parse_args()
    with database(args.dsn) as dsn:
        print(f"{'one report of':<16}{'backend, MB':>12}{'x outputs':>10}")
        sizes = SIZES_MB[:2] if args.quick else SIZES_MB
        for count, size_mb in [*((1, size) for size in sizes), (ELEMENTS, ELEMENT_MB)]:
            if args.quick and count > 1:
                continue
            found = row(dsn, count, size_mb)
            print(f"{found['what']:<16}{found['mb']:>12.0f}{found['ratio']:>10.1f}")


if __name__ == "__main__":
    main()
