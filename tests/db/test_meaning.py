"""SQLSTATE decides what a worker does with a failed call (docs/design/failures.md, D3)."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors
from support.covers import covers

from pgflowd.db.connection import connect, translated
from pgflowd.db.retry_policy import meaning_of
from pgflowd.errors import AccessDenied, DatabaseError, NotFound, Unreachable


def raised(conn, state: str) -> BaseException:
    """What reaches us when the server raises this state."""
    try:
        with translated(conn):
            conn.execute(f"do $$ begin raise exception 'no' using errcode = '{state}'; end $$")
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@covers("row 76", "row 77", "row 78", "row 79", "row 80")
@pytest.mark.parametrize(
    ("state", "meaning"),
    [
        ("40001", "again"), ("40P01", "again"), ("53100", "again"), ("53200", "again"),
        ("53300", "again"), ("55P03", "again"), ("55006", "again"), ("57014", "again"),
        ("57P01", "again"), ("58030", "again"), ("XX000", "again"), ("25006", "again"),
        ("25P03", "again"), ("08006", "again"), ("28P01", "loud"), ("28000", "loud"),
        ("42501", "fault"), ("42P01", "fault"), ("22023", "fault"), ("23505", "fault"),
        ("54000", "fault"), ("P0001", "fault"), ("PF002", "gone"), ("PF030", "core"),
    ],
)  # fmt: skip
def test_each_state_has_its_meaning(database, state, meaning):
    assert meaning_of(raised(database.connect(), state))[0] == meaning


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (OSError("reset"), "again"),
        (TimeoutError(), "again"),
        (errors.OperationalError("server closed the connection unexpectedly"), "again"),
        (Unreachable("nobody there"), "again"),
        (Unreachable('password authentication failed for user "x"'), "loud"),
        (NotFound("no worker"), "gone"),
        (DatabaseError("changed", code="E307"), "core"),
        (DatabaseError("older", code="E302"), "fault"),
        (AccessDenied("no"), "fault"),
        (ValueError("a bug"), "fault"),
    ],
)
def test_errors_without_a_state_have_a_meaning_too(error, meaning):
    assert meaning_of(error)[0] == meaning


@covers("row 103")
def test_the_text_holds_no_password():
    error = psycopg.OperationalError("connection to postgresql://me:canary@host/db failed\nagain")

    text = meaning_of(error)[1]

    assert "canary" not in text and "\n" not in text


@covers("row 80")
def test_a_role_that_is_gone_is_loud(database):
    with pytest.raises(Unreachable) as refused:
        connect(database.dsn, name="x").close()
        connect(psycopg.conninfo.make_conninfo(database.dsn, user="nobody_knows"))

    assert meaning_of(refused.value)[0] == "loud"
