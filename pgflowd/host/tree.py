"""
Tree: ends a process with everything that descends from it.

A tree is stopped first, from the top down, again and again until a pass finds nobody new: who
is stopped cannot fork, and as stopped parents do not reap, no pid changes hands. Then everyone
gets SIGKILL, and the process group, too. Whoever lost a parent meanwhile was adopted by the
nearest subreaper, which calls `kill_adopted`.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection
from pathlib import Path

MOST_PASSES = 100
_HAS_CHILDREN_FILE = Path("/proc/thread-self/children").exists()


def kill_tree(pid: int) -> int:
    """Kill a process and its descendants; return how many descendants there were."""
    found = stop_tree(pid)
    for each in found:
        _signal(each, signal.SIGKILL)
    with contextlib.suppress(OSError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
    return len(found) - 1


def stop_tree(pid: int) -> list[int]:
    """Stop a process and its descendants, and return them."""
    found = [pid]
    _signal(pid, signal.SIGSTOP)
    for _ in range(MOST_PASSES):
        known = set(found)
        new = [child for child in descendants(found) if child not in known]
        if not new:
            break
        for each in new:
            _signal(each, signal.SIGSTOP)
        found += new
    return found


def descendants(pids: Collection[int]) -> list[int]:
    """The descendants of these processes, parents first."""
    return _by_files(pids) if _HAS_CHILDREN_FILE else _by_parents(pids)


def children() -> list[int]:
    """Our own children, zombies included."""
    return [pid for pid, parent in _parents().items() if parent == os.getpid()]


def kill_adopted(known: Collection[int]) -> int:
    """Kill every child of ours but the known ones, reap who has ended; return how many are left.

    Never waits: call it again until nobody is left.
    """
    strangers = [pid for pid in children() if pid not in known and not reap(pid)]
    for pid in strangers:
        kill_tree(pid)
    return sum(not reap(pid) for pid in strangers)


def reap(pid: int) -> bool:
    """Collect a child of ours if it has ended; return whether it is gone."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _by_files(pids: Collection[int]) -> list[int]:
    found: list[int] = []
    pending = list(pids)
    while pending:
        pid = pending.pop(0)
        below = [child for child in _listed(pid) if child not in found]
        found += below
        pending += below
    return found


def _listed(pid: int) -> list[int]:
    listed: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                listed += map(int, (thread / "children").read_text().split())
    return listed


def _by_parents(pids: Collection[int]) -> list[int]:
    """Kernels without the list of children: look at everyone's parent."""
    below: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        below.setdefault(parent, []).append(pid)
    found: list[int] = []
    pending = list(pids)
    while pending:
        children_of = below.get(pending.pop(0), [])
        found += children_of
        pending += children_of
    return found


def _parents() -> dict[int, int]:
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  half as dear as Path.iterdir
        if name.isdecimal():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{name}/stat").read_bytes()
                found[int(name)] = int(text.rpartition(b")")[2].split(None, 2)[1])
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
