"""`pgflowd doctor schema` names objects that differ or are missing, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.schema import Connection

from pgflowd.db import schema
from pgflowd.embedded import wheel_binaries
from pgflowd.errors import DatabaseError
from pgflowd.testing.scratch import ScratchDatabase


def test_an_untouched_database_has_nothing_to_tell(conn: Connection) -> None:
    assert schema.verify(conn) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            "create or replace function pgflow.is_valid_slug(slug text) returns boolean"
            " language sql immutable as 'select true'",
            "function pgflow.is_valid_slug(text) differs",
        ),
        (
            "drop function pgflowd.claim",
            "function pgflowd.claim(text,uuid,integer,interval,text[],text[],boolean) is",
        ),
        (
            "alter table pgflow.runs drop column error_message",
            "pgflow.runs.error_message is",
        ),
        ("alter table pgflow.flows alter opt_timeout set default 7", "opt_timeout differs"),
        (
            "alter table pgflow.steps drop constraint steps_deps_count_check",
            "constraint pgflow.steps.steps_deps_count_check is missing",
        ),
        ("drop index pgflow.idx_runs_started_at", "index pgflow.idx_runs_started_at is missing"),
        ("alter table pgflow.step_tasks set (fillfactor = 100)", "table pgflow.step_tasks differs"),
        ("alter function pgflow.start_flow security definer", "function pgflow.start_flow("),
        ("alter type pgflow.step_task_record add attribute x int", "type pgflow.step_task_record"),
    ],
)
def test_it_names_the_object_that_was_changed_by_hand(
    conn: Connection, change: str, named: str
) -> None:
    conn.execute(change)

    (problem,) = schema.verify(conn)

    is_of_core = named.startswith("function pgflow.")
    assert problem.code == ("E307" if is_of_core else "E302")
    assert named in problem.text


def test_migrate_replaces_a_changed_function_and_reports_it(conn: Connection) -> None:
    conn.execute("alter function pgflowd.start strict")
    (problem,) = schema.verify(conn)
    assert problem.next == "run `pgflowd db migrate`"

    schema.migrate(conn)

    assert schema.verify(conn) == []


@pytest.mark.parametrize(
    "setting",
    [
        "intervalstyle = 'sql_standard'",
        "quote_all_identifiers = on",
        "datestyle = 'German'",
        "search_path = pgflow, pgflowd, pgmq",
        "default_transaction_isolation = 'serializable'",
        "standard_conforming_strings = off",
        "client_encoding = 'LATIN1'",
    ],
)
def test_settings_of_the_session_make_no_difference(conn: Connection, setting: str) -> None:
    conn.execute(f"set {setting}".encode())

    assert schema.verify(conn) == []
    schema.migrate(conn)
    conn.execute("reset all")
    assert schema.verify(conn) == []


def test_a_database_restored_from_a_dump_is_as_it_was(
    database: ScratchDatabase, empty_database: ScratchDatabase, tmp_path: Path
) -> None:
    database.connect().execute("select pgflow.create_flow('kept')")
    programs, dump = wheel_binaries(), tmp_path / "dump.sql"
    subprocess.run([programs / "pg_dump", "-f", dump, database.dsn], check=True, timeout=60)
    # a newer pg_dump sets what an older server does not know
    dump.write_text(dump.read_text().replace("SET transaction_timeout = 0;", ""))
    psql = [programs / "psql", "-qX1", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null"]
    subprocess.run([*psql, "-f", dump, empty_database.dsn], check=True, timeout=60)

    conn = empty_database.connect()

    assert schema.require(conn).core == "own"
    assert schema.verify(conn) == []
    assert schema.migrate(conn).migrations == []


def test_objects_of_others_are_ignored(conn: Connection) -> None:
    conn.execute("create index runs_mine on pgflow.runs (status)")
    conn.execute("create table pgflow.mine (id int primary key)")
    conn.execute("create function pgflow.mine() returns int language sql as 'select 1'")
    assert schema.verify(conn) == []

    schema.migrate(conn)
    conn.execute("drop index pgflow.runs_mine; drop table pgflow.mine")

    assert schema.verify(conn) == []


def test_a_migration_that_was_applied_with_another_text_is_named(conn: Connection) -> None:
    conn.execute("update pgflowd.schema_history set checksum = 'x' where version = 1")

    (problem,) = schema.verify(conn)

    assert "migration 0001_pgflow_tables was applied with another text" in problem.text


def test_functions_of_another_release_are_reported_by_status(conn: Connection) -> None:
    assert not schema.status(conn).functions_differ

    conn.execute("update pgflowd.schema_history set checksum = 'x' where objects is not null")

    assert schema.status(conn).functions_differ
    assert schema.status(conn).problem is None


def test_there_is_nothing_to_verify_in_an_empty_database(empty: Connection) -> None:
    with pytest.raises(DatabaseError, match="E302"):
        schema.verify(empty)
