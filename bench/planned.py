"""
What planned runs cost those that begin at once, and how soon the next run of a key begins.

    python bench/planned.py [--planned 0 1000000] [--quick]

Starts a PostgreSQL with durable settings. For each number of planned runs a database has so many,
which begin in a year; the calls of clients, workers and the sweeper are measured in each, in turn,
so that noise meets all alike. Then 10,000 are due at once, and begin by calls as the sweeper makes
them. At last a daemon serves a flow whose runs wait in line for one key. Prints the tables of
"Planned runs" in docs/background/benchmarks.md, as Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import psycopg
from waits import FLOW, Waiting, compared, daemon, databases, ranked, row, value

from pgflowd.db import schema
from pgflowd.db.connection import connect
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.scratch import ScratchServer
from pgflowd.testing.until import until

DUE_AT_ONCE = 10_000
PLAN = """
insert into pgflowd.runs (run_id, flow_slug, state, input, start_at, due_at)
select gen_random_uuid(), 'f', 'planned', '{{}}', moment, moment
  from generate_series(1, {count}), (select now() + interval '{due_in}' as moment) as due
"""
IN_LINE = """
select count(*) from generate_series(1, %s) as n
 cross join lateral pgflowd.start('waits', jsonb_build_object('n', n), singleton_key => 'k')
"""
HANDED_OVER = """
with life as (
  select run.started_at, run.completed_at, task.queued_at, (run.output ->> 'nap')::float8 as ended
    from pgflow.runs as run join pgflow.step_tasks as task using (run_id)
)
select extract(epoch from queued_at - lag(completed_at) over line)::float8 * 1000,
       (ended - lag(ended) over line) * 1000
  from life window line as (order by started_at) offset 1
"""


class Planned(Waiting):
    """A database in which so many runs are planned, and the calls that are measured there."""

    def __init__(self, dsn: str, count: int) -> None:
        super().__init__(dsn, count)
        self.conn.execute("select pgflow.create_flow('g'); select pgflow.add_step('g', 'a')")

    def fill(self, count: int, due_in: str) -> None:
        self.conn.execute(PLAN.format(count=count, due_in=due_in).encode())

    def measure(self) -> None:
        """One round, and a start of another flow."""
        start = "select count(*) from pgflow.start_flow('g', '{}')"
        self.timed("start without wishes", lambda: self.conn.execute(start.encode()))
        super().measure()


def beside_planned(server: ScratchServer, counts: list[int], rounds: int) -> list[str]:
    """The table of calls, a column for each number of planned runs; and the mass that begins."""
    with databases(server, len(counts)) as dsns:
        found = [Planned(dsn, count) for dsn, count in zip(dsns, counts, strict=True)]
        lines = compared(found, rounds, "planned")
        begun = [each.freed_s(DUE_AT_ONCE) for each in found]
        for each in found:
            each.conn.close()
    return [*lines, row(f"s, {DUE_AT_ONCE:,} due at once begun", *[f"{s:.2f}" for s in begun])]


def handed_over(dsn: str, directory: Path, number: int) -> list[str]:
    """The table of how soon the next run of a key begins, by a daemon."""
    with psycopg.connect(dsn, autocommit=True) as conn, daemon(dsn, directory, FLOW):
        until(lambda: value(conn, "select count(*) from pgflow.flows") == 1, 60)
        conn.execute(IN_LINE, (number,))
        ended = "select count(*) = %s from pgflow.runs where status = 'completed'"
        until(lambda: value(conn, ended, number), 60 + number)
        found = conn.execute(HANDED_OVER).fetchall()
    messages, handlers = zip(*found, strict=True)
    return ranked({"end to message": [*messages], "handler to handler": [*handlers]})


def main() -> None:
    parser = argparse.ArgumentParser(description="What planned runs cost.")
    parser.add_argument("--planned", type=int, nargs="+", default=[0, 1_000_000])
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    counts = [min(each, 100_000) if given.quick else each for each in given.planned]
    with (
        tempfile.TemporaryDirectory(prefix="pgflowd-planned-") as name,
        EmbeddedPostgres(Path(name) / "db") as postgres,
    ):
        server = ScratchServer(postgres.dsn)
        print("\n".join(beside_planned(server, counts, 50 if given.quick else 300)))
        with server.database(schema=False) as database:
            with connect(database.dsn) as migrating:
                schema.migrate(migrating)
            number = 100 if given.quick else 500
            print("\n" + "\n".join(handed_over(database.dsn, Path(name), number)))
        server.close()


if __name__ == "__main__":
    main()
