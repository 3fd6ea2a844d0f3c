"""
Doorbells by real sessions: who notifies, whom `writers` names, and that no wake is lost.

docs/background/doorbells.md has the proof. The last test executes random orders of steps, as
`tests/unit/test_doorbell_random.py` does with a model.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from support.covers import covers
from support.database import Connection, Database
from support.doorbell_world import SENDERS, DoorbellWorld, play
from support.own_server import OwnServer
from support.rows_read import rows_read

ISOLATIONS = ("read committed", "repeatable read", "serializable")
SEND = "select pgmq.send(%s, '{}')"
LIVES = 30


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    with OwnServer({"max_prepared_transactions": "20"}) as server:
        yield server


class Bell(Database):
    """A watched queue of its own, sessions that send, and what a listener hears."""

    def __init__(self, dsn: str) -> None:
        super().__init__(psycopg.connect(dsn, autocommit=True))
        self.dsn, self.queue, self.owner = dsn, f"q{uuid4().hex[:12]}", uuid4()
        self.open: list[Connection] = [self.conn]
        self.do("select pgmq.create(%s), pgflowd.watch_queue(%s)", self.queue, self.queue)
        self.listener = self.session()
        self.listener.autocommit = True
        self.listener.execute("listen pgflowd")

    def session(self, isolation: str = "read committed") -> Connection:
        """A connection; each of its transactions has this isolation."""
        conn = psycopg.connect(self.dsn)
        conn.execute(f"set default_transaction_isolation = '{isolation}'".encode())
        conn.commit()
        self.open.append(conn)
        return conn

    def arm(self) -> bool:
        return bool(self.value("select pgflowd.arm(%s, %s)", self.queue, self.owner))

    def disarm(self) -> None:
        self.do("select pgflowd.disarm(%s, %s)", self.queue, self.owner)

    def writers(self, known: list[str] | None = None) -> list[str]:
        query = "select pgflowd.writers(%s, %s::text[])"
        return list(self.value(query, self.queue, known))

    def heard(self) -> bool:
        """Whether there was a notification; commits arrive in order, and ours is the last."""
        mark = uuid4().hex
        self.do("select pg_notify('pgflowd', %s)", mark)
        payloads = []
        for each in self.listener.notifies(timeout=10):
            if each.payload == mark:
                break
            payloads.append(each.payload)
        return self.queue in payloads

    def send(self, conn: Connection) -> None:
        conn.execute(SEND.encode(), (self.queue,))

    def close(self) -> None:
        for each in self.open:
            each.close()


@pytest.fixture
def bell(server: OwnServer) -> Iterator[Bell]:
    bell = Bell(server.dsn)
    yield bell
    for name in bell.column("select gid from pg_prepared_xacts"):
        bell.do(f"rollback prepared '{name}'")
    bell.close()


@pytest.mark.parametrize("how", [SEND, "select pgmq.send_batch(%s, array['{}', '{}']::jsonb[])"])
def test_a_message_notifies_if_the_doorbell_is_up_and_not_otherwise(bell: Bell, how: str):
    bell.do(how, bell.queue)
    assert not bell.heard()

    assert bell.arm()
    bell.do(how, bell.queue)
    assert bell.heard()

    bell.disarm()
    bell.do(how, bell.queue)
    assert not bell.heard()


def test_any_doorbell_of_the_queue_rings_and_none_of_another(bell: Bell):
    bell.do("select pgflowd.arm(%s, gen_random_uuid())", bell.queue)
    bell.arm()
    bell.disarm()
    bell.do(SEND, bell.queue)
    assert bell.heard(), "the other one is still up"

    bell.do("delete from pgflowd.doorbells")
    bell.do("select pgflowd.arm('another', gen_random_uuid())")
    bell.do(SEND, bell.queue)
    assert not bell.heard()


def test_a_doorbell_is_put_up_once(bell: Bell):
    assert [bell.arm(), bell.arm()] == [True, False]
    bell.disarm()
    assert bell.arm()


@covers("G9")
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_who_reads_by_an_old_snapshot_always_notifies(bell: Bell, isolation: str):
    conn = bell.session(isolation)
    conn.execute("select 1")  # the snapshot of the whole transaction, unless read committed

    bell.arm()
    bell.send(conn)
    conn.commit()
    assert bell.heard()

    bell.disarm()
    bell.send(conn)
    conn.commit()
    assert bell.heard() == (isolation != "read committed")


@covers("G9")
def test_a_statement_after_the_arming_notifies_though_an_earlier_one_did_not(bell: Bell):
    conn = bell.session()
    bell.send(conn)
    bell.arm()
    bell.send(conn)
    conn.commit()

    assert bell.heard()


@covers("G9")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_writers_are_named_until_they_end_and_nobody_who_came_later(bell: Bell, end: str):
    early, late = bell.session(), bell.session()
    bell.send(early)
    bell.arm()
    known = bell.writers()
    assert len(known) == 1

    bell.send(late)
    assert len(bell.writers()) == 2
    assert bell.writers(known) == known

    early.execute(end.encode())
    assert bell.writers(known) == []


@covers("G9")
def test_a_lock_without_a_message_yet_is_named(bell: Bell):
    """It may look for doorbells at any moment, by a snapshot that it has taken already."""
    conn = bell.session()
    conn.execute(f"lock table pgmq.q_{bell.queue} in row exclusive mode".encode())
    bell.arm()

    assert len(bell.writers()) == 1


@covers("G9")
def test_a_savepoint_that_is_undone_takes_its_message_and_its_notification_along(bell: Bell):
    conn = bell.session()
    bell.send(conn)
    conn.execute("savepoint here")
    bell.arm()
    bell.send(conn)
    conn.execute("rollback to savepoint here")
    [writer] = bell.writers()

    conn.commit()

    assert not bell.heard(), "its first message was sent before the arming"
    assert bell.writers([writer]) == []
    assert bell.value(f"select count(*) from pgmq.q_{bell.queue}") == 1


@covers("G9", "database 26")
def test_a_prepared_transaction_is_named_whatever_its_id(bell: Bell):
    conn = bell.session()
    bell.send(conn)
    bell.arm()
    known = bell.writers()
    conn.execute("prepare transaction 'one'")
    conn.commit()

    assert len(bell.writers(known)) == 1
    assert len(bell.writers(["of another"])) == 1, "after a restart of the server it has a new id"

    bell.do("commit prepared 'one'")
    assert bell.writers(known) == []


def test_a_transaction_that_has_notified_cannot_be_prepared(bell: Bell):
    bell.arm()
    conn = bell.session()
    bell.send(conn)

    with pytest.raises(psycopg.errors.FeatureNotSupported):
        conn.execute("prepare transaction 'one'")


def test_a_claim_of_another_worker_is_a_writer_while_it_lasts(bell: Bell):
    conn = bell.session()
    conn.execute("select pgmq.read(%s, 30, 1)", (bell.queue,))
    bell.arm()
    known = bell.writers()
    conn.commit()

    assert len(known) == 1
    assert bell.writers(known) == []


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_who_asks_by_an_old_snapshot_never_hears_that_all_are_gone(bell: Bell, isolation: str):
    conn = bell.session(isolation)

    found = conn.execute("select pgflowd.writers(%s)", (bell.queue,)).fetchone()

    assert found == ([] if isolation == "read committed" else ["snapshot"],)


def test_a_partitioned_queue_names_its_writers(bell: Bell):
    table = f"pgmq.q_{bell.queue}"
    bell.do(f"drop table {table}")
    bell.do(
        f"create table {table} (msg_id bigint generated always as identity, read_ct int default 0,"
        " enqueued_at timestamptz default now(), last_read_at timestamptz, vt timestamptz,"
        " message jsonb, headers jsonb) partition by range (msg_id);"
        f"create table {table}_1 partition of {table} for values from (0) to (1000000);"
        f"select pgflowd.watch_queue('{bell.queue}')"
    )
    conn = bell.session()
    bell.send(conn)

    bell.arm()

    assert len(bell.writers()) == 1
    conn.commit()
    bell.do(SEND, bell.queue)
    assert bell.heard()


def test_a_role_that_may_only_send_rings(bell: Bell):
    role = f"sender_{bell.queue}"
    bell.do(f"create role {role}; grant usage on schema pgmq to {role}")
    bell.do(f"grant insert, select on pgmq.q_{bell.queue} to {role}")
    bell.arm()
    conn = bell.session()
    conn.execute(f"set role {role}".encode())

    conn.execute(f"insert into pgmq.q_{bell.queue} (vt, message) values (now(), '{{}}')".encode())
    with pytest.raises(psycopg.errors.InsufficientPrivilege), conn.transaction():
        conn.execute("select * from pgflowd.doorbells")
    conn.commit()

    assert bell.heard()


@covers("rule 12")
def test_a_sweep_takes_the_doorbells_of_the_dead_down_and_of_nobody_else(bell: Bell):
    dead, silent, alive, young = (uuid4() for _ in range(4))
    insert = "insert into pgflowd.doorbells values (%s, %s, now() - %s::interval)"
    for owner, age in ((dead, "0 s"), (silent, "1 h"), (alive, "1 h"), (young, "1 min")):
        bell.do(insert, bell.queue, owner, age)
    worker = "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, %s, '')"
    bell.do(worker, alive, bell.queue)

    bell.do("select pgflowd.sweep_dead(%s, 'gone')", dead)
    bell.do("select pgflowd.sweep()")

    left = "select owner from pgflowd.doorbells where queue = %s"
    assert set(bell.column(left, bell.queue)) == {alive, young}


def test_the_trigger_reads_one_doorbell_whatever_the_planner_believes(bell: Bell):
    owners = "select %s, gen_random_uuid() from generate_series(1, 500)"
    bell.arm()
    bell.do("vacuum analyze pgflowd.doorbells")  # one page: to read it whole would cost least
    conn = bell.session()
    conn.autocommit = True
    for _ in range(7):  # so that its plan is kept
        bell.send(conn)
    insert = "insert into pgflowd.doorbells (queue, owner) " + owners
    bell.do(insert, f"{bell.queue}_other")
    bell.do("delete from pgflowd.doorbells where queue = %s", f"{bell.queue}_other")
    bell.do(insert, f"{bell.queue}_more")

    conn.autocommit = False
    send = f"select pgmq.send('{bell.queue}', '{{}}')"
    assert rows_read(conn, send) <= 3
    assert rows_read(conn, "select 1") == 0
    bell.do("delete from pgflowd.doorbells")


def test_doorbells_are_not_logged(bell: Bell):
    """A crash or a failover empties the table, and nobody who arms waits for a disk."""
    query = "select relpersistence from pg_class where oid = 'pgflowd.doorbells'::regclass"
    assert bell.value(query) == "u"


class RealStore:
    """
    Senders, each in a session of its own, and the transaction of the worker. What was committed is
    heard at once, since the time of the world does not pass here.
    """

    def __init__(self, bell: Bell, chance: random.Random) -> None:
        self._bell, self._chance = bell, chance
        self._senders = [bell.session() for _ in range(SENDERS)]
        self._prepared: dict[int, str] = {}
        self._worker = bell.session()
        self._names = 0

    def _begin(self, sender: int) -> Connection | None:
        """The session of a sender in its transaction; None if that is prepared."""
        if sender in self._prepared:
            return None
        conn = self._senders[sender]
        if conn.info.transaction_status.name == "IDLE":
            isolation = self._chance.choice(("read committed", *ISOLATIONS))
            conn.execute(f"set transaction isolation level {isolation}".encode())
            if self._chance.random() < 0.3:
                conn.execute("select 1")
        return conn

    def send(self, sender: int) -> None:
        if conn := self._begin(sender):
            self._bell.send(conn)

    def savepoint(self, sender: int) -> None:
        if conn := self._begin(sender):
            conn.execute("savepoint here")

    def rollback_to_savepoint(self, sender: int) -> None:
        if conn := self._begin(sender):
            try:
                conn.execute("rollback to savepoint here")
            except psycopg.Error:
                conn.rollback()

    def prepare(self, sender: int) -> None:
        if conn := self._begin(sender):
            self._names += 1
            name = f"{self._bell.queue}_{self._names}"
            try:
                conn.execute(f"prepare transaction '{name}'".encode())
                self._prepared[sender] = name
            except psycopg.errors.FeatureNotSupported:
                pass
            conn.rollback()

    def end(self, sender: int, *, commits: bool) -> None:
        if name := self._prepared.pop(sender, None):
            self._bell.do(f"{'commit' if commits else 'rollback'} prepared '{name}'")
        elif commits:
            self._senders[sender].commit()
        else:
            self._senders[sender].rollback()

    def go_on(self) -> None:
        pass

    def arm(self) -> bool:
        owner = self._bell.owner
        query = "select pgflowd.arm(%s, %s)"
        return bool(self._worker.execute(query, (self._bell.queue, owner)).fetchone()[0])

    def disarm(self) -> None:
        query = "select pgflowd.disarm(%s, %s)"
        self._worker.execute(query, (self._bell.queue, self._bell.owner))

    def writers(self, known: tuple[str, ...] | None) -> tuple[str, ...]:
        params = (self._bell.queue, None if known is None else list(known))
        query = "select pgflowd.writers(%s, %s::text[])"
        return tuple(self._worker.execute(query, params).fetchone()[0])

    def claim(self, most: int) -> int:
        """As a claim does it: in statements of their own, and without waiting."""
        query = f"""
            delete from pgmq.q_{self._bell.queue} where msg_id in (
              select msg_id from pgmq.q_{self._bell.queue} limit {most} for update skip locked)
        """
        return self._worker.execute(query.encode()).rowcount

    def commit(self) -> None:
        self._worker.commit()

    def abort(self) -> None:
        self._worker.rollback()

    def take_notifications(self) -> int:
        return int(self._bell.heard())

    def visible(self) -> int:
        return int(self._bell.value(f"select count(*) from pgmq.q_{self._bell.queue}"))


@covers("G9")
@pytest.mark.parametrize("seed", range(3))
def test_every_message_is_claimed_whatever_real_sessions_do_when(server: OwnServer, seed: int):
    chance = random.Random(seed)
    for _ in range(LIVES // 3):
        bell = Bell(server.dsn)
        world = DoorbellWorld(RealStore(bell, chance))
        life = [
            (chance.randrange(200), chance.randrange(SENDERS), chance.choice([0, 0.003, 0.05, 0.3]))
            for _ in range(60)
        ]

        play(world, life)

        assert world.store.visible() == 0
        assert world.armed, "it did arm"
        bell.close()
