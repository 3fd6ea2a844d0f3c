"""
Tree: ends a process with everything that descends from it.

A tree is stopped first, from the top down, each process before its children are read, again and
again until a pass finds nobody new: who is stopped cannot fork, and as stopped parents do not
reap, no pid changes hands. A group is stopped at one stroke, since a fork bomb would leave us no
processor to do it one by one. Then everyone gets SIGKILL, and the process group, too. Whoever
lost a parent meanwhile was adopted by the nearest subreaper, which calls `kill_adopted`.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path

MOST_PASSES = 100
_HAS_CHILDREN_FILE = Path("/proc/thread-self/children").exists()


def kill_tree(pid: int) -> int:
    """Kill a process and its descendants; return how many descendants there were."""
    found = stop_tree(pid)
    for each in found:
        _signal(each, signal.SIGKILL)
    _signal_group_of(pid, signal.SIGKILL)
    return len(found) - 1


def stop_tree(pid: int) -> list[int]:
    """Stop a process and its descendants, and return them."""
    found = {pid: None}
    _stop(pid)
    for _ in range(MOST_PASSES):
        if not _stop_more(found):
            break
    return list(found)


def _stop_more(found: dict[int, None]) -> bool:
    """Stop, and add, who is below those found; return whether there was anybody."""
    known, children_of = len(found), _lister()
    pending = list(found)
    for each in pending:
        for child in children_of(each):
            if child not in found:
                _stop(child)
                found[child] = None
                pending.append(child)
    return len(found) > known


def descendants(pids: Collection[int]) -> list[int]:
    """The descendants of these processes, parents first."""
    children_of = _lister()
    found: dict[int, None] = {}
    pending = list(pids)
    for each in pending:
        new = [child for child in children_of(each) if child not in found]
        found |= dict.fromkeys(new)
        pending += new
    return list(found)


def children() -> list[int]:
    """Our own children, zombies included.

    By the kernel's list, which is exact for those that only we can reap: looking at everybody
    takes seconds when somebody's fork bomb has filled the machine, and deadlines wait meanwhile.
    """
    return _lister()(os.getpid())


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


def _lister() -> Callable[[int], list[int]]:
    """How to find a process's children: by the kernel's list, or by everyone's parent."""
    if _HAS_CHILDREN_FILE:
        return _listed
    below: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        below.setdefault(parent, []).append(pid)
    return lambda pid: below.get(pid, [])


def _listed(pid: int) -> list[int]:
    listed: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                listed += map(int, (thread / "children").read_text().split())
    return listed


def _parents() -> dict[int, int]:
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  half as dear as Path.iterdir
        if name.isdecimal():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{name}/stat").read_bytes()
                found[int(name)] = int(text.rpartition(b")")[2].split(None, 2)[1])
    return found


def _stop(pid: int) -> None:
    """Stop a process, and the group that it leads at one stroke."""
    _signal_group_of(pid, signal.SIGSTOP)
    _signal(pid, signal.SIGSTOP)


def _signal_group_of(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        if os.getpgid(leader) == leader:
            os.killpg(leader, number)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
