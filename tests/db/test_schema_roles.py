"""Tests of the roles: each can do its work, and is refused everything else."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb
from support.covers import covers
from support.schema import As, Connection

from pgflowd.client import Client
from pgflowd.db import schema
from pgflowd.db.connection import translated
from pgflowd.errors import AccessDenied
from pgflowd.testing.scratch import ScratchDatabase, ScratchServer

FLOW = """
select pgflow.create_flow('Shop', max_attempts => 2, base_delay => 0),
       pgflow.add_step('Shop', 'items'),
       pgflow.add_step('Shop', 'pack', '{items}', step_type => 'map'),
       pgflow.add_step('Shop', 'send', '{pack}')
"""
OF_OTHERS = """
do $$
declare
  role text;
begin  -- another database of the server may have the roles already
  for role in select rolname from pg_roles where starts_with(rolname, 'pgflow_') loop
    execute format('grant %I to manager with admin option', role);
  end loop;
end $$
"""
FORBIDDEN_TO_WORKERS = [
    "select pgflow.create_flow('other')",
    "select pgflow.add_step('Shop', 'more')",
    "select pgflow.delete_flow_and_data('Shop')",
    "select pgmq.drop_queue('shop')",
    "select pgmq.purge_queue('shop')",
    "select pgmq.create('other')",
    "select pgflowd.set_setting('history', '\"off\"', 'worker')",
    "insert into pgflow.flows (flow_slug) values ('other')",
    "insert into pgflow.runs (flow_slug, input) values ('Shop', '{}')",
    "update pgflow.flows set opt_max_attempts = 99",
    "update pgflow.steps set opt_timeout = 99",
    "update pgflowd.settings set value = '1'",
    "delete from pgflow.runs",
    "delete from pgflow.step_tasks",
    "delete from pgmq.a_shop",
    "update pgmq.a_shop set message = null",
    "truncate pgmq.q_shop",
    "drop table pgmq.q_shop",
    "alter function pgflow.start_flow(text, jsonb, uuid) security definer",
    "create table pgflowd.mine ()",
    "delete from pgflowd.schema_history",
    "delete from pgflowd.actions",
    "update pgflowd.actions set actor = 'nobody'",
    "insert into pgflowd.actions (actor, action, session_role) values ('ada', 'cancel', 'app')",
    "insert into pgflowd.actions (actor, action, at) values ('ada', 'cancel', '2020-01-01')",
    "insert into pgflowd.signals (run_id, name, session_role) select null, 'x', 'app'",
    "update pgflowd.signals set session_role = 'app'",
    "update pgflowd.signals set sent_by = 'ada'",
]
FORBIDDEN_TO_STARTERS = [
    *FORBIDDEN_TO_WORKERS,
    "select * from pgflow.runs",
    "select * from pgflow.flows",
    "select * from pgmq.q_shop",
    "select * from pgflowd.attempts",
    "select * from pgmq.read('shop', 1, 1)",
    "select pgflow.start_flow('Shop', '{}')",
    "select pgflow.requeue_stalled_tasks()",
    "select pgflowd.retry(gen_random_uuid(), '')",
    "select pgflowd.process_due()",
    "select pgflowd.task_wake(gen_random_uuid(), 'items', 0, '', '')",
    "select * from pgflowd.signals",
    "insert into pgflowd.signals (run_id, name) values (gen_random_uuid(), 'x')",
    "select * from pgflowd.runs",
    "select pgflowd.output_channel(gen_random_uuid())",
    "insert into pgflow.workers values (gen_random_uuid(), 'shop', 'x')",
]
FORBIDDEN_TO_VIEWERS = [
    *FORBIDDEN_TO_WORKERS,
    "select pgflow.start_flow_with_states('Shop', '{}')",
    "select * from pgmq.read('shop', 1, 1)",
    "select pgflow.requeue_stalled_tasks()",
    "select pgflowd.cancel(gen_random_uuid(), '', '')",
    "select pgflowd.signal(gen_random_uuid(), 'x')",
    "select pgflowd.process_due()",
    "select pgflowd.restart_worker(gen_random_uuid())",
    "select pgflowd.tell_daemon('{}')",
    "update pgflow.runs set status = 'failed'",
    "delete from pgmq.q_shop",
    "insert into pgflow.workers values (gen_random_uuid(), 'shop', 'x')",
]
FORBIDDEN_TO_OPERATORS = [
    *FORBIDDEN_TO_WORKERS,
    "select pgflow.requeue_stalled_tasks()",
    "select * from pgmq.read('shop', 1, 1)",
    "select pgflowd.process_due()",
    "select pgflowd.remove_schedule('x', 'jane')",
    "select pgflowd.tell_daemon('{}')",
    "update pgflow.runs set status = 'failed'",
    "delete from pgmq.q_shop",
    "insert into pgflow.workers values (gen_random_uuid(), 'shop', 'x')",
]


@pytest.fixture
def shop(as_role: As) -> UUID:
    """A flow defined by the owner, and a run of it started by the starter."""
    as_role("pgflow_owner").execute(FLOW)
    return _start(as_role("pgflow_starter"))


def test_a_worker_does_everything_by_leases(as_role: As, shop: UUID) -> None:
    conn = as_role("pgflow_worker")
    worker = _register(conn)

    while tasks := _claim(conn, worker):
        for run_id, step, index, token in tasks:
            beat = conn.execute("select verdict from pgflowd.heartbeat(%s, %s)", (worker, [token]))
            assert beat.fetchall() == [("ok",)]
            output = Jsonb([1, 2, 3] if step == "items" else "done")
            conn.execute(
                "select pgflowd.complete(%s, %s, %s, %s, %s)", (run_id, step, index, token, output)
            )

    assert _status(as_role("pgflow_viewer"), shop) == "completed"


def test_a_worker_fails_releases_and_recovers(as_role: As, shop: UUID) -> None:
    conn = as_role("pgflow_worker")
    worker = _register(conn)

    ((run_id, step, index, token),) = _claim(conn, worker)
    conn.execute("select pgflowd.release(%s, %s, %s, %s)", (run_id, step, index, token))
    _claim(conn, worker)
    (given,) = conn.execute("select pgflowd.crashed(%s, 'gone')", (worker,)).fetchone()
    assert given == 1
    conn.execute("select pgflowd.recover_stalled(), pgflow.requeue_stalled_tasks()")
    assert conn.execute("select * from pgflowd.sweep()").fetchone() == (0, 0)
    swept = conn.execute("select * from pgflowd.sweep_dead(%s, 'gone')", (worker,))
    assert swept.fetchone() == (0, 0)
    for _ in range(2):
        ((run_id, step, index, token),) = _claim(conn, worker)
        conn.execute("select pgflowd.fail(%s, %s, %s, %s, 'broken')", (run_id, step, index, token))

    assert _status(conn, shop) == "failed"
    conn.execute("select pgflowd.retry(%s, 'me')", (shop,))
    conn.execute("select pgflowd.cancel(%s, 'enough', 'me')", (shop,))
    assert _status(conn, shop) == "failed"


def test_a_worker_lets_tasks_wait_for_what_a_starter_signals(as_role: As, shop: UUID) -> None:
    conn = as_role("pgflow_worker")
    worker = _register(conn)
    ((run_id, step, index, token),) = _claim(conn, worker)
    conn.execute(
        "select pgflowd.checkpoint_save(%s, %s, %s, %s, 'page', '7')", (run_id, step, index, token)
    )
    wait = {"kind": "signal", "name": "paid", "checkpoint": "signal paid 1"}
    report = {"run_id": str(run_id), "step_slug": step, "task_index": index, "token": token}
    report |= {"outcome": "suspended", "wait": wait}
    conn.execute("select pgflowd.report(%s, %s)", (json.dumps([report]), [None]))
    conn.execute("select pgflowd.sweeper_sleeps(%s, 10), pgflowd.due_writers()", (worker,))
    as_role("pgflow_starter").execute("select pgflowd.signal(%s, 'paid', '12')", (shop,))

    assert conn.execute("select done from pgflowd.process_due()").fetchone() == (2,)

    assert len(_claim(conn, worker)) == 1
    query = "select name, data from pgflowd.checkpoint_load(%s, %s, %s)"
    assert as_role("pgflow_viewer").execute(query, (run_id, step, index)).fetchall() == [
        ("page", 7),
        ("signal paid 1", {"got": 12}),
    ]


def test_a_worker_reports_in_batches(as_role: As, shop: UUID) -> None:
    conn = as_role("pgflow_worker")
    worker = _register(conn)
    ((run_id, step, index, token),) = _claim(conn, worker)
    report = {
        "run_id": str(run_id),
        "step_slug": step,
        "task_index": index,
        "token": token,
        "outcome": "completed",
    }

    rows = conn.execute(
        "select verdict from pgflowd.report(%s, %s)", (json.dumps([report]), ["[1]"])
    )

    assert rows.fetchall() == [("completed",)]


def test_a_worker_of_another_runtime_does_everything_by_the_contract(
    as_role: As, shop: UUID
) -> None:
    conn = as_role("pgflow_worker")
    worker = _register(conn)
    conn.execute("select pgflow._get_flow_shape('Shop')")

    while tasks := _start_tasks(conn, worker):
        conn.execute(
            "update pgflow.workers set last_heartbeat_at = now() where worker_id = %s"
            " returning deprecated_at is not null",
            (worker,),
        )
        for run_id, step, index in tasks:
            output = Jsonb([1, 2] if step == "items" else "done")
            conn.execute(
                "select pgflow.complete_task(%s, %s, %s, %s)", (run_id, step, index, output)
            )
    conn.execute("select pgflow.mark_worker_stopped(%s)", (worker,))

    assert _status(conn, shop) == "completed"


def test_a_worker_verifies_a_flow_and_cannot_compile_one(as_role: As, shop: UUID) -> None:
    conn = as_role("pgflow_worker")
    (shape,) = conn.execute("select pgflow._get_flow_shape('Shop')").fetchone()

    (result,) = conn.execute(
        "select pgflow.ensure_flow_compiled('Shop', %s)", (Jsonb(shape),)
    ).fetchone()

    assert result["status"] == "verified"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("select pgflow.ensure_flow_compiled('Other', %s)", (Jsonb(shape),))


def test_a_daemon_can_check_whether_the_schema_fits(as_role: As) -> None:
    state = schema.require(as_role("pgflow_worker"))

    assert state.core == "own"


@pytest.mark.parametrize(
    ("role", "statements"),
    [
        ("pgflow_worker", FORBIDDEN_TO_WORKERS),
        ("pgflow_starter", FORBIDDEN_TO_STARTERS),
        ("pgflow_viewer", FORBIDDEN_TO_VIEWERS),
        ("pgflow_operator", FORBIDDEN_TO_OPERATORS),
    ],
)
def test_everything_else_is_refused(
    as_role: As, shop: UUID, role: str, statements: list[str]
) -> None:
    conn = as_role(role)

    assert [statement for statement in statements if not _is_refused(conn, statement)] == []


def test_an_operator_does_the_work_of_a_person(as_role: As) -> None:
    as_role("pgflow_owner").execute(
        "select pgflow.create_flow('Photos'), pgflow.add_step('Photos', 'look')"
    )
    conn = as_role("pgflow_operator")
    (run_id,) = conn.execute("select run_id from pgflowd.start('Photos', '{}')").fetchone()

    (token,) = conn.execute(
        "select token from pgflowd.task_claim('Photos', '{}', '1 hour', 'jane')"
    ).fetchone()
    conn.execute(
        "select pgflowd.task_complete(%s, 'look', 0, '\"fine\"', 'jane', %s)", (run_id, token)
    )

    assert _status(conn, run_id) == "completed"
    (actor,) = conn.execute(
        "select actor from pgflowd.actions where action = 'task_claim'"
    ).fetchone()
    assert actor == "jane"


def test_a_starter_follows_its_run(as_role: As, shop: UUID) -> None:
    conn = as_role("pgflow_starter")

    (seen,) = conn.execute("select pgflow.get_run_with_states(%s)", (shop,)).fetchone()

    assert seen["run"]["status"] == "started"
    assert {state["step_slug"] for state in seen["steps"]} == {"items", "pack", "send"}


@pytest.mark.parametrize("role", ["pgflow_worker", "pgflow_starter", "pgflow_viewer"])
def test_each_role_may_follow_a_run_whose_id_it_knows(as_role: As, shop: UUID, role: str) -> None:
    conn = as_role(role)

    assert conn.execute("select pgflowd.follow(%s)", ([shop],)).fetchone() == (True,)


def test_runs_of_a_flow_that_another_role_defined_can_be_started(
    as_role: As, conn: Connection
) -> None:
    conn.execute(FLOW)  # as superuser, while pgflow_owner owns the functions

    as_role("pgflow_starter").execute("select pgflow.start_flow_with_states('Shop', '[1]')")

    assert as_role("pgflow_viewer").execute("select count(*) from pgflow.runs").fetchone() == (1,)


@covers("newcomer 5")
def test_a_client_starts_awaits_and_cancels_as_starter(
    as_role: As, database: ScratchDatabase, shop: UUID
) -> None:
    worker_conn = as_role("pgflow_worker")
    worker = _register(worker_conn)
    with Client(make_conninfo(database.dsn, options="-c role=pgflow_starter")) as client:
        run = client.start_flow("Shop", {"basket": 1})
        while tasks := _claim(worker_conn, worker):
            for run_id, step, index, token in tasks:
                worker_conn.execute(
                    "select pgflowd.complete(%s, %s, %s, %s, '[1]')", (run_id, step, index, token)
                )

        assert client.wait(run.run_id, timeout=10).status == "completed"
        assert client.get_run_with_states(run.run_id).steps["send"].status == "completed"
        other = client.start_flow("Shop", {}).run_id
        assert client.get_run(other).status == "started"
        assert client.cancel(other, reason="no").status == "cancelled"
        assert "no" in (client.get_run(other).error or "")
        with pytest.raises(AccessDenied, match="E305"):
            client.retry(other)


@covers("newcomer 5")
def test_without_the_roles_nobody_but_the_owner_may_cancel(conn: Connection) -> None:
    conn.execute("create role passer; grant usage on schema pgflowd to passer; set role passer")
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("select pgflowd.cancel(gen_random_uuid(), '', '')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("select pgflowd.signal(gen_random_uuid(), 'x')")
    finally:
        conn.execute("reset role; drop owned by passer; drop role passer")


def test_a_viewer_reads_everything(as_role: As, shop: UUID) -> None:
    conn = as_role("pgflow_viewer")

    for relation in ("pgflow.flows", "pgflow.runs", "pgflow.step_tasks", "pgmq.q_shop"):
        assert conn.execute(f"select count(*) from {relation}").fetchone() != (0,)
    conn.execute("select * from pgmq.metrics('shop')")
    conn.execute("select * from pgflowd.attempt_history")
    conn.execute("select * from pgmq.a_shop")
    assert conn.execute("select pgflowd.open_tasks('{Shop}')").fetchone() == (1,)


def test_a_daemon_is_told_seen_and_its_worker_restarted(as_role: As, shop: UUID) -> None:
    conn = as_role("pgflow_worker")
    worker = _register(conn)
    told = {"id": str(shop), "name": "shop", "host": "app1", "pid": 812, "version": "1", "up_s": 1,
            "state": "draining", "flows": [{"worker_id": str(worker)}]}  # fmt: skip
    conn.execute("select pgflowd.tell_daemon(%s)", (Jsonb(told),))

    conn = as_role("pgflow_viewer")
    conn.execute("select pgflowd.look_at_daemons()")
    seen = conn.execute("select host, living, tasks from pgflowd.daemons()")
    assert seen.fetchone() == ("app1", 1, 0)

    conn = as_role("pgflow_operator")
    restarted = conn.execute("select pgflowd.restart_worker(%s, 'jane')", (worker,))
    assert restarted.fetchone() == ("restarting",)


def test_the_owner_migrates_defines_and_deletes(as_role: As, shop: UUID) -> None:
    conn = as_role("pgflow_owner")

    schema.migrate(conn)
    conn.execute("select pgflow.delete_flow_and_data('Shop')")

    assert conn.execute("select count(*) from pgflow.flows").fetchone() == (0,)
    assert conn.execute("select to_regclass('pgmq.q_shop')").fetchone() == (None,)


def test_the_owner_installs_into_an_empty_database(empty_database: ScratchDatabase) -> None:
    conn = empty_database.connect()
    with conn.transaction():
        conn.execute(schema.roles_sql().encode())

    conn.execute("set role pgflow_owner")
    schema.migrate(conn)
    conn.execute(FLOW)
    conn.execute("set role pgflow_starter")

    assert _start(conn)


def test_flows_that_were_there_before_the_roles_are_shared_too(
    database: ScratchDatabase,
) -> None:
    conn = database.connect()
    conn.execute(FLOW)
    with conn.transaction():
        conn.execute(schema.roles_sql().encode())

    conn.execute("set role pgflow_starter")
    run_id = _start(conn)
    conn.execute("set role pgflow_worker")
    ((claimed, *_),) = _claim(conn, _register(conn))
    conn.execute("set role pgflow_owner")
    conn.execute("select pgflow.delete_flow_and_data('Shop')")

    assert claimed == run_id


def test_the_owner_of_the_database_may_execute_it_without_superuser(
    offering: ScratchServer,
) -> None:
    with offering.database(schema=False) as fresh:
        conn = fresh.connect()
        conn.execute("create role manager createrole")
        conn.execute(OF_OTHERS)
        conn.execute(f'alter database "{fresh.name}" owner to manager'.encode())
        conn.execute("set role manager")
        schema.migrate(conn)
        conn.execute("select pgflow.create_flow('before')")

        for _ in range(2):
            with conn.transaction():
                conn.execute(schema.roles_sql().encode())
        schema.migrate(conn)

        conn.execute("reset role; set role pgflow_owner")
        conn.execute(FLOW)
        conn.execute("set role pgflow_starter")
        assert _start(conn)
        conn.execute("set role pgflow_worker")
        conn.execute("select * from pgmq.read('before', 1, 1), pgmq.q_shop")


def test_running_the_script_again_changes_nothing(as_role: As, conn: Connection) -> None:
    before = _rights(conn)

    with conn.transaction():
        conn.execute(schema.roles_sql().encode())

    assert _rights(conn) == before


def test_a_new_function_of_a_migrate_is_closed_to_the_public(as_role: As, conn: Connection) -> None:
    conn.execute("drop function pgflow.get_run_with_states(uuid)")

    schema.migrate(as_role("pgflow_owner"), adopt=True)

    as_role("pgflow_starter").execute("select pgflow.get_run_with_states(gen_random_uuid())")
    assert _open_to_the_public(conn) == []


def test_no_function_of_ours_is_open_to_the_public(as_role: As, conn: Connection) -> None:
    assert _open_to_the_public(conn) == []


def test_without_the_script_a_migrate_leaves_rights_as_they_are(conn: Connection) -> None:
    query = (
        "select count(*) from pg_proc"
        " where pronamespace = 'pgflow'::regnamespace and not prosecdef"  # see test_definers.py
    )

    (untouched,) = conn.execute(f"{query} and proacl is null").fetchone()

    assert conn.execute(query).fetchone() == (untouched,)


def test_what_a_role_lacks_is_reported_with_the_grant(as_role: As, conn: Connection) -> None:
    conn.execute("revoke execute on function pgflowd.claim from pgflow_worker")
    worker = as_role("pgflow_worker")

    remedy = "E305 permission denied for function claim.*grant execute on function claim to "
    with pytest.raises(AccessDenied, match=remedy), translated(worker):
        _claim(worker, uuid4())


RIGHTS = """
    select right_.privilege_type || ' on ' || class.oid::regclass
      from pg_class as class, aclexplode(class.relacl) as right_
     where right_.grantee = 'pgflow_worker'::regrole and class.relkind in ('r', 'v')
       and class.relnamespace::regnamespace::text in ('pgflow', 'pgflowd', 'pgmq')
     union all
    select 'usage on schema ' || schema.nspname
      from pg_namespace as schema, aclexplode(schema.nspacl) as right_
     where right_.grantee = 'pgflow_worker'::regrole and right_.privilege_type = 'USAGE'
     order by 1
"""


@covers("row 109")
def test_each_right_that_a_worker_lacks_is_reported_with_the_grant(
    as_role: As, conn: Connection, shop: UUID
) -> None:
    rights = [right for (right,) in conn.execute(RIGHTS)]
    assert len(rights) > 25
    missed = []

    for right in rights:
        with conn.transaction(force_rollback=True):
            conn.execute(f"revoke {right} from pgflow_worker cascade")
            conn.execute("set local role pgflow_worker")
            try:
                with translated(conn), conn.transaction():
                    _work(conn)
            except AccessDenied as error:
                assert "grant " in str(error), error
                missed.append(right)

    assert {"SELECT on pgflow.flows", "UPDATE on pgflow.step_tasks"} <= set(missed)
    assert {"usage on schema pgflowd", "INSERT on pgflowd.attempts"} <= set(missed)


def _work(conn: Connection) -> None:
    """A worker's day: what fails, what succeeds, what others left."""
    worker = _register(conn)
    for call in ("fail(%s, %s, %s, %s, 'x')", "complete(%s, %s, %s, %s, '[1]')"):
        for task in _claim(conn, worker):
            conn.execute("select pgflowd.heartbeat(%s, %s)", (worker, [task[3]]))
            conn.execute(f"select pgflowd.{call}", task)
    conn.execute("select pgflowd.sweep(), pgflowd.crashed(%s, 'x')", (worker,))


def _start(conn: Connection) -> UUID:
    row = conn.execute("select pgflow.start_flow_with_states('Shop', '{}')").fetchone()
    assert row is not None
    return UUID(row[0]["run"]["run_id"])


def _register(conn: Connection) -> UUID:
    worker = uuid4()
    conn.execute(
        "insert into pgflow.workers (queue_name, worker_id, function_name)"
        " values ('shop', %s, 'test')",
        (worker,),
    )
    return worker


def _claim(conn: Connection, worker: UUID) -> list[tuple[Any, ...]]:
    query = "select run_id, step_slug, task_index, token from pgflowd.claim('Shop', %s, 10)"
    return conn.execute(query, (worker,)).fetchall()


def _start_tasks(conn: Connection, worker: UUID) -> list[tuple[Any, ...]]:
    query = "select msg_id from pgmq.read('shop', 5, 10)"
    ids = [id_ for (id_,) in conn.execute(query)]
    query = "select run_id, step_slug, task_index from pgflow.start_tasks('Shop', %s, %s)"
    return conn.execute(query, (ids, worker)).fetchall()


def _status(conn: Connection, run_id: UUID) -> str:
    row = conn.execute("select status from pgflow.runs where run_id = %s", (run_id,)).fetchone()
    assert row is not None
    return str(row[0])


def _is_refused(conn: Connection, statement: str) -> bool:
    try:
        conn.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False


def _rights(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute(
        "select oid::regclass::text, relacl::text, relowner from pg_class where relacl is not null"
        " union all select oid::regprocedure::text, proacl::text, proowner from pg_proc"
        " where proacl is not null"
        " union all select nspname, nspacl::text, nspowner from pg_namespace order by 1, 2"
    ).fetchall()


def _open_to_the_public(conn: Connection) -> list[str]:
    query = (
        "select proc.oid::regprocedure::text from pg_proc as proc"
        " cross join lateral aclexplode(coalesce(proacl, acldefault('f', proowner))) as acl"
        " where acl.grantee = 0 and pronamespace in"
        " ('pgflow'::regnamespace, 'pgflowd'::regnamespace, 'pgmq'::regnamespace)"
    )
    return [name for (name,) in conn.execute(query)]
