"""
Reads processes from /proc, and ends whole process trees and Unix sessions.

The start time of a process distinguishes it from a later one with the same pid. No function
returns a process that has ended.

A tree is stopped before it is killed: from the top down, each process before its children are
read, again and again until a pass finds no new process. A stopped process cannot fork, and stopped
parents do not reap, so no pid changes its owner. A process group is stopped in one call, since a
fork bomb leaves no processor time to stop its members one by one. Then each process and each group
gets SIGKILL. A process that lost its parent meanwhile was adopted by the nearest subreaper, which
calls `kill_adopted`. No function here waits: call `kill_session` and `kill_adopted` until they
return 0.

A `SurvivorFile` names our descendants, so that the next start can kill those that survived.

`ProcessUse` sums what the processes of a daemon use: processor time and memory. The runners of a
worker, its zygote and whatever handlers start are one; they share the worker's Unix session. The
time of a process that was waited for counts for the one that did so, and the time of a child that
was replaced is kept, so a sum never falls. Memory that processes share counts for each of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgflowd.core.supervision.kinds import SINGLE_KINDS, WORKER

MAX_TREE_PASSES = 100  # one that grows on is killed as far as it is known
MAX_SESSION_PASSES = 20  # likewise; each pass reads all of /proc
_HAS_CHILDREN_FILE = Path("/proc/thread-self/children").exists()
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessStat:
    """A process as /proc/PID/stat showed it."""

    pid: int
    name: str
    state: str  # "Z": a zombie, which only waits to be reaped
    parent: int
    group: int
    session: int
    started_ticks: int  # since boot
    ticks: int  # of processor time
    ticks_of_children: int  # that have ended
    resident_bytes: int

    @property
    def is_zombie(self) -> bool:
        return self.state in {"Z", "X"}


def read_stat(pid: int) -> ProcessStat | None:
    """Read a process from /proc; return None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    head, _, tail = text.rpartition(")")  # the name may hold anything, even ')'
    words = tail.split()
    parent, group, session, user, system, user_of_children, system_of_children, started, pages = (
        int(words[at]) for at in (1, 2, 3, 11, 12, 13, 14, 19, 21)
    )
    ticks, ticks_of_children = user + system, user_of_children + system_of_children
    numbers = (parent, group, session, started, ticks, ticks_of_children, pages * _PAGE)
    return ProcessStat(pid, head.partition("(")[2], words[0], *numbers)


def all_processes() -> Iterator[ProcessStat]:
    yield from (stat for stat in map(read_stat, _pids()) if stat is not None)


def _pids() -> list[int]:
    with os.scandir("/proc") as entries:
        return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())


def in_session(session: int) -> list[ProcessStat]:
    """Return the living processes of a Unix session."""
    return [stat for stat in all_processes() if stat.session == session and not stat.is_zombie]


def command_line(pid: int) -> str:
    """Return a process's command line or title, or ""."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return data.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")


def children() -> list[int]:
    """Return our own children, zombies included.

    The kernel's list is exact for children that only we can reap. Reading every process takes
    seconds when a fork bomb has filled the machine, and deadlines would wait meanwhile.
    """
    return _children_reader()(os.getpid())


def descendants(pid: int) -> list[ProcessStat]:
    """Return the living descendants of a process, parents first."""
    children_of = _children_reader()
    found: dict[int, None] = {}
    pending = [pid]
    for each in pending:
        new = [child for child in children_of(each) if child not in found]
        found |= dict.fromkeys(new)
        pending += new
    return [stat for stat in map(read_stat, found) if stat is not None and not stat.is_zombie]


def kill_tree(pid: int) -> int:
    """Kill a process and its descendants; return how many descendants there were."""
    found = {pid: None}
    _stop(pid)
    for _ in range(MAX_TREE_PASSES):
        if not _stop_new_descendants(found):
            break
    for each in found:
        send_signal(each, signal.SIGKILL)
    _signal_group_of(pid, signal.SIGKILL)
    return len(found) - 1


def kill_session(session: int) -> int:
    """Kill every process of a session except this one; return how many there were."""
    stopped: set[int] = set()
    for _ in range(MAX_SESSION_PASSES):
        new = {stat.pid for stat in in_session(session)} - stopped - {os.getpid()}
        if not new:
            break
        for pid in new:
            send_signal(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        send_signal(pid, signal.SIGKILL)
    return len(stopped)


def kill_adopted(known: Collection[int]) -> int:
    """Kill our children except the known ones, reap those that ended; return how many are left."""
    adopted = [pid for pid in children() if pid not in known and not reap(pid)]
    for pid in adopted:
        kill_tree(pid)
    return sum(not reap(pid) for pid in adopted)


def reap(pid: int) -> bool:
    """Collect a child of ours if it has ended; return whether it is gone."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def send_signal(pid: int, number: int) -> bool:
    """Send a signal; return False if there is no such process or it is not allowed."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def _stop_new_descendants(found: dict[int, None]) -> bool:
    """Stop and add the processes below those found; return whether there were new ones."""
    known, children_of = len(found), _children_reader()
    pending = list(found)
    for each in pending:
        for child in children_of(each):
            if child not in found:
                _stop(child)
                found[child] = None
                pending.append(child)
    return len(found) > known


def _children_reader() -> Callable[[int], list[int]]:
    """Return a function that lists a process's children: from the kernel, or by their parents."""
    if _HAS_CHILDREN_FILE:
        return _kernel_children
    below: dict[int, list[int]] = {}
    for stat in all_processes():
        below.setdefault(stat.parent, []).append(stat.pid)
    return lambda pid: below.get(pid, [])


def _kernel_children(pid: int) -> list[int]:
    listed: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                listed += map(int, (thread / "children").read_text().split())
    return listed


def _stop(pid: int) -> None:
    """Stop a process, and in one call the group that it leads."""
    _signal_group_of(pid, signal.SIGSTOP)
    send_signal(pid, signal.SIGSTOP)


def _signal_group_of(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        if os.getpgid(leader) == leader:
            os.killpg(leader, number)


class SurvivorFile:
    """
    The descendants of this process as a file.

    When supervisor and worker are killed together, a detached process of a handler survives. A
    process is identified by pid and start time. While one member of a session lives, no other
    session can get its number, so the rest of that session is killed with it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = ""

    def write(self) -> None:
        """Write down all our descendants as they are now."""
        processes = [
            [stat.pid, stat.started_ticks, stat.session] for stat in descendants(os.getpid())
        ]
        text = json.dumps({"boot": _boot_id(), "processes": processes})
        if text == self._written and self._path.exists():
            return
        new = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(text)
            new.rename(self._path)
            self._written = text

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def kill_survivors(self) -> list[ProcessStat]:
        """Kill what an earlier daemon left running, and return it."""
        try:
            written = json.loads(self._path.read_text())
            if written["boot"] != _boot_id():
                return []
            known = {(int(pid), int(started)) for pid, started, _ in written["processes"]}
        except (OSError, ValueError, KeyError, TypeError):
            return []
        alive = [stat for stat in (read_stat(pid) for pid, _ in known) if stat is not None]
        ours = [stat for stat in alive if (stat.pid, stat.started_ticks) in known]
        survivors = [stat for stat in ours if not stat.is_zombie and stat.pid != os.getpid()]
        killed = {stat.pid: stat for stat in survivors}
        for session in {stat.session for stat in survivors} - {os.getsid(0)}:
            killed |= {stat.pid: stat for stat in in_session(session)}
            kill_session(session)
        for stat in survivors:
            send_signal(stat.pid, signal.SIGKILL)
        return list(killed.values())


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


class ProcessUse:
    """What was seen of each process, so that no sum falls when a child is replaced."""

    def __init__(self) -> None:
        # by name: pid and start of its process; the ticks of it, and of those before it
        self._sums: dict[str, tuple[tuple[int, int], int, int]] = {}

    def of(self, status: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        """Return what the processes in the status document use, by metric."""
        names = {status["pid"]: "supervisor"}
        names |= {status[kind.name]["pid"]: kind.name for kind in SINGLE_KINDS}
        workers = {flow["pid"]: flow["slug"] for flow in status["flows"]}
        names |= {pid: WORKER.child_id(slug) for pid, slug in workers.items()}
        names.pop(None, None)
        ticks, resident = defaultdict[str, int](int), defaultdict[str, float](float)
        started: dict[str, tuple[int, int]] = {}
        for seen in _used_by(names, workers):
            name, slug = names.get(seen.pid), workers.get(seen.session)
            runners = f"runners {slug}"
            if name is not None:
                ticks[name] += seen.ticks
                started[name] = seen.pid, seen.started_ticks
                if slug is not None:
                    ticks[runners] += seen.ticks_of_children
                    started[runners] = started[name]
            elif slug is not None:
                ticks[runners] += seen.ticks + seen.ticks_of_children
            if name is not None or slug is not None:
                resident[name or runners] += seen.resident_bytes
        for name in started:
            known, now, before = self._sums.get(name, (started[name], 0, 0))
            if known != started[name]:
                now, before = 0, before + now
            self._sums[name] = started[name], max(now, ticks[name]), before
        seconds = {name: (now + before) / _TICKS for name, (_, now, before) in self._sums.items()}
        return {"process_cpu_seconds": seconds, "process_resident_bytes": resident}


def _used_by(names: Container[int], sessions: Container[int]) -> Iterator[ProcessStat]:
    """Processes by their ids or sessions, parents first: one that ends meanwhile is missed rather
    than counted twice. Of the others, which may be many, only the session is asked for."""
    for pid in _pids():
        with contextlib.suppress(OSError):
            is_one = pid in names or os.getsid(pid) in sessions
            if is_one and (seen := read_stat(pid)):
                yield seen
