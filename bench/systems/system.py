"""
System: the interface of everything that is measured, and how the driver talks with it.

The file of a system ends with `main(ItsClass)`. Without arguments that is its client: it reads
a call as a line of JSON, performs it, and answers with the result and when the call began and
ended. With `serve` it is its worker, where there is no command of the system's own. Kinds of
work, and what a slot means for them:

    single   one no-op task, which marks its slot
    waits    one asynchronous task, which waits for a second and marks its slot; 2,000 at once
    quick    one asynchronous no-op task, which marks its slot
    chain    three tasks one after the other, which mark slot, slot + 1 and slot + 2
    map      a list, n tasks for its elements, and one that has waited for all of them; these
             mark first … first + n - 1, and first + n
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

CONCURRENCY = 10  # handlers at once, for all that have such a number
AT_ONCE = "BENCH_AT_ONCE"  # the variable that says how many, where it is another number
WAITING = 2_000  # of those that only wait


class System:
    """One system. `DSN` is of a database of its own, which only `install` may find empty."""

    setup: ClassVar[str] = ""  # how it is configured, for the report
    kinds: ClassVar[tuple[str, ...]] = ("single", "chain", "map")
    longest_queue: ClassVar[int] = 1_000_000  # that can be started within seconds
    unfinished: ClassVar[str] = ""  # SQL: how many rows have work ahead
    completed: ClassVar[str] = ""  # SQL: how many rows ended well
    rows: ClassVar[dict[str, int]] = {}  # by how many `completed` grows for one of a kind
    map_rows: ClassVar[tuple[int, int]] = (1, 0)  # the same for a map: so many, and per element

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def install(self) -> None:
        """Bring the schema and the definitions into an empty database."""
        raise NotImplementedError

    def worker(self, kinds: list[str]) -> list[str]:
        """Return the command that serves these kinds of work."""
        return [sys.executable, "-m", f"systems.{Path(sys.argv[0]).stem}", "serve"]

    def start_statement(self) -> str:
        """Return the SQL by which the client starts a single, with its values."""
        raise NotImplementedError

    def start_each(self, kind: str, slots: list[int]) -> None:
        """Start one after the other, a commit for each."""
        raise NotImplementedError

    def start_many(self, kind: str, slots: list[int]) -> None:
        """Start all of them in the quickest way that an application has."""
        self.start_each(kind, slots)

    def start_map(self, first: int, elements: int) -> None:
        raise NotImplementedError

    def serve(self) -> None:
        """Be the worker, until SIGTERM."""

    def hello(self) -> dict[str, Any]:
        """Tell the driver what this is."""
        told = ("setup", "kinds", "longest_queue", "unfinished", "completed", "rows", "map_rows")
        return {name: getattr(self, name) for name in told}


def main(system_type: type[System]) -> None:
    system = system_type(os.environ["BENCH_DSN"])
    if sys.argv[1:] == ["serve"]:
        system.serve()
        return
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print
    for line in sys.stdin:
        call, *arguments = json.loads(line)
        began = time.monotonic_ns()
        result = getattr(system, call)(*arguments)
        ended = time.monotonic_ns()
        print(json.dumps([result, began, ended]), file=answers, flush=True)
