"""A refusal of the database names the role that is missing, and the grant that helps."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.schema import As, Connection

from pgflowd.db.connection import STARTER, role_for, translated
from pgflowd.errors import AccessDenied

REFUSED = [
    ("pgflow_viewer", "select pgflow.create_flow('x')", "pgflow_owner"),
    ("pgflow_worker", "select pgflow.create_flow('x')", "pgflow_owner"),
    ("pgflow_worker", "select pgflow.ensure_flow_compiled('x', '{\"steps\": []}')", "pgflow_owner"),
    ("pgflow_worker", "select pgflow.delete_flow_and_data('x')", "pgflow_owner"),
    ("pgflow_worker", "select pgmq.create('x')", "pgflow_owner"),
    ("pgflow_viewer", "select pgflow.start_flow_with_states('x', '{}')", "pgflow_starter"),
    ("pgflow_viewer", "select pgflowd.cancel(gen_random_uuid(), '', '')", "pgflow_starter"),
    ("pgflow_viewer", "select * from pgmq.read('x', 1, 1)", "pgflow_worker"),
    ("pgflow_viewer", "select * from pgflowd.claim('x', gen_random_uuid(), 1)", "pgflow_worker"),
    ("pgflow_viewer", "delete from pgflow.workers", "pgflow_worker"),
    ("pgflow_viewer", "select pgflowd.retry(gen_random_uuid(), '')", "pgflow_operator"),
    ("pgflow_starter", "select * from pgflowd.list_runs()", "pgflow_viewer"),
    ("pgflow_starter", "select * from pgflow.runs", "pgflow_viewer"),
]


@covers("newcomer 4")
@pytest.mark.parametrize(("role", "statement", "missing"), REFUSED)
def test_the_missing_role_is_named(as_role: As, role: str, statement: str, missing: str) -> None:
    conn = as_role(role)

    with pytest.raises(AccessDenied) as refused, translated(conn):
        conn.execute(statement.encode())

    assert refused.value.code == "E305"
    assert f"`grant {missing} to {conn.info.user}`" in (refused.value.next or "")


@covers("newcomer 4")
def test_who_has_no_role_sees_what_each_is_for(as_role: As) -> None:
    conn = as_role("pg_monitor")

    with pytest.raises(AccessDenied) as refused, translated(conn):
        conn.execute("select pgflow.flow_exists('x')")

    for role in (
        "pgflow_viewer",
        "pgflow_starter",
        "pgflow_operator",
        "pgflow_worker",
        "pgflow_owner",
    ):
        assert role in (refused.value.next or "")


@covers("newcomer 4")
def test_the_role_that_is_named_for_a_function_may_execute_it(
    as_role: As, conn: Connection
) -> None:
    functions = conn.execute(
        "select proname, proc.oid from pg_proc as proc"
        " where pronamespace in ('pgflow'::regnamespace, 'pgflowd'::regnamespace)"
        "   and prorettype <> 'trigger'::regtype"
    ).fetchall()
    assert len(functions) > 100

    for name, oid in functions:
        role = role_for("function", name)
        may = conn.execute("select has_function_privilege(%s, %s::oid, 'execute')", (role, oid))
        inner = role == STARTER and name in ("start_flow", "start_flows")
        assert inner or may.fetchone() == (True,), (name, role)
