"""
Scratch databases: fresh for every test, also beside others on the same server.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from support.covers import covers
from support.postgres_versions import MAJORS

import pgflowd.testing.scratch as scratch
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.scratch import ScratchDatabase, ScratchServer
from pgflowd.testing.until import until


def test_a_database_has_the_schema_and_nothing_in_it(database: ScratchDatabase):
    connection = database.connect()

    assert connection.execute("select count(*) from pgflow.runs").fetchone() == (0,)
    assert connection.execute("select count(*) from pgmq.meta").fetchone() == (0,)


def test_an_empty_database_is_empty(empty_database: ScratchDatabase):
    query = "select count(*) from pg_namespace where nspname in ('pgflow', 'pgflowd', 'pgmq')"

    assert empty_database.connect().execute(query).fetchone() == (0,)


def test_databases_know_nothing_of_each_other_and_the_next_one_drops_them(server: ScratchServer):
    with server.database() as one, server.database() as other:
        one.connect().execute("create table pgflow.mine ()")

        assert other.connect().execute("select to_regclass('pgflow.mine')").fetchone() == (None,)
    with server.database():
        pass

    assert one.name not in names(server)
    assert other.name not in names(server)


def test_sessions_of_a_database_end_with_its_test(server: ScratchServer):
    with server.database() as database:
        stray = psycopg.connect(database.dsn)

    with pytest.raises(psycopg.OperationalError):
        stray.execute("select 1")


@pytest.mark.timing
def test_a_database_costs_a_fraction_of_a_second(server: ScratchServer):
    with server.database():
        pass
    taken_s = []
    for _ in range(5):
        began = time.monotonic()
        with server.database():
            pass
        taken_s.append(time.monotonic() - began)

    assert min(taken_s) < 0.5  # about 0.05, but a busy disk is slower


@covers("newcomer 11")
def test_the_dsn_of_a_database_is_a_url(database: ScratchDatabase):
    url = urlsplit(database.dsn)

    assert (url.scheme, url.path) == ("postgresql", f"/{database.name}")


@covers("newcomer 11")
@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("host=/run/pg user=me port=5 dbname=a", "postgresql://me@/b?host=%2Frun%2Fpg&port=5"),
        (
            "postgresql://me:p%40@h:6/a?sslmode=require",
            "postgresql://me:p%40@h:6/b?sslmode=require",
        ),
        ("host=a,c port=1,2 dbname=a", "postgresql:///b?host=a%2Cc&port=1%2C2"),
        ("password=x dbname=a", "postgresql:///b?password=x"),
    ],
)
def test_the_url_of_a_database_says_all_that_the_servers_says(given: str, url: str):
    values = conninfo_to_dict(make_conninfo(given, dbname="b"))

    assert scratch.url_of(values) == url
    assert conninfo_to_dict(url) == values


def test_connections_autocommit_by_default(database: ScratchDatabase):
    assert database.connect().autocommit
    assert not database.connect(autocommit=False).autocommit


def test_a_database_has_a_client(database: ScratchDatabase):
    database.connect().execute("select pgflow.create_flow('greet')")
    database.connect().execute("select pgflow.add_step('greet', 'hello')")

    run = database.client.start_flow("greet", {"name": "you"})

    assert database.client.get_run(run.run_id).status == "started"


@covers("newcomer 21")
def test_only_the_last_run_on_a_server_drops_the_templates(tmp_path: Path):
    with EmbeddedPostgres(tmp_path / "pg", keep=False) as postgres:
        first, last = ScratchServer(postgres.dsn), ScratchServer(postgres.dsn)
        with first.database(), last.database():
            pass

        first.close()
        assert len(templates(postgres.dsn)) == 1
        last.close()
        assert templates(postgres.dsn) == []


def templates(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        query = "select datname from pg_database where datname like 'pgflowd_template%'"
        return [name for (name,) in connection.execute(query)]


def test_what_a_killed_run_left_is_dropped_by_the_next(server: ScratchServer):
    killed = "import os, sys; from pgflowd.testing.scratch import ScratchServer as Server; "
    killed += "print(Server(sys.argv[1]).database().__enter__().name, flush=True); os._exit(9)"
    ended = subprocess.run(
        [sys.executable, "-c", killed, server.dsn], stdout=subprocess.PIPE, text=True
    )
    left = ended.stdout.strip()
    assert left

    def next_run_begins() -> None:
        ScratchServer(server.dsn).close()

    until(lambda: next_run_begins() or left not in names(server))


def test_what_a_running_run_uses_stays(server: ScratchServer):
    other = ScratchServer(server.dsn)
    with other.database() as database:
        ScratchServer(server.dsn).close()

        assert database.name in names(server)
    other.close()


def test_other_sql_gets_another_template(server: ScratchServer, monkeypatch: pytest.MonkeyPatch):
    before = server._template
    monkeypatch.setattr(scratch, "shipped", lambda name: Path(__file__).parent)
    other = ScratchServer(server.dsn)

    assert other._template != before
    other.close()


@pytest.mark.parametrize("major", MAJORS)
def test_every_supported_version_gets_the_schema(
    server_of: Callable[[int], ScratchServer], major: int
):
    with server_of(major).database() as database:
        connection = database.connect()

        assert connection.info.server_version // 10000 == major
        assert connection.execute("select count(*) from pgflow.runs").fetchone() == (0,)


def names(server: ScratchServer) -> list[str]:
    with psycopg.connect(server.dsn) as connection:
        return [name for (name,) in connection.execute("select datname from pg_database")]
