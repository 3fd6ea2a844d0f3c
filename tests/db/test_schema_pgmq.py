"""Tests of pgmq: the extension where it is offered, SQL elsewhere, and never one too old."""

from __future__ import annotations

import importlib.util

import pytest
from support.covers import covers
from support.schema import Connection

from pgflowd.db import schema
from pgflowd.db.schema.migrate import shipped_pgmq
from pgflowd.errors import DatabaseError
from pgflowd.testing.scratch import ScratchServer


def test_the_newest_extension_that_the_server_offers_is_created(offering: ScratchServer) -> None:
    with offering.database(schema=False) as fresh:
        conn = fresh.connect()

        schema.migrate(conn)

        assert _extension(conn) == "1.10.0"
        assert schema.status(conn).state.pgmq == "1.10.0"


def test_a_role_that_may_not_create_the_extension_gets_the_sql(offering: ScratchServer) -> None:
    with offering.database(schema=False) as fresh:
        conn = fresh.connect()
        conn.execute(f'grant create on database "{fresh.name}" to pg_monitor')
        conn.execute("set role pg_monitor")

        schema.migrate(conn)

        assert _extension(conn) is None
        assert schema.status(conn).state.pgmq == shipped_pgmq()[0]


def test_an_extension_that_is_there_is_kept(offering: ScratchServer) -> None:
    with offering.database(schema=False) as fresh:
        conn = fresh.connect()
        conn.execute("create extension pgmq version '1.5.1'")

        schema.migrate(conn)

        assert _extension(conn) == "1.5.1"


@covers("E304")
def test_an_extension_that_is_too_old_is_refused(offering: ScratchServer) -> None:
    with offering.database(schema=False) as fresh:
        conn = fresh.connect()
        conn.execute("create extension pgmq version '1.4.0'")

        with pytest.raises(DatabaseError, match=r"E304 .*1\.4\.0.*alter extension pgmq update"):
            schema.migrate(conn)


def test_a_pgmq_that_went_away_or_back_is_reported(conn: Connection) -> None:
    conn.execute("comment on schema pgmq is 'pgmq 1.4.9, installed as plain SQL by pgflowd'")
    with pytest.raises(DatabaseError, match=r"E304 pgmq is at version 1\.4\.9"):
        schema.require(conn)

    conn.execute("drop schema pgmq cascade")
    with pytest.raises(DatabaseError, match="E304 schema pgmq is gone"):
        schema.require(conn)


def test_without_an_extension_the_sql_of_the_package_is_used(empty: Connection) -> None:
    schema.migrate(empty)

    assert _extension(empty) is None
    assert schema.status(empty).state.pgmq == shipped_pgmq()[0]


def test_a_plain_pgmq_that_is_there_is_kept(empty: Connection) -> None:
    empty.execute(shipped_pgmq()[1].encode())
    empty.execute("select pgmq.create('theirs')")

    schema.migrate(empty)

    assert empty.execute("select queue_name from pgmq.list_queues()").fetchall() == [("theirs",)]
    assert schema.status(empty).state.pgmq == "unknown"


def test_a_plain_pgmq_without_headers_is_refused_with_what_it_lacks(empty: Connection) -> None:
    empty.execute(shipped_pgmq()[1].encode())
    empty.execute("drop function pgmq.send_batch(text, jsonb[], integer)")

    with pytest.raises(DatabaseError, match=r"E304 .*has no pgmq\.send_batch\(text, jsonb\[\]"):
        schema.migrate(empty)

    assert empty.execute("select to_regnamespace('pgflow')").fetchone() == (None,)


def test_without_extension_and_package_the_remedy_is_reported(
    empty: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(DatabaseError, match=r"E304 pgmq is missing.*pip install pgmq"):
        schema.migrate(empty)


def _extension(conn: Connection) -> str | None:
    row = conn.execute("select extversion from pg_extension where extname = 'pgmq'").fetchone()
    return None if row is None else str(row[0])
