"""
Inspector: imports one entry of the config in a process of its own, and tells what is in it.

`cli.inspection` starts it as `python -m pgflowd.cli.inspector FD`, with entry and import path
as JSON on standard input; the answer is one line on the descriptor FD, so whatever user code
prints disturbs nobody. User code never runs in a command's own process: an import may hang,
crash or leave threads behind.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from dataclasses import asdict
from typing import Any

from pgflowd.errors import FlowError, Problem
from pgflowd.flow import Flow
from pgflowd.host.fork import count_streams, shared_streams
from pgflowd.processes.flow_loading import load, prepare


def main() -> None:
    """Answer one question, and end without regard to what the import left running."""
    _die_with(os.getppid())
    out = int(sys.argv[1])
    asked = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what user code prints is no result of ours
    prepare(asked["python_path"], asked["secrets"])
    answer = json.dumps(inspect(asked["entry"]), default=str).encode() + b"\n"
    with os.fdopen(out, "wb") as pipe:
        pipe.write(answer)
    os._exit(0)


def inspect(entry: str) -> dict[str, Any]:
    """The flows of an entry, and everything that is wrong with them."""
    threads, open_before = set(threading.enumerate()), shared_streams()
    try:
        flows = load(entry)
    except FlowError as error:
        return {"flows": [], "problems": [asdict(problem) for problem in error.problems]}
    left = _left_open(entry, set(threading.enumerate()) - threads, shared_streams() - open_before)
    return {"flows": [_told(flow) for flow in flows], "problems": [asdict(one) for one in left]}


def _told(flow: Flow) -> dict[str, Any]:
    problems = flow.check()
    is_right = all(problem.is_warning for problem in problems)
    return {
        "slug": flow.slug,
        "place": flow.place,
        "shape": flow.shape() if is_right else None,
        "problems": [asdict(problem) for problem in problems],
    }


def _left_open(entry: str, threads: set[threading.Thread], shared: set[int]) -> list[Problem]:
    """W222 for what a fork would lose, or share with its parent."""
    found = []
    if threads:
        names = ", ".join(sorted(thread.name for thread in threads)[:3])
        found.append(f"{len(threads)} thread{'s' if len(threads) > 1 else ''} ({names})")
    if shared:
        found.append(count_streams(len(shared)))
    if not found:
        return []
    text = f"importing {entry} left {' and '.join(found)} open"
    remedy = "start threads, connections and process pools inside handlers"
    return [Problem("W222", text, entry, remedy)]


def _die_with(parent: int) -> None:
    """Whoever asked and was killed waits for no answer any more (Linux)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
