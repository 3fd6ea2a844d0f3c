"""`conn=` takes what applications have: their rows and the run commit together, or not at all."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from psycopg.types.json import Jsonb
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pgflowd import AsyncClient, Client, Flow, Schedule
from pgflowd.core.ids import uuid7
from pgflowd.errors import (
    KeyTaken,
    MapInput,
    NotFound,
    NotRetryable,
    RunExists,
    UnknownFlow,
)

orders = Flow("orders")


@orders.step
def pack(run): ...


mails = Flow("mails")


@mails.map
def send(item): ...


INSERT = "insert into own_row values (1)"
Begin = Callable[[], AbstractContextManager[Any]]


@pytest.fixture
def base(database) -> psycopg.Connection:
    conn = database.connect()
    conn.execute("create table own_row (id int)")
    for flow in (orders, mails):
        shape = Jsonb(flow.shape())
        conn.execute("select pgflow._create_flow_from_shape(%s, %s)", (flow.slug, shape))
    return conn


def found(base: psycopg.Connection) -> tuple[int, int]:
    """How many rows of the application and runs were committed."""
    row = base.execute(
        "select (select count(*) from own_row), (select count(*) from pgflow.runs)"
    ).fetchone()
    assert row is not None
    return row


class Undone(Exception):
    """Ends the transaction of a test."""


# a transaction of each library, and how it executes a statement


def url_of(dsn: str, driver: str) -> str:
    if driver != "pg8000":
        return dsn.replace("postgresql://", f"postgresql+{driver}://")
    host = psycopg.conninfo.conninfo_to_dict(dsn)["host"]  # a socket, which it wants by its file
    user, name = (psycopg.conninfo.conninfo_to_dict(dsn)[key] for key in ("user", "dbname"))
    port = psycopg.conninfo.conninfo_to_dict(dsn).get("port", "5432")
    return f"postgresql+pg8000://{user}@/{name}?unix_sock={host}/.s.PGSQL.{port}"


@contextmanager
def sqlalchemy_session(dsn: str, driver: str, kind: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(url_of(dsn, driver))
    try:
        if kind == "connection":
            with engine.begin() as conn:
                yield conn
        elif kind == "session":
            with Session(engine) as session, session.begin():
                yield session
        else:
            scoped = scoped_session(sessionmaker(engine))
            try:
                yield scoped
                scoped.commit()
            finally:
                scoped.remove()
    finally:
        engine.dispose()


@contextmanager
def django_atomic(dsn: str, *_: str) -> Iterator[Any]:
    configure_django(dsn)
    from django.db import connection, transaction

    try:
        with transaction.atomic():
            yield connection
    finally:
        connection.close()


def configure_django(dsn: str) -> None:
    known = psycopg.conninfo.conninfo_to_dict(dsn)
    values = {
        "ENGINE": "django.db.backends.postgresql", "NAME": known["dbname"], "USER": known["user"],
        "HOST": known["host"], "PORT": known.get("port", ""),
    }  # fmt: skip
    if not settings.configured:
        settings.configure(DATABASES={"default": values}, USE_TZ=True)
        django.setup()
    from django.db import connection

    connection.settings_dict.update(values)


@asynccontextmanager
async def sqlalchemy_async(dsn: str, driver: str, kind: str) -> AsyncIterator[Any]:
    url = dsn.replace("postgresql://", f"postgresql+{driver}://")
    engine = create_async_engine(url)
    try:
        if kind == "connection":
            async with engine.begin() as conn:
                yield conn
        else:
            async with AsyncSession(engine) as session, session.begin():
                yield session
    finally:
        await engine.dispose()


@asynccontextmanager
async def asyncpg_transaction(dsn: str, driver: str, kind: str) -> AsyncIterator[Any]:
    if kind == "pool":
        pool = asyncpg.create_pool(dsn, min_size=1)
        async with pool, pool.acquire() as conn, conn.transaction():
            yield conn
        return
    conn = await asyncpg.connect(dsn)
    try:
        # an application may have codecs of its own
        await conn.set_type_codec("jsonb", encoder=repr, decoder=repr, schema="pg_catalog")
        async with conn.transaction():
            yield conn
    finally:
        await conn.close()


def insert(conn: Any) -> Any:
    if hasattr(conn, "cursor") and hasattr(conn, "vendor"):
        with conn.cursor() as cursor:
            return cursor.execute(INSERT)
    if hasattr(conn, "fetch"):
        return conn.execute(INSERT)
    return conn.execute(sqlalchemy.text(INSERT))


SYNC = [
    *((sqlalchemy_session, driver, "session") for driver in ("psycopg", "psycopg2", "pg8000")),
    (sqlalchemy_session, "psycopg", "connection"),
    (sqlalchemy_session, "psycopg", "scoped"),
    (django_atomic, "psycopg", "connection"),
]
ASYNC = [
    *((sqlalchemy_async, driver, "session") for driver in ("asyncpg", "psycopg")),
    (sqlalchemy_async, "asyncpg", "connection"),
    (asyncpg_transaction, "", "connection"),
    (asyncpg_transaction, "", "pool"),
]


def each(kinds: list[Any]) -> Any:
    return pytest.mark.parametrize(
        "kind", kinds, ids=lambda kind: "-".join([kind[0].__name__, *filter(None, kind[1:])])
    )


Call = Callable[[Any, Any], Any]


def walk(call: Call) -> Iterator[Any]:
    """Call every method that takes `conn=`; the caller of this awaits each if it has to.

    A method that is not in it fails the test: nobody would know whether its values can be read.
    """
    untried = {
        name for name, method in vars(Client).items()
        if not name.startswith("_") and "conn" in inspect.signature(method).parameters
    }  # fmt: skip

    def tried(name: str, *args: Any, **kwargs: Any) -> Any:
        untried.discard(name)
        return call(name, (args, kwargs))

    run = yield tried("start_flow", "orders", {"a": "50% :of :all ::it", "b": [1, None]})
    assert run.input == {"a": "50% :of :all ::it", "b": [1, None]}
    assert (yield tried("get_run", run.run_id)).run_id == run.run_id
    states = yield tried("get_run_with_states", run.run_id)
    assert states.steps["pack"].status == "started"
    two = yield tried(
        "start_flows",
        "orders",
        [None, 'z"w\\ei'],
        run_ids=[uuid7(1, b"a" * 10), uuid7(2, b"b" * 10)],
    )
    assert [each.input for each in two] == [None, 'z"w\\ei']
    assert (yield tried("start_flows", "mails", [[1], []]))[1].input == []
    later = yield tried(
        "start_flow", "orders", None, key="k", labels={"tenant": "a"}, after=[run.run_id]
    )
    assert later.labels == {"tenant": "a"} and later.status == "blocked"
    assert later.blocked_by == [run.run_id]
    early = yield tried("start_flow", "orders", 0, delay=60)
    assert (yield tried("reschedule", early.run_id, delay=30)).status == "scheduled"
    assert (yield tried("timeline", run.run_id))[0].event
    assert (yield tried("pause", run.run_id, reason="why")).status == "paused"
    assert (yield tried("resume", run.run_id)).status == "started"
    assert (yield tried("pause_flow", "mails"))
    assert (yield tried("resume_flow", "mails"))
    yield tried("signal", run.run_id, "paid", {"amount": 12}, dedup="x")
    yield tried("approve", run.run_id, "pack", note="fine")
    yield tried("reject", run.run_id, "pack", dedup="y")
    schedule = Schedule("0 6 * * *", input={"a": 1})
    assert (yield tried("add_schedule", "orders.nightly", "orders", schedule))
    fired = yield tried("fire_schedule", "orders.nightly")
    [listed] = yield tried("schedules", "orders")
    assert listed.input == {"a": 1} and listed.last_run_id == fired.run_id
    assert (yield tried("pause_schedule", "orders.nightly"))
    assert (yield tried("resume_schedule", "orders.nightly"))
    yield tried("remove_schedule", "orders.nightly")
    [found] = (yield tried("runs", labels={"tenant": "a"}, since="1h", input=None)).runs
    assert (found.run_id, found.labels) == (later.run_id, {"tenant": "a"})
    first = yield tried("runs", flow="orders", status=["started", "scheduled"], limit=1)
    after = yield tried("runs", flow="orders", status=["started", "scheduled"], page=first.next)
    assert first.runs[0].run_id not in {each.run_id for each in after.runs}
    assert [each.run_id for each in (yield tried("runs", flow="orders", key="k")).runs] == [
        later.run_id
    ]
    assert (yield tried("count", input={"b": [1]}, flow="orders")).found == 1
    [task] = yield tried("tasks", run.run_id)
    assert (task.run_id, task.step_slug) == (run.run_id, "pack")
    assert (yield tried("step_tasks", run.run_id, "pack")).tasks[0].task == 0
    assert {flow.flow_slug for flow in (yield tried("flows"))} == {"orders", "mails"}
    assert (yield tried("daemons")) == []
    ended = yield tried("cancel", run.run_id, reason="enough", actor="me")
    assert (ended.cancelled_by, ended.cancel_reason) == ("me", "enough")
    yield tried("cancel", two[1].run_id)
    assert (yield tried("delete", two[1].run_id)) == 1
    # which it refuses, as tried below
    assert untried == {"retry", "undo"}


def refusals(run_id: Any) -> list[tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]]:
    return [
        (UnknownFlow, "start_flow", ("order", {}), {}),
        (RunExists, "start_flow", ("orders", {}), {"run_id": run_id}),
        (MapInput, "start_flow", ("mails", {}), {}),
        (NotFound, "cancel", (uuid7(3, b"c" * 10),), {}),
        (UnknownFlow, "runs", (), {"flow": "order"}),
        (UnknownFlow, "tasks", (), {"flow": "order"}),
        (NotFound, "step_tasks", (run_id, "park"), {}),
        (NotRetryable, "retry", (run_id,), {}),
        (Exception, "undo", (run_id,), {}),
        (KeyTaken, "start_flow", ("orders", {}), {"singleton": "s", "on_conflict": "reject"}),
    ]  # fmt: skip


@each(SYNC)
def test_rows_and_runs_commit_together_and_every_method_works(kind, base, database):
    begin, *args = kind
    client = Client(database.dsn)
    with begin(database.dsn, *args) as conn:
        insert(conn)
        run_id = client.start_flow("orders", {}, conn=conn, singleton="s").run_id
        assert found(base) == (0, 0)
    assert found(base) == (1, 1)
    with pytest.raises(Undone), begin(database.dsn, *args) as conn:
        insert(conn)
        client.start_flow("orders", {}, conn=conn)
        steps = walk(lambda name, given: getattr(client, name)(*given[0], conn=conn, **given[1]))
        answer = next(steps)
        with pytest.raises(StopIteration):
            while True:
                answer = steps.send(answer)
        raise Undone
    for error, name, given, named in refusals(run_id):
        with pytest.raises(error) as raised, begin(database.dsn, *args) as conn:
            getattr(client, name)(*given, conn=conn, **named)
        assert raised.value.code
    assert found(base) == (1, 1)


@each(ASYNC)
def test_the_same_with_asyncio(kind, base, database):
    begin, *args = kind

    async def all_of_it() -> None:
        client = AsyncClient(database.dsn)
        async with begin(database.dsn, *args) as conn:
            await insert(conn)
            run_id = (await client.start_flow("orders", {}, conn=conn, singleton="s")).run_id
            assert found(base) == (0, 0)
        assert found(base) == (1, 1)
        with pytest.raises(Undone):
            async with begin(database.dsn, *args) as conn:
                await insert(conn)
                steps = walk(
                    lambda name, given: getattr(client, name)(*given[0], conn=conn, **given[1])
                )
                call: Coroutine[Any, Any, Any] | None = next(steps)
                while call is not None:
                    answer = await call
                    try:
                        call = steps.send(answer)
                    except StopIteration:
                        call = None
                raise Undone
        for error, name, given, named in refusals(run_id):
            with pytest.raises(error) as raised:
                async with begin(database.dsn, *args) as conn:
                    await getattr(client, name)(*given, conn=conn, **named)
            assert raised.value.code

    asyncio.run(all_of_it())
    assert found(base) == (1, 1)


def test_what_is_passed_in_cannot_wait_and_must_fit_the_client(base, database):
    with sqlalchemy_session(database.dsn, "psycopg", "session") as session:
        client = Client(session)
        run = client.start_flow("orders", {})
        with pytest.raises(ValueError, match="passed in cannot wait"):
            client.wait(run.run_id)
        with pytest.raises(TypeError, match="AsyncClient cannot use Session; use the other client"):
            AsyncClient(session)
    engine = sqlalchemy.create_engine("sqlite://")
    with Session(engine) as session, pytest.raises(TypeError, match="is to sqlite"):
        Client().start_flow("orders", {}, conn=session)
    for wrong in (engine, sessionmaker(engine), 7):
        with pytest.raises(TypeError, match="takes a URL, or a connection of psycopg, SQLAlchemy"):
            Client(wrong)


def test_using_names_a_connection_of_django(base, database):
    client = Client(using="default")
    with django_atomic(database.dsn) as conn:
        run = client.start_flow("orders", {})
        with pytest.raises(ValueError, match="cannot wait"):
            client.wait(run.run_id)
        assert conn.in_atomic_block and found(base) == (0, 0)
    assert found(base) == (0, 1)
    with pytest.raises(TypeError, match="not both"):
        Client(database.dsn, using="default")


def test_a_session_asks_only_once_whether_flows_have_versions(base, database):
    engine = sqlalchemy.create_engine(url_of(database.dsn, "psycopg"))
    statements: list[str] = []
    sqlalchemy.event.listen(
        engine, "before_cursor_execute", lambda *given: statements.append(given[2])
    )
    for _ in range(3):
        with Session(engine) as session, session.begin():
            Client().start_flow("orders", {}, conn=session)
    engine.dispose()
    assert len(statements) == 4


def test_nobody_imports_a_library_that_he_does_not_use():
    code = "import sys; from pgflowd import AsyncClient, Client; print(*sys.modules)"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    loaded = {name.split(".")[0] for name in names.split()}
    assert "psycopg" in loaded
    assert not loaded & {"sqlalchemy", "asyncpg", "django", "psycopg2", "pg8000"}
