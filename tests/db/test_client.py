"""The client: starting runs, following them to their end, and what it refuses."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from support.covers import covers
from support.pooler import pooler

from pgflowd import AsyncClient, Client, Flow
from pgflowd.core.ids import uuid7
from pgflowd.db import following, operations
from pgflowd.db.connection import connect
from pgflowd.db.following import Channels
from pgflowd.db.performing import run_sync
from pgflowd.db.schema import roles_sql
from pgflowd.errors import (
    AccessDenied,
    DatabaseError,
    MapInput,
    NotFound,
    NotRetryable,
    OutputError,
    RunEnded,
    RunExists,
    UnknownFlow,
    Unreachable,
    WaitTimeout,
)
from pgflowd.testing.until import until

WORKER = uuid4()

flow = Flow("greet", max_attempts=1)


@flow.step
def hello(run): ...


@flow.step
def world(hello): ...


@pytest.fixture
def conn(database) -> psycopg.Connection:
    connection = database.connect()
    deploy(connection, flow)
    connection.execute("insert into pgflow.workers values (%s, 'greet', 'test')", (WORKER,))
    return connection


@pytest.fixture
def client(database, conn) -> Iterator[Client]:
    with Client(database.dsn) as made:
        yield made


def deploy(connection: psycopg.Connection, flow: Flow) -> None:
    shape = Jsonb(flow.shape())
    connection.execute("select pgflow._create_flow_from_shape(%s, %s)", (flow.slug, shape))


def work(connection: psycopg.Connection, output: Any = None, error: str | None = None) -> int:
    """Do what can be done now; return how many tasks there were."""
    claimed = connection.execute(
        "select run_id, step_slug, task_index from pgflow.start_tasks('greet',"
        " (select array_agg(message_id) from pgflow.step_tasks where status = 'queued'), %s)",
        (WORKER,),
    ).fetchall()
    for task in claimed:
        if error is None:
            connection.execute(
                "select pgflow.complete_task(%s, %s, %s, %s)", (*task, Jsonb(output))
            )
        else:
            connection.execute("select pgflow.fail_task(%s, %s, %s, %s)", (*task, error))
    return len(claimed)


def later(call: Any, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=call, args=arguments)
    thread.start()
    return thread


@pytest.mark.parametrize("value", [None, 0, "", [], {}, False, {"ä": [1.5, None]}, "\u2028"])
def test_inputs_and_outputs_arrive_as_they_were(client, conn, value):
    run = client.start_flow("greet", value)
    work(conn, value)
    work(conn, value)

    done = client.wait(run.run_id, timeout=10)

    assert (done.input, done.output) == (value, {"world": value})
    assert type(done.input) is type(value)


def test_the_event_of_a_started_run_has_all_its_fields(client):
    run = client.start_flow("greet", {"x": 1})

    assert (run.flow_slug, run.status, run.remaining_steps) == ("greet", "started", 2)
    assert run.run_id.version == 7
    assert run.started_at.tzinfo is UTC
    assert (run.output, run.error, run.completed_at, run.has_ended) == (None, None, None, False)
    assert client.get_run(run.run_id) == client.get_run(str(run.run_id)) == run


def test_states_stand_under_their_slugs(client, conn):
    run_id = client.start_flow("greet", 1).run_id
    work(conn, {"said": "hello"})

    run = client.get_run_with_states(run_id)

    assert list(run.steps) == ["hello", "world"]
    assert (run.steps["hello"].status, run.steps["hello"].output) == (
        "completed",
        {"said": "hello"},
    )
    assert run.steps["world"].remaining_tasks == 1
    assert run.steps["hello"].completed_at.tzinfo is UTC


def test_a_failed_run_is_a_value_with_its_error(client, conn):
    run_id = client.start_flow("greet", 1).run_id
    work(conn, error="no such luck")

    run = client.wait(run_id, timeout=10)

    assert (run.status, run.error) == ("failed", "no such luck")
    assert client.get_run_with_states(run_id).steps["hello"].error == "no such luck"


def test_wait_is_woken_by_the_end_of_the_run(client, conn, monkeypatch):
    monkeypatch.setattr(following, "MIN_PAUSE_S", 60.0)  # so only a notification is in time
    monkeypatch.setattr(following, "MAX_PAUSE_S", 60.0)
    run_id = client.start_flow("greet", 1).run_id
    work(conn)
    waiting = later(client.wait, run_id)

    work(conn)
    waiting.join(timeout=30)

    assert not waiting.is_alive()


def test_wait_needs_no_notifications(client, conn):
    conn.execute("create schema realtime")
    conn.execute(
        "create function realtime.send(payload jsonb, event text, topic text, private boolean)"
        " returns void language sql as ''"
    )
    run_id = client.start_flow("greet", 1).run_id
    waiting = later(client.wait, run_id)

    work(conn)
    work(conn)
    waiting.join(timeout=30)

    assert not waiting.is_alive()


def test_waiting_ends_after_the_timeout_and_the_run_continues(client):
    began = time.monotonic()

    with pytest.raises(WaitTimeout, match=r"has not ended after 0\.2 s; it continues"):
        client.start_flow_sync("greet", 1, timeout=0.2)

    assert time.monotonic() - began >= 0.2
    with pytest.raises(TimeoutError):
        client.wait(client.start_flow("greet", 1).run_id, timeout=0)


def test_start_flow_sync_follows_its_run_in_the_transaction_of_the_start(client, conn):
    with pytest.raises(WaitTimeout) as timeout:
        client.start_flow_sync("greet", 1, timeout=0.1)

    query = (
        "select follower.xmin = run.xmin from pgflowd.followers as follower"
        " join pgflow.runs as run using (run_id) where run_id = %s"
    )
    assert conn.execute(query, (timeout.value.run_id,)).fetchall() == [(True,)]


def test_a_wait_that_begins_while_the_run_ends_is_told_in_time(client, conn, database, monkeypatch):
    monkeypatch.setattr(following, "MIN_PAUSE_S", 60.0)
    monkeypatch.setattr(following, "MAX_PAUSE_S", 60.0)
    run_id = client.start_flow("greet", 1).run_id
    work(conn)
    other = database.connect()
    with other.transaction():
        work(other)  # has looked for followers, and ends the run at its commit
        waiting = later(client.wait, run_id)
        until(lambda: conn.execute("select from pgflowd.followers").rowcount, within_s=20)

    waiting.join(timeout=30)

    assert not waiting.is_alive()


def test_start_flow_sync_returns_the_run_as_it_ended(client, conn):
    def both_steps() -> None:
        done = 0
        while done < 2:
            done += work(conn, "done")

    working = later(both_steps)
    run = client.start_flow_sync("greet", 1, timeout=30)
    working.join(timeout=30)

    assert (run.status, run.output) == ("completed", {"world": "done"})


def test_a_connection_after_a_wait_listens_no_more(client, conn):
    run_id = client.start_flow("greet", 1).run_id
    work(conn)
    work(conn)
    client.wait(run_id)

    (kept,) = client._connections.idle
    assert kept.execute("select count(*) from pg_listening_channels()").fetchone() == (0,)


def test_what_is_refused_costs_no_connection(client, conn):
    run = client.start_flow("greet", 1)
    (kept,) = client._connections.idle

    with pytest.raises(WaitTimeout):
        client.wait(run.run_id, timeout=0)
    with pytest.raises(NotFound):
        client.wait(uuid4(), timeout=0)
    with pytest.raises(UnknownFlow):
        client.start_flow("great", 1)
    with pytest.raises(RunExists):
        client.start_flow("greet", 1, run_id=run.run_id)

    assert client._connections.idle == [kept]
    assert kept.execute("select count(*) from pg_listening_channels()").fetchone() == (0,)


def test_a_run_starts_when_the_connection_of_the_caller_commits(client, database):
    with database.connect(autocommit=False, row_factory=dict_row) as own:
        own.execute("create table pages (url text)")
        run = client.start_flow("greet", {"url": "x"}, conn=own)
        assert client.get_run(run.run_id, conn=own) == run
        with pytest.raises(NotFound):
            client.get_run(run.run_id)
        own.commit()
        kept = client.start_flow("greet", 1, conn=own)
        own.rollback()
        assert not own.closed

    assert client.get_run(run.run_id).input == {"url": "x"}
    with pytest.raises(NotFound):
        client.get_run(kept.run_id)


def test_a_client_of_a_connection_does_not_wait_on_it(conn):
    client = Client(conn)
    run = client.start_flow("greet", 1)

    for call in (lambda: client.wait(run.run_id), lambda: client.start_flow_sync("greet", 1)):
        with pytest.raises(ValueError, match="wait with a client made of a URL"):
            call()
    client.close()

    assert conn.execute("select 1").fetchone() == (1,)


@covers("newcomer 20")
def test_many_runs_start_at_once_in_their_order(client, conn):
    inputs = [None, 0, {"x": [1]}, "text"]
    ids = [uuid4() for _ in inputs]

    assert [run.input for run in client.start_flows("greet", inputs)] == inputs
    assert [run.run_id for run in client.start_flows("greet", inputs, run_ids=ids)] == ids
    assert client.start_flows("greet", []) == []
    with pytest.raises(RunExists, match=f"E410 run {ids[0]} already exists"):
        client.start_flows("greet", [1, 2], run_ids=[uuid4(), ids[0]])
    with pytest.raises(OutputError, match=r"inputs\[1\]\.x is NaN"):
        client.start_flows("greet", [1, {"x": float("nan")}])
    with pytest.raises(ValueError, match="there are 2 inputs and 1 run ids"):
        client.start_flows("greet", [1, 2], run_ids=[uuid4()])

    assert conn.execute("select count(*) from pgflow.runs").fetchone() == (8,)


def test_what_cannot_be_started_is_reported_with_its_name(client, conn):
    mapping = Flow("each_one")
    mapping.map(slug="each")(lambda item: item)
    deploy(conn, mapping)
    run_id = client.start_flow("greet", 1).run_id

    with pytest.raises(UnknownFlow) as unknown:
        client.start_flow("gret", 1)
    assert str(unknown.value) == (
        "E415 there is no flow 'gret' in the database; run `pgflowd flows deploy gret`"
    )
    with pytest.raises(RunExists, match=f"E410 run {run_id} already exists"):
        client.start_flow("greet", 1, run_id=run_id)
    with pytest.raises(MapInput, match="E416"):
        client.start_flow("each_one", {"no": "array"})
    with pytest.raises(MapInput, match=r"E416 inputs\[1\]: .* not an array"):
        client.start_flows("each_one", [[1], {"no": "array"}, [2]])
    with pytest.raises(MapInput, match=r"E404 .* has 200001 elements, and a map may have 200000; "):
        client.start_flow("each_one", [0] * 200_001)
    with pytest.raises(OutputError, match="E403 input is a set"):
        client.start_flow("greet", {1})


def test_an_unknown_run_is_not_found_by_anything(client):
    nobody = uuid4()

    for call in (
        client.get_run,
        client.get_run_with_states,
        client.wait,
        client.cancel,
        client.retry,
    ):
        with pytest.raises(NotFound, match="E409 there is no run"):
            call(nobody)


def test_a_cancelled_run_is_shown_with_its_author_and_reason(client, conn):
    run_id = client.start_flow("greet", 1).run_id

    cancelled = client.cancel(run_id, reason="wrong customer", actor="ann")

    assert (cancelled.status, cancelled.cancelled_by) == ("cancelled", "ann")
    assert cancelled.cancel_reason == "wrong customer"
    assert cancelled.cancelled_at.utcoffset() is not None
    assert client.get_run_with_states(run_id).status == client.wait(run_id).status == "cancelled"
    assert client.cancel(run_id).cancel_reason == "wrong customer"
    with pytest.raises(NotRetryable, match="E411"):
        client.retry(run_id)
    assert client.retry(run_id, even_if_cancelled=True).status == "started"


def test_a_run_that_ended_cannot_be_cancelled_nor_a_completed_one_retried(client, conn):
    run_id = client.start_flow("greet", 1).run_id
    work(conn)
    work(conn)

    with pytest.raises(RunEnded, match="E411"):
        client.cancel(run_id)
    with pytest.raises(NotRetryable, match="E411"):
        client.retry(run_id)


def test_a_failed_run_is_retried_where_it_failed(client, conn):
    run_id = client.start_flow("greet", 1).run_id
    work(conn, "first")
    work(conn, error="no")

    again = client.retry(run_id, actor="ann")

    assert (again.status, again.error) == ("started", None)
    work(conn, "second")
    assert client.wait(run_id, timeout=10).output == {"world": "second"}


@covers("E302")
def test_a_schema_that_does_not_serve_the_client_is_refused_once_for_a_pool(
    client, conn, database, monkeypatch
):
    with Client(database.dsn) as newer, Client(database.dsn) as older:
        monkeypatch.setattr("pgflowd.db.runs.schema_version", lambda: 9999)
        for _ in range(2):
            with pytest.raises(DatabaseError, match=r"E302 .* needs 9999; .* `pgflowd db migrate`"):
                newer.start_flow("greet", 1)
        monkeypatch.setattr("pgflowd.db.runs.schema_version", lambda: 1)
        with pytest.raises(DatabaseError, match=r"E302 .* this pgflowd is of 1; upgrade pgflowd"):
            older.start_flow("greet", 1)
    monkeypatch.undo()
    client.start_flow("greet", 1)
    monkeypatch.setattr("pgflowd.db.runs.schema_version", lambda: 9999)
    client.start_flow("greet", 1)  # it was asked before

    with database.connect() as given, pytest.raises(DatabaseError, match="E302"):
        client.start_flow("greet", 1, conn=given)
    conn.execute("drop schema pgflowd cascade")
    with Client(database.dsn) as lost, pytest.raises(DatabaseError, match=r"E302 .*db migrate"):
        lost.start_flow("greet", 1)


def test_a_role_that_reads_no_table_starts_and_follows_runs(client, conn, database):
    conn.execute("drop role if exists c_starter")
    conn.execute("create role c_starter login")
    conn.execute("grant usage on schema pgflow to c_starter")
    try:
        for function in ("start_flow_with_states(text, jsonb, uuid)", "get_run_with_states(uuid)"):
            conn.execute(f"grant execute on function pgflow.{function} to c_starter")
        url = psycopg.conninfo.make_conninfo(database.dsn, user="c_starter")
        with Client(url) as starter:
            # what clients of other runtimes need is not enough
            with pytest.raises(AccessDenied, match=r"E305 .* grant usage on schema pgflowd"):
                starter.start_flow("greet", 3)
            conn.execute(roles_sql())
            conn.execute("grant pgflow_starter to c_starter")

            one, two = starter.start_flows("greet", [1, 2])
            run = starter.start_flow("greet", 3)
            client.cancel(run.run_id)

            assert (one.input, two.input) == (1, 2)
            assert starter.wait(run.run_id, timeout=5).status == "cancelled"
            assert starter.get_run(one.run_id).status == "started"
    finally:
        conn.execute("drop owned by c_starter")
        conn.execute("drop role c_starter")


def test_a_server_that_hung_up_is_called_again(client, conn):
    client.start_flow("greet", 1)
    ours = (
        "from pg_stat_activity where application_name = 'pgflowd client'"
        " and datname = current_database()"
    )
    conn.execute(f"select pg_terminate_backend(pid) {ours}")
    until(lambda: conn.execute(f"select {ours}").rowcount == 0, within_s=10)

    assert client.start_flow("greet", 2).input == 2


def hang_up(conn: psycopg.Connection, name: str = "pgflowd client") -> int:
    """End the connection of a client, and return its pid."""
    query = (
        "select pid from pg_stat_activity where application_name = %s"
        " and datname = current_database()"
    )
    (pid,) = until(lambda: conn.execute(query, (name,)).fetchone(), within_s=20)
    conn.execute("select pg_terminate_backend(%s)", (pid,))
    until(lambda: (pid,) not in conn.execute(query, (name,)).fetchall(), within_s=20)
    return pid


def test_wait_outlives_its_connections(client, conn):
    run_id = client.start_flow("greet", 1).run_id
    ended = []
    waiting = later(lambda: ended.append(client.wait(run_id, timeout=60)))
    assert len({hang_up(conn) for _ in range(3)}) == 3
    work(conn)
    hang_up(conn)
    work(conn, 2)

    waiting.join(timeout=30)

    assert [run.output for run in ended] == [{"world": 2}]


def test_start_flow_sync_of_the_asyncio_client_outlives_its_connections(database, conn):
    async def run() -> Any:
        async with AsyncClient(database.dsn) as client:
            return await client.start_flow_sync("greet", 1, timeout=60)

    ended = []
    waiting = later(lambda: ended.append(asyncio.run(run())))
    until(lambda: work(conn), within_s=20)
    assert len({hang_up(conn) for _ in range(3)}) == 3
    work(conn, 2)

    waiting.join(timeout=30)

    assert [run.output for run in ended] == [{"world": 2}]


def test_a_database_that_does_not_come_back_in_time_is_reported_as_a_timeout(client, conn, server):
    run_id = client.start_flow("greet", 1).run_id
    caught = []

    def wait() -> None:
        with pytest.raises(WaitTimeout, match=r"has not ended after 3 s") as told:
            client.wait(run_id, timeout=3)
        caught.append(told.value)

    name = conn.info.dbname
    last = (
        "select query_start from pg_stat_activity"
        " where application_name = 'pgflowd client' and datname = %s"
    )
    before = conn.execute(last, (name,)).fetchone()
    waiting = later(wait)
    until(lambda: conn.execute(last, (name,)).fetchone() not in (before, None), within_s=20)
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"alter database {name} allow_connections false")
        hang_up(conn)
        waiting.join(timeout=30)
        admin.execute(f"alter database {name} allow_connections true")

    assert caught[0].run_id == run_id


def test_an_address_without_a_server_is_reported_without_the_password():
    with pytest.raises(Unreachable, match="E301") as caught:
        Client("postgresql://ann:secret@127.0.0.1:1/shop").get_run(uuid4())

    assert "secret" not in str(caught.value)


def test_threads_may_share_a_client(client, conn):
    started: list[UUID] = []
    threads = [
        later(lambda: started.extend(client.start_flow("greet", n).run_id for n in range(5)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.join(timeout=30)

    assert len(set(started)) == 30


def test_the_asyncio_client_does_the_same(database, conn):
    async def follow() -> None:
        async with AsyncClient(database.dsn) as client:
            run = await client.start_flow("greet", {"x": None})
            waiting = asyncio.create_task(client.wait(run.run_id, timeout=30))
            await asyncio.to_thread(work, conn, 0)
            await asyncio.to_thread(work, conn, 0)
            done = await waiting
            assert (done.status, done.output) == ("completed", {"world": 0})
            assert (await client.get_run_with_states(run.run_id)).steps["hello"].output == 0
            with pytest.raises(WaitTimeout):
                await client.start_flow_sync("greet", 1, timeout=0.1)
            one, two = await client.start_flows("greet", [1, 2])
            assert (await client.cancel(one.run_id)).status == "cancelled"
            assert (await client.retry(one.run_id, even_if_cancelled=True)).status == "started"
            with pytest.raises(NotFound):
                await client.get_run(uuid4())
            assert (await client.get_run(two.run_id)).input == 2

    asyncio.run(follow())


def test_the_asyncio_client_uses_the_connection_of_the_caller(database, conn):
    async def start_and_roll_back() -> Any:
        async with await psycopg.AsyncConnection.connect(database.dsn) as own:
            client = AsyncClient(own)
            run = await client.start_flow("greet", 1)
            with pytest.raises(ValueError, match="made of a URL"):
                await client.wait(run.run_id)
            await own.rollback()
            return run.run_id

    run_id = asyncio.run(start_and_roll_back())

    with pytest.raises(NotFound):
        Client(conn).get_run(run_id)


def test_ids_begin_with_the_time_and_differ_at_their_end():
    one, two = uuid7(1_700_000_000_000, b"\0" * 10), uuid7(1_700_000_000_001, b"\xff" * 10)

    assert str(one) == "018bcfe5-6800-7000-8000-000000000000"
    assert str(two) == "018bcfe5-6801-7fff-bfff-ffffffffffff"
    assert (one.version, one.variant) == (7, UUID(int=0x8 << 60).variant)


def test_after_a_timeout_a_run_can_be_waited_for_again(client, conn):
    with pytest.raises(WaitTimeout) as caught:
        client.start_flow_sync("greet", 1, timeout=0)
    work(conn)
    work(conn)

    assert client.wait(caught.value.run_id, timeout=10).status == "completed"


def test_each_wrong_argument_has_its_own_error(client, conn):
    run = client.start_flow("greet", 1)

    with pytest.raises(ValueError, match="'run 7' is not a run id, such as 019bc0de-"):
        client.get_run("run 7")
    with pytest.raises(TypeError, match=r"a run id is a UUID .* write \.run_id behind it"):
        client.wait(run)
    with pytest.raises(TypeError, match=r"a flow is named by its slug, .*; write 'greet'"):
        client.start_flow(flow, 1)
    with pytest.raises(TypeError, match="start_flows takes a list of inputs, not one dict"):
        client.start_flows("greet", {"url": "x"})
    with pytest.raises(TypeError, match=r"write Client\(\) for the libpq environment"):
        Client(None)
    with pytest.raises(TypeError, match="AsyncClient cannot use Connection"):
        AsyncClient(conn)
    with pytest.raises(TypeError, match="asyncpg or Django, not a SimpleNamespace"):
        client.start_flow("greet", 1, conn=SimpleNamespace(connection=conn))


def test_a_connection_of_the_caller_may_have_cursors_of_its_own(client, conn, database):
    with database.connect(cursor_factory=psycopg.RawCursor, row_factory=dict_row) as own:
        run = client.start_flow("greet", {"x": "%s $1"}, conn=own)

        assert client.get_run(run.run_id, conn=own).input == {"x": "%s $1"}


def test_text_arrives_whatever_encoding_the_environment_asks_for(database, conn, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")

    with Client(database.dsn) as client:
        assert client.start_flow("greet", "größer € 日").input == "größer € 日"


def test_a_forked_child_takes_no_connection_of_its_parent(client, conn):
    run = client.start_flow("greet", 1)
    child = os.fork()
    if child == 0:
        found: list[Any] = []
        try:
            found = [client.get_run(run.run_id).input for _ in range(20)]
        finally:
            os._exit(0 if found == [1] * 20 else 1)

    assert [client.get_run(run.run_id).input for _ in range(20)] == [1] * 20
    until(lambda: os.waitpid(child, os.WNOHANG) == (child, 0), within_s=20)


def test_behind_a_pooler_nothing_is_left_in_sessions_of_others(database, conn):
    with pooler(database.dsn) as dsn, Client(dsn) as client:
        run_id = client.start_flow("greet", 1).run_id
        ended: list[Any] = []
        waiting = later(lambda: ended.append(client.wait(run_id, timeout=30)))
        work(conn)
        work(conn)
        waiting.join()

        with connect(dsn) as pooled:
            for _ in range(10):
                run_sync(pooled, operations.get(run_id))
            assert pooled.execute("select * from pg_prepared_statements").fetchall() == []
            run_sync(pooled, Channels().follow({run_id: True}))
            assert pooled.execute("select pg_listening_channels()").fetchall() == []
            with pytest.raises(WaitTimeout):
                client.start_flow_sync("greet", 1, timeout=0.1)
            count = "select count(*) from pgflowd.followers"
            assert pooled.execute(count).fetchone() == (0,), "nobody would hear"

    assert ended[0].status == "completed"
