"""
The rights of functions: where they look for names, who may call those with their owner's rights.

PostgreSQL looks for types and tables in the temporary schema of the caller first, unless the path
names it; PL/pgSQL does so when it compiles a function, at its first call in a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from support.contract import stub_platform
from support.covers import covers
from support.definers import DEFINERS
from support.schema import As, Connection

from pgflowd.db import schema
from pgflowd.testing.scratch import ScratchServer

PATHLESS = """
select proc.oid::regprocedure::text from pg_proc as proc
 where proc.pronamespace::regnamespace::text in ('pgflow', 'pgflowd', 'pgmq')
   and proc.prosqlbody is null
   and 'search_path="", pg_temp' <> all (coalesce(proc.proconfig, '{}'))
"""
DEFINERS_OF = """
select proc.oid::regproc::text,
       (select string_agg(left(split_part(role, '_', 2), 1), '' order by nr)
          from unnest('{pgflow_worker,pgflow_starter,pgflow_viewer,pgflow_operator}'::text[])
               with ordinality as one (role, nr)
         where has_function_privilege(role, proc.oid, 'execute'))
  from pg_proc as proc
 where proc.prosecdef and proc.pronamespace::regnamespace::text in ('pgflow', 'pgflowd', 'pgmq')
"""
# what others have put into a table, a view, an index or a trigger, and is not in our schemas
CALLED_BY_OBJECTS = """
select distinct proc.oid::regprocedure::text
  from pg_depend as needs
  join pg_proc as proc on needs.refclassid = 'pg_proc'::regclass and proc.oid = needs.refobjid
 where needs.classid in ('pg_constraint'::regclass, 'pg_attrdef'::regclass, 'pg_rewrite'::regclass,
                         'pg_trigger'::regclass, 'pg_class'::regclass)
   and proc.pronamespace::regnamespace::text not in
       ('pg_catalog', 'information_schema', 'pgflow', 'pgflowd', 'pgmq')
"""
QUEUE = """
select pgmq.create('q'), pgmq.enable_notify_insert('q', 0), pgmq.send('q', '{"a": 1}'),
       pgmq.send('q', '{}', '{}'::jsonb), pgmq.send_batch('q', '{"{}", "{}"}'::jsonb[]);
select pgmq.read('q', 0, 1), pgmq.read_with_poll('q', 0, 1), pgmq.pop('q');
select pgmq.set_vt('q', 2, 0), pgmq.archive('q', 2), pgmq.archive('q', '{3}'::bigint[]);
select pgmq.delete('q', 4), pgmq.metrics('q'), pgmq.metrics_all(), pgmq.list_queues();
select pgmq.create_unlogged('u'), pgmq.create_fifo_index('q'), pgmq.purge_queue('q');
select pgmq.bind_topic('a.*', 'q'), pgmq.send_topic('a.b', '{}'), pgmq.list_topic_bindings();
select pgmq.unbind_topic('a.*', 'q'), pgmq.disable_notify_insert('q');
select pgmq.read_grouped('q', 0, 1), pgmq.read_grouped_rr('q', 0, 1), pgmq.drop_queue('q');
"""


@covers("attack 1")
@pytest.mark.parametrize("major", [15, 18])
def test_each_function_looks_into_the_caller_s_temporary_schema_last(
    server_of: Callable[[int], ScratchServer], major: int
) -> None:
    with server_of(major).database() as database:
        conn = database.connect()

        assert conn.execute(PATHLESS).fetchall() == []
        assert conn.execute(CALLED_BY_OBJECTS).fetchall() == []


def test_a_pgmq_that_an_older_release_installed_gets_the_path_too(conn: Connection) -> None:
    conn.execute("alter function pgmq.archive(text, bigint[]) reset search_path")

    schema.migrate(conn)

    assert conn.execute(PATHLESS).fetchall() == []


def test_pgmq_with_that_path_does_what_it_did(conn: Connection) -> None:
    for statement in QUEUE.strip().split(";\n"):
        conn.execute(statement.encode())


def test_an_extension_and_a_pgmq_of_others_are_left_as_they_are(
    offering: ScratchServer,
) -> None:
    with offering.database(schema=False) as fresh:
        conn = fresh.connect()

        schema.migrate(conn)

        found = conn.execute(PATHLESS).fetchall()
        assert found and all(name.startswith("pgmq.") for (name,) in found)


def test_each_role_may_call_the_listed_functions_with_their_owner_s_rights(
    as_role: As, conn: Connection
) -> None:
    assert {name: who or "" for name, who in conn.execute(DEFINERS_OF)} == DEFINERS


OPEN = """
select proc.oid::regproc::text from pg_proc as proc
 where proc.prosecdef and proc.prorettype <> 'trigger'::regtype
   and proc.pronamespace::regnamespace::text in ('pgflow', 'pgflowd', 'pgmq')
   and has_function_privilege('passer', proc.oid, 'execute')
"""


@pytest.fixture
def passer(conn: Connection) -> Iterator[Connection]:
    """A session of a role with usage of both schemas, without the roles of roles.sql."""
    conn.execute("create role passer; grant usage on schema pgflow, pgflowd to passer")
    yield conn
    conn.execute("reset role; drop owned by passer; drop role passer")


@covers("attack 5")
def test_usage_of_the_schemas_is_the_right_to_call_none_of_them(passer: Connection) -> None:
    assert passer.execute(OPEN).fetchall() == []

    passer.execute("set role passer")
    for call in (
        "delete_run(gen_random_uuid(), 'x')",
        "give_up_task(gen_random_uuid(), 'a', 0, '0 s', 'x', 'x')",
        "task_claim('f', '{}', '1 hour', 'x')",
        "start('f', '{}')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for fun"):
            passer.execute(f"select pgflowd.{call}".encode())


def test_a_right_that_was_given_by_name_stays(passer: Connection) -> None:
    passer.execute("grant execute on function pgflowd.signal to passer")

    schema.migrate(passer)

    assert passer.execute(OPEN).fetchall() == [("pgflowd.signal",)]


def test_a_database_of_an_older_release_is_closed_too(passer: Connection) -> None:
    passer.execute("grant execute on function pgflowd.delete_run, pgflow._waits to public")

    schema.migrate(passer)

    assert passer.execute(OPEN).fetchall() == []


def test_a_worker_of_another_runtime_keeps_what_public_had(passer: Connection) -> None:
    passer.execute("grant execute on all functions in schema pgflow to public")
    passer.execute("grant all on all tables in schema pgflow to passer")

    schema.migrate(passer)

    found = {name for (name,) in passer.execute(OPEN)}
    assert found == {
        name for name in DEFINERS if name.startswith("pgflow.") and "_cron" not in name
    } - {"pgflow.cleanup_ensure_workers_logs"}


def test_a_starter_cannot_prepare_what_sends_its_events(conn: Connection) -> None:
    """`realtime.send` has no path of its own, and is executed with the owner's rights."""
    conn.execute("select pgflow.create_flow('f'), pgflow.add_step('f', 'a')")
    stub_platform(conn)
    with conn.transaction():
        conn.execute(schema.roles_sql().encode())
    conn.execute("grant insert on realtime.messages to pgflow_owner")

    conn.execute("set role pgflow_starter")
    conn.execute("select pgflow.start_flow_with_states('f', '{}')")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="schema realtime"):
        conn.execute("select realtime.send('{}', 'x', 'y', false)")

    conn.execute("reset role")
    assert conn.execute("select count(*) from realtime.messages").fetchone() != (0,)
