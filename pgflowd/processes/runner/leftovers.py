"""
Finds what a task left behind in its process, so that it does not affect the next one.

A check after each task takes some ten microseconds. It finds threads, child processes (daemons too,
as the runner is a subreaper), a changed environment, working directory, umask or signal handler, an
alarm that is set, a stdout or stderr that was replaced or closed, and much more memory than after
the first task. It cannot find changes of module globals; `isolation = "task"` is for these.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import contextlib
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pgflowd.host.process_tree import children, kill_adopted, reap

# Ends the helper processes that `multiprocessing` starts on its own.
#
# Its fork server and its resource tracker live as long as the process that used them, and clean up
# when their pipe is closed. After a task they would count as children left behind, and if killed
# they would leave directories and shared memory. Python has no public call for this: where the
# private names differ, the helpers are killed like any child.
LIMIT_S = 2.0  # to end; 20 ms are usual


def end_helpers() -> None:
    """Close their pipes and wait until they end; the fork server has a copy of both pipes."""
    for package in ("multiprocessing", "multiprocess"):
        server = _private(f"{package}.forkserver", "_forkserver")
        if _end(server, "_forkserver_alive_fd", "_forkserver_pid"):
            _remove_address(server, sys.modules[f"{package}.process"])
        _end(_private(f"{package}.resource_tracker", "_resource_tracker"), "_fd", "_pid")


def _private(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _end(helper: Any, pipe: str, pid: str) -> bool:
    """Return whether it ended. A helper that the module started at import is not our child."""
    number, child = getattr(helper, pipe, None), getattr(helper, pid, None)
    if number is None or child is None:
        return False
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        pidfd = os.pidfd_open(child)
    except OSError:
        return False
    setattr(helper, pipe, None)
    setattr(helper, pid, None)
    os.close(number)
    select.select([pidfd], [], [], LIMIT_S)
    os.close(pidfd)
    return reap(child)


def _remove_address(server: Any, process: Any) -> None:
    """Remove the socket of a fork server, and the directory that was made for it."""
    address, server._forkserver_address = server._forkserver_address, None
    config = process.current_process()._config
    with contextlib.suppress(OSError, TypeError, ValueError):  # it need not be a path
        socket = Path(address)
        socket.unlink()
        if config.get("tempdir") == str(socket.parent):
            socket.parent.rmdir()
            del config["tempdir"]


MAX_GROWTH_KB = 256 * 1024  # more than after the first task
KILL_LIMIT_S = 5.0  # a child that is not gone then cannot be killed; the worker will tell
NAP_S = 0.002
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
_SIGNALS = sorted(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))


class Leftovers:
    """How the process was before its first task."""

    def __init__(self) -> None:
        self._environment: dict[Any, Any] = dict(_environment())
        self._directory = _directory()
        self._umask = _umask()
        self._threads = _thread._count()
        self.accepted_threads = 0  # that we have let others start since
        self._handlers = _handlers()
        self._streams = (sys.stdout, sys.stderr)
        self._memory_kb: int | None = None

    def found(self, peak_kb: int) -> dict[str, list[str]]:
        """
        Name what the task left behind: `children` have to be killed, and `reset` lists changes that
        only a new process undoes. `peak_kb` is the most memory that the process ever had.
        """
        found: dict[str, list[str]] = {}
        if has_children():
            end_helpers()
            if has_children():
                found["children"] = _names_of_children()
        changed = {
            "threads": self.has_threads(),
            "another environment": _environment() != self._environment,
            "another working directory": _directory() != self._directory,
            "another umask": _umask() != self._umask,
            "signal handlers": _handlers() != self._handlers,
            "an alarm": _signal.getitimer(signal.ITIMER_REAL)[0] > 0,
            "another stdout or stderr": self._are_others(),
            "memory": self._has_grown(peak_kb),
        }
        if True in changed.values():
            found["reset"] = [name for name, is_changed in changed.items() if is_changed]
        return found

    def has_threads(self) -> bool:
        return bool(_thread._count() > self._threads + self.accepted_threads)

    def _are_others(self) -> bool:
        out, err = self._streams
        if sys.stdout is not out or sys.stderr is not err:
            return True
        return getattr(out, "closed", False) or getattr(err, "closed", False)

    def _has_grown(self, peak_kb: int) -> bool:
        if self._memory_kb is None:
            self._memory_kb = _anonymous_kb()
        limit_kb = self._memory_kb + MAX_GROWTH_KB
        if peak_kb < limit_kb:
            return False  # it never had so much: no need to read a file
        return _anonymous_kb() > limit_kb


def end_children() -> None:
    """Kill the children that a task left, before its end is recorded."""
    limit = time.monotonic() + KILL_LIMIT_S
    while kill_adopted(()) and time.monotonic() < limit:
        time.sleep(NAP_S)


def peak_kb() -> int:
    """The most memory that the process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def has_children() -> bool:
    """Whether a child lives; those that have ended are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _names_of_children() -> list[str]:
    names = set()
    for pid in children():
        with contextlib.suppress(OSError):
            names.add(Path(f"/proc/{pid}/comm").read_text(errors="replace").strip())
    return sorted(names)[:3] or ["?"]


def _handlers() -> list[Any]:
    # not signal.getsignal, which makes enums: 30 microseconds of them
    return list(map(_signal.getsignal, _SIGNALS))


def _environment() -> dict[Any, Any]:
    return os.environ._data  # type: ignore[attr-defined,no-any-return]


def _directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  in a microsecond
    except OSError:
        return ""


def _umask() -> int:
    umask = os.umask(0o77)
    os.umask(umask)
    return umask


def _anonymous_kb() -> int:
    with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123
        _, resident, shared, *_ = file.read(200).split()
    return (int(resident) - int(shared)) * _PAGE_KB
