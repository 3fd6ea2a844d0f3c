"""A worker that logs in with the least rights (docs/background/failures.md, section 5)."""

from __future__ import annotations

import os
import re

import psycopg
import pytest
from psycopg import conninfo
from support.covers import covers

from pgflowd.core.messages import Failed
from pgflowd.db import schema
from pgflowd.testing.until import until

MODULE = """
    import time
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=2, base_delay=0, timeout=2)

    @flow.step
    def first(run, ctx):
        if ctx.attempt == 1: raise ValueError("once")
        return ctx.flow_input()

    @flow.map(over="first")
    def second(item): return item

    @flow.step
    def third(second, ctx): return ctx.step_output("first")
"""


@pytest.fixture
def humble(start_worker, database, server):
    """The DSN of a role that is a pgflow_worker and nothing else; the flow is deployed."""
    role = f"humble_{os.getpid()}"
    admin = psycopg.connect(server.dsn, autocommit=True)
    start_worker(MODULE).drain()
    with database.connect(autocommit=False) as conn:
        conn.execute(schema.roles_sql().encode())
    conn = database.connect()
    conn.execute(f"create role {role} login password 'x'")
    conn.execute(f"grant pgflow_worker to {role}")
    yield conninfo.make_conninfo(database.dsn, user=role, password="x")
    conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", (role,)
    )
    until(
        lambda: (
            not conn.execute("select from pg_stat_activity where usename = %s", (role,)).rowcount
        )
    )
    conn.execute(f"drop owned by {role}")
    conn.execute(f"drop role {role}")
    admin.close()


@covers("row 109")
def test_the_role_pgflow_worker_is_enough(start_worker, humble):
    worker = start_worker(MODULE, dsn=humble, definitions="verify")

    run = worker.start_run([1, 2])

    assert worker.output(run) == {"third": [1, 2]}
    assert worker.records("worker.warning") == []
    cancelled = worker.start_run([3])
    worker.conn.execute("select pgflowd.cancel(%s, 'x', 'me')", (cancelled,))
    assert worker.drain() == 0
    assert worker.value("select count(*) from pgflow.workers where stopped_at is null") == 0


@covers("newcomer 7")
def test_a_handler_waits_for_a_connection_of_a_full_server(start_worker, humble):
    module = """
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=1)

        @flow.step
        def first(run, ctx):
            return [ctx.conn().execute("select 1").fetchone()[0]]

        @flow.map(over="first")
        def second(item): return item

        @flow.step
        def third(second, ctx): return 1
    """
    worker = start_worker(module, dsn=humble, definitions="verify")
    role = conninfo.conninfo_to_dict(humble)["user"]
    worker.conn.execute(f"alter role {role} connection limit 1")

    run = worker.start_run()
    until(lambda: [each for each in worker.records("task.log") if "E310" in each["text"]])
    assert worker.value("select attempts_count from pgflow.step_tasks") == 1
    worker.conn.execute(f"alter role {role} connection limit 20")

    until(lambda: worker.outcomes(run)[:1] == ["completed"])


@covers("row 109")
@pytest.mark.parametrize(
    ("right", "named"),
    [
        ("select, insert, update on pgflow.workers", "workers"),
        ("select on pgflow.flows", "flows"),
        ("usage on schema pgflowd", "pgflowd"),
        ("usage on schema pgflow", "pgflow"),
        ("select on pgflowd.schema_history", "schema_history"),
    ],
)
def test_a_missing_right_is_reported_with_the_grant(start_worker, humble, right, named):
    worker = start_worker(MODULE)
    worker.conn.execute(f"revoke {right} from pgflow_worker")
    worker.drain()

    refused = start_worker(MODULE, dsn=humble, definitions="verify", ready=False)

    assert refused.ended() == 78
    assert refused.received(Failed).code == "E305"
    assert re.search(rf", or grant .* {named} to humble_", refused.received(Failed).text)


@covers("row 109")
def test_a_right_that_is_revoked_is_reported_and_waited_for(start_worker, humble):
    worker = start_worker(MODULE, dsn=humble, definitions="verify")
    worker.conn.execute("revoke execute on function pgflowd.claim from pgflow_worker")

    run = worker.start_run([1])

    told = "grant execute on function claim to"
    until(lambda: any(told in record["error"] for record in worker.records("worker.error")), 5)
    worker.conn.execute("grant execute on function pgflowd.claim to pgflow_worker")
    assert worker.output(run) == {"third": [1]}


@covers("row 78")
def test_too_many_connections_are_waited_out(start_worker, humble, database):
    worker = start_worker(MODULE, dsn=humble, definitions="verify")
    conn = database.connect()

    conn.execute(f"alter database {database.name} connection limit 0")
    conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name like 'pgflowd: worker%' and datname = current_database()"
    )
    run = worker.start_run([1])
    until(lambda: worker.records("worker.error"), 5)
    conn.execute(f"alter database {database.name} connection limit -1")

    assert worker.completed(run, 8)


def test_a_refused_query_of_a_handler_raises_there_and_keeps_the_connection(
    start_worker, humble, database
):
    conn = database.connect()
    conn.execute("alter table pgflow.step_states enable row level security")
    conn.execute(
        "create function refuse() returns boolean language plpgsql as"
        " $$ begin raise 'not for you' using errcode = '42501'; end $$"
    )
    conn.execute(
        "create policy hide on pgflow.step_states to pgflow_worker"
        " using (current_query() not like 'select output%' or refuse()) with check (true)"
    )
    worker = start_worker(MODULE, dsn=humble, definitions="verify")

    run = worker.start_run([1])

    assert worker.failed(run, 8)
    assert "not for you" in worker.attempts(run)[-1][2]
    assert worker.records("worker.error") == []


@covers("rule 57")
def test_one_connection_is_enough_for_the_start_and_for_short_tasks(start_worker, humble, database):
    role = conninfo.conninfo_to_dict(humble)["user"]
    database.connect().execute(f"alter role {role} connection limit 1")

    worker = start_worker(MODULE, dsn=humble, definitions="verify")

    assert worker.output(worker.start_run([1])) == {"third": [1]}
    assert worker.records("worker.error") == []
    assert worker.drain() == 0


@covers("rule 57")
def test_without_a_second_connection_leases_are_renewed_on_the_first(
    start_worker, humble, database
):
    role = conninfo.conninfo_to_dict(humble)["user"]
    database.connect().execute(f"alter role {role} connection limit 1")
    module = """
        import time
        from pgflowd import Flow
        slow = Flow("slow", max_attempts=1)

        @slow.step
        def nap(run): time.sleep(3); return 1  # half as long again as a lease lasts
    """
    start_worker(module, "slow").drain()
    worker = start_worker(module, "slow", dsn=humble, definitions="verify")

    run = worker.start_run([1])

    assert worker.completed(run, 10)
    assert worker.outcomes(run) == ["completed"]
    assert len(worker.attempts(run)) == 1
