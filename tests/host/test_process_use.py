"""What processes use: a worker apart from its runners, and sums that never fall."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from pgflowd.core.supervision.kinds import SINGLE_KINDS
from pgflowd.host.process_tree import ProcessUse
from pgflowd.testing.until import until

BURN = """
import os, subprocess, sys, time
child = [sys.executable, "-c", "while True: pass"] if sys.argv[1:] else ["sleep", "60"]
subprocess.Popen(child)
time.sleep(60)
"""


def status(worker: int | None) -> dict[str, Any]:
    nobody = {"pid": None}
    singles = {kind.name: nobody for kind in SINGLE_KINDS}
    return {"pid": os.getpid(), **singles, "flows": [{"slug": "mail", "pid": worker}]}


def start(*args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", BURN, *args], start_new_session=True)


def end(worker: subprocess.Popen[bytes]) -> None:
    os.killpg(worker.pid, 9)
    worker.wait()


def used(use: ProcessUse, worker: int | None) -> dict[str, float]:
    return use.of(status(worker))["process_cpu_seconds"]


def test_runners_are_counted_apart_from_their_worker_and_go_on_when_it_is_replaced():
    use, first = ProcessUse(), start("burn")
    try:
        until(lambda: used(use, first.pid)["runners mail"] > 0.1, 10)
        seconds = used(use, first.pid)
        assert seconds["worker mail"] < seconds["runners mail"]
        assert seconds["supervisor"] > 0
        resident = use.of(status(first.pid))["process_resident_bytes"]
        assert resident["worker mail"] > 1e6 and resident["runners mail"] > 1e6
    finally:
        end(first)
    before = used(use, None)
    assert before["runners mail"] >= seconds["runners mail"]

    second = start()
    try:
        after = used(use, second.pid)
        assert after["runners mail"] >= before["runners mail"]
        assert after["worker mail"] >= before["worker mail"]
    finally:
        end(second)
