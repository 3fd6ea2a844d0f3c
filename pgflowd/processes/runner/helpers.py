"""
Helpers: the processes that `multiprocessing` starts unasked, ended as they are meant to end.

Its fork server and its resource tracker stay as long as the process that used them, and clear up
when their pipe is closed. They would be children left behind after each task, and, being killed,
would themselves leave directories and shared memory behind. Python has no public word for this:
where the names are others, the helpers are killed like any child.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from pathlib import Path
from typing import Any

from pgflowd.host.process_tree import reap

LIMIT_S = 2.0  # where 20 ms are usual


def end_helpers() -> None:
    """Close their pipes and wait for their end; the fork server has a copy of the other's."""
    for package in ("multiprocessing", "multiprocess"):
        server = _of(f"{package}.forkserver", "_forkserver")
        if _end(server, "_forkserver_alive_fd", "_forkserver_pid"):
            _remove_address(server, sys.modules[f"{package}.process"])
        _end(_of(f"{package}.resource_tracker", "_resource_tracker"), "_fd", "_pid")


def _of(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _end(helper: Any, pipe: str, pid: str) -> bool:
    """Whether it ended; what the module started at import is no child of ours, and stays."""
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
    with contextlib.suppress(OSError, TypeError, ValueError):  # it need not be a file's name
        socket = Path(address)
        socket.unlink()
        if config.get("tempdir") == str(socket.parent):
            socket.parent.rmdir()
            del config["tempdir"]
