"""
The verbs of tests on a database: query it, start runs, claim tasks with leases and report them.

A `Database` wraps one connection. Verbs that two sessions may use at once take another as `conn`.
"""

from __future__ import annotations

import json
import uuid
from typing import Any, ClassVar, NamedTuple, TypeAlias

import psycopg
from psycopg.rows import namedtuple_row, scalar_row

from pgflowd.testing.until import until

Connection: TypeAlias = psycopg.Connection[Any]
Row: TypeAlias = Any

NO_INPUT: dict[str, Any] = {}


class TaskKey(NamedTuple):
    """Names a task, and its token if it has a lease."""

    run_id: uuid.UUID
    step_slug: str
    task_index: int
    token: int | None


def key(task: Row) -> TaskKey:
    token = getattr(task, "token", None)
    return TaskKey(task.run_id, task.step_slug, task.task_index, token)


class Database:
    """One connection, and the verbs of a test."""

    row_factory: ClassVar[Any] = staticmethod(namedtuple_row)

    def __init__(self, conn: Connection) -> None:
        self.conn = conn

    def do(self, query: str, *params: Any, conn: Connection | None = None) -> None:
        (conn or self.conn).execute(query.encode(), params or None)

    def rows(self, query: str, *params: Any, conn: Connection | None = None) -> list[Row]:
        with (conn or self.conn).cursor(row_factory=self.row_factory) as cursor:
            cursor.execute(query.encode(), params or None)
            return cursor.fetchall() if cursor.description else []

    def row(self, query: str, *params: Any, conn: Connection | None = None) -> Row:
        (row,) = self.rows(query, *params, conn=conn)
        return row

    def column(self, query: str, *params: Any, conn: Connection | None = None) -> list[Any]:
        with (conn or self.conn).cursor(row_factory=scalar_row) as cursor:
            return cursor.execute(query.encode(), params or None).fetchall()

    def value(self, query: str, *params: Any, conn: Connection | None = None) -> Any:
        (value,) = self.column(query, *params, conn=conn)
        return value

    # -- runs --------------------------------------------------------------------------------

    def start(self, flow: str, input: Any = NO_INPUT, run_id: Any = None) -> uuid.UUID:
        query = "select run_id from pgflow.start_flow(%s, %s::jsonb, %s)"
        run: uuid.UUID = self.value(query, flow, json.dumps(input), run_id)
        return run

    def status(self, run: Any) -> str:
        return str(self.value("select status from pgflow.runs where run_id = %s", run))

    def completed(self, run: Any, within_s: float = 10.0) -> bool:
        """Wait until a run is completed."""
        return bool(until(lambda: self.status(run) == "completed", within_s))

    def failed(self, run: Any, within_s: float = 10.0) -> bool:
        return bool(until(lambda: self.status(run) == "failed", within_s))

    def output(self, run: Any, within_s: float = 10.0) -> Any:
        """The output of a run once it has completed."""
        until(lambda: self.status(run) != "started", within_s)
        assert self.status(run) == "completed", self.attempts(run)
        return self.value("select output from pgflow.runs where run_id = %s", run)

    def open_runs(self, conn: Connection | None = None) -> list[Row]:
        query = "select run_id, flow_slug from pgflow.runs where status = 'started'"
        return self.rows(query, conn=conn)

    def task(self, run: Any, step: str = "a", index: int = 0) -> Row:
        query = """
            select * from pgflow.step_tasks where (run_id, step_slug, task_index) = (%s, %s, %s)
        """
        return self.row(query, run, step, index)

    def attempts(self, run: Any) -> list[Row]:
        """Step, outcome and error_message of each attempt, in the order of tokens."""
        query = """
            select step_slug, outcome, error_message from pgflowd.attempts
             where run_id = %s order by token
        """
        return self.rows(query, run)

    def outcomes(self, run: Any) -> list[str | None]:
        """The outcome of each attempt; None while it is live."""
        return [attempt.outcome for attempt in self.attempts(run)]

    # -- tasks, with leases ------------------------------------------------------------------

    def worker(self, flow: str, worker_id: uuid.UUID | None = None) -> uuid.UUID:
        """Register a worker of a flow."""
        worker_id = worker_id or uuid.uuid4()
        query = """
            insert into pgflow.workers (worker_id, queue_name, function_name)
            values (%s, %s, 'test') on conflict do nothing
        """
        self.do(query, worker_id, flow)
        return worker_id

    def claim(
        self,
        flow: str,
        worker: uuid.UUID,
        max_tasks: int = 10,
        lease: str | None = "30 s",
        conn: Connection | None = None,
        caps: list[str] | None = None,
    ) -> list[Row]:
        query = """
            select * from pgflowd.claim(%s, %s, %s, %s::interval, caps => %s::text[])
             order by token
        """
        return self.rows(query, flow, worker, max_tasks, lease, caps, conn=conn)

    def complete(self, task: Row, output: Any = 1, conn: Connection | None = None) -> str:
        query = "select pgflowd.complete(%s, %s, %s, %s, %s::jsonb)"
        return str(self.value(query, *key(task), json.dumps(output), conn=conn))

    def fail(
        self, task: Row, text: str = "boom", conn: Connection | None = None, **more: Any
    ) -> str:
        named = "".join(f", {name} => %s" for name in more)
        query = f"select pgflowd.fail(%s, %s, %s, %s, %s{named})"
        return str(self.value(query, *key(task), text, *more.values(), conn=conn))
