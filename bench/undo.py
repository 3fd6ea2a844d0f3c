"""
What undos cost: those that nobody uses, and the undo of a map.

    python bench/undo.py [--elements 10000] [--quick]

Starts a PostgreSQL with durable settings. Runs of a step that fails are claimed and reported, in
turn: of a flow without an undo, of one whose runs are kept, of one whose runs are undone. Then a
daemon executes a map, whose run fails and is undone. Prints the tables of "Undos" in
docs/background/benchmarks.md, as Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg
from waits import daemon, row

from pgflowd import Flow
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.task import TaskReport
from pgflowd.db import schema, tasks
from pgflowd.db.connection import connect
from pgflowd.db.query import execute
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.scratch import ScratchServer
from pgflowd.testing.until import until

Connection = psycopg.Connection[Any]
KINDS: dict[str, dict[str, Any] | None] = {
    "without an undo": None,
    "kept": {"on_failure": "keep"},
    "undone": {},
}
START = "select count(*) from pgflow.start_flows(%s, array_fill('{}'::jsonb, array[10]))"
FLOW = """
from pgflowd import Fail, Flow
flow = Flow("orders")

@flow.step
def items(run): return list(range(run["n"]))

@flow.map(over=items)
def ship(item): return item

@flow.step
def fails(ship): raise Fail("as it must")

@flow.undo(ship)
def recall(ship): return ship
"""
SPANS = """
select step_slug, extract(epoch from completed_at - started_at)::float8
  from pgflow.step_states where step_slug in ('ship', 'undo_ship')
"""
UNDONE = "select undo_state = 'undone' from pgflowd.runs where run_id = %s"


def failures(conn: Connection, rounds: int) -> list[str]:
    """The table of calls, a column for each kind of flow."""
    took_ms: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
    worker = uuid.uuid4()
    for at, options in enumerate(KINDS.values()):
        _define(conn, f"f{at}", options, worker)
    for _ in range(rounds):
        for at, took in enumerate(took_ms.values()):
            conn.execute(START, (f"f{at}",))
            for what, outcome in (("failed", Outcome.FAILED), ("completed", Outcome.COMPLETED)):
                began = time.perf_counter()
                claimed = execute(conn, tasks.claim(f"f{at}", worker, 5))
                output = b"1" if outcome is Outcome.COMPLETED else None
                reports = [
                    TaskReport(task, outcome, output, error_message="no") for task in claimed
                ]
                execute(conn, tasks.report(reports))
                ms = (time.perf_counter() - began) * 1000
                took.setdefault(f"claim and report of five that {what}", []).append(ms)
        conn.execute("select pgflowd.process_due(1000)")
    lines = [row("ms, median", *KINDS), "| --- " + "| ---: " * len(KINDS) + "|"]
    for what in took_ms["kept"]:
        medians = [statistics.median(took[what]) for took in took_ms.values()]
        lines.append(row(what, *[f"{each:.2f}" for each in medians]))
    return lines


def _define(conn: Connection, slug: str, options: dict[str, Any] | None, worker: uuid.UUID) -> None:
    flow = Flow(slug, max_attempts=1, **(options or {}))
    flow.step(slug="a")(lambda run: run)
    if options is not None:
        flow.undo("a")(lambda ctx: None)
    conn.execute("select pgflowd.define(%s, %s)", (slug, json.dumps(flow.shape())))
    register = "insert into pgflow.workers (worker_id, queue_name, function_name)"
    conn.execute(f"{register} values (%s, %s, 'bench') on conflict do nothing", (worker, slug))


def undo_of_a_map(dsn: str, directory: Path, elements: int) -> list[str]:
    """The table of a daemon: a map, and its undo."""
    with psycopg.connect(dsn, autocommit=True) as conn, daemon(dsn, directory, FLOW):
        query = "select count(*) = 2 from pgflow.flows"
        until(lambda: _value(conn, query), 60)
        start = "select run_id from pgflow.start_flow('orders', %s)"
        run = _value(conn, start, json.dumps({"n": elements}))
        until(lambda: _value(conn, UNDONE, run), 120 + elements / 50)
        took = dict(conn.execute(SPANS).fetchall())
    lines = [row(f"{elements:,} elements", "s", "ratio"), "| --- | ---: | ---: |"]
    for name, step in (("the map", "ship"), ("its undo", "undo_ship")):
        lines.append(row(name, f"{took[step]:.1f}", f"{took[step] / took['ship']:.2f}"))
    return lines


def _value(conn: Connection, query: str, *params: object) -> Any:
    found = conn.execute(query.encode(), params).fetchone()
    return found[0] if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description="What undos cost.")
    parser.add_argument("--elements", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="pgflowd-undo-") as name,
        EmbeddedPostgres(Path(name) / "db") as postgres,
    ):
        server = ScratchServer(postgres.dsn)
        with server.database() as database:
            print("\n".join(failures(database.connect(), 30 if given.quick else 200)) + "\n")
        with server.database(schema=False) as database:
            with connect(database.dsn) as migrating:
                schema.migrate(migrating)
            elements = min(given.elements, 1000) if given.quick else given.elements
            print("\n".join(undo_of_a_map(database.dsn, Path(name), elements)))
        server.close()


if __name__ == "__main__":
    main()
