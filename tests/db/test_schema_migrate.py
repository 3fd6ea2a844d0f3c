"""Tests of migrating: fresh, repeated, older, newer, half-done and concurrent."""

from __future__ import annotations

import lzma
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from support.covers import covers
from support.schema import MIGRATIONS, As, Connection, catalog, schemas

from pgflowd.db import schema
from pgflowd.db.connection import translated
from pgflowd.db.schema.migrate import session_script
from pgflowd.db.schema.state import refuse, unsolvable
from pgflowd.embedded import wheel_binaries
from pgflowd.errors import AccessDenied, DatabaseError
from pgflowd.resources import schema_version
from pgflowd.testing.scratch import ScratchDatabase, ScratchServer
from pgflowd.testing.until import until

RELEASED = sorted(Path(__file__).with_name("released").glob("*.sql.xz"))


def test_a_fresh_database_gets_everything_and_can_run_a_flow(empty: Connection) -> None:
    done = schema.migrate(empty)

    assert (done.before, done.after, done.adopted) == (None, schema_version(), None)
    assert schema.status(empty).problem is None
    empty.execute("select pgflow.create_flow('first'), pgflow.add_step('first', 'one')")
    (status,) = empty.execute("select status from pgflow.start_flow('first', '{}')").fetchone()
    assert status == "started"


@pytest.mark.parametrize("major", [15, 16, 17, 18])
def test_it_migrates_every_supported_version_of_postgresql(
    server_of: Callable[[int], ScratchServer], major: int
) -> None:
    with server_of(major).database(schema=False) as fresh:
        conn = fresh.connect()

        schema.migrate(conn)

        assert schema.status(conn).state.server.startswith(f"{major}.")
        assert schema.verify(conn) == []


def test_a_fresh_install_and_all_migrations_give_equal_catalogs(
    empty: Connection, conn: Connection
) -> None:
    schema.migrate(empty, to=schema_version())

    assert catalog(empty) == catalog(conn)


def test_going_version_by_version_gives_the_same_catalog_too(
    empty: Connection, conn: Connection
) -> None:
    for version in range(1, schema_version() + 1):
        done = schema.migrate(empty, to=version)
        assert done.after == version

    assert catalog(empty) == catalog(conn)


def test_migrating_again_changes_nothing(conn: Connection) -> None:
    before = catalog(conn)

    done = schema.migrate(conn)

    assert done.migrations == []
    assert catalog(conn) == before
    (rows,) = conn.execute("select count(*) from pgflowd.schema_history").fetchone()
    assert rows == schema_version() + 1


PLACES = "select oid::regprocedure::text, ctid::text from pg_proc where pronamespace in {}"
PLACES = PLACES.format("('pgflow'::regnamespace, 'pgflowd'::regnamespace)")


@covers("attack 12")
def test_migrating_again_applies_no_function_again(conn: Connection) -> None:
    before = dict(conn.execute(PLACES.encode()).fetchall())

    schema.migrate(conn)

    assert dict(conn.execute(PLACES.encode()).fetchall()) == before


@pytest.mark.parametrize(
    "change",
    [
        "alter function pgflowd.claim reset all",
        "drop view pgflowd.dead_letters",
        "create or replace function pgflowd._share(progress jsonb) returns float8"
        " language sql immutable return 1",
        "update pgflowd.schema_history set checksum = 'older' where objects is not null",
    ],
)
def test_migrating_again_mends_what_was_changed_by_hand(conn: Connection, change: str) -> None:
    before = catalog(conn)
    conn.execute(change.encode())

    schema.migrate(conn)

    assert catalog(conn) == before
    assert schema.verify(conn) == []
    assert not schema.status(conn).functions_differ


@covers("attack 12", "promise 2")
@pytest.mark.parametrize("major", [15, 18])
def test_migrating_again_costs_less_than_a_fresh_installation(
    server_of: Callable[[int], ScratchServer], major: int
) -> None:
    def took(prepare: str) -> int:
        """Time on a core, in ns: other processes do not count."""
        conn.execute(prepare.encode())
        before = int(schedule.read_text().split()[0])
        schema.migrate(conn)
        return int(schedule.read_text().split()[0]) - before

    with server_of(major).database(schema=False) as fresh:
        conn = fresh.connect()
        schedule = Path(f"/proc/{conn.info.backend_pid}/schedstat")
        first = took("select")
        assert min(took("select") for _ in range(3)) < first
        changed = "alter function pgflowd.claim reset all"  # so all functions are applied again
        assert min(took(changed) for _ in range(3)) < 1.5 * first


def test_migrating_again_keeps_flows_runs_and_queues(conn: Connection) -> None:
    conn.execute("select pgflow.create_flow('kept'), pgflow.add_step('kept', 'one')")
    conn.execute("select pgflow.start_flow('kept', '{}')")

    schema.migrate(conn)

    assert conn.execute("select count(*) from pgflow.step_tasks").fetchone() == (1,)
    assert conn.execute("select count(*) from pgmq.q_kept").fetchone() == (1,)


def test_migrating_adds_what_a_claimed_task_lacks(conn: Connection) -> None:
    before = catalog(conn)
    conn.execute("alter type pgflowd.claimed_task drop attribute waited_s, drop attribute trace")

    schema.migrate(conn)

    assert catalog(conn) == before
    query = "select count(waited_s) from (select (null::pgflowd.claimed_task).*) as task"
    assert conn.execute(query).fetchone() == (0,)


def test_migrating_replaces_functions_whose_results_have_more_columns_now(conn: Connection) -> None:
    before = catalog(conn)
    conn.execute(
        "drop view pgflowd.task_status cascade;"  # older ones depend on no column
        "drop function pgflowd.report; drop type pgflowd.answer, pgflowd.element cascade;"
        "create type pgflowd.answer as (ord int); create type pgflowd.element as (ord int);"
        "create function pgflowd._report_singly(reports jsonb, outputs text[], until timestamptz)"
        " returns setof pgflowd.answer language sql as 'select null::pgflowd.answer';"
        "create function pgflowd.report(reports jsonb, outputs text[])"
        " returns table (token bigint, verdict text) language sql as 'select 1::bigint, null';"
        "delete from pgflowd.schema_history where version > 2 and name <> 'functions'"
    )

    assert schema.migrate(conn).migrations == MIGRATIONS[2:]

    assert catalog(conn) == before
    assert schema.verify(conn) == []


@pytest.mark.parametrize("script", RELEASED, ids=lambda path: path.name.split(".")[0])
def test_a_database_with_the_functions_of_an_older_release_is_migrated(
    empty: Connection, conn: Connection, script: Path
) -> None:
    """`pgflowd db sql` printed these scripts; `xz -9e` made them small."""
    with empty.transaction():
        empty.execute(lzma.decompress(script.read_bytes()))
    empty.execute("select pgflow.create_flow('kept'), pgflow.add_step('kept', 'one')")
    empty.execute("select pgflow.start_flow('kept', '{}')")

    schema.migrate(empty)

    assert catalog(empty) == catalog(conn)
    assert schema.verify(empty) == []
    (status,) = empty.execute("select status from pgflowd.run_status").fetchone() or [""]
    assert status == "started"


def test_an_older_queue_gets_the_index_of_what_was_read(conn: Connection) -> None:
    conn.execute("select pgflow.create_flow('Old'); drop index pgmq.q_old_read_idx")
    conn.execute("delete from pgflowd.schema_history where version > 4")

    assert schema.migrate(conn).migrations[0] == "0005_pgflow_read_messages"

    query = "select indexdef from pg_indexes where indexname = 'q_old_read_idx'"
    (definition,) = conn.execute(query).fetchone() or [""]
    assert definition.endswith("USING btree (msg_id) WHERE (read_ct > 0)")


def test_an_older_database_is_reported_and_migrated(empty: Connection) -> None:
    schema.migrate(empty, to=1)

    problem = schema.status(empty).problem
    assert problem is not None
    assert problem.code == "E302"
    assert "at schema version 1" in problem.text
    with pytest.raises(DatabaseError, match="E302"):
        schema.require(empty)

    done = schema.migrate(empty)
    assert done.before == 1
    assert done.migrations[0] == "0002_pgflowd_tables"
    assert schema.status(empty).problem is None


@covers("E303")
def test_a_newer_database_is_refused_and_left_alone(conn: Connection) -> None:
    conn.execute(
        "insert into pgflowd.schema_history (version, name, checksum, release)"
        " values (99, 'pgflow_future', 'x', '9.9')"
    )

    for use in (schema.require, schema.migrate):
        with pytest.raises(DatabaseError, match="E303 the database is at schema version 99"):
            use(conn)


def test_an_empty_database_is_reported(empty: Connection) -> None:
    with pytest.raises(DatabaseError, match=r"E302 .*run `pgflowd db migrate`"):
        schema.require(empty)


@covers("E309")
def test_a_server_of_another_version_is_refused_before_anything_else(empty: Connection) -> None:
    script = session_script(servers=range(98, 100)).text

    refused = pytest.raises(DatabaseError, match=r"E309 the server is PostgreSQL .* 98 to 99")
    with refused, translated(empty), empty.transaction():
        empty.execute(script.encode())


@pytest.mark.parametrize("server", ["14.9", "19beta1"])
def test_status_shows_a_server_of_another_version(conn: Connection, server: str) -> None:
    state = replace(schema.status(conn).state, server=server)

    with pytest.raises(DatabaseError, match=f"E309 the server is PostgreSQL {server}"):
        refuse(next(unsolvable(state), None))


def test_a_version_out_of_reach_is_refused(conn: Connection) -> None:
    for version in (0, 1, schema_version() + 1):
        with pytest.raises(DatabaseError, match=f"schema version {version} is out of reach"):
            schema.migrate(conn, to=version)


def test_a_dry_run_prints_its_plan_and_changes_nothing(empty: Connection) -> None:
    done = schema.migrate(empty, dry_run=True)

    assert done.dry_run
    assert len(done.migrations) == schema_version()
    assert schemas(empty) == set()


def test_a_failure_in_the_middle_leaves_nothing(empty: Connection) -> None:
    empty.execute(
        "create function public.refuse() returns event_trigger language plpgsql as $$ begin"
        " if to_regprocedure('pgflowd.watch_queue(text)') is not null then"
        " raise exception 'not today'; end if; end $$"
    )
    empty.execute("create event trigger refuse on ddl_command_end execute function public.refuse()")

    with pytest.raises(psycopg.Error, match="not today") as caught:
        schema.migrate(empty)

    assert any("sql/schema/pgflowd/functions/" in note for note in caught.value.__notes__)
    assert schemas(empty) == set()


def test_a_failure_in_a_later_migration_leaves_the_older_database(empty: Connection) -> None:
    schema.migrate(empty, to=1)
    before = catalog(empty)
    empty.execute("create table pgflowd.attempts (other int)")

    with pytest.raises(psycopg.Error):
        schema.migrate(empty)

    empty.execute("drop table pgflowd.attempts")
    assert catalog(empty) == before


@pytest.mark.parametrize("lost", ["pgflow", "pgflowd"])
def test_a_database_that_lost_one_schema_is_not_guessed_at(conn: Connection, lost: str) -> None:
    conn.execute(f"drop schema {lost} cascade")

    with pytest.raises(DatabaseError, match=r"E302 .* gone.*restore both"):
        schema.migrate(conn)


def test_a_schema_with_foreign_tables_is_refused(empty: Connection) -> None:
    empty.execute("create schema pgflowd create table runs (mine int)")

    with pytest.raises(DatabaseError, match="E302 schema pgflowd has tables"):
        schema.migrate(empty)


def test_of_two_migrates_at_once_the_second_waits_and_finds_the_work_done(
    empty_database: ScratchDatabase,
) -> None:
    done: list[int | None] = []
    holder = empty_database.connect(autocommit=False)
    holder.execute("create schema pgflowd")

    def work() -> None:
        done.append(schema.migrate(empty_database.connect()).before)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    until(lambda: _waiting(holder) == 2)
    holder.rollback()
    for worker in workers:
        worker.join(30)

    assert sorted(done, key=str) == [schema_version(), None]


def test_a_second_migrate_of_an_older_or_prepared_database_waits_too(
    empty_database: ScratchDatabase,
) -> None:
    first = empty_database.connect(autocommit=False)
    first.execute("create schema pgflowd")
    first.commit()
    for before in (None, schema_version()):
        first.execute(session_script().text.encode())
        with ThreadPoolExecutor() as pool:
            second = pool.submit(schema.migrate, empty_database.connect())
            until(lambda: _waiting(first) == 1)
            first.rollback()
            assert second.result(30).before == before


@covers("database 11")
def test_advisory_locks_of_a_stranger_do_not_stop_it(empty_database: ScratchDatabase) -> None:
    holder, conn = empty_database.connect(autocommit=False), empty_database.connect()
    holder.execute("select pg_advisory_xact_lock(1885824612, 0)")
    held = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"

    for _ in range(2):
        with conn.transaction():
            conn.execute("set local statement_timeout = '5s'")
            conn.execute(session_script().text.replace("statement_timeout = 0", "x.y = 0").encode())
            assert conn.execute(held).fetchone() == (0,)
        schema.migrate(conn)


@covers("database 11")
def test_a_role_without_rights_cannot_make_it_wait(
    as_role: As, database: ScratchDatabase, conn: Connection
) -> None:
    stranger = as_role("pgflow_viewer")
    stranger.execute("begin")
    for statement in (
        "lock table pgflowd.schema_history in row exclusive mode",
        "comment on schema pgflowd is 'mine'",
        "select from pgflowd.schema_history for update",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), stranger.transaction():
            stranger.execute(statement.encode())
    stranger.execute("lock table pgflowd.schema_history in access share mode")

    with conn.transaction():
        conn.execute("set local lock_timeout = '2s'")
        conn.execute("lock table pgflowd.schema_history in share row exclusive mode")


def test_functions_we_no_longer_have_are_dropped_and_those_of_others_stay(
    conn: Connection,
) -> None:
    for name in ("pgflowd.older_one", "pgflow.strangers_one"):
        conn.execute(f"create function {name}(int) returns int language sql as 'select 1'")
    conn.execute(
        "update pgflowd.schema_history set objects = objects || jsonb_build_object("
        "'function pgflowd.older_one(integer)', '')"
        " where objects is not null"
    )

    schema.migrate(conn)
    schema.migrate(conn)

    names = {name.split(".")[-1] for name in catalog(conn) if name.endswith("_one(integer)")}
    assert names == {"strangers_one(integer)"}


def test_a_refused_migrate_reports_it_and_changes_nothing(
    empty_database: ScratchDatabase,
) -> None:
    told: list[DatabaseError] = []
    holder, conn = empty_database.connect(autocommit=False), empty_database.connect()
    holder.execute("create schema pgflowd")

    def work() -> None:
        with pytest.raises(DatabaseError, match=r"E302 .*nothing was changed") as caught:
            schema.migrate(conn)
        told.append(caught.value)

    worker = threading.Thread(target=work)
    worker.start()
    until(lambda: _waiting(holder) == 1)
    holder.execute("select pg_cancel_backend(%s)", (conn.info.backend_pid,))
    worker.join(30)

    assert "try again" in str(told[0])
    assert schemas(conn) == set()


def test_what_others_built_on_a_function_that_goes_is_named(conn: Connection) -> None:
    conn.execute("create function pgflowd.old_one() returns int language sql as 'select 1'")
    conn.execute("create view public.theirs as select pgflowd.old_one()")
    conn.execute(
        "update pgflowd.schema_history set objects = objects"
        """ || '{"function pgflowd.old_one()": ""}' where objects is not null"""
    )

    with pytest.raises(DatabaseError, match=r"E302 .*view public\.theirs depends on function"):
        schema.migrate(conn)


def test_a_role_that_may_not_create_schemas_sees_the_grant_it_needs(
    empty_database: ScratchDatabase,
) -> None:
    conn = empty_database.connect()
    conn.execute("set role pg_monitor")

    with pytest.raises(AccessDenied, match=r"E305 permission denied.*grant create on database"):
        schema.migrate(conn)

    conn.execute("reset role")
    assert schemas(conn) == set()


def test_the_printed_script_makes_the_same_database(empty: Connection, conn: Connection) -> None:
    with empty.transaction():
        empty.execute(schema.sql().encode())

    assert catalog(empty) == catalog(conn)
    assert schema.status(empty) is not None
    assert schema.verify(empty) == []


def test_the_script_from_an_older_version_brings_it_up_to_date(
    empty: Connection, conn: Connection
) -> None:
    schema.migrate(empty, to=1)

    with empty.transaction():
        empty.execute(schema.sql(from_=1).encode())

    assert catalog(empty) == catalog(conn)
    assert schema.require(empty).version == schema_version()


def test_the_script_refuses_a_database_where_it_does_not_belong(
    empty: Connection, conn: Connection
) -> None:
    for where, script in ((conn, schema.sql()), (empty, schema.sql(from_=1))):
        with pytest.raises(psycopg.Error, match="this script starts from"), where.transaction():
            where.execute(script.encode())


def test_psql_runs_the_script_in_one_transaction_and_refuses_it_without(
    empty_database: ScratchDatabase, tmp_path: Path
) -> None:
    script = tmp_path / "schema.sql"
    script.write_text(schema.sql())
    psql = [wheel_binaries() / "psql", "-qX", "-v", "ON_ERROR_STOP=1", "-f", script]

    without = subprocess.run(
        [*psql, empty_database.dsn], capture_output=True, text=True, timeout=60
    )
    assert "needs one transaction" in without.stderr
    assert schemas(empty_database.connect()) == set()

    within = subprocess.run(
        [*psql, "-1", empty_database.dsn], capture_output=True, text=True, timeout=60
    )
    assert (within.returncode, within.stderr) == (0, "")
    assert schema.status(empty_database.connect()).problem is None


def _waiting(conn: Connection) -> int:
    """The number of sessions that wait for this one."""
    query = (
        "select count(*) from pg_locks where not granted"
        " and pg_backend_pid() = any(pg_blocking_pids(pid))"
    )
    row = conn.execute(query).fetchone()
    return 0 if row is None else int(row[0])
