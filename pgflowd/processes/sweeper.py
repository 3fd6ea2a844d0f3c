"""
The sweeper: puts stalled tasks back into the queue, and fails those that stalled too often. Queued
tasks whose message is gone get another one; of a large table it looks at a part in each sweep.

A task is stalled when its worker vanished without reporting an outcome. Every
`recovery_interval` the sweeper has the database recover such tasks. It logs them, and the runs
that failed as a result, which arrive as notices. The tasks of a worker that the supervisor has
reaped are released at once, and the supervisor gets an answer. After each connect the sweeper
first waits one `heartbeat_interval`, so that running workers report the outcomes they kept. It
keeps no state, so a restart loses nothing.

It renews the rows of the daemon's workers that have no tasks, all in one statement, which also
reads their queues; the supervisor passes the answers on to the workers
(docs/design/supervision.md, rule 57).

While workers sleep it looks at their queues, all in one statement: it wakes those with a visible
message, and tells when the next one will be. It renews their rows, too: they count as served. It
keeps their doorbells up until they wake; one that the server had lost it proves as workers do
(docs/design/doorbells.md).

It also reads facts about the database for `status`: version, pgmq and schema at each connect, round
trip and clock before each sweep. It reports as problems clocks that differ (W312),
`synchronous_commit` off (W315), a connection without encryption (W316), a notification queue that
is not emptied (E319), what keeps dead rows (E321), and a server without a free connection (E310),
at once when one was refused. And it counts the tasks of each flow that wait.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from typing import Any
from uuid import UUID

import psycopg

from pgflowd.core.messages import (
    Asleep,
    Awake,
    ConnectionRefused,
    LookAtQueues,
    Message,
    NextDue,
    Released,
    Wake,
    WorkerEnded,
    WorkerStanding,
    WorkerStarted,
    WorkerStopped,
)
from pgflowd.core.obstacles import (
    MANY_TRANSACTIONS,
    MAX_NAMED,
    is_harmful,
    is_overfull,
    queue_problem,
    snapshot_problem,
)
from pgflowd.core.server_connections import full_problem
from pgflowd.core.settings.sections import Settings
from pgflowd.core.sleeping_queues import SleepingQueues
from pgflowd.core.supervision.exits import EXIT_ASKED
from pgflowd.core.text import counted
from pgflowd.db.connection import EXPOSED, EXPOSED_NEXT, is_exposed, translated
from pgflowd.db.doorbells import arm_sleepers, writers
from pgflowd.db.obstacles import oldest_snapshots, oldest_transactions, queue_share
from pgflowd.db.query import A, Query, execute
from pgflowd.db.schema import status
from pgflowd.db.server_connections import server_connections
from pgflowd.db.tasks import Swept, resend, sweep, sweep_dead
from pgflowd.db.waits import waiting_tasks
from pgflowd.db.workers import look_at_queues, renew_rows, renew_sleeping
from pgflowd.errors import DatabaseError, Problem
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.processes.service import DatabaseLink, Service, StopRequested

MAX_TASKS = 500  # tasks per call
MAX_ROUNDS = 20  # calls of one sweep, so that released tasks do not wait long
RELEASE_AFTER_S = (0.0, 1.2, 3.0)  # the last statement of an ended worker may hold locks
DAY_S = 86400.0
RUN_FAILED = "PF011"  # the notice that a run failed because a task was given up
# Rows of idle workers are renewed three intervals apart, at most 15 s: they count as alive for 30 s
IDLE_INTERVALS = 3
IDLE_RENEWAL_S = 15.0
FULL_S = 0.1  # by then a full channel has room again
LOOK_PAUSE_S = 2.0  # between two looks at a server that refuses connections
AGAIN_S = 1.0  # to the next look at transactions that have missed a doorbell
MAX_SKEW_S = 5.0  # of clocks; more confuses a reader of logs


def main(channel: Channel, settings: Settings, log: Log) -> int:
    """Sweep until the supervisor asks to end."""
    with contextlib.suppress(StopRequested):
        Sweeper(Service(channel, settings), settings, log).run()
    return EXIT_ASKED


class Sweeper:
    """The connection, and the ended workers whose tasks are still to be released."""

    def __init__(self, service: Service, settings: Settings, log: Log) -> None:
        self._service = service
        self._settings = settings
        self._log = log
        self._link = DatabaseLink(service, settings, log, "sweeper", settings.database.url)
        self._ended_workers: dict[str, list[float]] = {}  # worker id: when to release
        self._workers: dict[str, None] = {}  # ids of those that are up
        self._released: dict[str, int] = {}
        self._sleeping = SleepingQueues()
        self._writers: dict[str, tuple[str, ...] | None] = {}  # that may have missed a doorbell
        self._renew_at = 0.0
        self._swept: deque[tuple[float, Swept]] = deque()  # of the last day
        self._about: dict[str, Any] = {}  # the database, as it was at the connect
        self._look_at, self._looked_at = float("inf"), 0.0  # beside the looks before sweeps
        self._is_exposed = False
        self._problems: list[Problem] = []
        self._failed: list[dict[str, Any]] = []  # runs, by the current call
        self._page: int | None = None  # before it, runs are looked at for lost messages next
        service.numbers["interval_s"] = settings.recovery.recovery_interval_s
        service.numbers["recovered_24h"] = 0
        service.numbers["given_up_24h"] = 0

    def run(self) -> None:
        self._link.run(self._prepare, self._work)

    def _prepare(self, conn: psycopg.Connection[Any]) -> None:
        """Read what stays the same during a connection. Workers check whether it suffices."""
        conn.add_notice_handler(self._on_notice)
        self._is_exposed = is_exposed(conn)
        self._about = {}
        with contextlib.suppress(DatabaseError):
            state = status(conn).state
            self._about = {
                "server": state.server,
                "place": f"{conn.info.host}:{conn.info.port}/{conn.info.dbname}",
                "pgmq": state.pgmq,
                "schema": state.version,
            }

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == RUN_FAILED:
            self._failed.append(json.loads(notice.message_detail or "{}"))

    def _work(self, conn: psycopg.Connection[Any]) -> None:
        self._look(conn)
        renew_at = time.monotonic()
        sweep_at = renew_at + self._settings.worker.heartbeat_interval_s
        interval_s = min(IDLE_INTERVALS * self._settings.shortest_heartbeat_s, IDLE_RENEWAL_S)
        self._sleeping.look_at_all(renew_at)
        while True:
            due = [moments[0] for moments in self._ended_workers.values()]
            due += [sweep_at, renew_at, self._look_at, self._sleeping.due]
            self._service.wait(min(due))
            now = time.monotonic()
            while self._service.orders:
                self._obey(self._service.orders.popleft(), now)
            self._look_at_queues(conn, now)
            if now >= self._look_at:
                self._look(conn)
            if now >= renew_at:
                renew_at = now + interval_s
                self._renew_workers(conn, interval_s / 2)
            for worker_id, moments in list(self._ended_workers.items()):
                if moments[0] <= now:
                    self._release(conn, worker_id, moments)
            if sweep_at <= now:
                self._sweep(conn)
                sweep_at = now + self._settings.recovery.recovery_interval_s

    def _obey(self, order: Message, now: float) -> None:
        """Note an order; it is carried out when it is due."""
        if isinstance(order, WorkerStarted):
            self._workers[order.worker_id] = None
        elif isinstance(order, WorkerStopped | WorkerEnded):
            self._workers.pop(order.worker_id, None)
        if isinstance(order, WorkerEnded) and order.worker_id not in self._ended_workers:
            moments = [now + wait_s for wait_s in RELEASE_AFTER_S]
            self._ended_workers[order.worker_id] = moments
        elif isinstance(order, Asleep):
            self._sleeping.add(order, now)
        elif isinstance(order, Awake):
            self._sleeping.remove(order.queue)
        elif isinstance(order, LookAtQueues):
            self._sleeping.look_at_all(now)
        elif isinstance(order, ConnectionRefused):
            self._look_at = min(self._look_at, max(now, self._looked_at + LOOK_PAUSE_S))

    def _look_at_queues(self, conn: psycopg.Connection[Any], now: float) -> None:
        """Look at the queues of sleeping workers that are due; wake those that have work."""
        asleep = self._sleeping.take_due(now)
        if not asleep:
            return
        self._execute(conn, renew_sleeping([each.worker_id for each in asleep]))
        self._keep_doorbells(conn, asleep, now)
        for queue, due_in_s in self._execute(conn, look_at_queues([e.queue for e in asleep])):
            is_visible = due_in_s <= 0
            found = Wake(queue) if is_visible else NextDue(queue, time.monotonic() + due_in_s)
            if not self._service.channel.send(found):
                self._sleeping.look_by(queue, now + FULL_S)

    def _keep_doorbells(
        self, conn: psycopg.Connection[Any], asleep: list[Asleep], now: float
    ) -> None:
        """Put up those that are gone. Look again while transactions are open that missed one."""
        owners = [
            (each.queue, each.worker_id)
            for each in asleep
            if self._settings.worker_for(each.queue).signal_strategy == "notify"
        ]
        for queue in self._execute(conn, arm_sleepers(owners)):
            self._writers[queue] = None
        for queue in [each.queue for each in asleep if each.queue in self._writers]:
            open_now = self._execute(conn, writers(queue, self._writers.pop(queue)))
            if open_now:
                self._writers[queue] = open_now
                self._sleeping.look_by(queue, now + AGAIN_S)

    def _renew_workers(self, conn: psycopg.Connection[Any], after_s: float) -> None:
        """Renew the rows of the workers that have not done so lately, and tell them the answers."""
        if worker_ids := self._sleeping.worker_ids:
            self._execute(conn, renew_sleeping(worker_ids))
        if not self._workers:
            return
        for worker_id, standing in self._execute(conn, renew_rows([*self._workers], after_s)):
            self._service.channel.send(
                WorkerStanding(
                    worker_id,
                    standing.row,
                    standing.queued,
                    standing.oldest_queued_s,
                    standing.due_in_s,
                    standing.oldest_run,
                )
            )

    def _release(self, conn: psycopg.Connection[Any], worker_id: str, moments: list[float]) -> None:
        """Release the tasks of an ended worker; confirm when none can be left."""
        swept = self._execute(conn, sweep_dead(UUID(worker_id), "its worker died", MAX_TASKS))
        self._released[worker_id] = self._released.get(worker_id, 0) + swept.recovered
        self._report("its worker died", swept, worker_id)
        if swept.recovered + swept.given_up < MAX_TASKS:
            moments.pop(0)
        if not moments:
            del self._ended_workers[worker_id]
            self._service.channel.send(Released(worker_id, self._released.pop(worker_id)))

    def _sweep(self, conn: psycopg.Connection[Any]) -> None:
        """Recover stalled tasks, a limited number at once; look first, since a sweep may fail."""
        self._look(conn)
        threshold_s = self._settings.recovery.stale_threshold_s
        for _ in range(MAX_ROUNDS):
            swept = self._execute(conn, sweep(threshold_s, MAX_TASKS))
            self._report("stalled", swept, None)
            if swept.recovered + swept.given_up < MAX_TASKS:
                break
        for _ in range(MAX_ROUNDS):
            resent = self._execute(conn, resend(self._page, MAX_TASKS))
            self._report("its message was gone", Swept(resent.sent, 0), None)
            if resent.sent < MAX_TASKS:
                self._page = resent.next_page
                break
        self._service.numbers["waiting"] = self._execute(conn, waiting_tasks())
        self._service.numbers["last_sweep_at"] = time.time()

    def _look(self, conn: psycopg.Connection[Any]) -> None:
        """Measure the database, and report its problems."""
        self._look_at, self._looked_at = float("inf"), time.monotonic()
        with self._link.limited(conn), translated(conn):
            problems = [*self._measure(conn), *_obstacles(conn)]
        known = {each.code for each in self._problems}
        for problem in problems:
            if problem.code not in known:
                level = "warning" if problem.is_warning else "error"
                fields = {"code": problem.code, "error": problem.text, "next": problem.next}
                self._log.write(level, "sweeper.problem", **fields)
        if known != {each.code for each in problems}:
            self._service.send_heartbeat_soon()
        self._problems = problems
        self._service.numbers["problems"] = [
            {"code": each.code, "text": each.text, "next": each.next} for each in problems
        ]

    def _measure(self, conn: psycopg.Connection[Any]) -> list[Problem]:
        """Measure round trip and clock for the next heartbeat; return what is wrong."""
        started, sent_at = time.monotonic(), time.time()
        row = conn.execute(_CLOCK_QUERY).fetchone()
        assert row is not None
        rtt_s = time.monotonic() - started
        skew_s = row[0] - (sent_at + rtt_s / 2)
        self._service.numbers["database"] = {
            "state": "up",
            "at": time.time(),
            **self._about,
            "rtt_s": round(rtt_s, 6),
            "clock_skew_s": round(skew_s, 3),
        }
        return _problems(skew_s, row[1], self._is_exposed)

    def _execute(self, conn: psycopg.Connection[Any], query: Query[A]) -> A:
        self._failed.clear()  # notices of a call that was rolled back do not count
        with self._link.limited(conn):
            return execute(conn, query)

    def _report(self, reason: str, swept: Swept, worker_id: str | None) -> None:
        """Log what a sweep did, and count it for the last day."""
        fields = {"reason": reason, "worker": worker_id}
        if swept.recovered:
            text = f"{counted(swept.recovered, 'stalled task')} given back"
            self._log.warning("sweeper.recovered", count=swept.recovered, error=text, **fields)
        if swept.given_up:
            text = f"{counted(swept.given_up, 'stalled task')} given up, after too many attempts"
            fields |= {"code": "E408", "error": text}
            self._log.warning("sweeper.given_up", count=swept.given_up, **fields)
        for failed in self._failed:
            self._log.warning("run.failed", code="E408", **failed)
        now = time.monotonic()
        stalled = swept.recovered + swept.given_up
        if stalled:
            self._swept.append((now, swept))
        while self._swept and self._swept[0][0] < now - DAY_S:
            self._swept.popleft()
        numbers = self._service.numbers
        numbers["recovered_24h"] = sum(each.recovered for _, each in self._swept)
        numbers["given_up_24h"] = sum(each.given_up for _, each in self._swept)
        numbers["stalled"] = numbers.get("stalled", 0) + stalled
        if stalled:
            self._service.send_heartbeat_soon()


_CLOCK_QUERY = """
select extract(epoch from clock_timestamp())::float8, current_setting('synchronous_commit')
"""


def _problems(skew_s: float, commits: str, exposed: bool) -> list[Problem]:
    """Return what is wrong with the clock and the connection."""
    problems = []
    if abs(skew_s) > MAX_SKEW_S:
        text = f"the database's clock is {skew_s:+.1f} s from ours; times in logs do not match"
        problems.append(Problem("W312", text, "database"))
    if commits == "off":
        text = "synchronous_commit is off: what was just committed is lost when the server crashes"
        problems.append(Problem("W315", text, "database"))
    if exposed:
        problems.append(Problem("W316", EXPOSED, "database", EXPOSED_NEXT))
    return problems


def _obstacles(conn: psycopg.Connection[Any]) -> list[Problem]:
    """Return what hinders the whole database. To ask for the queue's share also empties it."""
    is_full = full_problem(execute(conn, server_connections()))
    problems = [is_full] if is_full else []
    share = execute(conn, queue_share())
    if is_overfull(share):
        problems.append(queue_problem(share, execute(conn, oldest_transactions(0, MAX_NAMED))))
    holders = execute(conn, oldest_snapshots(MANY_TRANSACTIONS, MAX_NAMED))
    problems += [snapshot_problem(each) for each in holders if is_harmful(each)]
    return problems
