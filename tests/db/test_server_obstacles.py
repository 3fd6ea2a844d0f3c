"""What hinders the databases of a server, as its catalogs show it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from support.covers import covers
from support.own_server import OwnServer

from pgflowd.core.server_connections import Holder
from pgflowd.db.daemons import idle_slots, oldest_snapshots, oldest_transactions, queue_share
from pgflowd.db.query import execute
from pgflowd.testing.until import until


@pytest.fixture(scope="module")
def own_server() -> Iterator[OwnServer]:
    with OwnServer({"max_prepared_transactions": "5"}) as server:
        yield server


@pytest.fixture
def conn(own_server: OwnServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def prepared(own_server: OwnServer, conn: psycopg.Connection) -> Iterator[str]:
    name = "half done"
    with psycopg.connect(own_server.dsn) as other:
        other.execute("select pg_current_xact_id()")
        other.execute(f"prepare transaction '{name}'")
    yield name
    conn.execute(f"rollback prepared '{name}'")


def test_a_prepared_transaction_is_among_the_oldest_and_keeps_dead_rows(conn, prepared):
    for _ in range(5):
        conn.execute("select pg_current_xact_id()")

    [holder] = execute(conn, oldest_snapshots(5, 9))
    [old] = [each for each in execute(conn, oldest_transactions(0, 9)) if each.kind == "prepared"]

    assert (holder.kind, holder.name, holder.user) == ("prepared", prepared, "postgres")
    assert holder.transactions is not None and holder.transactions >= 5
    assert (old.name, old.database) == (prepared, holder.database)


def test_transactions_of_all_databases_are_found_the_oldest_first(own_server, conn):
    with (
        psycopg.connect(own_server.dsn, dbname="template1", application_name="first") as first,
        psycopg.connect(own_server.dsn, application_name="second") as second,
    ):
        for each in (first, second):
            each.execute("select 1")

        found = execute(conn, oldest_transactions(0, 9))

        names = [each.application for each in found]
        assert names.index("first") < names.index("second")
        assert found[names.index("first")].database == "template1"
        assert found[names.index("first")].state == "idle in transaction"
        assert execute(conn, oldest_transactions(3600, 9)) == []


def test_a_slot_without_a_reader_is_found_by_the_log_that_it_keeps(conn):
    conn.execute("select pg_create_physical_replication_slot('standby_1', true)")
    conn.execute("select pg_switch_wal()")

    found = execute(conn, idle_slots(1))
    conn.execute("select pg_drop_replication_slot('standby_1')")

    [(slot, kept)] = found
    assert slot == Holder("slot", "standby_1") and kept > 1
    assert execute(conn, idle_slots(0)) == []


def test_the_queue_of_an_idle_server_is_empty(conn):
    assert execute(conn, queue_share()) < 0.001


WAITS = "select wait_event from pg_stat_activity where pid = %s"


@covers("database 4")
def test_starts_commit_one_after_another_whatever_their_flow(own_server, conn):
    """As sql/README.md says: who has notified holds a lock of the cluster until its log is safe."""
    conn.execute("select pgflow.create_flow('one'), pgflow.add_step('one', 'a')")
    conn.execute("select pgflow.create_flow('two'), pgflow.add_step('two', 'a')")
    for queue in ("one", "two"):  # somebody sleeps on each, so that starts notify
        conn.execute("select pgflowd.arm(%s, gen_random_uuid())", (queue,))
    conn.execute("alter system set synchronous_standby_names = 'nobody'")  # no log is ever safe
    conn.execute("select pg_reload_conf()")
    first, second = (psycopg.connect(own_server.dsn) for _ in range(2))
    second.execute("set synchronous_commit = local")
    until(lambda: first.execute("show synchronous_standby_names").fetchone() == ("nobody",))
    for each, flow in ((first, "one"), (second, "two")):
        each.execute("select count(*) from pgflow.start_flow(%s, '{}')", (flow,))

    commits = [threading.Thread(target=first.commit), threading.Thread(target=second.commit)]
    commits[0].start()
    until(lambda: wait_of(conn, first) == "SyncRep")
    commits[1].start()

    until(lambda: wait_of(conn, second) == "object")
    conn.execute("alter system reset synchronous_standby_names")
    conn.execute("select pg_reload_conf()")
    for each in commits:
        each.join(20)
    assert conn.execute("select count(*) from pgflow.runs").fetchone() == (2,)
    first.close()
    second.close()


def wait_of(conn: psycopg.Connection, other: psycopg.Connection) -> str | None:
    row = conn.execute(WAITS, (other.info.backend_pid,)).fetchone()
    return row[0] if row else None
