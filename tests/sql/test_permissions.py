"""The rights of roles, with nothing granted and with the grants of an installation."""

import psycopg
import pytest

GRANTS = """
grant usage on schema pgflow to {role};
grant execute on function pgflow.start_flow_with_states(text, jsonb, uuid) to {role};
grant execute on function pgflow.get_run_with_states(uuid) to {role};
grant select on pgflow.flows, pgflow.steps to {role};
"""
THEIRS = """
grant usage on schema pgflow, pgmq to {role};
grant all on all tables in schema pgflow, pgmq to {role};
grant execute on all functions in schema pgflow, pgmq to {role};
"""


@pytest.fixture
def public_role(suite):
    """A role that has nothing."""
    suite.do("create role d_stranger")
    return "d_stranger"


@pytest.fixture
def client(suite, public_role):
    """A role with what lets clients start and follow runs."""
    suite.flow("f", "a", "b: a")
    for grant in GRANTS.format(role=public_role).strip().split("\n"):
        suite.do(grant)
    suite.do("set local role d_stranger")
    return suite


def test_a_role_without_rights_cannot_use_the_schema(suite, public_role):
    suite.flow("f", "a")
    suite.do("set local role d_stranger")

    for query in (
        "select pgflow.start_flow('f', '{}')",
        "select * from pgflow.flows",
        "select pgflow.is_valid_slug('a')",
        "select pgflow.requeue_stalled_tasks()",
    ):
        error = suite.error(query)
        assert isinstance(error, psycopg.errors.InsufficientPrivilege)
        assert error.diag.message_primary == "permission denied for schema pgflow"


def test_the_schema_grants_nothing_on_its_tables(suite):
    granted = suite.rows(
        "select table_name, grantee from information_schema.role_table_grants"
        " where table_schema = 'pgflow' and grantee not in (select current_user)"
    )

    assert [row for row in granted if row["grantee"] in ("PUBLIC", "public")] == []


def test_a_client_starts_a_run_and_follows_it(client):
    document = client.value("select pgflow.start_flow_with_states('f', '{\"x\": 1}')")

    assert document["run"]["status"] == "started"
    followed = client.value("select pgflow.get_run_with_states(%s)", document["run"]["run_id"])
    assert followed == document
    assert client.column("select step_slug from pgflow.steps order by step_index") == ["a", "b"]


@pytest.mark.parametrize(
    "query",
    [
        "select * from pgflow.runs",
        "select * from pgflow.step_tasks",
        "delete from pgflow.flows",
        "update pgflow.flows set opt_timeout = 1",
        "select * from pgmq.q_f",
        "select pgflow.start_flow('f', '{}')",
        "select pgflow.create_flow('g')",
        "select pgflow.delete_flow_and_data('f')",
        "select pgflow.complete_task(gen_random_uuid(), 'a', 0, '1') from pgflow.flows",
    ],
)
def test_a_client_may_do_nothing_else(client, query):
    error = client.error(query)

    assert isinstance(error, psycopg.errors.InsufficientPrivilege)


@pytest.mark.parametrize("end", ["completed", "failed"])
def test_a_worker_of_another_runtime_needs_no_right_on_our_schema(plain, end):
    plain.flow("f", "a", "b: a", max_attempts=1)
    run, worker = plain.start("f"), plain.worker("f")
    plain.do("create role d_stranger")
    for right in THEIRS.format(role="d_stranger").strip().split("\n"):
        plain.do(right)
    plain.do("set local role d_stranger")

    for step in ("a", "b"):
        read = "select array_agg(msg_id) from pgmq.read('f', 30, 1)"
        plain.rows(f"select * from pgflow.start_tasks('f', ({read}), %s)", worker)
        if (step, end) == ("b", "failed"):
            plain.rows("select pgflow.fail_task(%s, %s, 0, 'boom')", run, step)
        else:
            plain.rows("select pgflow.complete_task(%s, %s, 0, '1')", run, step)

    assert plain.value("select status from pgflow.runs") == end


def test_a_definer_function_does_not_trust_the_caller_s_temporary_types(client):
    client.do("create temporary sequence calls; grant all on sequence pg_temp.calls to d_stranger")
    for name in ("uuid", "text", "jsonb", "int4"):
        client.do(
            f"create function pg_temp.trap(pg_catalog.{name}) returns boolean language sql"
            " as $$ select nextval('pg_temp.calls') > 0 $$"
        )
        client.do(f"create domain pg_temp.{name} as pg_catalog.{name} check (pg_temp.trap(value))")

    document = client.value("select pgflow.start_flow_with_states('f', '{}'::pg_catalog.jsonb)")
    client.value("select pgflow.get_run_with_states(%s)", document["run"]["run_id"])

    assert client.value("select is_called from pg_temp.calls") is False


def test_a_definer_function_does_not_trust_the_caller_s_search_path(client):
    client.do("reset role")
    client.do("create schema trap; grant all on schema trap to d_stranger")
    client.do("create table trap.runs (run_id uuid); create table trap.step_states (run_id uuid)")
    client.do(
        "create function trap.jsonb_agg(anyelement) returns jsonb language sql"
        " as 'select null::jsonb'"
    )
    client.do("set local role d_stranger")
    client.do("set local search_path = trap, pg_catalog")

    document = client.value("select pgflow.start_flow_with_states('f', '{}')")

    assert len(document["steps"]) == 2


def test_a_role_that_may_read_the_history_of_attempts_needs_no_right_on_tables(suite, public_role):
    suite.flow("f", "a", "b", max_attempts=1)
    run = suite.start("f")
    worker = suite.worker("f")
    suite.do("select pgflowd.claim('f', %s, 10)", worker)
    suite.fail(run, "a")  # past the lease of its attempt, which stays open
    suite.do(f"grant usage on schema pgflowd to {public_role}")
    suite.do(f"grant select on pgflowd.attempt_history to {public_role}")
    suite.do("set local role d_stranger")

    found = suite.rows("select step_slug, outcome, live from pgflowd.attempt_history order by 1")

    assert [row["step_slug"] for row in found] == ["a", "b"]
