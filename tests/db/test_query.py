"""Queries that are executed together: one transaction, and the error that ended it."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from support.covers import covers

from pgflowd.core.failure import DatabaseFailure
from pgflowd.db.connection import connect, connect_async, failure_of, sqlstate_of
from pgflowd.db.query import Query, Texts, execute_together, execute_together_async, only
from pgflowd.errors import Unreachable
from pgflowd.testing.scratch import ScratchDatabase

AT_COMMIT = """
create table late (n int);
create function refuse() returns trigger language plpgsql as
$$ begin raise exception 'too many' using errcode = '54000'; end $$;
create constraint trigger refuse after insert on late deferrable initially deferred
  for each row execute function refuse();
"""
TOGETHER = [
    Query("insert into public.late values (1) returning n", (), only),
    Query("insert into public.late values (2) returning n", (), only),
]


@covers("outside 11", "database 5")
def test_a_commit_that_fails_is_reported_by_its_own_error(database: ScratchDatabase) -> None:
    async def execute() -> None:
        async with await connect_async(database.dsn) as conn:
            await execute_together_async(conn, TOGETHER)

    with connect(database.dsn) as conn:
        conn.execute(AT_COMMIT)
        with pytest.raises((psycopg.Error, Unreachable)) as caught:
            execute_together(conn, TOGETHER)
        conn.close()  # it cannot be used any more
    with pytest.raises((psycopg.Error, Unreachable)) as caught_too:
        asyncio.run(execute())

    for error in (caught.value, caught_too.value):
        if "refused to commit" in str(
            error
        ):  # psycopg loses its own error if both answers come at once
            continue
        assert sqlstate_of(error) == "54000"
        assert failure_of(error)[0] is DatabaseFailure.BROKEN
        assert failure_of(error)[1].startswith("too many")


@covers("database 28")
def test_nulls_in_an_array_of_texts_do_not_depend_on_a_setting(database: ScratchDatabase) -> None:
    given = [(None,), (None, None), (b"null", None, b'"\\{},', "ä".encode()), ()]

    with database.connect() as conn:
        conn.execute("set array_nulls = off")
        got = [conn.execute("select %s::text[]", (Texts(each),)).fetchone()[0] for each in given]

    assert got == [[None], [None, None], ["null", None, '"\\{},', "ä"], []]
