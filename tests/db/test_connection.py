"""Connections: their time limits, and errors with place and cause."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from support.covers import covers
from support.pooler import pooler

from pgflowd.db.connection import Limits, connect, connect_async, is_pooled, place_of, translated
from pgflowd.errors import Unreachable
from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

SETTINGS = """
select current_setting('application_name'), current_setting('statement_timeout'),
       current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'),
       current_setting('client_connection_check_interval')
"""


def test_a_connection_has_our_name_and_our_limits(database: ScratchDatabase) -> None:
    limits = Limits(statement_s=7, lock_s=2.5, idle_in_transaction_s=11)

    with connect(database.dsn, name="shop worker", limits=limits) as conn:
        assert conn.execute(SETTINGS).fetchone() == ("shop worker", "7s", "2500ms", "11s", "1s")
        assert conn.autocommit


def test_an_async_connection_has_them_too(database: ScratchDatabase) -> None:
    async def ask() -> object:
        async with await connect_async(database.dsn, name="listener", autocommit=False) as conn:
            assert not conn.autocommit
            return await (await conn.execute(SETTINGS)).fetchone()

    assert asyncio.run(ask()) == ("listener", "30s", "5s", "10s", "1s")


OTHERS = {
    "default_transaction_isolation": ("serializable", "read committed"),
    "DateStyle": ("German", "ISO, MDY"),
    "IntervalStyle": ("iso_8601", "postgres"),
    "array_nulls": ("off", "on"),
    "standard_conforming_strings": ("off", "on"),
    "extra_float_digits": ("-15", "1"),
    "idle_session_timeout": ("3s", "0"),
}


@pytest.fixture
def other_defaults(database: ScratchDatabase) -> str:
    """The DSN of a database whose defaults nobody expects."""
    with database.connect() as conn:
        for name, (theirs, _) in OTHERS.items():
            change = "alter database {} set {} = {}"
            parts = sql.Identifier(database.name), sql.Identifier(name), sql.Literal(theirs)
            conn.execute(sql.SQL(change).format(*parts))
    return database.dsn


def shown(conn: psycopg.Connection) -> list[str]:
    return [conn.execute(f"show {name}").fetchone()[0] for name in OTHERS]


@covers("database 19", "database 28", "outside 7", "outside 19")
def test_defaults_of_the_database_do_not_apply_to_us(other_defaults: str) -> None:
    async def ask() -> list[str]:
        async with await connect_async(other_defaults) as conn:
            return [(await (await conn.execute(f"show {n}")).fetchone())[0] for n in OTHERS]

    ours = [our for _, our in OTHERS.values()]

    with connect(other_defaults) as conn:
        assert shown(conn) == ours
    assert asyncio.run(ask()) == ours


def test_a_handler_keeps_the_isolation_of_its_database(other_defaults: str) -> None:
    with connect(other_defaults, autocommit=False) as conn:
        assert shown(conn) == ["serializable", "ISO, MDY", "postgres", "on", "on", "1", "3s"]


@covers("outside 7")
def test_behind_a_pooler_dates_can_be_read_all_the_same(other_defaults: str) -> None:
    with pooler(other_defaults) as dsn, connect(dsn) as conn:
        assert is_pooled(conn)
        assert conn.execute("select '2026-01-31 12:00+00'::timestamptz").fetchone()[0].day == 31


@covers("newcomer 7", "E310")
def test_a_server_without_a_free_connection_is_called_so(database: ScratchDatabase) -> None:
    role = f"one_{os.getpid()}"
    with database.connect() as conn:
        conn.execute(f"create role {role} login password 'x' connection limit 1")
        dsn = make_conninfo(database.dsn, user=role, password="x")
        try:
            with connect(dsn), pytest.raises(Unreachable) as caught:
                connect(dsn)
        finally:
            until(lambda: drop(conn, role))

    assert caught.value.code == "E310"
    assert "has no free connection: " in caught.value.text
    assert "max_connections" in (caught.value.next or "")


def drop(conn: psycopg.Connection, role: str) -> bool:
    """Drop a role as soon as its sessions have ended."""
    query = "select from pg_stat_activity where usename = %s"
    if conn.execute(query, (role,)).rowcount:
        return False
    conn.execute(f"drop role {role}")
    return True


def test_behind_a_pooler_nothing_is_left_in_the_session(database: ScratchDatabase) -> None:
    with connect(database.dsn, pooled=True) as conn:
        assert conn.execute(SETTINGS).fetchone()[1:] == ("0", "0", "0", "0")
        assert conn.prepare_threshold is None


def test_a_pooler_that_is_not_configured_is_noticed(database: ScratchDatabase) -> None:
    async def ask(dsn: str) -> object:
        async with await connect_async(dsn) as conn:
            assert is_pooled(conn)
            return await (await conn.execute(SETTINGS)).fetchone()

    with pooler(database.dsn) as dsn:
        with connect(dsn) as conn:
            assert is_pooled(conn)
            assert conn.execute(SETTINGS).fetchone()[1:] == ("0", "0", "0", "0")
        assert asyncio.run(ask(dsn))[1:] == ("0", "0", "0", "0")
    with connect(database.dsn) as conn:
        assert not is_pooled(conn)


def test_options_in_the_url_win(database: ScratchDatabase) -> None:
    url = make_conninfo(database.dsn, application_name="mine", keepalives_idle=77)

    with connect(url) as conn:
        assert conn.execute("select current_setting('application_name')").fetchone() == ("mine",)
        assert conn.info.get_parameters()["keepalives_idle"] == "77"


def test_an_empty_url_is_the_environment_of_libpq(
    database: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(database.dsn)
    for name, variable in (
        ("host", "PGHOST"),
        ("port", "PGPORT"),
        ("user", "PGUSER"),
        ("password", "PGPASSWORD"),
        ("dbname", "PGDATABASE"),
    ):
        if name in parts:
            monkeypatch.setenv(variable, str(parts[name]))

    with connect() as conn:
        assert conn.info.dbname == database.name


def test_an_address_without_a_server_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        with pytest.raises(Unreachable) as caught:
            connect(f"postgresql://me:geheim@127.0.0.1:{port}/shop")

    assert caught.value.code == "E301"
    assert f"the database at 127.0.0.1:{port}/shop cannot be reached" in str(caught.value)
    assert "efused" in str(caught.value)
    assert "[database] url" in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_silent_server_is_given_up_after_the_connect_timeout() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"host=127.0.0.1 port={silent.getsockname()[1]} dbname=shop"

        with pytest.raises(Unreachable, match="timeout"):
            connect(url, limits=Limits(connect_s=2))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dbname": "no_such"}, 'database "no_such" does not exist'),
        ({"user": "nobody_here", "password": "canary7"}, "nobody_here"),
        ({"host": "/nowhere/at/all"}, "No such file or directory"),
    ],
)
def test_each_failure_to_connect_is_reported_without_the_password(
    database: ScratchDatabase, change: dict[str, str], said: str
) -> None:
    with pytest.raises(Unreachable) as caught:
        connect(make_conninfo(database.dsn, **change))

    assert said in str(caught.value)
    assert "canary7" not in str(caught.value)


def test_a_url_that_cannot_be_parsed_is_shown_without_its_password() -> None:
    with pytest.raises(Unreachable, match="E301 the database URL cannot be read") as caught:
        connect("host=x password=canary7 nonsense=1")

    assert "canary7" not in str(caught.value)


def test_a_standby_is_not_what_we_want(database: ScratchDatabase) -> None:
    conn = database.connect()
    conn.execute(f'alter database "{database.name}" set default_transaction_read_only = on')

    with pytest.raises(Unreachable, match="read-only") as refused:
        connect(database.dsn)
    with connect(make_conninfo(database.dsn, target_session_attrs="any")) as reading:
        assert reading.execute("select 1").fetchone() == (1,)

    assert "target_session_attrs=any" in (refused.value.next or "")


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"dbname": "no_such_database"}, "create it"),
        ({"user": "no_such_role"}, "check user and password"),
    ],
)
def test_an_error_of_a_refused_connection_has_the_remedy(
    database: ScratchDatabase, wrong: dict[str, str], remedy: str
) -> None:
    with pytest.raises(Unreachable) as refused:
        connect(make_conninfo(database.dsn, **wrong))

    assert remedy in (refused.value.next or "")


def test_a_connection_that_is_cut_is_reported_as_unreachable(database: ScratchDatabase) -> None:
    with connect(database.dsn) as conn:
        database.connect().execute("select pg_terminate_backend(%s)", (conn.info.backend_pid,))

        with pytest.raises(Unreachable), translated(conn):
            conn.execute("select 1")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u:p@db1:5433/shop", "db1:5433/shop"),
        ("host=/run/pg dbname=x password=p", "/run/pg/x"),
        ("service=prod password=p", "service prod"),
        ("", "the libpq default"),
        ("no url at all", "?"),
    ],
)
def test_a_place_names_host_port_and_database_and_no_secret(url: str, place: str) -> None:
    assert place_of(url) == place


def test_a_missing_certificate_file_is_reported(tmp_path: Path) -> None:
    missing = tmp_path / "root.crt"
    with pytest.raises(Unreachable):
        connect(f"host=127.0.0.1 port=1 sslmode=verify-full sslrootcert={missing}")
