"""
More flows than a server has connections by default, which are 100: the daemon keeps its budget.

A superuser looks at `pg_stat_activity` all the time; the application has 40 connections of its own,
and opens and closes more.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from support.covers import covers
from support.daemon import DaemonSetup
from support.own_server import OwnServer

from pgflowd.testing.until import until

APPLICATION = 40
CLIENTS = 16
MODULES = 5
BUDGET = 20
DEFAULTS: dict[str, dict[str, str]] = {  # times that hold on a busy machine too
    "database": {"connect_timeout": "10s", "statement_timeout": "30s"},
    "worker": {"heartbeat_interval": "5s", "kill_grace": "2s", "runner_idle": "60s"},
    "supervisor": {"hang_timeout": "60s", "start_timeout": "60s"},
    "recovery": {"lease": "30s", "recovery_interval": "15s", "stale_threshold": "60s"},
}
TOLD = "select max(jsonb_array_length(status -> 'flows')) from pgflowd.daemons"
LIMIT_S = 300  # on a busy machine; two hundred starts of workers take 20 s on a quiet one


@pytest.fixture(scope="module")
def server():
    with OwnServer({"max_connections": "100", "fsync": "off"}) as server:
        yield server


@pytest.fixture
def many(server, tmp_path):
    """A setup on that server, whose database is emptied at the end."""
    setup = DaemonSetup(tmp_path, server.dsn)
    yield setup
    setup.close()
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute("select pgflow.delete_flow_and_data(flow_slug) from pgflow.flows")


def write_flows(setup: DaemonSetup, count: int) -> list[str]:
    """All flows in a few modules, since to import takes longest."""
    slugs = [f"job_{number}" for number in range(count)]
    for module in range(MODULES):
        lines = ["from pgflowd import job"]
        for slug in slugs[module::MODULES]:
            lines += [f'@job("{slug}")', f"def {slug}(run): return run"]
        setup.module(f"jobs_{module}", "\n".join(lines))
    return slugs


class Watch:
    """The connections of the daemon, as a superuser sees them again and again."""

    def __init__(self, dsn: str) -> None:
        self.most = 0
        self._conn = psycopg.connect(dsn, autocommit=True, application_name="watch")
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def count(self) -> int:
        query = """
            select count(*) from pg_stat_activity
             where application_name like 't: %' and datid is not null
        """
        row = self._conn.execute(query).fetchone()
        assert row is not None
        return row[0]

    def _look(self) -> None:
        while not self._has_ended.wait(0.03):
            self.most = max(self.most, self.count())

    def close(self) -> None:
        self._has_ended.set()
        self._thread.join()
        self._conn.close()


class Application:
    """Forty connections, all in use, and one that is opened anew again and again."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._held = [psycopg.connect(dsn, autocommit=True) for _ in range(APPLICATION - 1)]
        self.opened = 0
        self.refused: list[str] = []
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._has_ended.wait(0.1):
            try:
                with psycopg.connect(self._dsn) as conn:
                    conn.execute("select 1")
                self.opened += 1
            except psycopg.Error as error:
                self.refused.append(str(error))

    def close(self) -> None:
        self._has_ended.set()
        self._thread.join()
        for conn in self._held:
            conn.close()


def start_all(dsn: str, slugs: list[str]) -> None:
    """Start each flow once, by many clients at once."""

    def start(some: list[str]) -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            for slug in some:
                conn.execute("select pgflow.start_flow(%s, '{}')", (slug,))

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(start, [slugs[client::CLIENTS] for client in range(CLIENTS)]))


def all_completed(conn: psycopg.Connection, count: int) -> bool:
    query = "select count(*) filter (where status = 'completed'), count(*) from pgflow.runs"
    return conn.execute(query).fetchone() == (count, count)


@covers("rule 56")
def test_150_flows_on_100_connections_keep_the_budget(many, server):
    slugs = write_flows(many, 150)
    application, watch = Application(server.dsn), Watch(server.dsn)
    conn = psycopg.connect(server.dsn, autocommit=True)
    try:
        database = {**DEFAULTS["database"], "max_connections": BUDGET}
        worker = {**DEFAULTS["worker"], "sleep_after": "2s"}
        daemon = many.start(**{**DEFAULTS, "database": database, "worker": worker})
        daemon.until("supervisor.ready", within_s=LIMIT_S)
        until(lambda: known_flows(conn) == len(slugs), LIMIT_S)
        for started, expected in ((slugs, 150), (slugs[::5], 180)):  # some are woken again
            start_all(server.dsn, started)
            until(lambda expected=expected: all_completed(conn, expected), LIMIT_S)
        assert all(attempts == 1 for (attempts,) in conn.execute(ATTEMPTS).fetchall())
        until(lambda: watch.count() == 2, LIMIT_S)  # all sleep; listener and sweeper are left
        assert conn.execute(TOLD).fetchone() == (len(slugs),)  # in parts of 64 kB
    finally:
        application.close()
        watch.close()
        conn.close()

    assert 2 < watch.most <= BUDGET
    assert application.refused == [] and application.opened > 10
    assert [each["reason"] for each in daemon.events("child.restarted")] == []


ATTEMPTS = "select attempts_count from pgflow.step_tasks"


def known_flows(conn: psycopg.Connection) -> int:
    row = conn.execute("select count(*) from pgflow.flows").fetchone()
    assert row is not None
    return row[0]


@covers("rule 56")
def test_60_flows_with_defaults_leave_half_of_the_server_to_others(many, server):
    slugs = write_flows(many, 60)
    application, watch = Application(server.dsn), Watch(server.dsn)
    conn = psycopg.connect(server.dsn, autocommit=True)
    try:
        daemon = many.start(**DEFAULTS)
        daemon.until("supervisor.ready", within_s=LIMIT_S)
        until(lambda: known_flows(conn) == len(slugs), LIMIT_S)
        start_all(server.dsn, slugs)
        until(lambda: all_completed(conn, len(slugs)), LIMIT_S)
        status = daemon.ask()
    finally:
        application.close()
        watch.close()
        conn.close()

    assert watch.most <= status["supervisor"]["connections"]["most"] <= (97 - APPLICATION) // 2 + 1
    assert application.refused == []
    assert status["state"] == "healthy"
