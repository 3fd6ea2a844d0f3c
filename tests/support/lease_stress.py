"""
Stress: workers with leases and without, which crash, freeze, return as zombies, fail, release,
suspend and renew; beside them sweeps, signals, cancels and retries, all on the same runs.

Every actor is a thread with its own connection and its own random generator, drawn from one seed,
which the test prints. An actor without work asks again at once. When time is up, nothing new
begins and no actor crashes any more; the workers continue until every run has ended. The ledger
keeps the verdict of each report, and which claims met an execution of their task that had not
ended; the test compares both with the tables.
"""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg

from support.actors import act_together
from support.database import Connection, Row, key
from support.leases import LeaseDatabase, element

LEASE = "700 ms"


class Stress:
    """The flows, the actors, and the ledger of their verdicts."""

    def __init__(self, db: LeaseDatabase, seed: int, duration_s: float) -> None:
        self.db = db
        self.seed = seed
        self.ends_at = time.monotonic() + duration_s
        self.gives_up_at = self.ends_at + 60
        self.flows = [
            db.flow("a", max_attempts=999, timeout=1),
            db.flow("a", "b:a", "c:b", max_attempts=999, timeout=1),
            db.flow("a", "m*:a", "z:m", max_attempts=999, timeout=1),
        ]
        for flow in self.flows:
            db.rows("select pgmq.enable_notify_insert(%s)", flow)
        db.set("crash_limit", 1000)
        self.completed: Counter[tuple[Any, ...]] = Counter()
        self.outputs: dict[tuple[Any, ...], str] = {}
        self.seen: Counter[str] = Counter()
        self.crashed_workers: list[uuid.UUID] = []
        self.executing: dict[tuple[Any, ...], set[int]] = defaultdict(set)  # tokens, by their task
        self.met: list[tuple[int, Any]] = []  # a token that was executing, and the claim after it
        self.unfenced_tasks: set[tuple[Any, ...]] = set()  # these overlap, as G3 does not hold
        self.errors: list[BaseException] = []
        self._lock = threading.Lock()

    @property
    def in_full_swing(self) -> bool:
        return time.monotonic() < self.ends_at

    def is_over(self) -> bool:
        if self.errors or time.monotonic() > self.gives_up_at:
            return True
        return not self.in_full_swing and not self.db.open_runs()

    def go(self) -> None:
        actors: list[Callable[[Connection, random.Random], None]] = [
            *[self.fenced] * 4,
            *[self.unfenced] * 2,
            *[self.sweeper] * 2,
            *[self.ender] * 2,
            self.sender,
            self.starter,
            self.operator,
        ]
        connected = [partial(actor, self.db.connect()) for actor in actors]
        act_together(connected, self.seed, self.errors)

    def record(self, task: Row, verdict: str, output: str) -> None:
        """Enter the verdict of a report into the ledger."""
        with self._lock:
            self.seen[verdict] += 1
            if verdict == "completed":
                self.completed[key(task)[:3]] += 1
                self.outputs[key(task)[:3]] = output

    def begun(self, tasks: list[Row]) -> None:
        """Enter claimed tasks: from now on their handlers run."""
        with self._lock:
            for task in tasks:
                tokens = self.executing[key(task)[:3]]
                self.met += [(token, task) for token in tokens]
                tokens.add(task.token)

    def overlaps(self) -> list[Row]:
        """Executions that another one met before their lease had lapsed, by leases alone."""
        query = """
            select older.*, met.claimed from pgflowd.attempts as older
              join unnest(%s::bigint[], %s::timestamptz[]) as met (token, claimed) using (token)
             where coalesce(older.outcome, 'lost') = 'lost'
               and older.lease_until > met.claimed - %s::interval
        """
        met = [each for each in self.met if key(each[1])[:3] not in self.unfenced_tasks]
        tokens, claimed = [token for token, _ in met], [task.lease_until for _, task in met]
        return self.db.rows(query, tokens, claimed, LEASE)

    def ended(self, tasks: list[Row]) -> None:
        """Enter that the handlers of these tasks have ended, or are dead."""
        with self._lock:
            for task in tasks:
                self.executing[key(task)[:3]].discard(task.token)

    # -- the actors ------------------------------------------------------------------------

    def fenced(self, conn: Connection, chance: random.Random) -> None:
        """A worker with leases; when it crashes it leaves its tasks, and a zombie reports them."""
        flow, worker = self._new_worker(chance)
        zombies: list[Row] = []
        held: list[Row] = []
        while not self.is_over():
            wild = self.in_full_swing
            if wild and chance.random() < 0.03:
                self.ended(held)
                zombies += held
                held = []
                if chance.random() < 0.5:
                    self.crashed_workers.append(worker)
                conn = self._cut(conn, chance)
                flow, worker = self._new_worker(chance)
            if wild and held and chance.random() < 0.3:
                self.db.heartbeat(worker, *held, lease=LEASE, conn=conn)
            reports = [task for task in held if not wild or chance.random() < 0.8]
            if zombies and chance.random() < 0.2:
                reports.append(zombies.pop())
            reports = list({key(task)[:3]: task for task in reports}.values())
            chance.shuffle(reports)
            held = [task for task in held if task not in reports]
            held += self._report_and_claim(conn, chance, flow, worker, reports, wild)
            if not held and not wild and chance.random() < 0.5:
                flow, worker = self._new_worker(chance)

    def _report_and_claim(
        self,
        conn: Connection,
        chance: random.Random,
        flow: str,
        worker: uuid.UUID,
        reports: list[Row],
        wild: bool,
    ) -> list[Row]:
        """Report and claim in one transaction, as a worker does."""
        elements = [self._element(task, chance, wild) for task in reports]
        self.ended(reports)
        with conn.transaction():
            answers = self.db.report(*elements, conn=conn) if elements else []
            claimed = self.db.claim(flow, worker, chance.randint(1, 12), LEASE, conn)
            self.begun(claimed)
        for task, sent, answer in zip(reports, elements, answers, strict=True):
            assert answer.verdict != "error", answer
            self.record(task, answer.verdict, sent.get("output", ""))
        return claimed

    def _element(self, task: Row, chance: random.Random, wild: bool) -> dict[str, Any]:
        what = chance.random() if wild else 1.0
        if what < 0.08:
            return element(task, "failed", error_message="boom", delay="0 s")
        if what < 0.12:
            return element(task, "released")
        if what < 0.20:
            wait = {"kind": "sleep", "in_s": chance.random() / 10}
            if chance.random() < 0.5:
                signal = {"name": "x", "checkpoint": f"signal x {task.token}"}
                wait |= {"kind": "signal", **signal}
            return element(task, "suspended", wait=wait)
        return element(task, output=_output(task, chance))

    def _cut(self, conn: Connection, chance: random.Random) -> Connection:
        """Lose the connection, perhaps in the middle of a transaction."""
        if chance.random() < 0.5:
            flow, worker = self._new_worker(chance)
            conn.execute("begin")
            self.db.claim(flow, worker, 5, LEASE, conn)
        conn.close()
        return self.db.connect()

    def unfenced(self, conn: Connection, chance: random.Random) -> None:
        """A worker of upstream: it claims without a lease, and reports one by one, or vanishes."""
        while not self.is_over():
            flow, worker = self._new_worker(chance)
            claimed = self.db.upstream_claim(flow, worker, conn)
            self.unfenced_tasks.update(key(task)[:3] for task in claimed)
            for task in claimed:
                what = chance.random() if self.in_full_swing else 1.0
                if what < 0.05:
                    continue
                if what < 0.1:
                    self._fail_unfenced(task, conn)
                else:
                    self.db.upstream_complete(task, json.loads(_output(task, chance)), conn)

    def _fail_unfenced(self, task: Row, conn: Connection) -> None:
        """0.8's fail_task locks the task before the run, so it deadlocks with complete_task."""
        with conn.transaction():
            conn.execute("select from pgflow.runs where run_id = %s for update", (task.run_id,))
            query = "select pgflow.fail_task(%s, %s, %s, 'theirs')"
            self.db.rows(query, *key(task)[:3], conn=conn)

    def sweeper(self, conn: Connection, chance: random.Random) -> None:
        while not self.is_over():
            self.db.recover("0 s", conn)
            if self.crashed_workers and chance.random() < 0.5:
                self.db.crashed(self.crashed_workers.pop(), conn=conn)

    def ender(self, conn: Connection, chance: random.Random) -> None:
        """Ends waits that are due, as a sweeper does; now and then it dies before its commit."""
        while not self.is_over():
            if chance.random() < 0.02:
                conn.execute("begin")
            conn.execute("select pgflowd.process_due(%s)", (chance.randint(1, 40),))
            if conn.info.transaction_status:
                conn.close()
                conn = self.db.connect()

    def sender(self, conn: Connection, chance: random.Random) -> None:
        """Sends signals, some of them in transactions that others overtake."""
        while self.in_full_swing and not self.errors:
            for run in self.db.open_runs(conn):
                if chance.random() < 0.1:
                    value, lingers = chance.random(), chance.random() < 0.2
                    send = partial(self._send, conn, run.run_id, value, lingers=lingers)
                    self._unless("PF003", send)

    def _send(self, conn: Connection, run: uuid.UUID, value: float, *, lingers: bool) -> None:
        with conn.transaction():
            query = "select pgflowd.signal(%s, 'x', to_jsonb(%s::float8))"
            self.db.rows(query, run, value, conn=conn)
            if lingers:
                self.db.open_runs(conn)

    def starter(self, conn: Connection, chance: random.Random) -> None:
        while self.in_full_swing and not self.errors:
            if len(self.db.open_runs(conn)) < 150:
                flow = chance.choice(self.flows)
                inputs = "select pgflow.start_flow(%s, '{}') from generate_series(1, %s)"
                self.db.rows(inputs, flow, chance.randint(1, 20), conn=conn)

    def operator(self, conn: Connection, chance: random.Random) -> None:
        """Cancels some runs, and retries some that failed or were cancelled, or some at once."""
        while not self.is_over():
            for run in self.db.open_runs(conn):
                if self.in_full_swing and chance.random() < 0.03:
                    self._unless("PF003", lambda run=run: self.db.cancel(run.run_id, conn))
                    if chance.random() < 0.8:
                        self._unless("PF004", lambda run=run: self.db.retry(run.run_id, conn, True))
            query = "select run_id from pgflow.runs where status = 'failed' limit 20"
            for run in self.db.rows(query, conn=conn):
                if self.in_full_swing and chance.random() < 0.1:
                    self._unless("PF004", lambda run=run: self.db.retry(run.run_id, conn, True))

    def _unless(self, sqlstate: str, action: Callable[[], object]) -> None:
        try:
            action()
        except psycopg.Error as error:
            if error.sqlstate != sqlstate:
                raise
            with self._lock:
                self.seen[sqlstate] += 1

    def _new_worker(self, chance: random.Random) -> tuple[str, uuid.UUID]:
        flow = chance.choice(self.flows)
        with self._lock:
            return flow, self.db.worker(flow)


def _output(task: Row, chance: random.Random) -> str:
    """The output of a handler: an array, since a map may follow, and never the same twice."""
    items = [f"{task.step_slug}{number}" for number in range(chance.randint(0, 4))]
    return json.dumps([*items, chance.getrandbits(60)])
