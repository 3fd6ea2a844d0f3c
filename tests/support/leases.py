"""
The verbs of the tests of leases: a database, and short verbs for it.

A `LeaseDatabase` knows its history setting. Most tests have two sessions that meet,
so its verbs take a connection. `meanwhile` calls a function in another thread and waits until the
server reports that this session waits for a lock: no test sleeps.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row

from pgflowd.testing.until import until
from support.database import Connection, Database, Row, key
from support.invariants import OF_ALL, broken_of

OPEN = ("queued", "started")
LONG_SLEEP: dict[str, Any] = {"kind": "sleep", "in_s": 3600, "checkpoint": "sleep 1"}


@dataclass(frozen=True)
class Meanwhile:
    """What another session does while the test holds a lock that it needs."""

    pid: int
    future: Future[Any]

    def result(self) -> Any:
        return self.future.result(timeout=10)


class LeaseDatabase(Database):
    """A database with schemas pgflow and pgflowd, and this setting of the history."""

    def __init__(self, dsn: str, history: str) -> None:
        self.dsn = dsn
        self.history = history
        self._connections: list[Connection] = []
        self._pool = ThreadPoolExecutor(4)
        super().__init__(self.connect())
        if history != "all":
            self.set("history", history)

    def connect(self) -> Connection:
        conn = psycopg.connect(self.dsn, autocommit=True, row_factory=namedtuple_row)
        self._connections.append(conn)
        return conn

    def close(self) -> None:
        for conn in self._connections:
            conn.close()
        self._pool.shutdown()

    # -- reading ---------------------------------------------------------------------------

    def outcomes(self, run: uuid.UUID, step: str = "a", index: int = 0) -> list[str | None]:
        """The outcome of each attempt of a task; None while it is live."""
        query = """
            select outcome from pgflowd.attempt_history
             where (run_id, step_slug, task_index) = (%s, %s, %s) order by token
        """
        return self.column(query, run, step, index)

    def kept(self, *outcomes: str) -> list[str]:
        """Of these outcomes of a task that has ended, those that the history keeps."""
        kept = {"all": outcomes, "off": [one for one in outcomes if one == "late"]}
        kept["failures"] = [one for one in outcomes if one != "completed"]
        return list(kept[self.history])

    def queue(self, flow: str) -> dict[int, Row]:
        table = sql.Identifier("pgmq", f"q_{flow.lower()}")
        query = sql.SQL("select *, vt <= clock_timestamp() as visible from {}").format(table)
        return {row.msg_id: row for row in self.conn.execute(query).fetchall()}

    # -- defining -------------------------------------------------------------

    def flow(
        self, *steps: str, max_attempts: int = 3, timeout: int = 60, base_delay: int = 0
    ) -> str:
        """Define a flow of steps: `a`, `b:a` after a, `m*:a` a map over a; a by default."""
        slug = f"flow_{uuid.uuid4().hex[:8]}"
        self.rows(
            "select pgflow.create_flow(%s, %s::int, %s::int, %s::int)",
            slug,
            max_attempts,
            base_delay,
            timeout,
        )
        self.rows("select pgflowd.watch_queue(%s)", slug)
        for step in steps or ("a",):
            name, _, deps = step.partition(":")
            kind = "map" if name.endswith("*") else "single"
            self.rows(
                "select pgflow.add_step(%s, %s, %s::text[], step_type => %s)",
                slug,
                name.rstrip("*"),
                deps.split("+") if deps else [],
                kind,
            )
        return slug

    # -- working ---------------------------------------------------------------------------

    def claim_one(self, flow: str, worker: uuid.UUID, **more: Any) -> Row:
        (one,) = self.claim(flow, worker, **more)
        return one

    def release(self, task: Row, conn: Connection | None = None, delay: str = "0 s") -> str:
        query = "select pgflowd.release(%s, %s, %s, %s, %s::interval, 'stop')"
        return str(self.value(query, *key(task), delay, conn=conn))

    def report(self, *elements: dict[str, Any], conn: Connection | None = None) -> list[Row]:
        """Report elements made by `done` and its like; an output is under key `output`."""
        outputs = [element.get("output") for element in elements]
        reports = [{k: v for k, v in element.items() if k != "output"} for element in elements]
        query = "select * from pgflowd.report(%s::jsonb, %s::text[])"
        return self.rows(query, json.dumps(reports), outputs, conn=conn)

    def suspend(
        self, task: Row, wait: dict[str, Any] = LONG_SLEEP, conn: Connection | None = None
    ) -> Row:
        """Report that a task waits; the answer."""
        (answer,) = self.report(element(task, "suspended", wait=wait), conn=conn)
        return answer

    def free(self, *tasks: Row, conn: Connection | None = None) -> int:
        """End the waits of these tasks, as a sweep does that holds their runs."""
        conn = conn or self.conn
        runs, steps, indexes = zip(*[key(task)[:3] for task in tasks], strict=True)
        with conn.transaction():
            held = "select from pgflow.runs where run_id = any (%s) order by run_id for update"
            conn.execute(held, [list(runs)])
            query = "select pgflowd._free(%s, %s::text[], %s::int[])"
            given = [list(part) for part in (runs, steps, indexes)]
            return len(self.value(query, *given, conn=conn))

    def waits(self, run: uuid.UUID) -> list[tuple[str, int, str]]:
        """Step, index and kind of each wait of a run, in the order in which they began."""
        query = """
            select step_slug, task_index, kind from pgflowd.waits where run_id = %s order by nr
        """
        return [tuple(row) for row in self.rows(query, run)]

    def heartbeat(
        self, worker: uuid.UUID, *tasks: Row, lease: str = "30 s", conn: Connection | None = None
    ) -> list[str]:
        tokens = [task.token for task in tasks]
        query = "select verdict from pgflowd.heartbeat(%s, %s, %s::interval)"
        return [verdict for (verdict,) in self.rows(query, worker, tokens, lease, conn=conn)]

    def recover(self, threshold: str = "60 s", conn: Connection | None = None) -> int:
        query = "select pgflowd.recover_stalled(%s::interval)"
        return int(self.value(query, threshold, conn=conn))

    def sweep(self, threshold: str = "60 s", conn: Connection | None = None) -> tuple[int, int]:
        """Sweep as the sweeper does; how many were recovered, and how many given up."""
        found = self.row("select * from pgflowd.sweep(%s::interval)", threshold, conn=conn)
        return found.recovered, found.given_up

    def crashed(
        self, worker: uuid.UUID, reason: str = "killed", conn: Connection | None = None
    ) -> int:
        return int(self.value("select pgflowd.crashed(%s, %s)", worker, reason, conn=conn))

    def cancel(self, run: uuid.UUID, conn: Connection | None = None) -> str:
        return str(self.value("select pgflowd.cancel(%s, 'enough', 'me')", run, conn=conn))

    def retry(self, run: uuid.UUID, conn: Connection | None = None, cancelled: bool = False) -> int:
        return int(self.value("select pgflowd.retry(%s, 'me', %s)", run, cancelled, conn=conn))

    def set(self, name: str, value: Any) -> Any:
        query = "select pgflowd.set_setting(%s, %s::jsonb, 'test')"
        return self.value(query, name, json.dumps(value))

    def upstream_claim(
        self, flow: str, worker: uuid.UUID, conn: Connection | None = None
    ) -> list[Row]:
        """Claim as a worker of upstream does: read, commit, start, and no lease."""
        read = self.rows("select msg_id from pgmq.read(%s, 2, 10)", flow, conn=conn)
        ids = [message.msg_id for message in read]
        return self.rows(
            "select * from pgflow.start_tasks(%s, %s::bigint[], %s)", flow, ids, worker, conn=conn
        )

    def upstream_complete(self, task: Row, output: Any = 1, conn: Connection | None = None) -> None:
        query = "select pgflow.complete_task(%s, %s, %s, %s::jsonb)"
        self.rows(query, *key(task)[:3], json.dumps(output), conn=conn)

    # -- moving time, which tests must not wait for -----------------------------------------

    def lapse(self, task: Row) -> None:
        """Let the lease lapse now, and the message become visible."""
        self.rows(
            "update pgflowd.attempts set lease_until = now() where token = %s returning 1",
            task.token,
        )
        self.show(task)

    def show(self, task: Row) -> None:
        self.rows("select pgmq.set_vt(%s, %s, 0)", task.flow_slug, task.msg_id)

    def age(self, task: Row, by: str) -> None:
        """Let task and attempt have begun earlier, the run with them."""
        back = f"- interval '{by}'"
        self.rows(
            f"update pgflow.step_tasks set queued_at = queued_at {back},"
            f" started_at = started_at {back}"
            " where (run_id, step_slug, task_index) = (%s, %s, %s) returning 1",
            *key(task)[:3],
        )
        if hasattr(task, "token"):
            query = f"update pgflowd.attempts set started_at = started_at {back} where token = %s"
            self.rows(f"{query} returning 1", task.token)

    # -- two sessions ----------------------------------------------------------------------

    def meanwhile(self, action: Callable[[Connection], Any]) -> Meanwhile:
        """Call the action in another thread, on its own connection; return when it waits."""
        conn = self.connect()
        other = Meanwhile(conn.info.backend_pid, self._pool.submit(action, conn))
        query = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
        until(lambda: self.value(query, other.pid) or other.future.done())
        assert not other.future.done(), f"it did not wait: {other.future.result()}"
        return other

    def clean(self) -> None:
        """The invariants of all tables hold."""
        assert broken_of(self.conn, OF_ALL) == []


def element(task: Row, outcome: str = "completed", **more: Any) -> dict[str, Any]:
    """One element of a report."""
    named = {"run_id": str(task.run_id), "step_slug": task.step_slug, "task_index": task.task_index}
    output = {"output": "1"} if outcome == "completed" else {}
    return {**named, "token": task.token, "outcome": outcome, **output, **more}
