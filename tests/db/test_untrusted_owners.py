"""
Schemas of others: with CREATE on the database anybody can make one of a name that we use, and
write code that we would execute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from support.covers import covers
from support.schema import Connection

from pgflowd.core.finding import Finding
from pgflowd.db import schema
from pgflowd.db.doctor import DoctorRequest, examine
from pgflowd.db.flows import deploy
from pgflowd.errors import AccessDenied, DatabaseError, PgflowdError
from pgflowd.testing.scratch import ScratchDatabase

ONE = "select pgflow.create_flow('one'), pgflow.add_step('one', 'a')"
SEND = """
create schema realtime;
grant usage on schema realtime to public;
create function realtime.send(payload jsonb, event text, topic text, private boolean)
returns void language plpgsql as $$
begin
  insert into public.calls values (current_user);
end $$
"""
CRON = """
create schema cron;
grant usage on schema cron to public;
create table cron.job (jobid bigint, jobname text, command text, active boolean default true);
create function cron.schedule(job_name text, schedule text, command text) returns bigint
language plpgsql as $$ begin insert into public.calls values (current_user); return 1; end $$;
"""
NET_AND_VAULT = """
create schema net;
create schema vault;
create function net.http_post(url text, body jsonb, headers jsonb) returns bigint
language plpgsql as $$ begin insert into public.calls values (current_user); return 1; end $$;
create view vault.decrypted_secrets as
  select 'supabase_project_id' as name, 'x' as decrypted_secret;
"""
Roles = Callable[[str], str]


@pytest.fixture
def roles(empty_database: ScratchDatabase) -> Iterator[Roles]:
    """Create roles that may create in the empty database; they go with it."""
    conn, made = empty_database.connect(), []

    def role(options: str = "") -> str:
        name = f"dev_{uuid4().hex[:8]}"
        conn.execute(f"create role {name} {options}".encode())
        conn.execute(f'grant create on database "{empty_database.name}" to {name}'.encode())
        made.append(name)
        return name

    yield role
    for name in made:
        conn.execute(f"drop owned by {name} cascade; drop role {name}".encode())


@pytest.fixture
def empty(empty_database: ScratchDatabase, roles: Roles) -> Connection:
    """A connection as a superuser, to a database in which calls are written down."""
    conn = empty_database.connect()
    conn.execute("create table public.calls (caller text); grant insert on public.calls to public")
    return conn


def as_(conn: Connection, role: str, statements: str) -> None:
    conn.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
    conn.execute(statements.encode())
    conn.execute("reset role")


def callers(conn: Connection) -> list[tuple[str]]:
    return conn.execute("select distinct caller from public.calls").fetchall()


def findings(conn: Connection, check: str) -> list[Finding]:
    request = DoctorRequest(stale_threshold_s=60, has_listen_url=False)
    return [each for each in examine(conn, request) if each.check == check]


@covers("database 9")
@pytest.mark.parametrize("is_before", [True, False])
def test_realtime_of_a_role_that_may_create_schemas_is_not_called(
    empty: Connection, roles: Roles, is_before: bool
) -> None:
    dev = roles("")
    if is_before:
        as_(empty, dev, SEND)
    schema.migrate(empty)
    if not is_before:
        as_(empty, dev, SEND)
    empty.execute(ONE)

    empty.execute("select pgflow.start_flow('one', '{}')")
    empty.execute("select pgflow.start_flow_with_states('one', '{}')")
    empty.execute("select pgflowd.cancel((select run_id from pgflow.runs limit 1), 'no', 'me')")

    assert callers(empty) == []
    (finding,) = findings(empty, "platform")
    assert (finding.code, finding.state) == ("W323", "warning")
    assert dev in finding.text
    (told,) = empty.execute("select untrusted_owner from pgflowd.platform()").fetchall()
    assert told == (dev,)


@covers("database 9")
def test_no_more_if_only_its_schema_or_an_overload_is_a_stranger_s(
    empty: Connection, roles: Roles
) -> None:
    dev = roles("")
    schema.migrate(empty)
    empty.execute(ONE + ";" + SEND)
    start = "select pgflow.start_flow('one', '{}')"

    empty.execute(f"alter schema realtime owner to {dev}".encode())
    empty.execute(start)
    assert callers(empty) == []

    empty.execute("alter schema realtime owner to current_user")
    empty.execute(start)
    assert callers(empty) == [("postgres",)]


@covers("database 9")
@pytest.mark.parametrize("is_before", [True, False])
def test_realtime_of_a_superuser_or_of_who_migrates_is_used(
    empty: Connection, roles: Roles, is_before: bool
) -> None:
    for owner in (roles("superuser"), roles("")):
        if is_before:
            as_(empty, owner, SEND)
        empty.execute(f"set role {owner}".encode())
        schema.migrate(empty)
        empty.execute(ONE)
        if not is_before:
            as_(empty, owner, SEND)
            empty.execute(f"set role {owner}".encode())

        empty.execute("select pgflow.start_flow('one', '{}')")

        empty.execute("reset role")
        assert callers(empty) == [(owner,)]
        assert [one.state for one in findings(empty, "platform")] == ["ok"]
        empty.execute("drop schema pgflow, pgflowd, pgmq, realtime cascade; delete from calls")


@covers("database 9")
def test_the_admin_of_the_platform_is_trusted_where_that_platform_is(
    empty: Connection, roles: Roles
) -> None:
    realtime_admin, admin = roles(""), roles("superuser")
    as_(empty, realtime_admin, SEND)
    for names in (
        f"alter role {realtime_admin} rename to supabase_realtime_admin",
        f"alter role {admin} rename to supabase_admin",
    ):
        schema.migrate(empty)
        query = "select untrusted_owner is null from pgflowd.platform()"
        assert empty.execute(query).fetchone() == (False,)
        empty.execute(names.encode())
    try:
        schema.migrate(empty)
        assert empty.execute(query).fetchone() == (True,)
    finally:
        empty.execute(f"alter role supabase_realtime_admin rename to {realtime_admin}".encode())
        empty.execute(f"alter role supabase_admin rename to {admin}".encode())


@covers("database 9", "W323")
def test_cron_vault_and_net_of_a_stranger_are_refused_by_name(
    empty: Connection, roles: Roles
) -> None:
    dev = roles("")
    as_(empty, dev, CRON + NET_AND_VAULT)
    schema.migrate(empty)

    for call in (
        "select pgflow.setup_requeue_stalled_tasks_cron()",
        "select pgflow.setup_ensure_workers_cron()",
        "select pgflow.cleanup_ensure_workers_logs()",
        "select pgflow.ensure_workers()",
        "select pgflow._vault_secret('x')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"belongs to role {dev}"):
            empty.execute(call.encode())

    assert callers(empty) == []
    assert len([one for one in findings(empty, "platform") if one.code == "W323"]) == 3
    assert findings(empty, "recovery")[0].text == "by the sweeper"


@covers("database 10")
@pytest.mark.parametrize("name", ["pgflow", "pgflowd", "pgmq"])
def test_a_schema_of_a_stranger_is_refused(empty: Connection, roles: Roles, name: str) -> None:
    dev = roles("")
    as_(empty, dev, f"create schema {name}")

    with pytest.raises(AccessDenied) as refused:
        schema.migrate(empty)

    assert f"schema {name} belongs to role {dev}" in str(refused.value)
    assert f"alter schema {name} owner to postgres" in (refused.value.next or "")
    empty.execute(f"alter schema {name} owner to current_user".encode())
    if name != "pgmq":
        schema.migrate(empty)
        assert schema.verify(empty) == []


@covers("database 10")
def test_so_are_functions_of_a_stranger_in_a_schema_of_ours(
    empty: Connection, roles: Roles
) -> None:
    dev = roles("")
    schema.migrate(empty)
    empty.execute("drop function pgflow.is_local()")
    empty.execute(f"grant all on schema pgflow to {dev}".encode())
    as_(
        empty,
        dev,
        "create function pgflow.is_local() returns boolean language sql as 'select true'",
    )

    with pytest.raises(DatabaseError, match=r"E307 .* function pgflow.is_local\(\)"):
        schema.migrate(empty)

    schema.migrate(empty, adopt=True)
    assert schema.verify(empty) == []
    empty.execute(f"alter function pgmq.list_queues owner to {dev}".encode())
    with pytest.raises(
        AccessDenied, match=rf"function pgmq.list_queues\(.*\) belongs to role {dev}"
    ):
        schema.migrate(empty)


@covers("database 10")
def test_verify_names_what_has_another_owner_since(empty: Connection, roles: Roles) -> None:
    dev = roles("")
    schema.migrate(empty)
    for what in (
        "function pgflow.is_local()", "table pgflow.flows", "view pgflowd.attempt_history",
        "type pgflow.step_task_record", "schema pgflow",
    ):  # fmt: skip
        with empty.transaction(force_rollback=True):
            empty.execute(f"grant all on schema pgflow, pgflowd to {dev}".encode())
            empty.execute(f"alter {what} owner to {dev}".encode())
            found = {problem.text for problem in schema.verify(empty)}
            assert any(text.startswith(f"{what} differs") for text in found), (what, found)
            said = rf"E305 {re.escape(what)} belongs to|E307 .* {re.escape(what)}"
            with pytest.raises(PgflowdError, match=said):
                schema.migrate(empty)


@covers("database 10")
def test_a_member_of_the_owner_migrates_and_a_superuser_does_not_unasked(
    empty: Connection, roles: Roles
) -> None:
    team, member = roles(""), roles("")
    empty.execute(f"grant {team} to {member}".encode())
    for role in (team, member):
        empty.execute(f"set role {role}".encode())
        schema.migrate(empty)
        assert schema.verify(empty) == []

    empty.execute("reset role")
    with pytest.raises(AccessDenied, match=f"or migrate as {team}"):
        schema.migrate(empty)


@covers("newcomer 3")
@pytest.mark.parametrize("is_superuser", [True, False])
def test_roles_before_and_after_the_schema_give_equal_owners(
    empty: Connection, roles: Roles, is_superuser: bool
) -> None:
    make_roles(empty)
    login, other = roles("superuser" if is_superuser else ""), roles("")
    empty.execute(f"grant pgflow_owner to {login}, {other}".encode())
    owners = []
    for steps in ([make_roles, migrate], [migrate, make_roles]):
        empty.execute("drop schema if exists pgflow, pgflowd, pgmq cascade")
        for step in steps:
            if step is migrate:
                empty.execute(f"set role {login}".encode())
            step(empty)
            empty.execute("reset role")
        owners.append(owners_in(empty))
        assert schema.verify(empty) == []
        empty.execute(f"set role {other}".encode())
        (finding,) = findings(empty, "rights")
        assert finding.text.endswith("may view, start, serve, deploy")
        deploy(empty, "one", {"steps": [], "options": {}})
        empty.execute("reset role")

    assert owners[0] == owners[1]
    assert {owner for _, owner in owners[0]} == {"pgflow_owner"}


@covers("newcomer 3")
def test_the_doctor_does_not_promise_a_deployment_that_would_be_refused(
    empty: Connection, roles: Roles
) -> None:
    make_roles(empty)
    schema.migrate(empty)
    login = roles("")
    empty.execute(f"grant pgflow_owner to {login}".encode())
    empty.execute("alter function pgflowd.watch_queue owner to current_user")
    empty.execute(f"set role {login}".encode())

    (finding,) = findings(empty, "rights")

    assert finding.text.endswith("may view, start, serve; not deploy")


def migrate(conn: Connection) -> None:
    schema.migrate(conn)


def make_roles(conn: Connection) -> None:
    with conn.transaction():
        conn.execute(schema.roles_sql().encode())


def owners_in(conn: Connection) -> list[tuple[str, str]]:
    schemas = "(select oid from pg_namespace where nspname in ('pgflow', 'pgflowd', 'pgmq'))"
    return conn.execute(
        f"select oid::regprocedure::text, proowner::regrole::text from pg_proc"
        f" where pronamespace in {schemas}"
        f" union all select oid::regclass::text, relowner::regrole::text from pg_class"
        f" where relnamespace in {schemas}"
        f" union all select nspname, nspowner::regrole::text from pg_namespace"
        f" where oid in {schemas} order by 1".encode()
    ).fetchall()
