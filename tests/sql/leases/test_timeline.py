"""The timeline of a run: what happened in it, read from the rows that say how it is."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from support.database import Row
from support.leases import LeaseDatabase, element
from support.rows_read import rows_read

# What the events of a timeline add up to: the status of a run, of its steps and of its tasks.
ENDS = {
    "completed": "completed", "released": "queued", "suspended": "queued", "lost": "queued",
    "failed": "queued", "timed_out": "queued", "crashed": "queued", "stalled": "queued",
}  # fmt: skip


@dataclass
class TaskAtWork:
    status: str = "queued"
    token: int | None = None
    is_open: bool = False


@dataclass
class Replayed:
    """A run as its timeline says it is now."""

    run: str = "planned"
    is_paused: bool = False
    steps: dict[str, str] = field(default_factory=dict)
    tasks: dict[tuple[str, int], TaskAtWork] = field(default_factory=dict)

    @property
    def status(self) -> str:
        return "paused" if self.is_paused and self.run == "started" else self.run

    @property
    def task_statuses(self) -> dict[tuple[str, int], str]:
        return {key: task.status for key, task in self.tasks.items()}


def replay(events: Iterable[Row]) -> Replayed:
    now = Replayed()
    for event in events:
        kind, _, word = event.event.partition(":")
        if kind == "run":
            now.run = word
        elif kind == "step":
            now.steps[event.step_slug] = word
            for index in range(event.detail.get("tasks", 0)):
                now.tasks.setdefault((event.step_slug, index), TaskAtWork())
        elif kind == "task" and word not in ("waiting", "freed"):
            task = now.tasks.setdefault((event.step_slug, event.task_index), TaskAtWork())
            _move(task, word, event)
        elif kind == "action":
            _act(now, word)
    return now


def _move(task: TaskAtWork, word: str, event: Any) -> None:
    if event.token is None:
        task.status = word
    elif word == "started":
        task.status, task.token, task.is_open = "started", event.token, True
    elif event.token == task.token:
        task.is_open = False
        if word == "lost" and task.status != "started":
            return  # it was ended, or queued again, before
        task.status = "failed" if event.detail.get("final") else ENDS.get(word, task.status)


def _act(now: Replayed, verb: str) -> None:
    if verb in ("pause", "resume"):
        now.is_paused = verb == "pause"
    elif verb == "retry":
        now.run, now.is_paused = "started", False
        for task in now.tasks.values():
            if task.status == "failed" or (task.status == "started" and not task.is_open):
                task.status = "queued"


TIMELINE = "select * from pgflowd.run_timeline(%s)"
STATUS = "select status from pgflowd.run_status where run_id = %s"

SEEN = {"action:cancel", "action:retry", "action:pause", "run:cancelled", "task:completed"}


def timeline(db: LeaseDatabase, run: uuid.UUID) -> list[Row]:
    return db.rows(TIMELINE, run)


def told(db: LeaseDatabase, run: uuid.UUID) -> list[str]:
    """The events of a run, each with its step."""
    return [f"{row.event} {row.step_slug or ''}".strip() for row in timeline(db, run)]


class Life:
    """A run, to which random things happen."""

    def __init__(self, db: LeaseDatabase, seed: int) -> None:
        self.db, self.random = db, random.Random(seed)
        self.flow = db.flow("a", "m*:a", "b:m", "c:a", max_attempts=2)
        self.run, self.worker = db.start(self.flow), db.worker(self.flow)
        self.held: list[Row] = []

    def claim(self) -> None:
        self.db.rows(
            "select pgmq.set_vt(%s, task.message_id, 0) from pgflow.step_tasks as task"
            " where task.run_id = %s and task.status = 'queued'",
            self.flow,
            self.run,
        )
        self.held += self.db.claim(self.flow, self.worker, max_tasks=self.random.randint(1, 3))

    def claim_without_lease(self) -> None:
        self.db.upstream_claim(self.flow, self.worker)

    def report(self) -> None:
        if not self.held:
            return
        task = self.held.pop(self.random.randrange(len(self.held)))
        outcome = self.random.choice(["completed"] * 4 + ["failed", "released", "crashed"])
        answer = {"output": "[1, 2]"} if outcome == "completed" else {"error_message": "bad"}
        self.db.report(element(task, outcome, **answer))

    def suspend(self) -> None:
        if self.held:
            self.db.suspend(self.held.pop())

    def lapse(self) -> None:
        if self.held:
            self.db.lapse(self.held.pop())
            self.db.sweep()

    def wake(self) -> None:
        for step, index, _ in self.db.waits(self.run):
            self.db.value("select pgflowd.task_wake(%s, %s, %s, 'jane', '')", self.run, step, index)

    def person(self) -> None:
        query = "select pgflowd.task_complete(%s, %s, 0, '[1]', 'jane')"
        self.db.value(query, self.run, self.random.choice("ambc"))

    def operate(self) -> None:
        verbs = ["cancel(%s, '', '')", "retry(%s, '', true)", "retry(%s, '', true)", "pause(%s)"]
        verb = self.random.choice([*verbs, "resume(%s)", "resume(%s)"])
        self.db.value(f"select pgflowd.{verb}", self.run)

    def live(self, acts: int) -> None:
        happenings: list[Callable[[], None]] = [
            *[self.claim] * 4, *[self.report] * 6, self.suspend, self.lapse, self.wake, self.person,
            *[self.operate] * 3, self.claim_without_lease,
        ]  # fmt: skip
        for _ in range(acts):
            with contextlib.suppress(psycopg.Error):
                self.random.choice(happenings)()


def statuses(db: LeaseDatabase, run: uuid.UUID) -> tuple[str, dict[str, str], dict[Any, str]]:
    """The status of a run, of the steps that have begun or ended, and of their tasks."""
    status = db.value(STATUS, run)
    query = "select * from pgflow.step_states where run_id = %s and status <> 'created'"
    steps = db.rows(query, run)
    tasks = db.rows(
        "select step_slug, task_index, status from pgflow.step_tasks where run_id = %s", run
    )
    return (
        "started" if status in ("waiting", "quarantined") else status,
        {row.step_slug: row.status for row in steps},
        {(row.step_slug, row.task_index): row.status for row in tasks},
    )


@pytest.mark.parametrize("history", ["all", "failures", "off"])
def test_a_random_run_is_now_what_its_timeline_adds_up_to(own: LeaseDatabase, history: str) -> None:
    own.set("history", history)
    seen = set()
    for seed in range(10):
        life = Life(own, seed)
        for _ in range(3):
            life.live(12)

            events = timeline(own, life.run)
            found = replay(events)

            is_now = (found.status, found.steps, found.task_statuses)
            assert is_now == statuses(own, life.run), (seed, events)
            seen |= {event.event for event in events} | {f"run {found.status}"}
    assert seen >= SEEN


def key_of(row: Row) -> tuple[Any, ...]:
    return (*row[:5], row.detail.get("action_id"))


def is_what_it_adds_up_to(db: LeaseDatabase, run: uuid.UUID) -> bool:
    found = replay(timeline(db, run))
    return (found.status, found.steps, found.task_statuses) == statuses(db, run)


def test_the_timeline_tells_of_reports_that_came_too_late(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b", max_attempts=1)
    run, worker = own.start(flow), own.worker(flow)
    first, second = own.claim(flow, worker)
    own.fail(first)
    own.report(element(second, "completed"))
    assert is_what_it_adds_up_to(own, run)

    own.retry(run)
    own.lapse(own.claim(flow, worker)[0])
    own.cancel(run)
    own.retry(run, cancelled=True)

    seen = [event for event in told(own, run) if event.startswith(("task:l", "action:"))]
    assert seen == ["task:late b", "action:retry", "action:cancel", "action:retry", "task:lost a"]
    assert is_what_it_adds_up_to(own, run)


def test_the_timeline_tells_who_asked_signalled_answered_and_woke(own: LeaseDatabase) -> None:
    flow = own.flow("a")
    start = "select run_id from pgflowd.start(%s, '{}', start_at => now() + '1 h', actor => 'ann')"
    run = own.value(start.replace("'1 h'", "interval '1 h'"), flow)
    own.value("select pgflowd.reschedule(%s, now() + interval '1 s', null, 'sooner', 'bob')", run)
    own.do("update pgflowd.runs set start_at = now(), due_at = now()")
    own.value("select done from pgflowd.process_due()")
    worker = own.worker(flow)
    wait = {"kind": "signal", "name": "paid", "checkpoint": "signal paid 1"}
    own.suspend(own.claim_one(flow, worker), wait)
    own.value("select pgflowd.signal(%s, 'paid', '1', 'cid')", run)
    while own.value("select done from pgflowd.process_due()"):
        pass
    own.suspend(own.claim_one(flow, worker))
    own.value("select pgflowd.task_wake(%s, 'a', 0, 'dan', 'enough')", run)

    by = [(row.event, row.actor) for row in timeline(own, run) if row.actor]
    assert by == [
        ("run:planned", "ann"),
        ("action:reschedule", "bob"),
        ("action:signal", "cid"),
        ("signal:received", "cid"),
        ("action:task_wake", "dan"),
        ("task:freed", "dan"),
    ]


def test_a_follower_that_asks_again_from_the_last_moment_misses_nothing(own: LeaseDatabase) -> None:
    life = Life(own, 7)
    known: set[Any] = set()
    last = None
    for _ in range(12):
        life.live(4)
        for row in own.rows("select * from pgflowd.run_timeline(%s, %s)", life.run, last):
            known.add(key_of(row))
            last = row.at

    assert {key_of(row) for row in timeline(own, life.run)} <= known


def with_attempts(db: LeaseDatabase, attempts: int) -> uuid.UUID:
    """A run that has ended, whose map has as many attempts, of a second each."""
    run = db.start(db.flow("m*"), [0] * 50)
    worker = db.worker(db.flow())
    db.do(
        "insert into pgflowd.attempts (run_id, step_slug, task_index, flow_slug, worker_id,"
        " attempt, started_at, lease_until, ended_at, outcome)"
        " select %s, 'm', nr %% 50, 'f', %s, 1 + nr / 50, at, at, at + interval '1 s',"
        " case when nr < %s then 'failed' else 'completed' end"
        " from generate_series(0, %s - 1) as nr,"
        " lateral (select now() + nr * interval '1 s' as at) as moment",
        run, worker, attempts - 50, attempts,
    )  # fmt: skip
    db.do("update pgflow.step_tasks set status = 'completed', completed_at = now()")
    return run


def test_a_page_of_the_timeline_looks_up_no_more_than_it_returns(own: LeaseDatabase) -> None:
    query, attempts = "select * from pgflowd.run_timeline(%s, max_events => 100)", 3000
    with own.conn.transaction(force_rollback=True):
        run = with_attempts(own, attempts)
        read = rows_read(own.conn, query, run)

    # the moments of each attempt, and each task; for an event its attempt and worker
    assert read < attempts + 50 + 4 * 100 + 200


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_pages_of_the_timeline_add_up_to_it(own: LeaseDatabase, most: int) -> None:
    life = Life(own, 11)
    life.live(60)
    whole, pages = timeline(own, life.run), []
    before = None

    while page := own.rows(
        "select * from pgflowd.run_timeline(%s, null, %s, %s)", life.run, before, most
    ):
        pages = page + pages
        assert {row.at for row in page[:-most]} <= {page[0].at}
        before = page[0].at

    assert pages == whole
