"""Errors of the database: which error of pgflowd each becomes, and how it is handled."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest
from psycopg import errors
from support.covers import covers
from support.schema import Connection

from pgflowd.core.failure import DatabaseFailure
from pgflowd.db.connection import (
    OURS,
    ServerError,
    connect,
    failure_of,
    is_full,
    translated,
    translation_of,
)
from pgflowd.errors import (
    AccessDenied,
    BadDependency,
    DatabaseError,
    KeyTaken,
    LeaseLost,
    MapInput,
    NotFound,
    NotOpen,
    NotRetryable,
    PgflowdError,
    RunEnded,
    RunError,
    RunExists,
    TooLarge,
    UndoStarted,
    UnknownFlow,
    Unreachable,
    WrongState,
)

RAISE = "do $$ begin raise exception 'said' using errcode = '{}', hint = 'do this'; end $$"


OUR_STATES = [
    ("PF001", LeaseLost, "E407"),
    ("PF002", NotFound, "E409"),
    ("PF003", RunEnded, "E411"),
    ("PF004", NotRetryable, "E411"),
    ("PF005", UndoStarted, "E420"),
    ("PF006", KeyTaken, "E421"),
    ("PF007", BadDependency, "E422"),
    ("PF008", NotOpen, "E423"),
    ("PF021", TooLarge, "E424"),
    ("PF022", WrongState, "E411"),
    ("PF009", RunError, "E432"),
    ("PF020", PgflowdError, "E105"),
    ("PF023", WrongState, "E411"),
    ("PF024", DatabaseError, "E306"),
    ("PF030", DatabaseError, "E307"),
    ("PF031", DatabaseError, "E304"),
    ("PF032", DatabaseError, "E302"),
    ("PF033", DatabaseError, "E309"),
    ("PF034", AccessDenied, "E305"),
]


@pytest.mark.parametrize(("state", "kind", "code"), OUR_STATES)
def test_our_own_states_become_our_errors_with_text_and_hint(
    empty: Connection, state: str, kind: type[PgflowdError], code: str
) -> None:
    with pytest.raises(kind) as caught, translated(empty):
        empty.execute(RAISE.format(state).encode())

    assert (caught.value.code, caught.value.text, caught.value.next) == (code, "said", "do this")


def test_a_database_that_takes_no_changes_is_not_called_absent(conn: Connection) -> None:
    conn.execute("set default_transaction_read_only = on")

    with pytest.raises(Unreachable, match="is read-only: cannot execute"), translated(conn):
        conn.execute("create table t ()")


def test_every_state_of_ours_is_tested_above() -> None:
    assert {state for state, *_ in OUR_STATES} == OURS.keys()


def test_an_unknown_flow_a_known_run_and_a_wrong_map_input_are_errors(conn: Connection) -> None:
    conn.execute("select pgflow.create_flow('m'), pgflow.add_step('m', 'x', step_type => 'map')")
    run_id = uuid4()
    conn.execute("select pgflow.start_flow('m', '[1]', %s)", (run_id,))

    with pytest.raises(UnknownFlow, match=r"E415 .*nowhere"), translated(conn):
        conn.execute("select pgflow.start_flow('nowhere', '{}')")
    with pytest.raises(RunExists, match=rf"E410 .*{run_id}"), translated(conn):
        conn.execute("select pgflow.start_flow('m', '[1]', %s)", (run_id,))
    with pytest.raises(MapInput, match=r"E416 .*got object"), translated(conn):
        conn.execute("select pgflow.start_flow('m', '{}')")


def test_a_missing_schema_asks_for_a_migrate(empty: Connection) -> None:
    for statement in ("select * from pgflow.runs", "select pgflow.create_flow('x')"):
        with pytest.raises(DatabaseError, match=r"E302 .*db migrate"), translated(empty):
            empty.execute(statement.encode())


@covers("E305")
@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("select * from mine.t", "grant usage on schema mine"),
        ("select * from t", "grant that permission on table t"),
        ("select f()", "grant execute on function f"),
        ("create schema x", "grant create on database"),
        ("alter table t add x int", "db sql roles"),
    ],
)
def test_a_missing_permission_is_reported_with_the_grant(
    empty: Connection, statement: str, remedy: str
) -> None:
    empty.execute("create schema mine create table t (); create table t ()")
    empty.execute("create function f() returns int language sql as 'select 1'")
    empty.execute("revoke execute on function f from public; set role pg_monitor")

    with pytest.raises(AccessDenied, match="E305 ") as caught, translated(empty):
        empty.execute(statement.encode())

    assert remedy in str(caught.value)


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03", "57014", "22012", "42P01", "42883"])
def test_what_has_no_translation_passes_unchanged(empty: Connection, state: str) -> None:
    with pytest.raises(psycopg.Error) as caught, translated(empty):
        empty.execute(RAISE.format(state).encode())

    assert caught.value.sqlstate == state


@covers("row 103", "row 105")
def test_a_text_of_the_database_stays_on_one_line_and_shows_no_password(
    empty: Connection,
) -> None:
    with pytest.raises(LeaseLost) as caught, translated(empty):
        empty.execute(
            "do $$ begin raise exception E'first\\nsecond password=canary7 '"
            " using errcode = 'PF001'; end $$"
        )

    assert "\n" not in str(caught.value)
    assert "canary7" not in str(caught.value)


def raised(conn, state: str) -> BaseException:
    """The error of pgflowd when the server raises this state."""
    try:
        with translated(conn):
            conn.execute(f"do $$ begin raise exception 'no' using errcode = '{state}'; end $$")
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


STATES = {
    DatabaseFailure.RETRY: "40001 40P01 53100 53200 53300 55P03 55006 57014 57P01 58030 XX000 25006"
    " 25P03 08006",
    DatabaseFailure.ALERT: "28P01 28000",
    DatabaseFailure.BROKEN: "42501 42P01 22023 23505 54000 P0001",
    DatabaseFailure.GONE: "PF002",
    DatabaseFailure.SCHEMA: "PF030",
}


@covers("row 76", "row 77", "row 78", "row 79", "row 80")
@pytest.mark.parametrize(
    ("state", "failure"),
    [(state, failure) for failure, states in STATES.items() for state in states.split()],
)
def test_each_state_has_its_failure(database, state, failure):
    assert failure_of(raised(database.connect(), state))[0] is failure


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (OSError("reset"), DatabaseFailure.RETRY),
        (TimeoutError(), DatabaseFailure.RETRY),
        (
            errors.OperationalError("server closed the connection unexpectedly"),
            DatabaseFailure.RETRY,
        ),
        (Unreachable("nobody there"), DatabaseFailure.RETRY),
        (Unreachable('password authentication failed for user "x"'), DatabaseFailure.ALERT),
        (NotFound("no worker"), DatabaseFailure.GONE),
        (DatabaseError("changed", code="E307"), DatabaseFailure.SCHEMA),
        (DatabaseError("older", code="E302"), DatabaseFailure.BROKEN),
        (AccessDenied("no"), DatabaseFailure.BROKEN),
        (ValueError("a bug"), DatabaseFailure.BROKEN),
    ],
)
def test_errors_without_a_state_have_a_failure_too(error, failure):
    assert failure_of(error)[0] is failure


@covers("row 103")
def test_the_text_holds_no_password():
    error = psycopg.OperationalError("connection to postgresql://me:canary@host/db failed\nagain")

    text = failure_of(error)[1]

    assert "canary" not in text and "\n" not in text


@covers("row 80")
def test_a_role_that_is_gone_is_an_alert(database):
    with pytest.raises(Unreachable) as refused:
        connect(database.dsn, name="x").close()
        connect(psycopg.conninfo.make_conninfo(database.dsn, user="nobody_knows"))

    assert failure_of(refused.value)[0] is DatabaseFailure.ALERT


@covers("newcomer 7")
@pytest.mark.parametrize(
    "text",
    [
        "FATAL:  sorry, too many clients already",
        "FATAL:  too many connections for role x",
        "FATAL:  too many connections for database x",
        "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute",
        "ERROR:  no more connections allowed (max_client_conn)",
    ],
)
def test_a_server_that_has_no_room_for_a_client_is_known_by_its_words(text: str) -> None:
    assert is_full(text)
    assert not is_full("FATAL:  the database system is starting up")


@covers("use 6")
def test_what_a_server_says_on_several_lines_is_one_sentence():
    said = "server closed the connection unexpectedly\n\tThis probably means\n\tthat it ended."

    found = translation_of(ServerError(None, said))

    assert found is not None
    assert "server closed the connection unexpectedly This probably means that" in found.text
    assert "\\n" not in found.text
