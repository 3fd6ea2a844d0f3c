"""
Tasks that wait: a report suspends them, and they are freed; meanwhile they have no message.
"""

from __future__ import annotations

import random
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from support.covers import covers
from support.database import Connection, Row, key
from support.leases import LONG_SLEEP, LeaseDatabase, element

SIGNAL = {"kind": "signal", "name": "paid", "checkpoint": "signal paid 1"}
UNTIL = {"kind": "sleep", "until": "2199-01-01T00:00:00+00:00", "why": "not before the feast"}
KEPT = """
    insert into pgflowd.checkpoints (run_id, step_slug, task_index, name, token, data)
    values (%s, 'a', 0, %s, 1, %s::jsonb)
"""
CONSUMED = """
    insert into pgflowd.signals (run_id, name, payload, is_new, step_slug, task_index, consumed_at)
    values (%s, 'paid', '12', false, 'a', 0, now())
"""


def violated(db: LeaseDatabase) -> set[str]:
    return {row.invariant for row in db.rows("select * from pgflowd.violations()")}


def claimed(db: LeaseDatabase, flow: str, **more: Any) -> Row:
    return db.claim_one(flow, db.worker(flow), **more)


@pytest.mark.parametrize("wait", [LONG_SLEEP, UNTIL, SIGNAL, SIGNAL | {"in_s": 60}])
def test_a_task_that_waits_has_no_message_and_has_spent_no_attempt(
    db: LeaseDatabase, wait: dict[str, Any]
) -> None:
    flow = db.flow(max_attempts=1)
    run, worker = db.start(flow), db.worker(flow)
    task = db.claim_one(flow, worker)

    assert db.suspend(task, wait).verdict == "queued"

    row = db.row("select * from pgflowd.waits")
    assert key(row)[:3] == key(task)[:3]
    kept = [row.flow_slug, row.kind, row.name, row.checkpoint, row.why]
    named = [wait.get(one) for one in ("kind", "name", "checkpoint", "why")]
    assert kept == [flow, *named]
    assert (row.due_at is None) == (wait == SIGNAL)
    after = db.task(run)
    assert (after.status, after.attempts_count, after.started_at) == ("queued", 0, None)
    assert db.outcomes(run) == ["suspended"]
    assert not db.queue(flow)
    assert db.claim(flow, worker) == []
    assert db.recover("0 s") == 0
    assert db.rows("select * from pgflowd.stalled_tasks()") == []
    assert violated(db) == set()


def test_a_freed_task_goes_on_where_its_attempts_were(db: LeaseDatabase) -> None:
    flow = db.flow()
    run, worker = db.start(flow), db.worker(flow)
    db.fail(db.claim_one(flow, worker), delay="0 s")
    task = db.claim_one(flow, worker)
    db.suspend(task)

    assert db.free(task) == 1

    again = db.claim_one(flow, worker)
    assert (task.attempt, again.attempt) == (2, 2)
    assert db.complete(again) == "completed"
    assert db.outcomes(run) == db.kept("failed", "suspended", "completed")
    assert db.status(run) == "completed"
    assert not db.queue(flow)
    assert violated(db) == set()


def test_tasks_are_freed_in_the_order_in_which_they_began_to_wait(db: LeaseDatabase) -> None:
    flow = db.flow("a", "m*:a")
    run, worker = db.start(flow), db.worker(flow)
    db.complete(db.claim_one(flow, worker), [1, 2, 3, 4])
    tasks = {task.task_index: task for task in db.claim(flow, worker)}
    for index in (2, 0, 3):
        db.suspend(tasks[index])

    assert db.free(*tasks.values()) == 3
    assert db.free(*tasks.values()) == 0

    sent = db.rows("select message from pgmq.{} order by msg_id".format(f"q_{flow}"))
    assert [one.message["task_index"] for one in sent] == [1, 2, 0, 3]
    assert db.waits(run) == []


def test_a_wait_is_not_counted_as_waiting_for_a_worker(own: LeaseDatabase) -> None:
    flow = own.flow()
    run = own.start(flow)
    own.do("update pgflow.steps set opt_start_delay = 5000")
    own.do("update pgflow.step_tasks set queued_at = queued_at - interval '2 hours'")
    own.do(
        "update pgflow.step_states set created_at = created_at - interval '2 hours',"
        " started_at = started_at - interval '2 hours'"
    )
    first = claimed(own, flow)
    assert 2100 < first.waited_s < 2300
    own.suspend(first)
    own.free(first)

    again = claimed(own, flow)

    assert again.waited_s < 60
    own.do("update pgflow.steps set opt_start_delay = 0")
    assert own.complete(again) == "completed"
    assert own.status(run) == "completed"


def test_a_report_of_a_suspension_is_recorded_once(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = claimed(db, flow)
    db.suspend(task)

    assert db.suspend(task).verdict == "repeated"
    answer = db.report(element(task))[0]

    assert (answer.verdict, answer.sqlstate) == ("lost", "PF001")
    assert db.waits(run) == [("a", 0, "sleep")]


def test_a_task_whose_run_has_ended_does_not_wait(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = claimed(db, flow)
    db.cancel(run)

    assert db.suspend(task).verdict == "late"

    assert db.waits(run) == []
    assert db.outcomes(run) == ["late"]


def test_a_task_whose_attempt_was_revoked_begins_anew_and_does_not_wait(db: LeaseDatabase) -> None:
    flow = db.flow()
    run, worker = db.start(flow), db.worker(flow)
    task = db.claim_one(flow, worker)
    db.cancel(run)
    db.retry(run, cancelled=True)

    assert db.suspend(task).verdict == "late"

    assert db.waits(run) == []
    assert db.claim_one(flow, worker).attempt == 1


def test_a_task_that_another_worker_took_does_not_wait(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = claimed(db, flow)
    db.lapse(task)
    taken = claimed(db, flow)

    assert db.suspend(task).verdict == "lost"

    assert db.waits(run) == []
    assert db.complete(taken) == "completed"


def test_a_task_whose_lease_lapsed_and_nobody_took_may_wait(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = claimed(db, flow)
    db.lapse(task)

    assert db.suspend(task).verdict == "queued"

    assert db.recover("0 s") == 0
    assert db.waits(run) == [("a", 0, "sleep")]


def test_suspensions_are_recorded_beside_all_other_reports(db: LeaseDatabase) -> None:
    first, second = db.flow("m*"), db.flow("m*")
    runs = {flow: db.start(flow, list(range(6))) for flow in (first, second)}
    tasks = [task for flow in runs for task in db.claim(flow, db.worker(flow))]
    kinds = ["completed", "suspended", "failed", "released", "suspended", "completed"]
    sent = [
        element(task, kind, wait=LONG_SLEEP) if kind == "suspended" else element(task, kind)
        for task, kind in zip(tasks, kinds * 2, strict=True)
    ]

    answers = db.report(*sent)

    became = ["completed" if kind == "completed" else "queued" for kind in kinds]
    assert [answer.verdict for answer in answers] == became * 2
    for flow, run in runs.items():
        waiting = [task for task in tasks if task.run_id == run]
        indexes = [waiting[place].task_index for place in (1, 4)]
        assert db.waits(run) == [("m", index, "sleep") for index in sorted(indexes)]
        assert len(db.queue(flow)) == 2


@pytest.mark.parametrize(
    "wait",
    [
        None,
        {},
        {"kind": "lunch", "in_s": 1},
        {"kind": "sleep"},
        {"kind": "signal", "name": "paid"},
        {"kind": "signal", "checkpoint": "signal paid 1"},
        LONG_SLEEP | {"in_s": "soon"},
        LONG_SLEEP | {"in_s": 1e300},
    ],
)
def test_a_wait_that_would_never_end_is_refused_and_spoils_no_other(
    own: LeaseDatabase, wait: Any
) -> None:
    db = own
    flow = db.flow("a", "b")
    run = db.start(flow)
    one, other = db.claim(flow, db.worker(flow))

    answers = db.report(element(one, "suspended", wait=wait), element(other))

    assert [answer.verdict for answer in answers] == ["error", "completed"]
    assert answers[0].sqlstate[:2] == "22"
    assert db.waits(run) == []
    assert db.outcomes(run, one.step_slug) == [None]
    assert db.complete(one) == "completed"


def test_no_sleep_ends_early_however_old_the_transaction_is(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    db.start(flow)
    task = claimed(db, flow)
    conn = db.connect()
    with conn.transaction():
        began = db.value("select now()", conn=conn)
        asked = db.value("select clock_timestamp()")
        db.suspend(task, conn=conn)

    assert began < asked
    late_s = "select extract(epoch from due_at - %s) - 3600 from pgflowd.waits"
    assert 0 <= db.value(late_s, asked) < 60


@pytest.mark.parametrize("end", ["cancel", "failure", "type violation"])
def test_a_run_or_step_that_ends_has_no_waits(db: LeaseDatabase, end: str) -> None:
    flow = db.flow("m*", "b", "n*:b", max_attempts=1)
    run = db.start(flow, [1, 2, 3])
    tasks = {(task.step_slug, task.task_index): task for task in db.claim(flow, db.worker(flow))}
    db.suspend(tasks["m", 0])
    db.suspend(tasks["m", 1])

    match end:
        case "cancel":
            db.cancel(run)
        case "type violation":
            db.report(element(tasks["b", 0], output="7"))
        case _:
            db.report(element(tasks["m", 2], "failed"))

    assert db.waits(run) == []
    assert db.free(tasks["m", 0]) == 0
    assert violated(db) == set()
    assert [one for one in db.queue(flow).values() if one.visible] == []


def test_a_step_that_is_skipped_has_no_waits_and_others_keep_theirs(own: LeaseDatabase) -> None:
    flow = own.flow("m*", "b", max_attempts=1)
    own.do("update pgflow.steps set when_exhausted = 'skip' where step_slug = 'm'")
    run = own.start(flow, [1, 2])
    tasks = {(task.step_slug, task.task_index): task for task in own.claim(flow, own.worker(flow))}
    own.suspend(tasks["m", 0])
    own.suspend(tasks["b", 0])

    own.report(element(tasks["m", 1], "failed"))

    assert own.waits(run) == [("b", 0, "sleep")]
    assert violated(own) == set()


@pytest.mark.parametrize("order", ["suspended first", "failed first"])
def test_a_report_that_suspends_a_task_and_fails_its_run_leaves_no_wait(
    db: LeaseDatabase, order: str
) -> None:
    flow = db.flow("a", "b", max_attempts=1)
    run = db.start(flow)
    tasks = sorted(db.claim(flow, db.worker(flow)), key=lambda task: task.step_slug)
    waiting, failing = tasks if order == "suspended first" else reversed(tasks)

    db.report(element(waiting, "suspended", wait=LONG_SLEEP), element(failing, "failed"))

    assert db.status(run) == "failed"
    assert db.waits(run) == []
    assert violated(db) == set()


def test_a_retry_begins_without_waits_and_keeps_checkpoints_but_for_timeouts(
    db: LeaseDatabase,
) -> None:
    flow = db.flow("a", "b", max_attempts=1)
    run, worker = db.start(flow), db.worker(flow)
    tasks = {task.step_slug: task for task in db.claim(flow, worker)}
    got = {"sleep 1": '{"slept": true}', "signal paid 1": '{"got": {"timeout": true}}'}
    own = {"mine": '{"timeout": true}', "page": "7"}
    own |= {"signal paid 2": '{"timeout": true}', "signal x 1": '{"timeout": true, "by": "me"}'}
    for name, data in (got | own).items():
        db.do(KEPT, run, name, data)
    db.do(CONSUMED.replace("'12'", """'{"timeout": true}'"""), run)
    db.suspend(tasks["a"])
    db.fail(tasks["b"])

    assert db.retry(run) == 2

    assert db.waits(run) == []
    names = db.column("select name from pgflowd.checkpoints order by name")
    assert names == ["mine", "page", "signal paid 1", "sleep 1"]
    assert len(db.claim(flow, worker)) == 2
    assert violated(db) == set()


def test_a_suspension_ends_a_row_of_stalls(db: LeaseDatabase) -> None:
    db.set("crash_limit", 2)
    flow = db.flow()
    run = db.start(flow)
    for _ in range(3):
        task = claimed(db, flow)
        db.lapse(task)
        assert db.sweep("0 s") == (1, 0)
        task = claimed(db, flow)
        db.suspend(task)
        db.free(task)

    assert db.complete(claimed(db, flow)) == "completed"
    assert db.status(run) == "completed"


@covers("outside 4")
def test_resend_leaves_tasks_alone_that_have_begun_to_wait_meanwhile(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("a", "b")
    run = db.start(flow)
    tasks = {task.step_slug: task for task in db.claim(flow, db.worker(flow))}
    conn = db.connect()
    with conn.transaction():
        db.suspend(tasks["a"], conn=conn)
        assert db.value("select resent from pgflowd.resend()") == 0
    assert db.value("select resent from pgflowd.resend()") == 0
    db.do("select pgmq.purge_queue(%s)", flow)
    db.release(tasks["b"])

    assert db.value("select resent from pgflowd.resend()") == 1

    assert db.waits(run) == [("a", 0, "sleep")]
    (message,) = db.queue(flow).values()
    assert message.message["step_slug"] == "b"


def test_two_who_free_a_task_at_once_send_one_message(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    task = claimed(db, flow)
    db.suspend(task)
    conn = db.connect()

    with conn.transaction():
        assert db.free(task, conn=conn) == 1
        other = db.meanwhile(lambda conn: db.free(task, conn=conn))
    assert other.result() == 0

    assert len(db.queue(flow)) == 1
    assert db.complete(claimed(db, flow)) == "completed"
    assert db.status(run) == "completed"


@covers("row 112")
@pytest.mark.parametrize("act", ["cancel", "free", "retry"])
@pytest.mark.parametrize("first", ["suspension", "act"])
def test_a_suspension_and_what_ends_it_come_one_after_the_other(
    own: LeaseDatabase, act: str, first: str
) -> None:
    db = own
    flow = db.flow("a", "b", max_attempts=1)
    run = db.start(flow)
    tasks = {task.step_slug: task for task in db.claim(flow, db.worker(flow))}
    if act == "retry":
        db.fail(tasks["b"])
    acts = {
        "cancel": lambda conn: db.cancel(run, conn=conn),
        "free": lambda conn: db.free(tasks["a"], conn=conn),
        "retry": lambda conn: db.retry(run, conn=conn),
    }
    calls = [lambda conn: db.suspend(tasks["a"], conn=conn).verdict, acts[act]]
    if first == "act":
        calls.reverse()

    conn = db.connect()
    with conn.transaction():
        begun = calls[0](conn)
        other = db.meanwhile(calls[1])
    answers = [begun, other.result()]

    if first == "act":
        answers.reverse()
    became = {"cancel": "late", "free": "queued", "retry": "late"}
    assert answers[0] == (became[act] if first == "act" or act == "retry" else "queued")
    waits = [("a", 0, "sleep")] if act == "free" and first == "act" else []
    assert db.waits(run) == waits
    assert violated(db) == set()


def test_each_wait_ends_by_one_signal_or_by_its_timeout_whoever_comes_first(
    own: LeaseDatabase,
) -> None:
    """Tasks suspend, signals come and timers end, all at once; a sweeper dies again and again."""
    db, seed = own, random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")  # noqa: T201
    flow = db.flow("m*")
    runs = [db.start(flow, list(range(4))) for _ in range(25)]
    tasks = db.claim(flow, db.worker(flow), max_tasks=200)
    assert len(tasks) == 100
    begun: list[Future[None]] = []

    def suspend(conn: Connection, chance: random.Random) -> None:
        chance.shuffle(tasks)
        while tasks:
            some = [tasks.pop() for _ in range(min(3, len(tasks)))]
            waits = [chance.choice([SIGNAL, SIGNAL | {"in_s": chance.random() / 50}]) for _ in some]
            given = zip(some, waits, strict=True)
            with conn.transaction():
                sent = [element(task, "suspended", wait=wait) for task, wait in given]
                answers = db.report(*sent, conn=conn)
                db.open_runs(conn)
            assert {answer.verdict for answer in answers} == {"queued"}

    def send(conn: Connection, chance: random.Random) -> None:
        for run in chance.sample(runs * 4, len(runs) * 4):  # as many as there are waits
            with conn.transaction():
                query = "select pgflowd.signal(%s, 'paid', to_jsonb(%s::text))"
                db.rows(query, run, uuid.uuid4().hex, conn=conn)
                db.open_runs(conn)

    def sweep(conn: Connection, chance: random.Random) -> None:
        query, ends_at = "select 1 from pgflowd.waits limit 1", time.monotonic() + 30
        while not all(one.done() for one in begun[:2]) or db.rows(query, conn=conn):
            assert time.monotonic() < ends_at, db.rows("select * from pgflowd.waits", conn=conn)
            if chance.random() < 0.2:
                conn.execute("begin")
            conn.execute("select pgflowd.process_due(%s)", (chance.randint(1, 9),))
            if conn.info.transaction_status:
                conn.close()
                conn = db.connect()

    with ThreadPoolExecutor() as pool:
        for nr, act in enumerate([suspend, send, sweep, sweep]):
            begun.append(pool.submit(act, db.connect(), random.Random(f"{seed}/{nr}")))
    for one in begun:
        one.result()

    ends = db.column("select data from pgflowd.checkpoints where name = 'signal paid 1'")
    got = [data["got"] for data in ends if "got" in data]
    assert len(ends) == 100 and got
    assert [data for data in ends if "got" not in data] == [{"timeout": True}] * (100 - len(got))
    used = db.column("select payload from pgflowd.signals where consumed_at is not null")
    assert sorted(got) == sorted(used)
    assert violated(db) == set()
    for task in db.claim(flow, db.worker(flow), max_tasks=200):
        db.complete(task)
    assert {db.status(run) for run in runs} == {"completed"}
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    assert db.value(deadlocks) == 0


def test_signals_go_with_their_runs(own: LeaseDatabase) -> None:
    flows = [own.flow(), own.flow()]
    runs = [own.start(flow) for flow in (*flows, flows[1])]
    for run in runs:
        own.do("insert into pgflowd.signals (run_id, name) values (%s, 'paid')", run)
    signalled = "select run_id from pgflowd.signals order by signal_id"
    own.complete(claimed(own, flows[1], max_tasks=1))
    left = [run for run in runs if own.status(run) == "started"]

    own.rows("select pgflow.prune_data_older_than(interval '-1 s')")
    assert own.column(signalled) == left

    own.do("select pgflow.delete_flow_and_data(%s)", flows[0])
    assert own.column(signalled) == [run for run in left if run != runs[0]]


def test_a_wait_that_must_not_be_is_a_violation(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b", "c")
    run = own.start(flow)
    waiting = "insert into pgflowd.waits (run_id, step_slug, task_index, flow_slug, kind, due_at)"
    own.do(f"{waiting} values (%s, 'a', 0, %s, 'sleep', now())", run, flow)
    details = "select invariant, step_slug, detail from pgflowd.violations()"
    assert own.rows(details) == [("I15", "a", "the task waits, and its message is in the queue")]

    own.claim(flow, own.worker(flow))
    told = own.rows(details)
    assert ("I15", "a", "the task waits; it is started, its step started, its run started") in told

    own.do("delete from pgflowd.waits")
    assert own.rows(details) == []


def test_a_signal_without_its_checkpoint_is_a_violation(own: LeaseDatabase) -> None:
    run = own.start(own.flow())
    own.do(CONSUMED, run)
    told = own.rows("select invariant, detail from pgflowd.violations()")
    text = "the task was given 1 signals 'paid', and 0 of its checkpoints have one"
    assert told == [("I20", text)]

    own.do(KEPT, run, "signal paid 1", '{"got": 12}')
    assert violated(own) == set()

    own.do(CONSUMED, run)
    assert violated(own) == {"I20"}
    own.do("delete from pgflowd.signals")
    own.do("delete from pgflowd.checkpoints")
