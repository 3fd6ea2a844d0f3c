"""A worker at the limits of its machine: no process more, no memory more."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.covers import covers

from pgflowd.testing.until import until

MODULE = """
    import resource, signal
    from support.oracle import note
    from pgflowd import Flow

    def toggle(number, frame):
        most, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (hard if most == 0 else 0, hard))

    signal.signal(signal.SIGUSR2, toggle)  # the zygote, having imported this, forks or does not
    flow = Flow("flow", max_attempts=1, base_delay=0, timeout=20)

    @flow.map
    def work(item, ctx):
        note(ctx, "start")
        note(ctx, "end", item)
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


@covers("row 36")
def test_a_refused_fork_gives_the_task_back_and_claims_pause_until_forks_work(start_worker):
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


CGROUPS = Path("/sys/fs/cgroup")
GREEDY = """
    import os
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=1, base_delay=0, timeout=20)

    @flow.map(when_exhausted="skip")
    def work(item):
        return len(b"x" * item)
"""


def limit_file() -> Path | None:
    """Where a new control group says how much memory it may have, if we may make groups."""
    name = f"pgflowd-test-{os.getpid()}"
    old, new = CGROUPS / "memory", CGROUPS / "cgroup.subtree_control"
    if os.access(old / "cgroup.procs", os.W_OK):
        return old / name / "memory.limit_in_bytes"
    if os.access(new, os.W_OK) and "memory" in new.read_text().split():
        return CGROUPS / name / "memory.max"
    return None


@pytest.fixture
def narrow_group() -> Iterator[Path]:
    """A control group with 200 MB of memory."""
    file = limit_file()
    assert file is not None
    file.parent.mkdir()
    file.write_text(str(200 * 1024 * 1024))
    yield file.parent
    until(lambda: (file.parent / "cgroup.procs").read_text() == "")
    file.parent.rmdir()


@covers("row 52")
@pytest.mark.skipif(limit_file() is None, reason="a memory limit takes root, and cgroups to write")
def test_the_oom_killer_takes_a_runner_and_the_next_task_runs(narrow_group, start_worker):
    def enter() -> None:
        (narrow_group / "cgroup.procs").write_text(str(os.getpid()))

    worker = start_worker(GREEDY, before=enter, oom_score_adj=500)
    zygote = worker.zygote

    greedy = worker.start_run([2_000_000_000])
    modest = worker.start_run([1000])

    assert worker.completed(greedy)
    [(_, outcome, text)] = worker.attempts(greedy)
    assert outcome == "crashed" and "SIGKILL (out of memory?)" in text
    assert worker.output(modest) == {"work": [1000]}
    assert worker.zygote == zygote
    assert worker.completed(worker.start_run([1000]))
