"""
Load: an hour's worth of mixed work squeezed into minutes, while every process is measured.

    python tests/chaos/load.py --tasks 200000        make load TASKS=200000

Memory of each process that lives on stays flat, no descriptor is leaked, queue tables are
vacuumed as planned (docs/background/failures.md, D7) and stay small, and every run ends as it must.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # for tests/support

import psycopg
from mortals import place
from support.daemon import Daemon

from pgflowd.host.process_tree import command_line
from pgflowd.testing.until import until

SOURCE = Path(__file__).with_name("load_flows.py").read_text()
FLOWS = ("fan", "diamond", "rough")
OPEN_RUNS = 150  # at a time
BATCH = 15  # of each flow
FAN = 30
TASKS_OF_A_BATCH = BATCH * (FAN + 2 + 4 + FAN)
OPTIONS = {"autovacuum_naptime": "2s", "max_wal_size": "256MB"}
LASTING = ("supervisor", "listener", "worker", "zygote", "sweeper")
WARM = 0.2  # of the work; from there on nothing grows
MOST_GROWTH_KB = 6 * 1024
MOST_DESCRIPTORS = 40  # with four runners, which have four or five each
MOST_QUEUE_KB = 16 * 1024
SETTLED_S = 10.0


@dataclass
class Measured:
    """The samples of a process: kilobytes of its own memory, and descriptors."""

    kind: str
    memory_kb: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)


@dataclass
class Results:
    """The results of the load."""

    tasks: int
    seconds: float
    attempts: dict[str, int]
    growth_kb: dict[str, int]
    descriptors: dict[str, tuple[int, int]]
    queues: dict[str, tuple[int, int]]  # kilobytes, times vacuumed
    runner_kb: int
    violations: list[Any]


def bear(tasks: int, *, verbose: bool = False) -> Results:
    """Do so many tasks, and measure."""
    with place(SOURCE, OPTIONS) as (setup, dsn), psycopg.connect(dsn, autocommit=True) as conn:
        daemon = setup.serve(
            worker={"max_concurrency": 4, "max_restarts": 1000, "runner_idle": "60s"},
            logging={"level": "info"},
        )
        look = Look(daemon)
        began, started = time.monotonic(), 0
        while started < tasks:
            until(lambda: _count(conn, _OPEN) < OPEN_RUNS, 120)
            started += _start_runs(conn)
            look.once(started > tasks * WARM)
            if verbose:
                sys.stdout.write(f"{time.monotonic() - began:7.1f} s {started} tasks started\n")
                sys.stdout.flush()
        until(lambda: _count(conn, _OPEN) == 0, 120)
        seconds = time.monotonic() - began
        until(lambda: _resting(daemon), SETTLED_S)
        until(lambda: all(times for _, _, times in conn.execute(_QUEUES).fetchall()), SETTLED_S)
        look.once(True)
        done = _count(conn, "pgflow.step_tasks where status = 'completed'")
        results = _results(conn, look, done, seconds)
        daemon.process.terminate()
        assert daemon.ended(30) == 0
        return results


class Look:
    """Looks at each process of a daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.lasting: dict[int, Measured] = {}
        self.runner_kb = 0

    def once(self, warm: bool) -> None:
        pids = [self._daemon.pid, *(seen.pid for seen in self._daemon.family())]
        for pid in pids:
            title = command_line(pid)
            kind = next((each for each in LASTING if f": {each}" in title), "")
            memory_kb, descriptors = _memory_kb(pid), _descriptors(pid)
            if ": runner" in title:
                self.runner_kb = max(self.runner_kb, memory_kb)
            if warm and kind and memory_kb:
                name = " ".join(title.split(": ")[1].split()[:2]) if kind != "supervisor" else kind
                measured = self.lasting.setdefault(pid, Measured(f"{name} {pid}"))
                measured.memory_kb.append(memory_kb)
                measured.descriptors.append(descriptors)


def _results(conn: psycopg.Connection[Any], look: Look, tasks: int, seconds: float) -> Results:
    outcomes = "select coalesce(outcome, 'open'), count(*) from pgflowd.attempts group by 1"
    return Results(
        tasks,
        round(seconds, 1),
        dict(conn.execute(outcomes).fetchall()),
        {each.kind: _late(each.memory_kb) - each.memory_kb[0] for each in look.lasting.values()},
        {e.kind: (min(e.descriptors), max(e.descriptors)) for e in look.lasting.values()},
        {name: (kb, times) for name, kb, times in conn.execute(_QUEUES).fetchall()},
        look.runner_kb,
        conn.execute("select * from pgflowd.violations()").fetchall(),
    )


def wrong_in(results: Results) -> list[str]:
    """The results that are out of bounds."""
    wrong = [
        f"grew by {kb} kB: {name}" for name, kb in results.growth_kb.items() if kb > MOST_GROWTH_KB
    ]
    for name, (least, most) in results.descriptors.items():
        if most > MOST_DESCRIPTORS:
            wrong.append(f"{name} had {least} to {most} descriptors")
    for name, (kb, times) in results.queues.items():
        if kb > MOST_QUEUE_KB or not times:
            wrong.append(f"{name} has {kb} kB and was vacuumed {times} times")
    wrong += [f"violated: {row}" for row in results.violations]
    return wrong


_OPEN = "pgflow.runs where status = 'started'"
_QUEUES = """
select relname, pg_relation_size(relid) / 1024, autovacuum_count + vacuum_count
  from pg_stat_user_tables
 where schemaname = 'pgmq' and relname in ('q_fan', 'q_diamond', 'q_rough')
"""


def _start_runs(conn: psycopg.Connection[Any]) -> int:
    """Start some of each flow; return how many tasks they will have."""
    given = {"fan": {"n": FAN}, "diamond": {}, "rough": list(range(FAN))}
    for slug in FLOWS:
        query = "select count(*) from pgflow.start_flows(%s, %s::jsonb[])"
        conn.execute(query, (slug, [json.dumps(given[slug])] * BATCH))
    return TASKS_OF_A_BATCH


def _count(conn: psycopg.Connection[Any], what: str) -> int:
    row = conn.execute(f"select count(*) from {what}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def _resting(daemon: Daemon) -> bool:
    """Whether no runner has a task."""
    return not any(": runner" in title and "#" in title for title in daemon.titles())


def _late(samples: list[int]) -> int:
    """The least of the last samples: a peak is not growth."""
    return min(samples[-max(1, len(samples) // 5) :])


def _memory_kb(pid: int) -> int:
    """Memory of its own, shared pages not counted."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    lines = (line.split() for line in text.splitlines())
    return sum(int(words[1]) for words in lines if words[0] in ("Private_Clean:", "Private_Dirty:"))


def _descriptors(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--tasks", type=int, default=200_000)
    results = bear(parser.parse_args().tasks, verbose=True)
    sys.stdout.write("".join(f"{name}: {value}\n" for name, value in vars(results).items()))
    if wrong := wrong_in(results):
        sys.exit("\n".join(["WRONG:", *wrong]))


if __name__ == "__main__":
    main()
