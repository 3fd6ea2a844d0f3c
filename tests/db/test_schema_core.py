"""A schema pgflow of another installer is recognised, left unchanged, and used."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.schema import Connection, catalog

from pgflowd.db import schema
from pgflowd.errors import DatabaseError

LATER = {
    "0.14": "alter table pgflow.step_tasks add requeued_count int not null default 0",
    "0.15": "alter table pgflow.step_tasks drop constraint valid_status, add constraint"
    " valid_status check (status in ('queued', 'started', 'completed', 'failed', 'cancelled'))",
    "0.17": "alter table pgflow.steps add queue_name text",
    "elixir": "alter type pgflow.step_task_record add attribute attempts_count int",
}


def test_upstreams_schema_is_left_as_it_was(upstream: Connection) -> None:
    upstream.execute("select pgflow.create_flow('theirs'), pgflow.add_step('theirs', 'one')")
    before, details = catalog(upstream), _details(upstream)

    done = schema.migrate(upstream)
    schema.migrate(upstream)

    assert done.core == "0.8"
    after = catalog(upstream)
    assert {name: after.get(name) for name in before} == before
    assert [name for name in after if " pgflow." in name and name not in before] == []
    assert _details(upstream) == details


def test_beside_upstreams_schema_only_pgflowd_is_added(upstream: Connection) -> None:
    schema.migrate(upstream)

    state = schema.require(upstream)
    assert (state.core, state.record.core) == ("0.8", "0.8")
    assert schema.verify(upstream) == []
    assert upstream.execute("select to_regprocedure('pgflow.flow_exists(text)')").fetchone() == (
        None,
    )


def test_flows_that_were_there_before_us_notify_us(upstream: Connection) -> None:
    upstream.execute("select pgflow.create_flow('theirs')")

    schema.migrate(upstream)

    query = "select tgname from pg_trigger where tgrelid = 'pgmq.q_theirs'::regclass"
    assert upstream.execute(query).fetchall() == [("pgflowd_notify",)]


def test_a_queue_of_another_owner_is_left_and_reported(upstream: Connection) -> None:
    said: list[str | None] = []
    upstream.add_notice_handler(lambda notice: said.append(notice.message_primary))
    upstream.execute("select pgflow.create_flow('theirs')")
    with upstream.transaction():
        upstream.execute(schema.roles_sql().encode())
        upstream.execute("grant references on all tables in schema pgflow to pgflow_owner")

    upstream.execute("set role pgflow_owner")
    schema.migrate(upstream)

    assert "queue theirs belongs to another role: no notify trigger, its worker polls" in said


def test_a_worker_works_there_under_its_role(upstream: Connection) -> None:
    schema.migrate(upstream)
    with upstream.transaction():
        upstream.execute(schema.roles_sql().encode())
    upstream.execute("set role pgflow_owner")
    upstream.execute("select pgflow.create_flow('theirs'), pgflow.add_step('theirs', 'one')")
    upstream.execute("select pgflow.start_flow('theirs', '{}')")
    upstream.execute("select pgflowd.watch_queue('theirs')")

    upstream.execute("set role pgflow_worker")
    upstream.execute(
        "insert into pgflow.workers (queue_name, worker_id, function_name)"
        " values ('theirs', '00000000-0000-0000-0000-000000000001', 'test')"
    )
    upstream.execute(
        "select pgflowd.complete(run_id, step_slug, task_index, token, '1') from"
        " pgflowd.claim('theirs', '00000000-0000-0000-0000-000000000001', 1)"
    )

    upstream.execute("set role pgflow_viewer")
    assert upstream.execute("select status from pgflow.runs").fetchall() == [("completed",)]


@pytest.mark.parametrize("core", LATER)
def test_a_later_release_is_recognised_by_its_new_objects(upstream: Connection, core: str) -> None:
    upstream.execute(LATER[core].encode())

    assert schema.status(upstream).state.core == core


def test_a_replaced_core_is_reported_until_the_next_migrate(
    upstream: Connection,
) -> None:
    schema.migrate(upstream)
    upstream.execute(LATER["0.14"].encode())

    with pytest.raises(
        DatabaseError, match=r"E307 schema pgflow was release 0\.8 and is now 0\.14"
    ):
        schema.require(upstream)

    schema.migrate(upstream)
    assert schema.require(upstream).core == "0.14"


def test_a_function_of_theirs_that_changed_underneath_is_named(upstream: Connection) -> None:
    schema.migrate(upstream)
    upstream.execute("alter function pgflow.start_ready_steps strict")

    (problem,) = schema.verify(upstream)

    assert problem.code == "E307"
    assert "pgflow.start_ready_steps(uuid) differs" in problem.text


@covers("E307")
def test_an_unknown_schema_is_refused_with_what_it_lacks(empty: Connection) -> None:
    empty.execute("create schema pgflow create table flows (mine int)")

    with pytest.raises(DatabaseError, match=r"E307 .*it has no .*pgflow\.start_flow") as caught:
        schema.migrate(empty)

    assert "pgflow.flows" not in str(caught.value)
    assert empty.execute("select to_regnamespace('pgflowd')").fetchone() == (None,)


def test_our_schema_without_its_mark_is_not_taken_for_upstreams(conn: Connection) -> None:
    conn.execute("comment on schema pgflow is null")

    for use in (schema.migrate, schema.require):
        with pytest.raises(DatabaseError, match=r"E307 .*lost the mark"):
            use(conn)


def test_an_empty_schema_pgflow_is_filled(empty: Connection) -> None:
    empty.execute("create schema pgflow")

    assert schema.migrate(empty).core == "own"


def test_the_printed_script_refuses_to_touch_upstreams_schema(upstream: Connection) -> None:
    before = catalog(upstream)

    with pytest.raises(Exception, match="installed by another program"), upstream.transaction():
        upstream.execute(schema.sql().encode())

    assert catalog(upstream) == before


def _details(conn: Connection) -> list[object]:
    """Owners, grants, comments and the order of columns are not part of the fingerprints."""
    return [
        conn.execute(query).fetchall()
        for query in (
            "select nspowner, nspacl, obj_description(oid) from pg_namespace"
            " where nspname = 'pgflow'",
            "select oid, proname, proowner, proacl, xmin from pg_proc"
            " where pronamespace = 'pgflow'::regnamespace order by oid",
            "select oid, relname, relowner, relacl, relfilenode from pg_class"
            " where relnamespace = 'pgflow'::regnamespace order by oid",
            "select attrelid, attname, attnum, attacl from pg_attribute join pg_class on"
            " attrelid = pg_class.oid where relnamespace = 'pgflow'::regnamespace order by 1, 3",
        )
    ]
