"""The queues of a database whose locale has a lower case of its own: the Turkish I has no dot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest
from support.covers import covers
from support.schema import Connection, catalog

from pgflowd.db import schema
from pgflowd.db.flows import queued_messages
from pgflowd.testing.scratch import ScratchServer


@pytest.fixture
def turkish(server_of: Callable[[int], ScratchServer]) -> Iterator[Connection]:
    """A connection to an empty database with the locale tr of ICU, which the wheel lacks."""
    server = server_of(17)
    name = f"turkish_{uuid4().hex[:8]}"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        locale = "template template0 locale_provider icu icu_locale 'tr'"
        admin.execute(f"create database {name} {locale}".encode())
        try:
            with psycopg.connect(server.dsn_for(name), autocommit=True) as conn:
                yield conn
        finally:
            admin.execute(f"drop database {name} with (force)".encode())


@covers("database 25")
def test_a_queue_has_the_name_that_python_expects(turkish: Connection) -> None:
    assert turkish.execute("select lower('I') = 'i'").fetchone() == (False,)
    schema.migrate(turkish)
    turkish.execute("select pgflow.create_flow('SendInvoice')")
    turkish.execute("select pgflow.add_step('SendInvoice', 'a')")
    turkish.execute("select pgflow.start_flow('SendInvoice', '{}')")

    assert turkish.execute("select queue_name from pgmq.list_queues()").fetchall() == [
        ("sendinvoice",)
    ]
    names = "select queue_name from pgflow.steps union all select queue_name from pgflow.step_tasks"
    assert turkish.execute(names).fetchall() == [("sendinvoice",)] * 2
    ((slug, waiting, _),) = queued_messages(turkish)
    assert (slug, waiting) == ("SendInvoice", 1)
    with pytest.raises(psycopg.errors.UniqueViolation):
        turkish.execute("select pgflow.create_flow('sendinvoice')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        turkish.execute("insert into pgflow.flows (flow_slug) values ('sendinvoice')")


@covers("attack 20")
def test_a_restarted_worker_is_one_of_its_flow(turkish: Connection) -> None:
    schema.migrate(turkish)
    turkish.execute("select pgflow.create_flow('SendInvoice')")
    turkish.execute("select pgflow.add_step('SendInvoice', 'a')")
    worker = uuid4()
    turkish.execute("select pgflow.register_worker(%s, 'SendInvoice', 'x')", (worker,))

    turkish.execute("select pgflowd.restart_worker(%s, 'jane')", (worker,))

    action = "select flow_slug from pgflowd.actions where action = 'restart_worker'"
    assert turkish.execute(action).fetchone() == ("SendInvoice",)


@covers("database 25")
def test_the_flow_of_a_worker_that_is_restarted_is_found_by_its_queue(turkish: Connection) -> None:
    """Workers of other runtimes may name the queue as their flow is written."""
    schema.migrate(turkish)
    turkish.execute("select pgflow.create_flow('SendInvoice')")
    turkish.execute("select pgflow.add_step('SendInvoice', 'a')")
    turkish.execute(
        "insert into pgflow.workers (worker_id, queue_name, function_name)"
        " values (gen_random_uuid(), 'SendInvoice', 'x')"
    )

    turkish.execute("select pgflowd.restart_worker(worker_id) from pgflow.workers")

    found = turkish.execute("select action, flow_slug from pgflowd.actions").fetchall()
    assert found == [("restart_worker", "SendInvoice")]


@covers("database 25")
def test_an_older_database_is_mended_by_its_migration(turkish: Connection) -> None:
    schema.migrate(turkish, to=3)
    turkish.execute("insert into pgflow.flows (flow_slug) values ('SendInvoice')")
    turkish.execute(
        "insert into pgflow.steps (flow_slug, step_slug, step_index) values ('SendInvoice', 'a', 0)"
    )

    schema.migrate(turkish)

    assert turkish.execute("select queue_name from pgflow.steps").fetchone() == ("sendinvoice",)


@covers("database 25")
def test_where_the_locale_agrees_a_large_table_is_not_rewritten(
    empty: Connection, conn: Connection
) -> None:
    schema.migrate(empty, to=3)
    empty.execute(
        "set session_replication_role = replica;"
        "insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index)"
        " select 'Many', gen_random_uuid(), 'a', 0 from generate_series(1, 100001);"
        "reset session_replication_role"
    )
    file = "select pg_relation_filenode('pgflow.step_tasks')"
    before = empty.execute(file).fetchone()

    schema.migrate(empty)

    assert empty.execute(file).fetchone() == before
    column = "column pgflow.step_tasks.queue_name"
    here, there = catalog(empty), catalog(conn)
    assert {name for name in there if here.get(name) != there[name]} == {column}
    assert schema.verify(empty) == []
