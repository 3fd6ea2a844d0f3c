"""Tests of `pgflowd db`: its output, its exit codes and its errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg.conninfo import make_conninfo
from support.covers import covers
from support.schema import MIGRATIONS

from pgflowd.resources import schema_version
from pgflowd.testing.scratch import ScratchDatabase

NEWEST = schema_version()


@pytest.fixture
def db(pgflowd: Callable[..., object], empty_database: ScratchDatabase) -> Callable[..., object]:
    """Run a db command on an empty database."""
    return lambda *args: pgflowd("db", *args, "--database-url", empty_database.dsn)


@covers("E302")
def test_an_empty_database_is_refused_with_the_remedy(db):
    ended = db("status")

    assert ended.code == 1
    assert f"schema    none; this pgflowd needs {NEWEST}" in ended.out
    assert "E302" in ended.err
    assert "pgflowd db migrate" in ended.err


def test_migrate_prints_what_it_applied_and_a_second_one_applies_nothing(db):
    ended = db("migrate")

    assert ended.code == 0
    assert ended.out.splitlines() == [
        *(f"applied {name}" for name in MIGRATIONS),
        f"schema {NEWEST} is installed",
    ]
    assert db("status").code == 0
    assert db("migrate").out == f"schema {NEWEST} was installed already; nothing had changed\n"


def test_a_dry_run_prints_what_would_happen(db):
    ended = db("migrate", "--dry-run")

    assert ended.code == 0
    assert ended.out.splitlines()[0] == "would apply 0001_pgflow_tables"
    assert "nothing was changed" in ended.out
    assert db("status").code == 1


def test_migrate_stops_at_the_given_version(db):
    assert db("migrate", "--to", "1").out.splitlines()[-1] == "schema 1 is installed"

    ended = db("status")

    assert ended.code == 1
    assert f"is at schema version 1; this pgflowd needs {NEWEST}" in ended.err


def test_json_is_the_same_for_programs(db):
    migrated, status = (db(command, "--json").json for command in ("migrate", "status"))

    assert migrated == {
        "schema_version": 1,
        "before": None,
        "after": NEWEST,
        "migrations": MIGRATIONS,
        "adopted": None,
        "replaced": [],
        "dry_run": False,
        "is_repeated": False,
    }
    assert (status["schema_version"], status["version"], status["needed"]) == (1, NEWEST, NEWEST)
    assert (status["core"], status["problem"]) == ("pgflowd's", None)


def test_functions_of_another_program_are_named_and_adopted_when_asked(db, empty_database):
    db("migrate")
    empty_database.connect().execute("drop function pgflow.set_vt_batch")

    status, refused = db("status"), db("migrate")
    tried, adopted = (db("migrate", "--adopt", *more) for more in (["--dry-run"], []))

    assert (status.code, refused.code) == (1, 78)
    assert "core      replaced by another program; before you adopt it, `pg_dump`" in status.out
    assert "E307" in refused.err
    assert "function pgflow.set_vt_batch(" in refused.err
    assert refused.err.strip().endswith("run `pgflowd db migrate --adopt`")
    assert tried.out.startswith("function pgflow.set_vt_batch(")
    assert "would be replaced" in tried.out
    assert "is replaced" in adopted.out
    assert (db("status").code, db("migrate").code) == (0, 0)


def test_json_prints_the_problem_inside_the_status(db):
    ended = db("status", "--json")

    assert ended.code == 1
    assert ended.json["problem"]["code"] == "E302"
    assert ended.json["version"] is None


def test_sql_prints_a_script_that_makes_everything(pgflowd, empty_database: ScratchDatabase):
    ended = pgflowd("db", "sql")

    conn = empty_database.connect()
    with conn.transaction():
        conn.execute(ended.out.encode())
    assert pgflowd("db", "status", "--database-url", empty_database.dsn).code == 0


def test_sql_roles_prints_the_roles(pgflowd):
    ended = pgflowd("db", "sql", "roles")

    assert ended.code == 0
    assert "pgflow_starter" in ended.out
    assert "<grants>" not in ended.out
    assert pgflowd("db", "sql", "roles", "--json").json["sql"].strip() == ended.out.strip()


@pytest.mark.parametrize(
    "args", [("sql", "tables"), ("sql", "roles", "--from", "1"), ("migrate", "--to", "0")]
)
def test_wrong_usage_is_reported(pgflowd, args):
    assert pgflowd("db", *args).code == 2


def test_a_version_that_is_not_there_is_reported(pgflowd):
    ended = pgflowd("db", "sql", "--from", "99")

    assert ended.code == 2
    assert "schema version 99 is out of reach" in ended.err


def test_a_database_without_a_server_is_unreachable(pgflowd):
    ended = pgflowd("db", "status", "--database-url", "postgresql://u:canary7@127.0.0.1:1/x")

    assert ended.code == 69
    assert "E301  the database at 127.0.0.1:1/x cannot be reached" in ended.err
    assert "canary7" not in ended.err + ended.out


def test_a_role_without_rights_is_denied(pgflowd, database: ScratchDatabase):
    url = make_conninfo(database.dsn, options="-c role=pg_monitor")

    ended = pgflowd("db", "migrate", "--database-url", url)

    assert ended.code == 77
    assert "E305" in ended.err
    assert "grant usage on schema pgflow" in ended.err


def test_an_unknown_schema_is_reported(pgflowd, empty_database: ScratchDatabase):
    empty_database.connect().execute("create schema pgflow create table flows (mine int)")

    ended = pgflowd("db", "migrate", "--database-url", empty_database.dsn)

    assert ended.code == 78
    assert "E307" in ended.err


def test_help_needs_no_database_driver(process):
    ended = process("db", "--help", PYTHONPROFILEIMPORTTIME="1")

    assert ended.code == 0
    assert "psycopg" not in ended.err
    assert "migrate" in ended.out
