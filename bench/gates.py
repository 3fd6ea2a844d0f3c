"""
What gates cost, and how soon a place of a limit is used again.

    python bench/gates.py [--aside 100000] [--quick]

Starts a PostgreSQL with durable settings. Ten tasks are started, claimed and reported, in turn, of
an ordinary flow, of one whose needs the worker has, and of one in which each has a limit of its
own. Then so many tasks that nobody may take are put aside, and claims are measured beside them. At
last a daemon executes tasks of which one may be at work. Prints the tables of "Gates" in
docs/background/benchmarks.md, as Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from waits import daemon, row

from pgflowd import Flow, Limit
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.task import TaskReport
from pgflowd.db import schema, tasks
from pgflowd.db.connection import connect
from pgflowd.db.query import execute
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.scratch import ScratchServer
from pgflowd.testing.until import until

Connection = psycopg.Connection[Any]
CAPS = ["gpu"]
KINDS: dict[str, dict[str, Any]] = {
    "ordinary": {},
    "needs that the worker has": {"needs": CAPS},
    "ten limited keys": {"limit": Limit(1, key="run.key")},
}
START = """
    select count(*) from pgflow.start_flows(
      %s, array(select jsonb_build_object('key', n) from generate_series(1, %s) as n))
"""
FLOW = """
from pgflowd import Flow, Limit
flow = Flow("one_at_a_time")

@flow.step(limit=Limit(1))
def work(run): return 1
"""
BETWEEN = """
    select extract(epoch from lead(started_at) over (order by token) - ended_at)::float8 * 1000
      from pgflowd.attempts order by token
"""


class Gated:
    """A flow of one step in a database, and the calls of a worker that are measured."""

    def __init__(self, conn: Connection, slug: str, **options: Any) -> None:
        self.conn, self.slug = conn, slug
        self.worker = uuid.uuid4()
        self.took_ms: dict[str, list[float]] = {}
        flow = Flow(slug)
        flow.step(slug="a", **options)(lambda run: run)
        conn.execute("select pgflowd.define(%s, %s)", (slug, json.dumps(flow.shape())))
        register = "insert into pgflow.workers (worker_id, queue_name, function_name)"
        conn.execute(f"{register} values (%s, %s, 'bench')".encode(), (self.worker, slug))

    def start(self, count: int) -> None:
        self.conn.execute(START, (self.slug, count))

    def claim(self, count: int = 10, caps: list[str] | None = None) -> Any:
        return execute(self.conn, tasks.claim(self.slug, self.worker, count, caps=caps or ()))

    def measure(self) -> None:
        """One round: ten tasks are started, claimed and completed."""
        self.start(10)
        claimed = self.timed("claim of ten", lambda: self.claim(caps=CAPS))
        assert len(claimed) == 10, f"{len(claimed)} of {self.slug} were claimed"
        reports = [TaskReport(task, Outcome.COMPLETED, b"1") for task in claimed]
        self.timed("report of ten", lambda: execute(self.conn, tasks.report(reports)))

    def timed(self, what: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        found = call()
        self.took_ms.setdefault(what, []).append((time.perf_counter() - began) * 1000)
        return found


def beside_each_other(conn: Connection, rounds: int) -> list[str]:
    """The table of calls, a column for each kind of flow."""
    found = [Gated(conn, f"f{at}", **options) for at, options in enumerate(KINDS.values())]
    plain = Gated(conn, "without_caps")
    for _ in range(rounds):
        for each in found:
            each.measure()
        plain.start(10)
        claimed = plain.timed("claim of ten", plain.claim)
        reports = [TaskReport(task, Outcome.COMPLETED, b"1") for task in claimed]
        plain.timed("report of ten", lambda done=reports: execute(conn, tasks.report(done)))
    lines = [row("ms, median", "ordinary, worker without caps", *KINDS)]
    lines.append("| --- " + "| ---: " * (len(KINDS) + 1) + "|")
    for what in plain.took_ms:
        medians = [statistics.median(each.took_ms[what]) for each in (plain, *found)]
        lines.append(row(what, *[f"{each:.2f}" for each in medians]))
    return lines


def put_aside(conn: Connection, count: int) -> list[str]:
    """The table of tasks that nobody may take."""
    gated, after = Gated(conn, "aside", needs=["tpu"]), 200
    gated.start(count)
    began, claims = time.perf_counter(), 0
    waits = "select count(*) from pgflowd.waits"
    while _value(conn, waits) < count:
        assert gated.claim() == []
        claims += 1
    took_s = time.perf_counter() - began
    for _ in range(after):
        gated.timed("claims after that", gated.claim)
        gated.timed("with other caps", lambda: gated.claim(caps=CAPS))
    for _ in range(after):
        claimed = gated.timed("of ten, by who has it", lambda: gated.claim(caps=["tpu"]))
        assert len(claimed) == 10
    each = took_s / count * 1e6
    lines = [row(f"{count:,} tasks that nobody may take", ""), "| --- | ---: |"]
    lines.append(row("put aside", f"{claims} claims, {took_s:.1f} s, {each:.0f} µs each"))
    for what, took in gated.took_ms.items():
        lines.append(row(f"{what}, ms, median", f"{statistics.median(took):.2f}"))
    return lines


def used_again(dsn: str, directory: Path, number: int) -> list[str]:
    """The table of a daemon: from a report to the claim of the next who waits."""
    with psycopg.connect(dsn, autocommit=True) as conn, daemon(dsn, directory, FLOW):
        until(lambda: _value(conn, "select count(*) from pgflow.flows") == 1, 60)
        conn.execute(START, ("one_at_a_time", number))
        ended = "select count(*) = %s from pgflow.runs where status = 'completed'"
        until(lambda: _value(conn, ended, number), 60 + number / 10)
        found = sorted(max(0.0, ms) for (ms,) in conn.execute(BETWEEN) if ms is not None)
    ranked = (statistics.median(found), found[int(len(found) * 0.99)], found[-1])
    return [
        row("ms", "p50", "p99", "max"),
        "| --- | ---: | ---: | ---: |",
        row("report to the next attempt", *[f"{each:.1f}" for each in ranked]),
    ]


def _value(conn: Connection, query: str, *params: object) -> Any:
    found = conn.execute(query.encode(), params).fetchone()
    return found[0] if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description="What gates cost.")
    parser.add_argument("--aside", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="pgflowd-gates-") as name,
        EmbeddedPostgres(Path(name) / "db") as postgres,
    ):
        server = ScratchServer(postgres.dsn)
        with server.database() as database:
            conn = database.connect()
            print("\n".join(beside_each_other(conn, 50 if given.quick else 300)) + "\n")
            count = min(given.aside, 20_000) if given.quick else given.aside
            print("\n".join(put_aside(conn, count)) + "\n")
        with server.database(schema=False) as database:
            with connect(database.dsn) as migrating:
                schema.migrate(migrating)
            print("\n".join(used_again(database.dsn, Path(name), 50 if given.quick else 300)))
        server.close()


if __name__ == "__main__":
    main()
