"""What the exporter reads: each attempt and run that has ended, whoever holds what open."""

from __future__ import annotations

import contextlib
import uuid

from support.database import Connection, Row
from support.leases import LeaseDatabase
from support.own_server import OwnServer

RUNS = "select run_id, step_slug, status, error from pgflowd.export_runs(%s::uuid[], 100)"


def export(db: LeaseDatabase, most: int = 100, conn: Connection | None = None) -> list[int]:
    """The tokens of a transaction of the exporter."""
    query = "select token from pgflowd.export_attempts(%s) order by token"
    return [row.token for row in db.rows(query, most, conn=conn)]


def begin(db: LeaseDatabase) -> None:
    assert export(db) == []


def test_an_attempt_is_read_once_when_it_has_ended(own: LeaseDatabase) -> None:
    flow = own.flow("m*")
    begin(own)
    own.start(flow, [1, 2, 3])
    worker = own.worker(flow)
    tasks = own.claim(flow, worker)
    tokens = [task.token for task in tasks]

    assert export(own) == []
    own.complete(tasks[1])
    assert export(own) == [tokens[1]]
    own.fail(tasks[0])
    (again,) = own.claim(flow, worker)
    assert export(own) == [tokens[0]]
    own.complete(again)
    own.complete(tasks[2])
    assert export(own) == [tokens[2], again.token]
    assert export(own) == []


def test_a_rollback_lets_the_same_be_read_again(own: LeaseDatabase) -> None:
    flow = own.flow("m*")
    begin(own)
    own.start(flow, list(range(7)))
    tasks = own.claim(flow, own.worker(flow))
    for task in tasks:
        own.complete(task)
    conn = own.connect()
    conn.execute("begin")
    seen = export(own, 3, conn)
    conn.execute("rollback")

    found = [export(own, 3) for _ in range(4)]

    assert seen == found[0] and [len(some) for some in found] == [3, 3, 1, 0]
    assert [token for some in found for token in some] == sorted(task.token for task in tasks)


def test_one_of_two_exports(own: LeaseDatabase) -> None:
    flow = own.flow()
    begin(own)
    own.start(flow)
    own.complete(own.claim_one(flow, own.worker(flow)))
    first, second = own.connect(), own.connect()
    first.execute("begin")
    assert len(export(own, conn=first)) == 1
    assert export(own, conn=second) == []  # and does not wait
    first.execute("rollback")
    assert len(export(own, conn=second)) == 1


def test_a_report_that_is_left_open_hides_nothing(own: LeaseDatabase) -> None:
    flow = own.flow()
    begin(own)
    worker = own.worker(flow)
    own.start(flow)
    left_open = own.claim_one(flow, worker)
    assert export(own) == []
    other = own.connect()
    other.execute("begin")
    own.complete(left_open, conn=other)
    own.start(flow)
    later = own.claim_one(flow, worker)
    own.complete(later)

    assert export(own) == [], "it waits, since it cannot know what the other has written"
    other.execute("commit")
    assert export(own) == [left_open.token, later.token]


def test_a_claim_that_is_left_open_is_not_passed(own: LeaseDatabase) -> None:
    other, hidden, seen = claim_open(own)
    other.execute("commit")
    assert export(own) == [seen.token]
    own.complete(hidden)
    assert export(own) == [hidden.token]


def test_a_claim_that_is_prepared_is_not_passed() -> None:
    with (
        OwnServer({"max_prepared_transactions": "2"}) as server,
        contextlib.closing(LeaseDatabase(server.dsn, "all")) as db,
    ):
        other, hidden, seen = claim_open(db)
        other.execute("prepare transaction 'claim'")
        assert export(db) == export(db) == []
        db.conn.execute("commit prepared 'claim'")
        assert export(db) == [seen.token]
        db.complete(hidden)
        assert export(db) == [hidden.token]


def claim_open(db: LeaseDatabase) -> tuple[Connection, Row, Row]:
    """A claim in a transaction that is open, and a later one whose task has completed."""
    flow, worker, other, hidden = claim_in_transaction(db)
    db.start(flow)
    seen = db.claim_one(flow, worker)
    assert hidden.token < seen.token
    db.complete(seen)
    assert export(db) == export(db) == []
    return other, hidden, seen


def claim_in_transaction(db: LeaseDatabase) -> tuple[str, uuid.UUID, Connection, Row]:
    """A claim in a transaction that is open, with its flow and worker."""
    flow = db.flow()
    begin(db)
    worker = db.worker(flow)
    db.start(flow)
    other = db.connect()
    other.execute("begin")
    return flow, worker, other, db.claim_one(flow, worker, conn=other)


def test_a_claim_that_is_rolled_back_holds_nothing_up(own: LeaseDatabase) -> None:
    flow, worker, other, _ = claim_in_transaction(own)
    other.execute("rollback")
    task = own.claim_one(flow, worker)
    own.complete(task)
    assert export(own) == [task.token]


def ended_of(db: LeaseDatabase) -> list[uuid.UUID]:
    query = "select run_id from pgflowd.export_attempts(100) where ends_run"
    return [row.run_id for row in db.rows(query)]


def test_a_run_ends_with_the_report_that_ends_it(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b:a", "c", max_attempts=1)
    begin(own)
    worker = own.worker(flow)
    run = own.start(flow)
    first, other = sorted(own.claim(flow, worker), key=lambda task: task.step_slug)
    own.complete(first)
    own.complete(other)
    assert ended_of(own) == []
    own.complete(own.claim_one(flow, worker))
    assert ended_of(own) == [run]
    rows = own.rows(RUNS, [run])
    assert sorted((row.step_slug or "", row.status) for row in rows) == [
        ("", "completed"), ("a", "completed"), ("b", "completed"), ("c", "completed")
    ]  # fmt: skip

    run = own.start(flow)  # one fails, the other is late
    first, other = sorted(own.claim(flow, worker), key=lambda task: task.step_slug)
    own.fail(first, "no")
    own.complete(other)
    assert ended_of(own) == [run]
    rows = own.rows(RUNS, [run])
    assert {row.step_slug: (row.status, row.error) for row in rows} == {
        None: ("failed", "no"), "a": ("failed", "no"), "c": ("started", None)
    }  # fmt: skip


def test_runs_that_no_report_ends_are_told(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b:a")
    begin(own)
    cancelled, expired, given_up = own.start(flow), own.start(flow), own.start(flow)
    own.cancel(cancelled)
    assert own.value("select pgflowd._give_up(%s, 'a', 0, 'no')", given_up)
    own.rows(
        "select pgflowd._cancel(%s, 'its time is over', 'pgflowd')", expired
    )  # as the sweep does
    own.conn.execute("update pgflowd.runs set expired_at = now() where run_id = %s", (expired,))

    conn = own.connect()
    conn.execute("begin")
    found = [(row.run_id, row.status) for row in own.rows(RUNS, [], conn=conn) if not row.step_slug]
    conn.execute("rollback")

    expected = [(cancelled, "cancelled"), (expired, "expired"), (given_up, "failed")]
    assert sorted(found) == sorted(expected)
    assert len(own.rows(RUNS, [])) > 2 and own.rows(RUNS, []) == []


def test_without_traces_nothing_is_kept_for_them(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.cancel(own.start(flow))
    begin(own)
    own.conn.execute("update pgflowd.traces set seen_at = now() - interval '2 days'")
    own.cancel(own.start(flow))
    assert own.value("select count(*) from pgflowd.ended_runs") == 0

    own.start(flow)  # what came meanwhile is not read: it may be very much
    own.complete(own.claim_one(flow, own.worker(flow)))
    assert export(own) == export(own) == []


def test_each_history_has_what_it_keeps_read(db: LeaseDatabase) -> None:
    flow = db.flow(max_attempts=2)
    begin(db)
    worker = db.worker(flow)
    run = db.start(flow)
    first = db.claim_one(flow, worker)
    db.fail(first)
    again = db.claim_one(flow, worker)
    db.complete(again)

    expected = {"off": []}.get(db.history, [first.token, again.token])
    assert export(db) == expected
    assert db.outcomes(run) == db.kept("failed", "completed")
