"""
Sessions: ends all processes of a Unix session, and remembers which ones were ours.

A worker leads a session that its zygote and runners share. When it is dead, `kill_session` ends
who is left; it never waits, so call it again until it returns 0. `Remembered` writes down all
our descendants, so that the next start finds what survived a kill of supervisor and worker:
a process is told by pid and start time together, and while one member of a session lives, the
session's number can belong to no other.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

from pgflowd.host import process_tree
from pgflowd.host.proc import Seen, in_session, look

MOST_PASSES = 20
BOOT = Path("/proc/sys/kernel/random/boot_id")


def kill_session(session: int) -> int:
    """Kill who lives in a session; return how many there were.

    They are stopped first, again until nobody new is found: who is stopped cannot fork.
    """
    stopped: set[int] = set()
    for _ in range(MOST_PASSES):
        new = {seen.pid for seen in in_session(session)} - stopped - {os.getpid()}
        if not new:
            break
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        send(pid, signal.SIGKILL)
    return len(stopped)


def send(pid: int, number: int) -> bool:
    """Send a signal; False if nobody was there or it is not allowed."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


class Remembered:
    """The file that tells the next start which processes were ours."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = ""

    def write(self) -> None:
        """Write down all our descendants as they are now."""
        processes = [[seen.pid, seen.born, seen.session] for seen in descendants(os.getpid())]
        text = json.dumps({"boot": _boot(), "processes": processes})
        if text == self._written:
            return
        new = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(text)
            new.rename(self._path)
            self._written = text

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)

    def kill_survivors(self) -> list[Seen]:
        """Kill what an earlier daemon left behind, and return it."""
        survivors = self._survivors()
        sessions = {seen.session for seen in survivors} - {os.getsid(0)}
        killed = {seen.pid: seen for seen in survivors}
        for session in sessions:
            killed |= {seen.pid: seen for seen in in_session(session)}
            kill_session(session)
        for seen in survivors:
            send(seen.pid, signal.SIGKILL)
        return list(killed.values())

    def _survivors(self) -> list[Seen]:
        try:
            told = json.loads(self._path.read_text())
            if told["boot"] != _boot():
                return []
            known = {(int(pid), int(born)) for pid, born, _ in told["processes"]}
        except (OSError, ValueError, KeyError, TypeError):
            return []
        alive = [seen for seen in (look(pid) for pid, _ in known) if seen is not None]
        ours = [seen for seen in alive if (seen.pid, seen.born) in known]
        return [seen for seen in ours if not seen.is_zombie and seen.pid != os.getpid()]


def descendants(pid: int) -> list[Seen]:
    """The living descendants of a process."""
    found = (look(each) for each in process_tree.descendants([pid]))
    return [seen for seen in found if seen is not None and not seen.is_zombie]


def _boot() -> str:
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""
