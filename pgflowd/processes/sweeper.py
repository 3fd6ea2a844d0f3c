"""
Sweeper: hands stalled tasks back to the queue, and gives up those that stalled too often.

A task is stalled when its worker vanished without reporting an outcome. Every
`recovery_interval` the sweeper asks the database to recover such tasks, and logs them, and the
runs that failed by it, of which notices tell. The tasks of a worker that the supervisor has
buried are given back at once, and it is told when. After each connect it waits one
`heartbeat_interval` first, so that living workers deliver what they kept. It keeps no state, so
restarting it loses nothing; a database that is not there is no reason to end. Talks to `db.tasks`.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from typing import Any
from uuid import UUID

import psycopg

from pgflowd.core.messages import ConnectionClosed, Ready, Released
from pgflowd.core.settings.sections import Settings
from pgflowd.db.connection import translated
from pgflowd.db.query import Query, execute
from pgflowd.db.tasks import Swept, sweep, sweep_dead
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.processes import EXIT_ASKED
from pgflowd.processes.database_check import DatabaseCheck
from pgflowd.processes.service import LOST, DatabaseLink, Service, StopRequested

MOST = 500  # tasks per call
MOST_ROUNDS = 20
LOOK_AGAIN_S = (0.0, 1.2, 3.0)  # a dead worker's last statement may still hold its locks
DAY_S = 86400.0
FAILED = "PF011"  # the notice that a run has failed, since a task of it was given up


def main(channel: Channel, settings: Settings, log: Log) -> int:
    """Sweep until asked to end."""
    with contextlib.suppress(StopRequested):
        Sweeper(Service(channel, settings), settings, log).live()
    return EXIT_ASKED


class Sweeper:
    """The connection, and the dead whose tasks are still to be released."""

    def __init__(self, post: Service, settings: Settings, log: Log) -> None:
        self._post = post
        self._settings = settings
        self._log = log
        self._line = DatabaseLink(post, settings, log, "sweeper", settings.database.url)
        self._dead: dict[str, list[float]] = {}  # worker id: when to look
        self._released: dict[str, int] = {}
        self._swept: deque[tuple[float, Swept]] = deque()  # of the last day
        self._is_ready = False
        self._pulse = DatabaseCheck()
        self._warned: set[str] = set()
        self._failed: list[dict[str, Any]] = []  # runs, by the call under way
        post.numbers["interval_s"] = settings.recovery.recovery_interval_s
        post.numbers["recovered_24h"] = 0
        post.numbers["given_up_24h"] = 0

    def live(self) -> None:
        """Connect, sweep, and begin again when the connection is lost."""
        while True:
            self._line.connected(self._prepare)
            if not self._is_ready:
                self._post.say(Ready())
                self._is_ready = True
            try:
                self._feel()
                self._work(time.monotonic() + self._settings.worker.heartbeat_interval_s)
            except LOST as error:
                self._line.lost(error)

    def _prepare(self, conn: psycopg.Connection[Any]) -> None:
        conn.add_notice_handler(self._noticed)
        self._pulse.look(conn)

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == FAILED:
            self._failed.append(json.loads(notice.message_detail or "{}"))

    def _work(self, sweep_at: float) -> None:
        while True:
            due = [moments[0] for moments in self._dead.values()]
            self._post.wait(min([sweep_at, *due]))
            self._take_orders()
            now = time.monotonic()
            for worker_id, moments in list(self._dead.items()):
                if moments[0] <= now:
                    self._release(worker_id, moments)
            if sweep_at <= now:
                self._sweep()
                sweep_at = now + self._settings.recovery.recovery_interval_s

    def _take_orders(self) -> None:
        while self._post.orders:
            order = self._post.orders.popleft()
            if isinstance(order, ConnectionClosed) and order.worker_id not in self._dead:
                now = time.monotonic()
                self._dead[order.worker_id] = [now + wait_s for wait_s in LOOK_AGAIN_S]

    def _release(self, worker_id: str, moments: list[float]) -> None:
        """Give back what a dead worker held; confirm when nothing can be left."""
        swept = self._ask(sweep_dead(UUID(worker_id), "its worker died", MOST))
        self._released[worker_id] = self._released.get(worker_id, 0) + swept.recovered
        self._note("its worker died", swept, worker_id)
        if swept.recovered + swept.given_up < MOST:
            moments.pop(0)
        if not moments:
            del self._dead[worker_id]
            self._post.say(Released(worker_id, self._released.pop(worker_id)))

    def _sweep(self) -> None:
        """Recover what is stalled, at most so much in one go."""
        threshold_s = self._settings.recovery.stale_threshold_s
        for _ in range(MOST_ROUNDS):
            swept = self._ask(sweep(threshold_s, MOST))
            self._note("stalled", swept, None)
            if swept.recovered + swept.given_up < MOST:
                break
        self._post.numbers["last_sweep_at"] = time.time()
        self._feel()

    def _feel(self) -> None:
        conn = self._line.conn
        assert conn is not None
        with self._line.limited(conn), translated(conn):
            felt = self._pulse.feel(conn)
        for problem in felt["problems"]:
            if problem["code"] not in self._warned:
                self._warned.add(problem["code"])
                self._log.warning("sweeper.problem", code=problem["code"], error=problem["text"])
        self._post.numbers.update(felt)

    def _ask(self, call: Query[Swept]) -> Swept:
        conn = self._line.conn
        assert conn is not None
        self._failed.clear()  # what a call said that was rolled back did not happen
        with self._line.limited(conn):
            return execute(conn, call)

    def _note(self, reason: str, swept: Swept, worker_id: str | None) -> None:
        """Log what a sweep did, and count it for those who ask for the last day."""
        said = {"reason": reason, "worker": worker_id}
        if swept.recovered:
            self._log.warning("sweeper.recovered", count=swept.recovered, **said)
        if swept.given_up:
            self._log.warning("sweeper.given_up", count=swept.given_up, code="E408", **said)
        for failed in self._failed:
            self._log.warning("run.failed", code="E408", **failed)
        now = time.monotonic()
        stalled = swept.recovered + swept.given_up
        if stalled:
            self._swept.append((now, swept))
        while self._swept and self._swept[0][0] < now - DAY_S:
            self._swept.popleft()
        numbers = self._post.numbers
        numbers["recovered_24h"] = sum(each.recovered for _, each in self._swept)
        numbers["given_up_24h"] = sum(each.given_up for _, each in self._swept)
        numbers["stalled"] = numbers.get("stalled", 0) + stalled
        if stalled:
            self._post.beat_now()
