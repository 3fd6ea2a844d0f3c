"""
Core: what the SQL core costs per task, beside raw pgmq and upstream's own SQL.

    python bench/core.py [--dsn URL] [--rounds N] [--quick] [--json FILE]

Every workload runs once per round, interleaved with the others, so that a slow moment of the
machine hits all of them; the table shows medians over the rounds. One connection, durable
settings. Costs are microseconds per unit: wall time, and CPU of the server's backend. Ratios
are to raw pgmq (one message sent, read and archived, in batches of 100) of the same rounds.
Every workload counts its results and fails if work is missing. Upstream's SQL (0.8.1, from
the npm package that `make test` installs) is measured where it is there: its own calls, one
commit for each, as its workers make them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from pgflowd.db.schema import migrate
from pgflowd.embedded import EmbeddedPostgres

UPSTREAM = (
    Path(__file__).parents[1] / "tests/npm/node_modules/@pgflow/core/dist/supabase/migrations"
)
FLOWS: dict[str, list[tuple[str, list[str], str]]] = {
    "one": [("a", [], "single")],
    "chain": [("a", [], "single"), ("b", ["a"], "single"), ("c", ["b"], "single")],
    "root_map": [("m", [], "map"), ("j", ["m"], "single")],
    "dep_map": [("l", [], "single"), ("m", ["l"], "map"), ("j", ["m"], "single")],
}


class Bench:
    """A database with the flows of the benchmark, and one worker's connection to it."""

    def __init__(self, dsn: str, name: str, upstream: bool = False) -> None:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute(f"drop database if exists {name} with (force)")
            admin.execute(f"create database {name}")
        self.conn = psycopg.connect(dsn, dbname=name, autocommit=True)
        self.upstream = upstream
        if upstream:
            self._install_upstream()
        else:
            migrate(self.conn)
        self.worker = uuid.uuid4()
        self.run(
            "insert into pgflow.workers (worker_id, queue_name, function_name)"
            " values (%s, 'bench', 'bench')",
            self.worker,
        )
        for flow, steps in FLOWS.items():
            self.run("select pgflow.create_flow(%s)", flow)
            for slug, deps, kind in steps:
                self.run(
                    "select pgflow.add_step(%s, %s, %s::text[], step_type => %s)",
                    *(flow, slug, deps, kind),
                )
        self.run("select pgmq.create('raw')")

    def _install_upstream(self) -> None:
        import importlib.resources

        pgmq = importlib.resources.files("pgmq").joinpath("sql/pgmq.sql").read_text()
        self.conn.execute("create schema pgmq")
        self.conn.execute(pgmq.encode())
        self.conn.execute("create schema realtime")
        self.conn.execute(
            "create function realtime.send(jsonb, text, text, boolean) returns void"
            " language sql as ''"
        )
        for file in sorted(UPSTREAM.glob("*.sql")):
            statement = file.read_text().replace('CREATE EXTENSION IF NOT EXISTS "pgmq"', "--")
            self.conn.execute(statement.encode())

    def run(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        cursor = self.conn.execute(query, args)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []

    def cpu_s(self) -> float:
        """CPU seconds of our backend so far."""
        pid = self.conn.info.backend_pid
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    # what a worker does

    def start(self, flow: str, runs: int, value: str = "{}") -> None:
        self.run(
            "select count(*) from pgflow.start_flows(%s, array_fill(%s::jsonb, array[%s]))",
            *(flow, value, runs),
        )

    def claim(self, flow: str, batch: int) -> list[tuple[Any, ...]]:
        return self.run(
            "select run_id, step_slug, task_index from pgflow.start_tasks(%s,"
            " (select array_agg(msg_id) from pgmq.read(%s, 30, %s)), %s)",
            *(flow, flow, batch, self.worker),
        )

    def complete(self, tasks: list[tuple[Any, ...]], output: str = "1") -> None:
        runs, steps, indexes = (list(column) for column in zip(*sorted(tasks), strict=True))
        with self.conn.transaction():
            self.run(
                "select from pgflow.runs where run_id = any(%s) order by run_id for no key update",
                runs,
            )
            self.run(
                "select from pgflow._complete_tasks(%s, %s, %s, %s::jsonb[])",
                *(runs, steps, indexes, [output] * len(tasks)),
            )

    def drain(self, flow: str, batch: int) -> int:
        done = 0
        while tasks := self.claim(flow, batch):
            if batch == 1 or self.upstream:
                for task in tasks:
                    self.run("select from pgflow.complete_task(%s, %s, %s, '1')", *task)
            else:
                self.complete(tasks)
            done += len(tasks)
        return done


@dataclass
class Workload:
    """A named piece of work: prepare without the clock, then act and say how many units."""

    name: str
    bench: Bench
    act: Callable[[], int]
    expect: int
    prepare: Callable[[], object] = lambda: None
    wall_us: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def measure(self) -> None:
        self.prepare()
        cpu, began = self.bench.cpu_s(), time.perf_counter()
        units = self.act()
        took = time.perf_counter() - began
        if units != self.expect:
            sys.exit(f"{self.name}: {units} units done, {self.expect} expected")
        self.wall_us.append(took / units * 1e6)
        self.cpu_us.append((self.bench.cpu_s() - cpu) / units * 1e6)


def raw(bench: Bench, messages: int, batch: int) -> int:
    done = 0
    for _ in range(messages // batch):
        bench.run(
            "select count(*) from pgmq.send_batch('raw', array_fill('{}'::jsonb, %s))", [batch]
        )
        ids = [row[0] for row in bench.run("select msg_id from pgmq.read('raw', 30, %s)", batch)]
        done += len(bench.run("select pgmq.archive('raw', %s::bigint[])", ids))
    return done


def one_by_one(bench: Bench, runs: int) -> int:
    for _ in range(runs):
        bench.run("select from pgflow.start_flow('one', '{}')")
    return runs


def elements(count: int) -> str:
    return json.dumps([{"i": i, "pad": "x" * 80} for i in range(count)])


def list_of(bench: Bench, count: int) -> None:
    """Bring a run of dep_map to the point where its map has `count` tasks queued."""
    bench.drain("dep_map", 100)
    bench.start("dep_map", 1)
    bench.complete(bench.claim("dep_map", 1), elements(count))


def workloads(ours: Bench, upstream: Bench | None, n: int) -> list[Workload]:
    def tasks(flow: str, runs: int, per_run: int, batch: int) -> Workload:
        return Workload(
            f"{flow}: a task, batches of {batch}", ours,
            lambda: ours.drain(flow, batch), runs * per_run, lambda: ours.start(flow, runs),
        )  # fmt: skip

    def root_map(count: int) -> Workload:
        return Workload(
            f"root map of {count:,}: an element, start to join", ours,
            lambda: ours.start("root_map", 1, elements(count)) or ours.drain("root_map", 50),
            count + 1,
        )  # fmt: skip

    def dep_map(count: int) -> Workload:
        return Workload(
            f"dependent map of {count:,}: an element", ours,
            lambda: ours.drain("dep_map", 50), count + 1, lambda: list_of(ours, count),
        )  # fmt: skip

    def claim(count: int) -> Workload:
        def act() -> int:
            ours.complete(ours.claim("dep_map", 10))
            return 10

        return Workload(
            f"dependent map of {count:,}: claim and report 10",
            ours,
            act,
            10,
            lambda: list_of(ours, count),
        )

    result = [
        Workload(f"raw pgmq: a message, batches of {b}", ours, lambda b=b: raw(ours, n, b), n)
        for b in (100, 10, 1)
    ]
    result += [
        Workload("start_flow, one by one", ours, lambda: one_by_one(ours, n // 4), n // 4),
        Workload("start_flows, 500 at once", ours, lambda: ours.start("one", 500) or 500, 500,
                 lambda: ours.drain("one", 100)),
    ]  # fmt: skip
    for batch in (1, 10, 100):
        result.append(tasks("one", n, 1, batch))
        result[-1].prepare = lambda: (ours.drain("one", 100), ours.start("one", n))
    result += [tasks("chain", n // 4, 3, batch) for batch in (10, 50)]
    result += [root_map(1_000), root_map(10_000), dep_map(1_000), dep_map(10_000)]
    result += [claim(100), claim(1_000), claim(10_000)]
    if upstream:
        result += [
            Workload("upstream 0.8.1: start_flow, one by one", upstream,
                     lambda: one_by_one(upstream, n // 4), n // 4),
            Workload("upstream 0.8.1: one: a task, batches of 10", upstream,
                     lambda: upstream.drain("one", 10), n // 4),
        ]  # fmt: skip
    return result


def table(done: list[Workload]) -> list[dict[str, Any]]:
    floor = statistics.median(done[0].wall_us), statistics.median(done[0].cpu_us)
    return [
        {
            "workload": work.name,
            "wall_us": round(wall := statistics.median(work.wall_us), 1),
            "cpu_us": round(cpu := statistics.median(work.cpu_us), 1),
            "spread": round(max(work.wall_us) / min(work.wall_us), 2),
            "wall_ratio": round(wall / floor[0], 2),
            "cpu_ratio": round(cpu / floor[1], 2) if floor[1] else None,
        }
        for work in done
    ]


def hot_share(bench: Bench) -> list[tuple[Any, ...]]:
    bench.run("select pg_stat_force_next_flush()")
    return bench.run(
        "select relname, n_tup_upd, round(100.0 * n_tup_hot_upd / n_tup_upd, 1)"
        " from pg_stat_user_tables where schemaname = 'pgflow' and n_tup_upd > 100"
        " order by relname"
    )


def history(bench: Bench, runs: int) -> float:
    """How much dearer a task is with so many finished runs in the tables."""

    def cost() -> float:
        bench.start("one", 1_000)
        began = bench.cpu_s()  # of the server: the disk would tell of its own load
        bench.drain("one", 50)
        return bench.cpu_s() - began

    before = statistics.median(cost() for _ in range(5))
    bench.start("one", runs)
    bench.drain("one", 100)
    bench.run("vacuum analyze")
    return statistics.median(cost() for _ in range(5)) / before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[1])
    parser.add_argument("--dsn", help="a superuser's; default: an embedded server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with ExitStack() as stack:
        dsn = args.dsn
        if dsn is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            dsn = stack.enter_context(EmbeddedPostgres(Path(directory) / "pg")).dsn
        ours = Bench(dsn, "bench_core")
        upstream = Bench(dsn, "bench_upstream", upstream=True) if UPSTREAM.is_dir() else None
        works = workloads(ours, upstream, 400 if args.quick else 2_000)
        for _ in range(2 if args.quick else args.rounds):
            for work in works:
                work.measure()
        rows = table(works)
        line = "{:50} {:>9} {:>9} {:>7} {:>11} {:>10}"
        print(line.format("", "wall µs", "CPU µs", "spread", "x raw wall", "x raw CPU"))
        for row in rows:
            print(line.format(*map(str, row.values())))
        hot = hot_share(ours)
        print("HOT share of updates:", ", ".join(f"{name} {share} %" for name, _, share in hot))
        grown = history(ours, 2_000 if args.quick else 20_000)
        print(f"a task with many finished runs in the tables costs {grown:.2f} x one without")
        if args.json:
            args.json.write_text(json.dumps({"rows": rows, "history_ratio": grown}, indent=1))


if __name__ == "__main__":
    main()
