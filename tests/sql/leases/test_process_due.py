"""
What is due: timers end, signals reach who waits for them, each once; what is locked is met again.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from support.covers import covers
from support.database import Connection, Row, key
from support.leases import LONG_SLEEP, LeaseDatabase, element
from support.rows_read import rows_read

from pgflowd.testing.until import until

NAP = {"kind": "sleep", "in_s": 0, "checkpoint": "sleep 1"}
PAID = {"kind": "signal", "name": "paid", "checkpoint": "signal paid 1"}
CHECKPOINTS = """
    select name, data from pgflowd.checkpoints where (run_id, step_slug, task_index) = (%s, %s, %s)
"""
UNUSED = "select payload from pgflowd.signals where consumed_at is null order by signal_id"


def process(
    db: LeaseDatabase, max_rows: int = 200, conn: Connection | None = None
) -> tuple[int | None, float | None]:
    found = db.row("select done, next_s from pgflowd.process_due(%s)", max_rows, conn=conn)
    return found.done, found.next_s


def signal(
    db: LeaseDatabase, run: UUID, payload: Any = 1, name: str = "paid", conn: Any = None
) -> None:
    db.do("select pgflowd.signal(%s, %s, %s::jsonb)", run, name, json.dumps(payload), conn=conn)


def saved(db: LeaseDatabase, task: Row) -> dict[str, Any]:
    return dict(db.rows(CHECKPOINTS, *key(task)[:3]))


def waiting(db: LeaseDatabase, wait: dict[str, Any] = NAP, flow: str | None = None) -> Row:
    """A task of a new run, which waits."""
    flow = flow or db.flow()
    db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    assert db.suspend(task, wait).verdict == "queued"
    return task


def again(db: LeaseDatabase, task: Row) -> list[Row]:
    return db.claim(task.flow_slug, db.worker(task.flow_slug))


def test_a_sleep_that_is_over_is_slept(db: LeaseDatabase) -> None:
    task = waiting(db)

    assert process(db) == (1, 0)

    (same,) = again(db, task)
    assert (key(same)[:3], same.attempt) == (key(task)[:3], 1)
    assert saved(db, same) == {"sleep 1": {"slept": True}}
    assert process(db) == (0, None)
    assert db.complete(same) == "completed"


def test_nothing_ends_before_it_is_due(db: LeaseDatabase) -> None:
    task = waiting(db, LONG_SLEEP)

    done, next_s = process(db)

    assert done == 0
    assert next_s is not None and 3590 < next_s <= 3600
    assert again(db, task) == []
    assert saved(db, task) == {}


def test_a_wait_that_leaves_nothing_behind_ends_too(db: LeaseDatabase) -> None:
    task = waiting(db, {"kind": "sleep", "in_s": 0, "why": "newer code has saved it"})

    assert process(db) == (1, 0)

    assert len(again(db, task)) == 1
    assert saved(db, task) == {}


@pytest.mark.parametrize("is_early", [True, False])
def test_a_signal_reaches_who_waits_for_it_early_or_late(db: LeaseDatabase, is_early: bool) -> None:
    flow = db.flow()
    run, payload = db.start(flow), {"amount": 12, "of": ["é", None]}
    task = db.claim_one(flow, db.worker(flow))
    if is_early:
        signal(db, run, payload)
        process(db)
        db.suspend(task, PAID)
    else:
        db.suspend(task, PAID)
        signal(db, run, payload)

    assert process(db)[0] is not None
    assert process(db) == (0, None)

    assert len(again(db, task)) == 1
    assert saved(db, task) == {"signal paid 1": {"got": payload}}
    assert db.column(UNUSED) == []


def test_no_signal_in_time_is_a_timeout_and_a_later_one_is_kept(db: LeaseDatabase) -> None:
    task = waiting(db, PAID | {"in_s": 0})

    process(db)
    signal(db, task.run_id)
    process(db)

    assert saved(db, task) == {"signal paid 1": {"timeout": True}}
    assert len(again(db, task)) == 1
    assert db.column(UNUSED) == [1]


def test_a_signal_that_is_given_before_the_timeout_is_seen_wins(db: LeaseDatabase) -> None:
    task = waiting(db, PAID | {"in_s": 0})
    signal(db, task.run_id)

    process(db)

    assert saved(db, task) == {"signal paid 1": {"got": 1}}
    assert db.waits(task.run_id) == []


def test_signals_are_given_in_their_order_to_those_who_waited_first(own: LeaseDatabase) -> None:
    flow = own.flow("m*")
    run, worker = own.start(flow, [1, 2, 3]), own.worker(flow)
    tasks = own.claim(flow, worker)
    for task in reversed(tasks):
        own.suspend(task, PAID)

    for payload in ("first", "second"):
        signal(own, run, payload)
    signal(own, run, "other", name="owed")
    signal(own, own.start(flow, [1]), "elsewhere")
    process(own)

    assert [saved(own, task) for task in tasks] == [
        {},
        {"signal paid 1": {"got": "second"}},
        {"signal paid 1": {"got": "first"}},
    ]
    assert own.waits(run) == [("m", 0, "signal")]
    assert own.column(UNUSED) == ["other", "elsewhere"]


def test_signals_that_came_early_are_used_one_by_one(own: LeaseDatabase) -> None:
    flow = own.flow()
    run, worker = own.start(flow), own.worker(flow)
    for payload in (1, 2, 3):
        signal(own, run, payload)
    process(own)

    for number in (1, 2):
        task = own.claim_one(flow, worker)
        own.suspend(task, PAID | {"checkpoint": f"signal paid {number}"})
        assert process(own) == (1, 0)

    assert saved(own, task) == {"signal paid 1": {"got": 1}, "signal paid 2": {"got": 2}}
    assert own.column(UNUSED) == [3]


def test_many_are_freed_in_parts_the_longest_due_first(own: LeaseDatabase) -> None:
    flow = own.flow("m*")
    own.start(flow, list(range(10)))
    tasks = own.claim(flow, own.worker(flow))
    for number, task in enumerate(tasks):
        own.suspend(task, NAP | {"until": f"2020-01-01T00:00:0{9 - number}Z"})

    assert process(own, 4) == (4, 0)

    assert {task.task_index for task in again(own, tasks[0])} == {6, 7, 8, 9}
    assert [process(own, 4)[0] for _ in range(3)] == [4, 2, 0]


@covers("rule 61")
@pytest.mark.parametrize("kind", ["sleep", "signal"])
def test_a_locked_run_holds_up_no_other_and_is_met_again(own: LeaseDatabase, kind: str) -> None:
    flow = own.flow("m*")
    first, second = own.start(flow, list(range(20))), own.start(flow, [1])
    wait = NAP if kind == "sleep" else PAID
    tasks = own.claim(flow, own.worker(flow), 30)
    for task in tasks:
        own.suspend(task, wait)
    for run in [first] * 20 + [second]:
        signal(own, run)
    other = own.connect()
    with other.transaction():
        own.do("select from pgflow.runs where run_id = %s for no key update", first, conn=other)

        while process(own, 4)[0]:
            pass

        assert own.waits(second) == []
        assert len(own.waits(first)) == 20
        done, next_s = process(own, 4)
        assert done == 0
        assert next_s is not None and 0.009 < next_s <= 1

    while process(own, 4)[0]:
        pass
    assert own.waits(first) == []


def test_a_run_that_stays_locked_is_met_ever_more_rarely_and_others_in_time(
    own: LeaseDatabase,
) -> None:
    long_due = waiting(own, NAP | {"until": "2020-01-01T00:00:00Z"})
    other = own.connect()
    with other.transaction():
        own.do("select from pgflow.runs for no key update", conn=other)
        assert process(own) == (0, 1.0)

        waiting(own, NAP | {"in_s": 0.5})
        done, next_s = process(own)
        assert done == 0
        assert next_s is not None and 0.2 < next_s <= 0.5
    assert own.waits(long_due.run_id) != []


@covers("rule 60")
def test_a_second_sweep_comes_again_but_not_while_something_is_late(own: LeaseDatabase) -> None:
    waiting(own)
    other = own.connect()
    with other.transaction():
        other.execute("select pgflowd._lock_name('work', 'process_due', true)")

        assert process(own) == (None, 0.05)
        until(lambda: process(own)[0] == 1, 5)


def test_two_sweeps_at_once_free_each_task_once(own: LeaseDatabase) -> None:
    flow = own.flow("m*")
    run = own.start(flow, list(range(40)))
    for task in own.claim(flow, own.worker(flow), 40):
        own.suspend(task, NAP | {"until": "2020-01-01T00:00:00Z"})  # so late that both work
    sweeps = [own.connect(), own.connect()]
    with sweeps[0].transaction():
        assert process(own, 15, conn=sweeps[0])[0] == 15
        assert process(own, 15, conn=sweeps[1])[0] == 0  # the run is locked
        sweeps[0].execute("savepoint later")
        assert process(own, 15, conn=sweeps[0])[0] == 15
        sweeps[0].execute("rollback to later")

    assert process(own, 40, conn=sweeps[1])[0] == 25
    assert own.waits(run) == []
    assert len(own.queue(flow)) == 40


def test_who_ends_a_wait_first_wins_and_the_other_finds_nothing(own: LeaseDatabase) -> None:
    task = waiting(own, PAID | {"in_s": 0})
    other, sweep = own.connect(), own.connect()
    sweep.execute("begin isolation level repeatable read")
    assert own.value("select count(*) from pgflowd.waits", conn=sweep) == 1
    own.cancel(task.run_id, conn=other)

    with pytest.raises(psycopg.errors.SerializationFailure):
        process(own, conn=sweep)
    sweep.execute("rollback")

    assert process(own)[0] == 0
    assert saved(own, task) == {}


def test_a_task_that_cannot_be_freed_spoils_no_other_and_is_tried_again(
    own: LeaseDatabase,
) -> None:
    good, bad = waiting(own), waiting(own)
    own.do(f"alter table pgmq.q_{bad.flow_slug} rename to away")
    told: list[Any] = []
    own.conn.add_notice_handler(lambda one: told.append((one.sqlstate, one.message_detail)))

    assert process(own) == (2, 0)

    assert len(again(own, good)) == 1
    ((state, detail),) = told
    assert state == "PF013"
    assert json.loads(detail) == {
        "run": str(bad.run_id),
        "step": "a",
        "task_index": 0,
        "error": f'relation "pgmq.q_{bad.flow_slug}" does not exist',
    }
    done, next_s = process(own)
    assert done == 0
    assert next_s is not None and 50 < next_s <= 60
    assert saved(own, bad) == {}
    own.do(f"alter table pgmq.away rename to q_{bad.flow_slug}")
    own.do("update pgflowd.waits set due_at = now()")
    assert process(own) == (1, 0)
    assert len(again(own, bad)) == 1


def test_a_signal_to_a_run_that_is_deleted_meanwhile_goes_too(own: LeaseDatabase) -> None:
    flow = own.flow()
    run, conn = own.start(flow), own.connect()
    with conn.transaction():
        signal(own, run, conn=conn)
        own.do("select pgflow.delete_flow_and_data(%s)", flow)

    while process(own)[0]:
        pass

    assert own.rows("select * from pgflowd.signals") == []
    assert process(own) == (0, None)


def test_a_signal_of_an_ended_run_is_not_looked_at_again(own: LeaseDatabase) -> None:
    run = own.start(own.flow())
    signal(own, run)
    own.cancel(run)

    assert process(own) == (1, 0)

    assert process(own) == (0, None)
    assert own.column(UNUSED) == [1]


@pytest.mark.parametrize(
    ("wait", "kept"),
    [
        (LONG_SLEEP, {"sleep 1": {"slept": True, "by": "me", "reason": "now"}}),
        (PAID, {"signal paid 1": {"timeout": True, "by": "me", "reason": "now"}}),
        ({"kind": "sleep", "in_s": 99}, {}),
    ],
)
def test_who_is_woken_has_slept_or_got_no_signal(
    db: LeaseDatabase, wait: dict[str, Any], kept: dict[str, Any]
) -> None:
    task = waiting(db, wait)

    query = "select pgflowd.task_wake(%s, %s, %s, 'me', 'now')"
    assert db.value(query, *key(task)[:3]) == "queued"

    assert len(again(db, task)) == 1
    assert saved(db, task) == kept
    with pytest.raises(psycopg.Error, match="does not wait: it is started") as caught:
        db.value(query, *key(task)[:3])
    assert caught.value.sqlstate == "PF008"
    with pytest.raises(psycopg.Error) as caught:
        db.value(query, uuid4(), "a", 0)
    assert caught.value.sqlstate == "PF002"


@pytest.mark.parametrize(
    ("wait", "is_heard"), [({"in_s": 5}, True), ({"in_s": 15}, False), ({"in_s": -1}, True)]
)
def test_a_report_notifies_of_what_is_due_before_a_sweeper_wakes(
    own: LeaseDatabase, wait: dict[str, Any], is_heard: bool
) -> None:
    listener = own.connect()
    listener.execute("listen pgflowd_due")
    own.do("select pgflowd.sweeper_sleeps(%s, 10)", uuid4())

    waiting(own, NAP | wait)
    own.do("notify pgflowd_due, 'end'")

    heard = [each.payload for each in listener.notifies(timeout=5, stop_after=1)]
    assert heard[0] == ("" if is_heard else "end")


def test_a_wait_whose_signal_is_there_already_notifies(own: LeaseDatabase) -> None:
    listener, flow = own.connect(), own.flow()
    run, worker = own.start(flow), own.worker(flow)
    signal(own, run)
    process(own)
    listener.execute("listen pgflowd_due")
    own.do("select pgflowd.sweeper_sleeps(%s, 10)", uuid4())

    own.suspend(own.claim_one(flow, worker), PAID)

    assert len(list(listener.notifies(timeout=5, stop_after=1))) == 1


def test_what_is_due_for_long_while_there_is_a_sweeper_is_a_violation(own: LeaseDatabase) -> None:
    task, query = waiting(own), "select invariant, run_id from pgflowd.violations()"
    signal(own, own.start(own.flow()))
    own.do("update pgflowd.waits set due_at = now() - interval '61 s'")
    own.do("update pgflowd.signals set sent_at = now() - interval '61 s'")
    assert own.rows(query) == []

    own.do("select pgflowd.sweeper_sleeps(%s, 10)", uuid4())

    assert [row.invariant for row in own.rows(query)] == ["I16", "I16"]
    assert own.rows(query)[0].run_id == task.run_id
    while process(own)[0]:
        pass
    assert own.rows(query) == []


def test_rows_of_sweepers_that_are_gone_are_deleted(own: LeaseDatabase) -> None:
    gone, here = uuid4(), uuid4()
    own.do("insert into pgflowd.sweepers values (%s, now() - interval '6 minutes')", gone)

    own.do("select pgflowd.sweeper_sleeps(%s, 10)", here)
    own.do("select pgflowd.sweeper_sleeps(%s, 20)", here)

    assert own.column("select sweeper_id from pgflowd.sweepers") == [here]


def test_open_transactions_that_may_have_missed_a_sleeper_are_named(own: LeaseDatabase) -> None:
    run, conn, query = own.start(own.flow()), own.connect(), "select pgflowd.due_writers(%s)"
    with conn.transaction():
        signal(own, run, conn=conn)
        (writer,) = own.value(query, None)
        assert own.value(query, [writer]) == [writer]
        assert own.value(query, []) == []

    assert own.value(query, [writer]) == []


def test_a_look_reads_no_more_where_more_is_due(own: LeaseDatabase) -> None:
    flow, many = own.flow("m*"), 2000
    run, worker = own.start(flow, list(range(many))), own.worker(flow)
    while claimed := own.claim(flow, worker, 200):
        own.report(*[element(task, "suspended", wait=LONG_SLEEP) for task in claimed])
    own.do("vacuum analyze")  # nothing is due, the planner learns
    own.do("update pgflowd.waits set due_at = now()")

    with own.conn.transaction(force_rollback=True):
        few = rows_read(own.conn, "select pgflowd.process_due(5)")
    read = rows_read(own.conn, "select pgflowd.process_due(10)")

    assert read < few + 10 * 50
    assert len(own.waits(run)) == many - 10


@pytest.mark.parametrize("is_known", [True, False])
def test_many_signals_and_waits_of_a_run_cost_no_more_than_few(
    own: LeaseDatabase, is_known: bool
) -> None:
    flow = own.flow("m*")
    run, worker = own.start(flow, list(range(900))), own.worker(flow)
    if not is_known:
        own.do("vacuum analyze")
    while claimed := own.claim(flow, worker, 200):
        waits = [PAID | {"name": "owed"}] * 200
        own.report(*[element(t, "suspended", wait=w) for t, w in zip(claimed, waits, strict=False)])
    used = """
        insert into pgflowd.signals (run_id, name, is_new, step_slug, task_index, consumed_at)
        select %s, name, false, 'm', 0, now()
          from generate_series(1, 1000), unnest('{paid,owed}'::text[]) as name
    """
    own.do(used, run)
    if is_known:
        own.do("vacuum analyze")
    signal(own, run, name="owed")
    signal(own, run, name="paid")

    assert rows_read(own.conn, "select pgflowd.process_due()") < 200
    assert len(own.waits(run)) == 899
    own.do("delete from pgflowd.signals where step_slug = 'm' and signal_id <= 2000")


def test_while_nothing_is_due_many_waits_and_signals_cost_nothing(own: LeaseDatabase) -> None:
    task = waiting(own, PAID | {"in_s": 3600})
    with own.conn.transaction():
        fill = """
            insert into pgflowd.waits (run_id, step_slug, task_index, flow_slug, kind, due_at)
            select %s, 'a', n, 'f', 'sleep', now() + interval '1 hour'
              from generate_series(1, 5000) as n
        """
        own.do("set local session_replication_role = replica")
        own.do(fill, task.run_id)
    other = own.start(own.flow())
    for _ in range(10):
        signal(own, other)
    process(own)

    assert rows_read(own.conn, "select pgflowd.process_due()") < 50
    own.do("delete from pgflowd.waits where kind = 'sleep'")
