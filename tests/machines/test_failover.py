"""The primary is killed and its synchronous standby promoted: nothing acknowledged is lost."""

from __future__ import annotations

import threading
from uuid import UUID

import psycopg
from support.covers import covers
from support.invariants import broken
from support.servers import url_of

from pgflowd import Client
from pgflowd.db import schema
from pgflowd.errors import PgflowdError
from pgflowd.testing.until import until


class Starter:
    """Starts runs, one after another, and remembers those that the database acknowledged."""

    def __init__(self, url: str) -> None:
        self.acknowledged: list[UUID] = []
        self._client = Client(url)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._start, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        while not self._is_over.wait(0.01):
            try:
                run = self._client.start_flow("flow", {"s": 0.03})
            except (PgflowdError, psycopg.Error):
                continue  # perhaps it was started, perhaps not
            self.acknowledged.append(run.run_id)

    def has_more_than(self, number: int, within_s: float = 10) -> None:
        until(lambda: len(self.acknowledged) > number, within_s)

    def ended(self) -> set[UUID]:
        self._is_over.set()
        self._thread.join(20)
        self._client.close()
        return set(self.acknowledged)


@covers("row 69")
def test_the_primary_is_killed_and_the_daemon_goes_on_with_the_standby(house, servers):
    primary, standby = servers.pair()
    with primary.connect() as conn:
        schema.install(conn)
    house.dsn = url_of(primary, standby)
    house.flow("flow")
    daemon = house.serve()
    before = daemon.pids()
    starter = Starter(house.dsn)
    starter.has_more_than(40)

    primary.kill()
    conn = standby.connect()
    assert conn.execute("select pg_promote()").fetchone() == (True,)

    starter.has_more_than(len(starter.acknowledged) + 20, within_s=15)
    acknowledged = starter.ended()
    until(lambda: open_runs(conn) == 0, 15)
    assert acknowledged <= completed_runs(conn)
    assert set() < reported(daemon) <= recorded(conn)
    assert broken(conn, house.oracle) == []
    assert daemon.pids() == before
    assert daemon.ask()["supervisor"]["restarts"] == 0
    conn.close()


def open_runs(conn):
    return conn.execute("select from pgflow.runs where status = 'started'").rowcount


def completed_runs(conn):
    query = "select run_id from pgflow.runs where status = 'completed'"
    return {run_id for (run_id,) in conn.execute(query)}


def reported(daemon):
    """The runs of which a report was answered, as the worker's log tells."""
    return {UUID(each["run"]) for each in daemon.events("task.completed", verdict="completed")}


def recorded(conn):
    query = "select run_id from pgflowd.attempts where outcome = 'completed'"
    return {run_id for (run_id,) in conn.execute(query)}
