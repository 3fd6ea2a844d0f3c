"""
Limits: never more leases of a key than it has places, in the order of waiting, and no place leaks.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from support.covers import covers
from support.database import Connection, Row
from support.leases import LeaseDatabase, element

ONE: dict[str, Any] = {"slots": 1}
PER_CUSTOMER = {"slots": 2, "path": ["run", "customer"]}
HOSTS = {"slots": 1, "path": ["item", "host"], "name": "hosts"}
LEASES = """
    select limit_key, count(*) from pgflowd.attempts
     where ended_at is null and limit_key is not null group by 1 order by 1
"""


def define(db: LeaseDatabase, slug: str, kind: str = "single", **options: Any) -> None:
    """Define a flow of one step, `a`, with these options."""
    step = {
        "slug": "a",
        "stepType": kind,
        "dependencies": [],
        "whenUnmet": "skip",
        "whenExhausted": "fail",
        "requiredInputPattern": {"defined": False},
        "forbiddenInputPattern": {"defined": False},
        "options": {"baseDelay": 0, **options},
    }
    shape = json.dumps({"steps": [step], "options": {}})
    db.value("select pgflowd.define(%s, %s::jsonb)", slug, shape)
    db.rows("select pgflowd.watch_queue(%s)", slug)


def limited(db: LeaseDatabase, limit: dict[str, Any] = ONE, **options: Any) -> str:
    slug = f"flow_{uuid.uuid4().hex[:8]}"
    define(db, slug, limit=limit, **options)
    return slug


def leases(db: LeaseDatabase) -> dict[str, int]:
    return {row.limit_key: row.count for row in db.rows(LEASES)}


def waiting(db: LeaseDatabase) -> int:
    return int(db.value("select count(*) from pgflowd.waits where kind = 'limit'"))


def violated(db: LeaseDatabase) -> list[Row]:
    return db.rows("select * from pgflowd.violations()")


def report_and_claim(db: LeaseDatabase, flow: str, worker: uuid.UUID, *tasks: Row) -> list[Row]:
    """A turn of a worker: what it reports frees places, and the claim behind it uses them."""
    with db.conn.transaction():
        db.report(*map(element, tasks))
        return db.claim(flow, worker)


def test_as_many_begin_as_there_are_places_and_the_others_are_put_aside(own: LeaseDatabase) -> None:
    flow = limited(own, {"slots": 3})
    for _ in range(10):
        own.start(flow)

    tasks = own.claim(flow, own.worker(flow))

    assert (len(tasks), waiting(own), len(own.queue(flow))) == (3, 7, 3)
    assert leases(own) == {f"{flow}/a": 3}
    assert own.claim(flow, own.worker(flow)) == []
    assert violated(own) == []


def test_a_report_passes_its_place_on_to_who_has_waited_for_longest(own: LeaseDatabase) -> None:
    flow = limited(own)
    runs = [own.start(flow) for _ in range(4)]
    worker = own.worker(flow)
    tasks = own.claim(flow, worker)
    order = []

    while tasks:
        (task,) = tasks
        order.append(task.run_id)
        own.start(flow) if len(order) == 1 else None
        tasks = report_and_claim(own, flow, worker, task)

    assert order[:4] == runs
    assert len(order) == 5
    assert own.value("select count(*) from pgflowd.slots where free_at is null") == 0
    assert violated(own) == []


def test_a_place_freed_without_a_claim_is_passed_on_by_the_sweep(own: LeaseDatabase) -> None:
    flow = limited(own)
    for _ in range(2):
        own.start(flow)
    (task,) = own.claim(flow, own.worker(flow))

    own.complete(task)

    assert own.row("select * from pgflowd.process_due()").done == 1
    assert waiting(own) == 0
    assert own.row("select * from pgflowd.process_due()").next_s is None
    assert len(own.claim(flow, own.worker(flow))) == 1


@covers("G16")
@pytest.mark.parametrize("outcome", ["failed", "released", "suspended", "timed_out"])
def test_a_task_that_does_not_go_on_gives_its_place_back(own: LeaseDatabase, outcome: str) -> None:
    flow = limited(own)
    first, second = own.start(flow), own.start(flow)
    worker = own.worker(flow)
    (task,) = own.claim(flow, worker)
    more = {"wait": {"kind": "sleep", "in_s": 0}} if outcome == "suspended" else {}

    with own.conn.transaction():
        own.report(element(task, outcome, error_message="x", **more))
        (next_one,) = own.claim(flow, worker)

    assert (task.run_id, next_one.run_id) == (first, second)
    own.rows("select * from pgflowd.process_due()")
    assert own.claim(flow, worker) == []  # it waits behind the other one now
    (again,) = report_and_claim(own, flow, worker, next_one)
    assert again.run_id == first
    assert violated(own) == []


def test_keys_are_values_of_the_input_and_do_not_hold_up_each_other(own: LeaseDatabase) -> None:
    flow = limited(own, PER_CUSTOMER)
    for customer in ["a", "a", "a", "b", "b", "b", 7, None, "a:b", "x" * 5000, "ü' %s"]:
        own.start(flow, {} if customer is None else {"customer": customer})

    tasks = own.claim(flow, own.worker(flow), 20)

    name = f"{flow}/a:"
    found = leases(own)
    assert len(tasks) == 9
    assert [found[name + word] for word in ("a", "b", "7", "", "a:b", "ü' %s")] == [
        2,
        2,
        1,
        1,
        1,
        1,
    ]
    (long,) = (each for each in found if "xxx" in each)
    assert len(long) < 300
    assert waiting(own) == 2
    assert violated(own) == []


def test_flows_share_a_limit_by_its_name(own: LeaseDatabase) -> None:
    one, other = limited(own, HOSTS, kind="map"), limited(own, HOSTS, kind="map")
    hosts = [{"host": "x"}, {"host": "y"}, {"host": "x"}, {}]
    own.start(one, hosts)
    own.start(other, hosts)
    worker, second = own.worker(one), own.worker(other)

    first = own.claim(one, worker)
    assert sorted(task.task_index for task in first) == [0, 1, 3]
    assert own.claim(other, second) == []
    assert leases(own) == {"hosts:": 1, "hosts:x": 1, "hosts:y": 1}

    done = 0
    tasks = first
    while tasks:
        own.report(element(tasks.pop()))
        done += 1
        own.rows("select * from pgflowd.process_due()")
        tasks += [*own.claim(one, worker), *own.claim(other, second)]
        assert max(leases(own).values(), default=0) <= 1
    assert (done, waiting(own)) == (8, 0)


def test_a_saturated_key_starves_no_other(own: LeaseDatabase) -> None:
    flow = limited(own, PER_CUSTOMER | {"slots": 1})
    query = 'select pgflow.start_flow(%s, \'{"customer": "busy"}\') from generate_series(1, 400)'
    own.do(query, flow)
    last = own.start(flow, {"customer": "quiet"})

    tasks = own.claim(flow, own.worker(flow), 2)

    assert {task.run_id for task in tasks} >= {last}
    assert (len(tasks), waiting(own)) == (2, 399)


def test_more_than_a_claim_asks_for_keep_their_order(own: LeaseDatabase) -> None:
    flow = limited(own, {"slots": 50})
    other = limited(own, {"slots": 50})
    runs = [own.start(flow) for _ in range(60)]
    worker = own.worker(flow)

    order = []
    while len(order) < 60:
        tasks = own.claim(flow, worker, 7)
        assert 0 < len(tasks) <= 7
        order += [task.run_id for task in tasks]
        own.report(*map(element, tasks))

    assert order == runs
    assert own.claim(other, own.worker(other)) == []


def test_the_place_of_a_dead_worker_is_used_again(own: LeaseDatabase) -> None:
    flow = limited(own)
    own.start(flow)
    second = own.start(flow)
    (task,) = own.claim(flow, own.worker(flow))
    assert own.claim(flow, own.worker(flow)) == []
    own.lapse(task)

    own.sweep()
    assert own.value("select pgflowd.refill_limits()") is None

    (next_one,) = own.claim(flow, own.worker(flow))
    assert next_one.run_id == second
    assert violated(own) == []


def test_a_place_that_cannot_be_passed_on_is_told_and_tried_again(own: LeaseDatabase) -> None:
    flow = limited(own)
    own.start(flow)
    second = own.start(flow)
    (task,) = own.claim(flow, own.worker(flow))
    assert own.claim(flow, own.worker(flow)) == []
    own.complete(task)
    notices: list[tuple[str | None, str | None]] = []
    own.conn.add_notice_handler(
        lambda notice: notices.append((notice.sqlstate, notice.message_detail))
    )
    own.do(f"alter table pgmq.q_{flow} rename to away")

    own.rows("select * from pgflowd.process_due()")
    assert own.value("select pgflowd.refill_limits()") is None

    assert [state for state, _ in notices] == ["PF013"] * 2
    told = json.loads(notices[0][1] or "")
    assert (told["run"], told["step"], told["task_index"]) == (str(second), "a", 0)
    assert "does not exist" in told["error"]
    own.do(f"alter table pgmq.away rename to q_{flow}")
    own.do("update pgflowd.slots set free_at = now()")
    own.rows("select * from pgflowd.process_due()")
    (next_one,) = own.claim(flow, own.worker(flow))
    assert next_one.run_id == second


def test_a_claim_that_meets_a_lapsed_lease_gives_the_place_to_who_waits(own: LeaseDatabase) -> None:
    flow = limited(own)
    own.start(flow)
    second = own.start(flow)
    (task,) = own.claim(flow, own.worker(flow))
    own.claim(flow, own.worker(flow))
    own.lapse(task)

    (next_one,) = own.claim(flow, own.worker(flow))

    assert next_one.run_id == second
    assert (leases(own), waiting(own)) == ({f"{flow}/a": 1}, 1)


def test_a_cancelled_task_keeps_its_place_until_its_runner_has_ended(own: LeaseDatabase) -> None:
    flow = limited(own)
    first, _ = own.start(flow), own.start(flow)
    worker = own.worker(flow)
    (task,) = own.claim(flow, worker)
    own.cancel(first)

    own.value("select pgflowd.refill_limits()")
    assert own.claim(flow, worker) == []
    with own.conn.transaction():
        assert own.report(element(task, "released"))[0].verdict == "late"
        assert len(own.claim(flow, worker)) == 1


def test_the_place_of_a_cancelled_task_is_free_when_its_worker_has_died(own: LeaseDatabase) -> None:
    flow = limited(own)
    first, _ = own.start(flow), own.start(flow)
    (task,) = own.claim(flow, own.worker(flow))
    assert own.claim(flow, own.worker(flow)) == []
    own.cancel(first)
    own.do("update pgflowd.attempts set lease_until = now() where token = %s", task.token)

    own.value("select pgflowd.refill_limits()")

    assert len(own.claim(flow, own.worker(flow))) == 1


def test_a_place_that_was_given_to_a_flow_without_workers_is_given_to_others(
    own: LeaseDatabase,
) -> None:
    name = {"slots": 1, "name": "shared"}
    served, forgotten = limited(own, name), limited(own, name)
    own.start(served)
    worker = own.worker(served)
    (task,) = own.claim(served, worker)
    own.start(forgotten)
    own.claim(forgotten, own.worker(forgotten))
    own.start(served)
    assert report_and_claim(own, served, worker, task) == []

    own.do("update pgflowd.slots set given_at = given_at - interval '1 minute'")
    own.value("select pgflowd.refill_limits()")

    assert len(own.claim(served, worker)) == 1
    assert own.claim(forgotten, own.worker(forgotten)) == []
    assert waiting(own) == 1


def test_a_locked_run_is_passed_over_and_met_again(own: LeaseDatabase) -> None:
    flow = limited(own)
    worker, other = own.worker(flow), own.connect()
    runs = [own.start(flow) for _ in range(2)]
    (task,) = own.claim(flow, worker)
    with other.transaction():
        other.execute("select from pgflow.runs where run_id = %s for update", [runs[1]])
        own.complete(task)

        look = own.row("select * from pgflowd.process_due()")

        assert look.done == 0 and 0 < look.next_s <= 1
    assert own.row("select * from pgflowd.process_due()").done == 1
    assert len(own.claim(flow, worker)) == 1


def test_a_transaction_that_stays_open_holds_up_no_claim_and_no_report(own: LeaseDatabase) -> None:
    flow = limited(own, {"slots": 2})
    for _ in range(4):
        own.start(flow)
    worker, other = own.worker(flow), own.connect()
    first, second = own.claim(flow, worker)
    with other.transaction():
        assert own.complete(first, conn=other) == "completed"
        with own.conn.transaction():
            own.do("set local lock_timeout = '1s'")
            own.report(element(second))
            assert len(own.claim(flow, worker)) == 1
    own.rows("select * from pgflowd.process_due()")
    assert len(own.claim(flow, worker)) == 1
    assert leases(own) == {f"{flow}/a": 2}


def test_while_another_claim_decides_about_a_key_it_is_met_again_soon(own: LeaseDatabase) -> None:
    flow = limited(own)
    own.start(flow)
    worker, other = own.worker(flow), own.connect()
    with other.transaction():
        other.execute("select pgflowd._lock_name('limit', %s, true)", [f"{flow}/a"])
        assert own.claim(flow, worker) == []
        query = "select max(vt) - clock_timestamp() < interval '21 ms' from pgmq.q_" + flow
        assert own.value(query)
    assert waiting(own) == 0
    own.do(f"update pgmq.q_{flow} set vt = clock_timestamp()")
    assert len(own.claim(flow, worker)) == 1


def test_needs_and_a_limit_of_one_step(own: LeaseDatabase) -> None:
    flow = limited(own, ONE, needs=["gpu"])
    for _ in range(3):
        own.start(flow)
    plain, able = own.worker(flow), own.worker(flow)
    assert own.claim(flow, plain) == []

    (task,) = own.claim(flow, able, caps=["gpu"])

    kinds = own.column("select kind from pgflowd.waits order by nr")
    assert kinds == ["limit", "limit"]
    own.complete(task)
    own.rows("select * from pgflowd.process_due()")
    assert own.claim(flow, plain) == []
    (task,) = own.claim(flow, able, caps=["gpu"])
    wait = {"kind": "need", "needs": ["80gb"]}
    with own.conn.transaction():
        own.report(element(task, "suspended", wait=wait))
        (last,) = own.claim(flow, able, caps=["gpu"])
    assert own.claim(flow, able, caps=["80gb"]) == []  # no place is free, so it waits for that
    assert own.row("select kind, needs from pgflowd.waits") == ("limit", "80gb")
    own.complete(last)
    own.rows("select * from pgflowd.process_due()")
    assert own.claim(flow, able, caps=["gpu"]) == []
    (again,) = own.claim(flow, able, caps=["80gb"])
    assert again.run_id == task.run_id
    assert leases(own) == {f"{flow}/a": 1}
    assert violated(own) == []


def test_the_number_of_places_is_tuned_in_the_database(own: LeaseDatabase) -> None:
    flow = limited(own, {"slots": 1})
    for _ in range(6):
        own.start(flow)
    worker = own.worker(flow)
    assert len(own.claim(flow, worker)) == 1

    own.rows("select pgflowd.set_option(%s, 'a', 'limit', '4.0')", flow)
    define(own, flow, limit={"slots": 2})

    assert len(own.claim(flow, worker)) == 3
    (listed,) = own.rows("select * from pgflowd.list_limits(%s)", flow)
    assert (listed.slots, listed.taken, listed.waiting) == (4, 4, 2)
    own.rows("select pgflowd.set_option(%s, 'a', 'limit', '1')", flow)
    assert own.claim(flow, worker) == []
    assert violated(own) == []
    for wrong in ("0", None):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            own.rows("select pgflowd.set_option(%s, 'a', 'limit', %s)", flow, wrong)
    with pytest.raises(psycopg.Error) as unknown:
        own.rows("select pgflowd.set_option(%s, 'b', 'limit', '1')", flow)
    assert unknown.value.sqlstate == "PF002"


@pytest.mark.parametrize("later", [{}, {"limit": {"slots": 1, "name": "other"}}])
def test_a_limit_that_the_code_changes_lets_go_who_waits_for_it(
    own: LeaseDatabase, later: dict[str, Any]
) -> None:
    flow = limited(own, {"slots": 1})
    for _ in range(3):
        own.start(flow)
    worker = own.worker(flow)
    own.claim(flow, worker)

    define(own, flow, **later)

    own.rows("select * from pgflowd.process_due()")
    assert len(own.claim(flow, worker)) == (1 if later else 2)


def test_more_leases_than_places_are_a_violation(own: LeaseDatabase) -> None:
    flow = limited(own, {"slots": 2})
    for _ in range(2):
        own.start(flow)
    own.claim(flow, own.worker(flow))
    own.do("update pgflowd.slots set most = 1")

    assert [row.invariant for row in violated(own)] == ["I17"]
    own.do("update pgflowd.slots set most = 2")


@pytest.mark.parametrize("seed", range(3))
def test_never_more_leases_than_places_whatever_sessions_do_when(
    own: LeaseDatabase, seed: int
) -> None:
    flow = limited(own, PER_CUSTOMER)
    own.set("crash_limit", 100)
    dice = random.Random(seed)
    for at in range(120):
        own.start(flow, {"customer": at % 5})
    looks, ends = [], []
    stop_at = time.monotonic() + 20

    def work(place: int, conn: Connection) -> None:
        mine = random.Random((seed, place).__repr__())
        worker = own.worker(flow)
        held: list[Row] = []
        while time.monotonic() < stop_at and len(ends) < 120:
            with conn.transaction():
                if held and mine.random() < 0.8:
                    done, held = held[: mine.randint(1, len(held))], []
                    outcome = mine.choice(["completed", "completed", "released", "suspended"])
                    wait = {"kind": "sleep", "in_s": 0}
                    more = {"wait": wait} if outcome == "suspended" else {}
                    own.report(*(element(one, outcome, **more) for one in done), conn=conn)
                    if outcome == "completed":
                        ends.extend(one.run_id for one in done)
                held += own.claim(flow, worker, mine.randint(1, 6), conn=conn, lease="1 s")
                if mine.random() < 0.2:
                    own.do("select pg_sleep(0.01)", conn=conn)
            if mine.random() < 0.1:  # it dies with what it holds
                held = []
                own.value("select pgflowd.crashed(%s, 'killed')", worker, conn=conn)
        for one in held:
            if own.report(element(one), conn=conn)[0].verdict == "completed":
                ends.append(one.run_id)

    def sweep(conn: Connection) -> None:
        while time.monotonic() < stop_at and len(ends) < 120:
            own.rows("select * from pgflowd.process_due()", conn=conn)
            looks.append(max((row.count for row in own.rows(LEASES, conn=conn)), default=0))
            if dice.random() < 0.1:
                own.rows("select * from pgflowd.sweep()", conn=conn)
                own.value("select pgflowd.refill_limits()", conn=conn)

    with ThreadPoolExecutor(5) as pool:
        jobs = [pool.submit(work, place, own.connect()) for place in range(4)]
        jobs.append(pool.submit(sweep, own.connect()))
    for job in jobs:
        job.result()

    worker = own.worker(flow)
    for _ in range(500):
        own.rows("select * from pgflowd.process_due()")
        own.do("update pgflowd.attempts set lease_until = now() where ended_at is null")
        own.do(f"update pgmq.q_{flow} set vt = clock_timestamp()")
        own.rows("select * from pgflowd.sweep()")
        own.value("select pgflowd.refill_limits()")
        tasks = own.claim(flow, worker, 20)
        if tasks:
            own.report(*map(element, tasks))
        if not own.value("select count(*) from pgflow.runs where status = 'started'"):
            break

    assert len(looks) > 10 and max(looks) <= 2
    assert own.value("select count(*) from pgflow.runs where status = 'completed'") == 120
    own.rows("select * from pgflowd.process_due()")
    assert (waiting(own), own.value("select count(*) from pgflowd.slots")) == (0, 0)
    assert violated(own) == []


def test_what_is_paused_gets_no_place_and_holds_up_nobody(own: LeaseDatabase) -> None:
    flow = limited(own)
    runs = [own.start(flow) for _ in range(4)]
    worker = own.worker(flow)
    (task,) = own.claim(flow, worker)
    assert own.claim(flow, worker) == []
    own.value("select pgflowd.pause(%s)", runs[1])

    (second,) = report_and_claim(own, flow, worker, task)

    assert second.run_id == runs[2]
    own.value("select pgflowd.resume(%s)", runs[1])
    order = []
    while tasks := report_and_claim(own, flow, worker, second):
        (second,) = tasks
        order.append(second.run_id)
    assert order == [runs[1], runs[3]]
    assert violated(own) == []


def test_a_task_paused_with_a_place_in_hand_gives_it_to_others(own: LeaseDatabase) -> None:
    flow = limited(own)
    runs = [own.start(flow) for _ in range(3)]
    worker = own.worker(flow)
    (task,) = own.claim(flow, worker)
    own.claim(flow, worker)
    own.complete(task)
    own.rows("select * from pgflowd.process_due()")  # the second one is next
    own.value("select pgflowd.pause(%s)", runs[1])

    own.value("select pgflowd.refill_limits()")

    assert [one.run_id for one in own.claim(flow, worker)] == [runs[2]]
    own.value("select pgflowd.resume(%s)", runs[1])
    assert own.claim(flow, worker) == []
    assert waiting(own) == 1
    assert violated(own) == []


def test_who_is_paused_keeps_no_place_from_others_and_tries_again_when_resumed(
    own: LeaseDatabase,
) -> None:
    shared = {"slots": 1, "name": "shared"}
    flow, other = limited(own, shared), limited(own, shared)
    _, paused = own.start(flow), own.start(flow)
    worker = own.worker(flow)
    (task,) = own.claim(flow, worker)
    own.value("select pgflowd.pause(%s)", paused)

    own.complete(task)
    own.rows("select * from pgflowd.process_due()")

    assert own.value("select count(*) from pgflowd.slots") == 0
    assert own.row("select * from pgflowd.process_due()").next_s is None
    own.start(other)
    (task,) = own.claim(other, own.worker(other))
    own.complete(task)
    own.rows("select * from pgflowd.process_due()")

    own.value("select pgflowd.resume(%s)", paused)
    assert [task.run_id for task in own.claim(flow, worker)] == [paused]
    assert violated(own) == []


def test_a_paused_flow_keeps_no_place_from_others(own: LeaseDatabase) -> None:
    shared = {"slots": 1, "name": "shared"}
    flow, other = limited(own, shared), limited(own, shared)
    _, second = own.start(flow), own.start(flow)
    worker = own.worker(flow)
    (task,) = own.claim(flow, worker)
    own.value("select pgflowd.pause_flow(%s)", flow)

    own.complete(task)
    own.start(other)
    (task,) = own.claim(other, own.worker(other))
    own.complete(task)
    own.rows("select * from pgflowd.process_due()")
    assert own.row("select * from pgflowd.process_due()").next_s is None

    own.value("select pgflowd.resume_flow(%s)", flow)
    own.value("select pgflowd.refill_limits()")
    assert [task.run_id for task in own.claim(flow, worker)] == [second]
    assert violated(own) == []


def test_a_handler_that_asks_to_wait_gives_its_place_back(own: LeaseDatabase) -> None:
    flow = limited(own)
    own.start(flow), own.start(flow)
    task = own.claim_one(flow, own.worker(flow))
    ask = {"error_type": "RetryAfter", "delay": "60 s", "wait": {"at_most_s": 600}}

    own.report(element(task, "released", **ask))

    assert own.claim_one(flow, own.worker(flow)).run_id != task.run_id
    assert violated(own) == []


@covers("attack 9")
def test_who_was_paused_comes_back_to_the_place_in_line_that_it_had(own: LeaseDatabase) -> None:
    flow = limited(own)
    runs = [own.start(flow) for _ in range(4)]
    worker = own.worker(flow)
    (first,) = own.claim(flow, worker)
    own.claim(flow, worker)
    own.value("select pgflowd.pause(%s)", runs[1])
    own.value("select pgflowd.pause(%s)", runs[2])
    assert own.value("select count(*) from pgflowd.waits where is_paused") == 2
    own.value("select pgflowd.resume(%s)", runs[1])

    order, task = [], first
    while task:
        own.complete(task)
        if len(order) == 1:
            own.value("select pgflowd.resume(%s)", runs[2])
        own.rows("select * from pgflowd.process_due()")
        task = next(iter(own.claim(flow, worker)), None)
        order += [task.run_id] if task else []

    assert order == [runs[1], runs[2], runs[3]]
    assert own.value("select count(*) from pgflowd.waits") == 0
    assert violated(own) == []
