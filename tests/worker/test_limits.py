"""A worker at the limits of its machine: no process more, no memory more (failures.md, D)."""

from __future__ import annotations

import ctypes
import os
import signal
import struct

from pgflowd.testing.until import until

MODULE = """
    import resource, signal
    from oracle import tell
    from pgflowd import Flow

    def toggle(number, frame):
        most, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (hard if most == 0 else 0, hard))

    signal.signal(signal.SIGUSR2, toggle)  # the zygote, having imported this, forks or does not
    flow = Flow("flow", max_attempts=1, base_delay=0, timeout=20)

    @flow.map
    def work(item, ctx):
        tell(ctx, "start")
        tell(ctx, "end", item)
        return item
"""
CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 21, 24
CAPABILITIES_V3 = 0x20080522


def as_somebody_who_has_limits() -> None:
    """Have the kernel count our processes: of root's it never has too many.

    Only the real user changes, so files and signals stay as they are for us.
    """
    if os.geteuid() == 0:
        os.setresuid(54321, 0, 0)
        libc = ctypes.CDLL(None, use_errno=True)
        header = struct.pack("Ii", CAPABILITIES_V3, 0)
        data = ctypes.create_string_buffer(24)
        assert libc.capget(header, data) == 0
        low, _, _, *high = struct.unpack("6I", data.raw)
        low &= ~(1 << CAP_SYS_ADMIN | 1 << CAP_SYS_RESOURCE)
        assert libc.capset(header, struct.pack("6I", low, low, 0, *high)) == 0


def test_row_36_a_refused_fork_gives_the_task_back_and_claims_pause_until_forks_work(start_worker):
    """Row 36."""
    worker = start_worker(MODULE, max_concurrency=2, before=as_somebody_who_has_limits)
    zygote = worker.zygote

    os.kill(zygote, signal.SIGUSR2)
    run = worker.start_run([1, 2, 3])
    until(lambda: len(refusals(worker)) >= 3)
    assert worker.status(run) == "started"
    assert set(worker.outcomes(run)) <= {"released", None}
    os.kill(zygote, signal.SIGUSR2)

    assert worker.output(run, 5) == {"work": [1, 2, 3]}
    assert worker.zygote == zygote
    pauses = [record["wait_s"] for record in refusals(worker)]
    assert pauses == sorted(pauses) and pauses[0] < pauses[-1]
    assert set(worker.outcomes(run)) == {"released", "completed"}


def refusals(worker) -> list[dict[str, object]]:
    said = worker.records("worker.error")
    return [record for record in said if "could not be started" in record["error"]]
