"""
What child runs cost: a parent with 1,000 children, from its start to its end.

    python bench/child_runs.py [--children 1000] [--rounds 5]

Starts a PostgreSQL with durable settings, and a daemon that serves a parent's flow and a child's.
The parent starts its children, waits for them and returns their number. Prints the table of "Child
runs" in docs/background/benchmarks.md, as Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from waits import daemon, row, value

from pgflowd.db import schema
from pgflowd.db.connection import connect
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.scratch import ScratchServer
from pgflowd.testing.until import until

FLOWS = """
from pgflowd import Flow, job

parent = Flow("parent", timeout=300)

@parent.step
def collect(run, ctx):
    runs = [ctx.start("child", {}, key=str(n)) for n in range(run["n"])]
    return sum(each.output["perform"] for each in ctx.wait(*runs))

@job("child")
def child(run):
    return 1
"""
SPANS = """
select extract(epoch from max(child.started_at) - min(child.started_at))::float8,
       extract(epoch from max(child.completed_at) - min(child.started_at))::float8,
       extract(epoch from parent.completed_at - max(child.completed_at))::float8
  from pgflow.runs as parent
  join pgflowd.runs as ours on ours.parent_run_id = parent.run_id
  join pgflow.runs as child on child.run_id = ours.run_id
 where parent.run_id = %s
 group by parent.run_id
"""
TITLES = ("children are started in", "and have ended after", "the parent ends after the last in")


def spans(conn: psycopg.Connection[Any], children: int) -> tuple[float, ...]:
    """Seconds to start the children, to the end of the last one, and from there to the parent's."""
    run = value(conn, "select run_id from pgflow.start_flow('parent', %s)", Jsonb({"n": children}))
    output = (
        "select output -> 'collect' from pgflow.runs where run_id = %s and status = 'completed'"
    )
    assert until(lambda: value(conn, output, run), 120) == children
    found = conn.execute(SPANS.encode(), (run,)).fetchone()
    assert found is not None
    return tuple(found)


def main() -> None:
    parser = argparse.ArgumentParser(description="What child runs cost.")
    parser.add_argument("--children", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="pgflowd-children-") as name,
        EmbeddedPostgres(Path(name) / "db") as postgres,
    ):
        server = ScratchServer(postgres.dsn)
        with server.database(schema=False) as database:
            with connect(database.dsn) as migrating:
                schema.migrate(migrating)
            with (
                psycopg.connect(database.dsn, autocommit=True) as conn,
                daemon(database.dsn, Path(name), FLOWS),
            ):
                until(lambda: value(conn, "select count(*) from pgflow.flows") == 2, 60)
                spans(conn, 10)
                found = [spans(conn, given.children) for _ in range(given.rounds)]
        server.close()
    print(row(f"s, of {given.children:,} children", "median", "max"))
    print("| --- | ---: | ---: |")
    for title, each in zip(TITLES, zip(*found, strict=True), strict=True):
        print(row(title, f"{statistics.median(each):.2f}", f"{max(each):.2f}"))


if __name__ == "__main__":
    main()
