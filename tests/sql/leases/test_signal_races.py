"""
Signals race the waits that they are for, and the timeouts of these; sweepers are killed meanwhile.

Each of 3,000 runs has one task, which waits once, most for a few milliseconds, and gets one signal,
some from transactions that stay open for a while. Three workers, three senders, two sweepers and
somebody who locks runs and kills sweepers have a thread and a connection each.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
from support.actors import Actor, act_together
from support.database import Row
from support.leases import LeaseDatabase, element

RUNS = 3_000
KILLS = 60
SAVED = """
    select given.index, checkpoint.data
      from unnest(%s::uuid[]) with ordinality as given (run_id, index)
      left join pgflowd.checkpoints as checkpoint on checkpoint.run_id = given.run_id
     order by given.index
"""
ENDS = """
    select run.output -> 'a' ? 'got' as got, run.output -> 'a' ? 'timeout' as timed_out,
           run.output -> 'a' -> 'got' = signal.payload as is_its_own,
           signal.consumed_at is not null as is_used
      from pgflow.runs as run join pgflowd.signals as signal using (run_id)
"""


class Race:
    """The actors, and what they share."""

    def __init__(self, db: LeaseDatabase, seed: int) -> None:
        self.db = db
        self.seed = seed
        self.flow = db.flow("a", max_attempts=1)
        query = "select run_id from pgflow.start_flows(%s, array_fill('{}'::jsonb, array[%s]))"
        self.runs = db.column(query, self.flow, RUNS)
        self.left = set(self.runs)  # that have not completed
        self.sweepers: dict[str, int] = {}  # their sessions
        self.kills = 0
        self.errors: list[BaseException] = []
        self.ends_at = time.monotonic() + 120

    @property
    def is_over(self) -> bool:
        return not self.left or bool(self.errors) or time.monotonic() > self.ends_at

    def go(self) -> None:
        part = RUNS // 3
        actors: list[Actor] = [
            *[self.work] * 3,
            *[partial(self.send, runs=self.runs[part * i :][:part]) for i in range(3)],
            *[self.sweep] * 2,
            self.disturb,
        ]
        act_together(actors, self.seed, self.errors)

    def work(self, chance: random.Random) -> None:
        """Suspend each task once; complete it with what its wait brought."""
        conn, worker = self.db.connect(), self.db.worker(self.flow)
        held: list[Row] = []
        while not self.is_over:
            saved = self.db.rows(SAVED, [task.run_id for task in held], conn=conn)
            elements = [
                self.outcome(chance, task, row.data) for task, row in zip(held, saved, strict=True)
            ]
            with conn.transaction():
                answers = self.db.report(*elements, conn=conn)
                held = self.db.claim(self.flow, worker, chance.randint(1, 10), conn=conn)
            assert {answer.verdict for answer in answers} <= {"completed", "queued"}
            done = [one["run_id"] for one in elements if one["outcome"] == "completed"]
            self.left.difference_update(map(type(self.runs[0]), done))

    def outcome(self, chance: random.Random, task: Row, data: Any) -> dict[str, Any]:
        if data is not None:
            return element(task, output=json.dumps(data))
        in_s = 0.003 if chance.random() < 0.3 else None
        wait = {"kind": "signal", "name": "paid", "checkpoint": "signal paid 1", "in_s": in_s}
        return element(task, "suspended", wait=wait)

    def send(self, chance: random.Random, *, runs: list[Any]) -> None:
        """Signal each run, up to twenty in a transaction; one that is rolled back begins again."""
        conn = self.db.connect()
        todo = chance.sample(runs, len(runs))
        while todo and not self.is_over:
            some = todo[: chance.randint(1, 20)]
            is_undone = chance.random() < 0.1
            with conn.transaction(force_rollback=is_undone):
                for run in some:
                    query = "select pgflowd.signal(%s, 'paid', to_jsonb(%s::text))"
                    self.db.do(query, run, str(run), conn=conn)
            if not is_undone:
                todo = todo[len(some) :]

    def sweep(self, chance: random.Random) -> None:
        me = threading.current_thread().name
        while not self.is_over:
            conn = self.db.connect()
            self.sweepers[me] = conn.info.backend_pid
            with suppress(psycopg.OperationalError):
                while not self.is_over:
                    conn.execute("select pgflowd.process_due(%s)", (chance.randint(1, 30),))

    def disturb(self, chance: random.Random) -> None:
        """Kill sweepers at any statement, and lock runs."""
        conn = self.db.connect()
        while not self.is_over:
            if self.kills < KILLS and self.sweepers:
                pid = chance.choice([*self.sweepers.values()])
                self.kills += self.db.value("select pg_terminate_backend(%s)", pid, conn=conn)
            with conn.transaction():
                some = chance.sample(self.runs, 20)
                lock = "select from pgflow.runs where run_id = any(%s) for update skip locked"
                self.db.rows(lock, some, conn=conn)
                self.db.value("select count(*) from pgflow.step_tasks", conn=conn)


def test_each_wait_has_one_signal_or_one_timeout_and_each_signal_one_wait_at_most(
    own: LeaseDatabase,
) -> None:
    seed = int(os.environ.get("PGFLOWD_STRESS_SEED") or random.SystemRandom().getrandbits(32))
    print(f"seed {seed}")  # noqa: T201
    race = Race(own, seed)

    race.go()

    assert not race.left, f"{len(race.left)} runs have not ended"
    ends = own.rows(ENDS)
    assert len(ends) == RUNS
    assert all(end.got != end.timed_out for end in ends)
    assert all(end.got == end.is_used for end in ends)
    assert all(end.is_its_own for end in ends if end.got)
    got = sum(end.got for end in ends)
    print(f"{got} got their signals, {RUNS - got} timed out, {race.kills} kills")  # noqa: T201
    assert 0 < got < RUNS
    assert race.kills > 10
    assert own.rows("select * from pgflowd.waits") == []
    assert own.rows("select * from pgflowd.violations('1 day')") == []
    assert not own.queue(race.flow)
