"""
People as workers: they claim tasks for days, and complete, fail or release those that nobody has.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sql.leases.test_needs import gated
from sql.leases.test_step_limits import limited
from support.covers import covers
from support.database import Connection, Row, key
from support.leases import LONG_SLEEP, LeaseDatabase

from pgflowd.testing.until import until

SIGNAL = {"kind": "signal", "name": "paid", "checkpoint": "signal paid 1"}
STALLED = """
    insert into pgflowd.attempts (run_id, step_slug, task_index, flow_slug, worker_id, attempt,
                                  lease_until, ended_at, outcome)
    select %s, 'a', 0, %s, gen_random_uuid(), 1, now(), now(), 'stalled' from generate_series(1, 4)
"""


class Person:
    """The verbs of one person, on a connection of their own."""

    def __init__(self, db: LeaseDatabase, name: str = "jane") -> None:
        self.db, self.name, self.conn = db, name, db.connect()

    def claim(self, flow: str, *caps: str, lease: str = "2 days") -> Row | None:
        query = "select * from pgflowd.task_claim(%s, %s, %s::interval, %s)"
        rows = self.db.rows(query, flow, list(caps), lease, self.name, conn=self.conn)
        return rows[0] if rows else None

    def claimed(self, flow: str, *caps: str) -> Row:
        task = self.claim(flow, *caps)
        assert task is not None
        return task

    def complete(self, task: Any, output: Any = 1, token: int | None = None) -> str:
        query = "select pgflowd.task_complete(%s, %s, %s, %s::jsonb, %s, %s)"
        given = *key(task)[:3], json.dumps(output), self.name, token
        return str(self.db.value(query, *given, conn=self.conn))

    def fail(self, task: Any, final: bool = False, token: int | None = None) -> str:
        query = "select pgflowd.task_fail(%s, %s, %s, 'not good', %s, %s, %s)"
        given = *key(task)[:3], final, self.name, token
        return str(self.db.value(query, *given, conn=self.conn))

    def release(
        self,
        task: Any,
        delay: str = "0 s",
        needs: list[str] | None = None,
        token: int | None = None,
    ) -> str:
        query = "select pgflowd.task_release(%s, %s, %s, %s::interval, %s::text[], %s, %s)"
        given = *key(task)[:3], delay, needs, self.name, token
        return str(self.db.value(query, *given, conn=self.conn))


@pytest.fixture
def db(own: LeaseDatabase) -> LeaseDatabase:
    return own


@pytest.fixture
def jane(db: LeaseDatabase) -> Person:
    return Person(db)


@contextmanager
def refused(state: str, said: str) -> Iterator[None]:
    """An error with this SQLSTATE and these words."""
    with pytest.raises(psycopg.Error, match=said) as caught:
        yield
    assert caught.value.sqlstate == state


def test_a_person_claims_the_task_that_is_ready_for_longest_and_completes_it(
    db: LeaseDatabase, jane: Person
) -> None:
    flow = db.flow("a", "b:a")
    first, _ = db.start(flow, {"n": 1}), db.start(flow, {"n": 2})

    task = jane.claimed(flow)

    assert (task.run_id, task.step_slug, task.flow_input) == (first, "a", {"n": 1})
    lease_s = "select extract(epoch from %s - now())"
    assert 172_000 < db.value(lease_s, task.lease_until) <= 172_800
    assert not db.queue(flow)[task.msg_id].visible
    assert jane.complete(task, 7) == "completed"
    assert db.outcomes(first) == ["completed"]
    assert jane.claimed(flow).run_id != first
    after = jane.claimed(flow)
    assert (after.step_slug, after.input, after.flow_input) == ("b", {"a": 7}, {"n": 1})
    assert jane.claim(flow) is None


def test_nobody_takes_a_person_for_a_process(own: LeaseDatabase) -> None:
    jane = Person(own)
    flow = own.flow()
    own.start(flow)
    jane.claimed(flow)

    (listed,) = own.rows("select * from pgflowd.list_flows()")

    assert (listed.workers, listed.is_asleep, listed.running) == (0, False, 1)
    assert own.rows("select * from pgflowd.worker_status") == []
    assert own.column("select function_name from pgflow.workers") == ["jane"]


def test_one_of_many_who_claim_at_once_gets_the_task(own: LeaseDatabase) -> None:
    flow = own.flow()
    people = [Person(own, f"person {number % 3}") for number in range(6)]
    with ThreadPoolExecutor(len(people)) as pool:
        for _ in range(10):
            run = own.start(flow)
            got = list(pool.map(lambda one: one.claim(flow), people))
            assert [task.run_id for task in got if task is not None] == [run]


def test_the_lease_of_a_person_outlives_every_recovery(db: LeaseDatabase, jane: Person) -> None:
    flow = db.flow(timeout=1)
    run = db.start(flow)
    task = jane.claimed(flow)
    db.age(task, "1 day")

    assert db.recover("0 s") == 0
    assert db.value("select pgflow.requeue_stalled_tasks()") == 0
    assert db.rows("select * from pgflow.recover_stalled_tasks(0) where recovered_count > 0") == []
    assert db.rows("select * from pgflowd.stalled_tasks()") == []
    assert jane.complete(task) == "completed"
    assert db.status(run) == "completed"


def test_a_task_comes_back_unspent_when_the_lease_of_a_person_is_over(
    db: LeaseDatabase, jane: Person
) -> None:
    flow = db.flow(max_attempts=1)
    run = db.start(flow)
    for _ in range(6):  # more often than any task may stall in a row
        task = jane.claimed(flow)
        db.lapse(task)
        assert db.sweep() == (1, 0)

    assert db.outcomes(run) == ["released"] * 6
    assert db.task(run).attempts_count == 0
    with refused("PF001", "holds no live lease"):
        jane.complete(task, token=task.token)
    assert db.complete(db.claim_one(flow, db.worker(flow))) == "completed"


def test_a_person_who_does_not_come_back_is_not_the_last_of_many_crashes(
    own: LeaseDatabase,
) -> None:
    jane, flow = Person(own), own.flow()
    run = own.start(flow)
    own.do(STALLED, run, flow)
    own.lapse(jane.claimed(flow))

    assert own.sweep() == (1, 0)

    task = own.claim_one(flow, own.worker(flow))
    own.lapse(task)
    assert own.sweep() == (0, 1)


def test_a_lapsed_lease_that_nobody_took_still_counts(db: LeaseDatabase, jane: Person) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = jane.claimed(flow)
    db.lapse(task)

    assert jane.complete(task) == "completed"
    assert db.status(run) == "completed"


def test_after_a_cancel_a_person_is_late_and_what_they_did_is_kept(
    db: LeaseDatabase, jane: Person
) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = jane.claimed(flow)
    db.cancel(run)

    assert jane.complete(task, {"ok": True}) == "late"

    assert db.column("select output from pgflowd.attempts") == [{"ok": True}]
    with refused("PF008", "its run is failed"):
        Person(db, "joe").complete(task)


@pytest.mark.parametrize("wait", [None, LONG_SLEEP, SIGNAL])
@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
def test_what_nobody_has_is_reported_without_a_claim(
    own: LeaseDatabase, verb: str, wait: dict[str, Any] | None
) -> None:
    jane, flow = Person(own), own.flow()
    run = own.start(flow)
    if wait:
        own.suspend(own.claim_one(flow, own.worker(flow)), wait)

    verdict = getattr(jane, verb)(own.task(run))

    assert verdict == ("completed" if verb == "complete" else "queued")
    assert own.waits(run) == []
    became = {"complete": "completed", "fail": "failed", "release": "released"}
    assert own.outcomes(run)[-1] == became[verb]
    left = own.claim(flow, own.worker(flow))
    assert [task.attempt for task in left] == {"complete": [], "fail": [2], "release": [1]}[verb]
    assert own.rows("select * from pgflowd.violations()") == []


def test_a_delayed_task_is_completed_at_once_on_own(db: LeaseDatabase, jane: Person) -> None:
    flow = db.flow()
    run = db.start(flow)
    db.release(db.claim_one(flow, db.worker(flow)), delay="1 hour")
    assert jane.claim(flow) is None

    assert jane.complete(db.task(run)) == "completed"
    assert db.status(run) == "completed"
    assert not db.queue(flow)


def test_a_waiting_task_is_completed_at_once_on_own(db: LeaseDatabase, jane: Person) -> None:
    flow = db.flow()
    run = db.start(flow)
    db.suspend(db.claim_one(flow, db.worker(flow)))

    assert jane.complete(db.task(run)) == "completed"
    assert db.status(run) == "completed"
    assert not db.queue(flow)


def test_a_task_that_somebody_has_is_left_to_them(db: LeaseDatabase, jane: Person) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    with refused("PF008", "it is leased by test"):
        jane.complete(task)
    db.release(task)
    task = jane.claimed(flow)
    joe = Person(db, "joe")

    for verb in (joe.complete, joe.fail, joe.release):
        with refused("PF008", "it is leased by jane"):
            verb(task)
    with refused("PF001", "holds no live lease"):
        joe.complete(task, token=task.token - 1)
    with refused("PF002", "there is no task a#7"):
        joe.complete(task._replace(task_index=7))
    with refused("PF002", "there is no task a#0"):
        joe.complete(task._replace(run_id=uuid.uuid4()))
    assert joe.complete(task, token=task.token) == "completed"  # who has the token may use it
    with refused("PF008", "its run is completed"):
        jane.complete(task)
    assert db.status(run) == "completed"


def test_a_failure_spends_an_attempt_and_a_final_one_all(db: LeaseDatabase, jane: Person) -> None:
    flow = db.flow(max_attempts=3)
    run = db.start(flow)
    assert jane.fail(jane.claimed(flow)) == "queued"
    assert db.claim_one(flow, jane.db.worker(flow)).attempt == 2
    other = db.start(flow)

    assert jane.fail(db.task(other), final=True) == "failed"

    assert (db.status(run), db.status(other)) == ("started", "failed")
    assert db.task(other).error_message == "failed by jane: not good"


def test_a_release_postpones_a_task_and_spends_nothing(db: LeaseDatabase, jane: Person) -> None:
    flow = db.flow(max_attempts=1)
    run = db.start(flow)
    assert jane.release(jane.claimed(flow), "1 hour") == "queued"
    assert jane.claim(flow) is None
    assert jane.release(db.task(run)) == "queued"

    task = jane.claimed(flow)

    assert task.attempt == 1
    assert db.column("select error_message from pgflowd.attempts where outcome = 'released'") == [
        "released by jane", "released by jane",
    ]  # fmt: skip


@pytest.mark.parametrize("lease", ["0 s", "-1 s", "31 days", None])
def test_a_lease_of_more_than_thirty_days_or_of_nothing_is_refused(
    own: LeaseDatabase, lease: str | None
) -> None:
    flow = own.flow()
    own.start(flow)

    with refused("22023", "is not possible"):
        own.rows("select pgflowd.task_claim(%s, null, %s::interval, 'jane')", flow, lease)
    with refused("PF002", "there is no flow"):
        Person(own).claim("nowhere")


def test_a_claim_passes_over_what_a_worker_has_just_read(own: LeaseDatabase) -> None:
    jane, flow = Person(own), own.flow()
    runs = [own.start(flow), own.start(flow)]
    conn = own.connect()
    with conn.transaction():
        taken = own.claim_one(flow, own.worker(flow), max_tasks=1, conn=conn)
        task = jane.claimed(flow)
        assert {taken.run_id, task.run_id} == set(runs)
        assert jane.claim(flow) is None

    assert (own.complete(taken), jane.complete(task)) == ("completed", "completed")


def test_a_person_who_is_killed_has_done_nothing(own: LeaseDatabase) -> None:
    jane, flow = Person(own), own.flow()
    run = own.start(flow)
    own.suspend(own.claim_one(flow, own.worker(flow)))
    before = own.rows("select * from pgflow.step_tasks")
    jane.conn.execute("begin")
    assert jane.complete(own.task(run)) == "completed"

    own.rows("select pg_terminate_backend(%s)", jane.conn.info.backend_pid)
    until(lambda: not own.rows(
        "select 1 from pg_stat_activity where pid = %s", jane.conn.info.backend_pid
    ))  # fmt: skip

    assert own.rows("select * from pgflow.step_tasks") == before
    assert own.waits(run) == [("a", 0, "sleep")]
    assert Person(own).complete(own.task(run)) == "completed"


def test_people_and_workers_who_meet_complete_each_task_once(own: LeaseDatabase) -> None:
    flow = own.flow("a*", "b:a")
    runs = [own.start(flow, list(range(8))) for _ in range(6)]
    answers: list[str] = []

    def work(conn: Connection) -> None:
        worker = own.worker(flow)
        while own.rows("select 1 from pgflow.runs where status = 'started'", conn=conn):
            for task in own.claim(flow, worker, max_tasks=3, conn=conn):
                answers.append(own.complete(task, conn=conn))

    def help_out(person: Person) -> None:
        open_tasks = "select * from pgflow.step_tasks where status = 'queued' order by random()"
        while own.rows("select 1 from pgflow.runs where status = 'started'", conn=person.conn):
            if task := person.claim(flow):
                answers.append(person.complete(task))
            for task in own.rows(f"{open_tasks} limit 1", conn=person.conn):
                try:
                    answers.append(person.complete(task))
                except psycopg.Error as error:
                    assert error.sqlstate == "PF008", error

    with ThreadPoolExecutor(5) as pool:
        done = [pool.submit(work, own.connect()) for _ in range(2)]
        done += [pool.submit(help_out, Person(own, name)) for name in ("jane", "joe", "ann")]
        for each in done:
            each.result(timeout=60)

    assert answers == ["completed"] * (len(runs) * 9)
    assert {own.status(run) for run in runs} == {"completed"}
    assert own.rows("select * from pgflowd.violations()") == []


def test_a_person_with_caps_gets_what_needs_them_and_nothing_else(own: LeaseDatabase) -> None:
    jane, flow = Person(own), gated(own, a=None, b=["review"], c=["review", "law"])
    own.start(flow)

    assert jane.claimed(flow, "review").step_slug == "b"
    assert jane.claim(flow, "review") is None
    assert jane.claim(flow, "nothing") is None
    assert jane.claimed(flow).step_slug == "a"
    assert jane.claim(flow) is None
    assert jane.claimed(flow, "review", "law").step_slug == "c"


def test_a_person_gets_what_a_worker_has_put_aside_those_first_that_wait_for_longest(
    own: LeaseDatabase,
) -> None:
    jane, flow = Person(own), gated(own, a=None, b=["review"])
    runs = [own.start(flow), own.start(flow)]
    assert {task.step_slug for task in own.claim(flow, own.worker(flow))} == {"a"}

    got = [jane.claimed(flow, "review") for _ in runs]

    assert [task.run_id for task in got] == runs
    assert own.rows("select * from pgflowd.waits") == []
    assert [jane.complete(task) for task in got] == ["completed", "completed"]
    assert own.rows("select * from pgflowd.violations()") == []


@pytest.mark.parametrize("held", ["by nobody", "by jane", "by a wait"])
def test_a_task_is_handed_on_to_who_has_what_it_needs(own: LeaseDatabase, held: str) -> None:
    jane, flow = Person(own), own.flow(max_attempts=1)
    run = own.start(flow)
    if held == "by jane":
        jane.claimed(flow)
    elif held == "by a wait":
        own.suspend(own.claim_one(flow, own.worker(flow)))

    assert jane.release(own.task(run), needs=["law", "review"]) == "queued"

    assert own.claim(flow, own.worker(flow)) == []
    assert jane.claim(flow, "review") is None
    wait = own.row("select kind, name, why from pgflowd.waits")
    assert tuple(wait) == ("need", "law,review", "released by jane")
    task = jane.claimed(flow, "law", "review")
    assert (task.run_id, task.attempt) == (run, 1)
    assert jane.release(task) == "queued"
    assert own.claim_one(flow, own.worker(flow)).attempt == 1


@pytest.mark.parametrize("needs", [[], ["two words"], [""], ["x"] * 33 + ["y" * 65]])
def test_needs_that_are_none_are_refused(own: LeaseDatabase, needs: list[str]) -> None:
    jane, flow = Person(own), own.flow()
    run = own.start(flow)

    with refused("22023", "are none"):
        jane.release(own.task(run), needs=needs)
    assert own.rows("select 1 from pgflowd.attempts") == []


def test_a_person_needs_no_caps_for_what_they_name(own: LeaseDatabase) -> None:
    jane, flow = Person(own), gated(own, a=["gpu"], b=["gpu"])
    run = own.start(flow)
    own.claim(flow, own.worker(flow))

    assert jane.complete(own.task(run, "a")) == "completed"
    assert jane.complete(own.task(run, "b")) == "completed"

    assert own.status(run) == "completed"
    assert own.rows("select * from pgflowd.waits") == []


def test_who_claims_for_the_same_caps_at_once_never_gets_the_same_task(own: LeaseDatabase) -> None:
    flow = gated(own, a=["review"])
    runs = {own.start(flow) for _ in range(40)}
    people = [Person(own, name) for name in ("jane", "joe", "ann", "bob")]

    def work(person: Person) -> list[uuid.UUID]:
        got = []
        while task := person.claim(flow, "review"):
            got.append(task.run_id)
            if len(got) % 2:
                own.claim(flow, own.worker(flow), conn=person.conn)
        return got

    with ThreadPoolExecutor(len(people)) as pool:
        got = [run for each in pool.map(work, people) for run in each]

    assert len(got) == len(set(got))
    left = [task.run_id for task in iter(lambda: people[0].claim(flow, "review"), None)]
    assert {*got, *left} == runs


def test_nobody_takes_a_task_of_what_is_paused_but_who_has_one_may_report_it(
    own: LeaseDatabase,
) -> None:
    jane, flow = Person(own), own.flow()
    first, second, third = (own.start(flow) for _ in range(3))
    held = jane.claimed(flow)
    own.do("select pgflowd.pause(%s)", second)

    with refused("PF008", "its run is paused"):
        jane.complete(own.task(second))
    own.do("select pgflowd.pause_flow(%s)", flow)
    with refused("PF008", "its flow is paused"):
        jane.complete(own.task(third))
    assert jane.claim(flow) is None
    assert jane.complete(held) == "completed"
    assert own.status(first) == "completed"

    own.do("select pgflowd.resume_flow(%s)", flow)
    assert jane.claimed(flow).run_id == third
    assert jane.claim(flow) is None
    own.do("select pgflowd.resume(%s)", second)
    assert jane.complete(own.task(second)) == "completed"
    assert own.rows("select * from pgflowd.violations()") == []


WAITS: list[dict[str, Any]] = [
    LONG_SLEEP, SIGNAL, {"kind": "need", "needs": ["gpu"]}, {"kind": "quarantined"},
    {"kind": "runs", "checkpoint": "runs 1"},
]  # fmt: skip


@pytest.mark.parametrize("wait", WAITS, ids=lambda wait: str(wait["kind"]))
@pytest.mark.parametrize("verb", ["wake", "complete"])
def test_whatever_a_task_waits_for_a_person_ends_it(
    own: LeaseDatabase, wait: dict[str, Any], verb: str
) -> None:
    jane, flow = Person(own), own.flow()
    run = own.start(flow)
    task = own.claim_one(flow, own.worker(flow))
    if wait["kind"] == "quarantined":
        own.set("crash_limit", 1)
        own.set("on_crash_limit", "quarantine")
        own.lapse(task)
        own.sweep()
    else:
        child = {"runs": [str(own.start(own.flow()))]} if wait["kind"] == "runs" else {}
        own.suspend(task, wait | child)
    assert own.waits(run) == [("a", 0, wait["kind"])]
    assert own.claim(flow, own.worker(flow)) == []

    if verb == "wake":
        woken = own.value("select pgflowd.task_wake(%s, 'a', 0, 'jane', 'now')", run)
        assert woken == "queued"
        assert own.complete(own.claim_one(flow, own.worker(flow))) == "completed"
    else:
        assert jane.complete(own.task(run)) == "completed"

    own.do("select pgflowd.process_due()")
    assert own.waits(run) == []
    assert own.status(run) == "completed"
    assert own.rows("select * from pgflowd.violations()") == []


def test_a_retry_takes_a_task_away_from_a_person_at_once(db: LeaseDatabase, jane: Person) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = jane.claimed(flow)
    db.cancel(run)

    assert db.retry(run, cancelled=True) == 1

    assert db.outcomes(run) == ["lost"]
    with refused("PF001", "holds no live lease"):
        jane.complete(task, token=task.token)
    assert db.queue(flow)[db.task(run).message_id].visible
    assert jane.complete(task) == "completed"  # it is nobody's now


def test_a_limit_holds_for_people_and_is_free_when_their_run_is_cancelled(
    own: LeaseDatabase,
) -> None:
    jane, flow = Person(own), limited(own)
    first, second = own.start(flow), own.start(flow)
    assert jane.claimed(flow).run_id == first
    assert jane.claim(flow) is None
    assert own.waits(second) == [("a", 0, "limit")]
    own.cancel(first)

    own.do("select pgflowd.refill_limits()")

    task = jane.claimed(flow)
    third = own.start(flow)
    assert (task.run_id, jane.claim(flow)) == (second, None)
    assert jane.complete(task) == "completed"
    own.do("select pgflowd.process_due()")
    assert jane.claimed(flow).run_id == third
    assert own.rows("select * from pgflowd.violations()") == []


EXTEND = "select pgflowd.task_extend(%s, %s, %s, %s::interval, %s, %s)"


@covers("promise 9")
def test_a_person_makes_the_lease_of_a_task_longer(db: LeaseDatabase, jane: Person) -> None:
    flow = db.flow()
    db.start(flow)
    task = jane.claimed(flow)

    until_then = db.value(EXTEND, *key(task)[:3], "9 days", "jane", None)
    shorter = db.value(EXTEND, *key(task)[:3], "1 day", "jane", task.token)

    assert shorter == until_then
    assert db.value("select extract(epoch from %s - now()) / 86400", until_then) > 8.99
    (attempt,) = db.rows("select * from pgflowd.attempts")
    assert (attempt.lease_until, attempt.ended_at, attempt.attempt) == (until_then, None, 1)
    assert not db.queue(flow)[task.msg_id].visible
    assert db.column("select action from pgflowd.actions where action like 'task%%'") == [
        "task_claim",
        "task_extend",
    ]
    assert jane.complete(task) == "completed"


def test_only_who_has_a_task_makes_its_lease_longer(db: LeaseDatabase, jane: Person) -> None:
    flow = db.flow()
    db.start(flow)
    with refused("PF002", "there is no task"):
        db.value(EXTEND, uuid.uuid4(), "a", 0, "1 day", "jane", None)
    task = jane.claimed(flow)

    with refused("PF001", "is not theirs"):
        db.value(EXTEND, *key(task)[:3], "1 day", "john", None)
    with refused("22023", "not possible"):
        db.value(EXTEND, *key(task)[:3], "31 days", "jane", None)
    jane.release(task)
    with refused("PF001", "is not theirs"):
        db.value(EXTEND, *key(task)[:3], "1 day", "jane", None)
    with refused("PF001", "is not theirs"):
        db.value(EXTEND, *key(task)[:3], "1 day", "jane", task.token)


ANY = "select * from pgflowd.task_claim(null, %s, interval '1 day', 'jane')"


@covers("promise 9")
def test_one_claim_over_all_flows_takes_what_waits_for_longest(own: LeaseDatabase) -> None:
    first, second, third = gated(own), gated(own), own.flow()
    later, sooner = own.start(first), own.start(second)
    plain = own.start(third)
    for flow in (second, first):
        assert own.claim(flow, own.worker(flow)) == []  # they are put aside

    caps = ["gpu", "80gb"]
    taken = [own.rows(ANY, caps) for _ in range(3)]

    assert [[task.run_id for task in tasks] for tasks in taken] == [[sooner], [later], []]
    (unneeding,) = own.rows(ANY, None)
    assert unneeding.run_id == plain
    people = "select queue_name from pgflow.workers where function_name = 'jane'"
    assert sorted(own.column(people)) == sorted([first, second, third])


def test_a_claim_that_finds_nothing_leaves_no_row_of_the_person(own: LeaseDatabase) -> None:
    for _ in range(3):
        own.flow()

    assert own.rows(ANY, None) == []

    assert own.column("select worker_id from pgflow.workers") == []


@covers("promise 9")
def test_a_task_tells_how_often_it_has_stalled(own: LeaseDatabase) -> None:
    flow = own.flow()
    run = own.start(flow)
    own.do(STALLED, run, flow)
    own.do("update pgflowd.attempts set outcome = 'failed' where token = (select min(token) + 1"
           " from pgflowd.attempts)")  # fmt: skip

    (task,) = own.rows("select * from pgflowd.task_status where run_id = %s", run)

    assert (task.stalls, task.stalls_in_a_row) == (3, 2)
