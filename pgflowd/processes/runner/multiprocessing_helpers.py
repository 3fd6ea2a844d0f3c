"""
Ends the helper processes that `multiprocessing` starts on its own.

Its fork server and its resource tracker live as long as the process that used them, and clean up
when their pipe is closed. After a task they would count as children left behind, and if killed
they would leave directories and shared memory. Python has no public call for this: where the
private names differ, the helpers are killed like any child.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from pathlib import Path
from typing import Any

from pgflowd.host.process_tree import reap

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
