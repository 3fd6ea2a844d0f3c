"""Forking a child: its first acts, and its death with its parent (docs/background/runners.md)."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgflowd.core.messages import Drain, Failed, Ready
from pgflowd.host.fork import fork, parent_pid
from pgflowd.host.process_tree import command_line, in_session, kill_session, read_stat
from pgflowd.testing.until import until


def forked(main, **options):
    return fork(main, title="pgflowd: a child", **options)


def collected(child, within_s=5):
    assert select.select([child.pidfd], [], [], within_s)[0], "it lives on"
    status = child.collect()
    answer = child.channel.receive_all()
    child.close()
    return status, answer


def waiting(channel):
    """Wait for an order, then end."""
    channel.send(Ready())
    while not channel.at_end:
        select.select([channel], [], [])
        if channel.receive():
            return 7
    return 3


def test_a_child_runs_main_and_its_answer_is_its_exit_code():
    child = forked(waiting)
    child.channel.send(Drain(1.0))

    assert collected(child) == (7, [Ready()])


@pytest.mark.timing
def test_a_child_is_up_within_a_few_hundredths_of_a_second():
    began = time.monotonic()
    child = forked(waiting)
    select.select([child.channel], [], [], 5)
    took_s = time.monotonic() - began

    os.kill(child.pid, signal.SIGKILL)
    collected(child)
    assert took_s < 0.5  # 3 ms on an idle machine


def test_the_end_of_its_pipe_ends_it():
    child = forked(waiting)
    select.select([child.channel], [], [], 5)

    child.channel.close()

    assert select.select([child.pidfd], [], [], 5)[0]
    assert child.collect() == 3


def reports_state(channel):
    """Report the state of the process after the prologue of the fork."""
    handlers = {
        "int": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "term": signal.getsignal(signal.SIGTERM) is signal.SIG_IGN,
        "usr2": signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "wakeup": signal.set_wakeup_fd(-1),
        "session": os.getsid(0) == os.getpid(),
        "descriptors": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()),
        "channel": channel.fileno(),
        "parent": parent_pid() == os.getppid(),
    }
    channel.send(Failed("E901", json.dumps(handlers)))
    return 0


def test_first_acts_leave_nothing_of_the_parent():
    reads, writes = os.pipe2(os.O_NONBLOCK)
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    old = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        _, answer = collected(forked(reports_state))
    finally:
        signal.signal(signal.SIGUSR2, old)
        signal.set_wakeup_fd(before)
        os.close(writes)
        os.close(reads)

    state = json.loads(answer[0].text)
    own = {0, 1, 2, state["channel"]}
    assert (state["int"], state["term"], state["usr2"]) == (True, True, True)
    assert state["blocked"] == []
    assert state["wakeup"] == -1
    assert state["session"]
    assert state["parent"]
    assert len(set(state["descriptors"]) - own) <= 1  # the listing itself


def test_a_signal_to_the_child_does_not_show_up_in_the_parents_pipe():
    reads, writes = os.pipe2(os.O_NONBLOCK)
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    old = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        child = forked(waiting)
        select.select([child.channel], [], [], 5)
        os.kill(child.pid, signal.SIGTERM)
        child.channel.send(Drain(1.0))
        collected(child)
        got = os.read(reads, 100) if select.select([reads], [], [], 0)[0] else b""
    finally:
        signal.signal(signal.SIGUSR2, old)
        signal.set_wakeup_fd(before)
        os.close(writes)
        os.close(reads)

    assert signal.SIGTERM not in got


def leaves_a_grandchild(channel):
    subprocess.Popen(["sleep", "1000"])
    channel.send(Ready())
    select.select([channel], [], [])
    return 0


def test_the_death_of_a_child_is_seen_while_a_grandchild_holds_its_pipes():
    child = forked(leaves_a_grandchild)
    select.select([child.channel], [], [], 5)
    left = [seen for seen in in_session(child.pid) if seen.pid != child.pid]

    os.kill(child.pid, signal.SIGKILL)

    assert select.select([child.pidfd], [], [], 1)[0]
    assert kill_session(child.pid) >= 1
    pids = [seen.pid for seen in left]
    until(lambda: all((stat := read_stat(pid)) is None or stat.is_zombie for pid in pids))
    assert collected(child)[0] == -9


def raises(channel):
    raise RuntimeError("on purpose")


@pytest.mark.parametrize(
    ("main", "status"),
    [(raises, 70), (lambda channel: sys.exit(5), 5), (lambda channel: os._exit(78), 78)],
)
def test_how_a_child_ends_is_its_status(main, status, capfd):
    assert collected(forked(main))[0] == status


PARENT = """
import os, select, signal, sys
from pgflowd.host.fork import fork
def main(channel):
    select.select([], [], [], 1000)
child = fork(main, title="pgflowd: a child")
print(child.pid, flush=True)
select.select([], [], [], 1000)
"""


def test_a_child_ends_with_its_parent():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    born = read_stat(pid).started_ticks
    until(lambda: command_line(pid) == "pgflowd: a child")

    parent.kill()
    parent.wait()

    until(lambda: (s := read_stat(pid)) is None or s.started_ticks != born or s.is_zombie, 2)


@pytest.mark.parametrize("spare", [0, 1, 2, 3])
def test_without_descriptors_a_fork_is_refused_and_nothing_is_left_behind(spare):
    import resource

    before = len(list(Path("/proc/self/fd").iterdir()))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    fillers = [os.dup(0) for _ in range(highest + 1 - before)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + spare, limits[1]))
    children = []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            for _ in range(10):
                children.append(forked(waiting))
                children[-1].channel.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for filler in fillers:
            os.close(filler)
    for child in children:
        assert collected(child)[0] == 3
