"""
The listener: turns notifications of the database into wakes, for all flows on one connection.

It listens on channel `pgflowd`. The payload is the name of a queue, or a run that a client
follows, which is sent to all workers, or a hint for the sweeper. On channel `pgflowd_due` it hears
that something is due, and tells the sweeper. After each connect it first commits its LISTEN and
then wakes all workers and the sweeper, so no notification is missed. At most ten wakes per flow
pass in `notify_throttle`, and one at its end. Every 10 s it asks the server whether it still
listens; without an answer the connection is lost. Behind a pooler it tries whether a notification
arrives. If none does, as with pooled transactions, it warns (W314), wakes all workers every
`poll_max`, and the sweeper each second; that one also where no flow wants notifications.
As the first child that connects it also reads how many connections the server has left.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.pq import TransactionStatus

from pgflowd.core import messages as msg
from pgflowd.core.output_stream import requested_run
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.tree import EXIT_ASKED
from pgflowd.db.connection import is_pooled
from pgflowd.db.daemons import DAEMONS_LOOKED_AT, server_connections
from pgflowd.db.definitions import VERSIONS_CHANGED, served_versions
from pgflowd.db.query import execute
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.processes.service import DatabaseLink, Service, StopRequested

CHECK_INTERVAL_S = 10.0  # a lost connection delays wakes at most so long
CHECK_TIMEOUT_S = 4.0  # a slow server answers in less
MAX_QUEUES = 10_000  # that the throttle keeps; any client may send any name
MAX_WAKES = 10  # per queue and window; further ones find the worker busy with claims
MIN_HOLD_S = 0.05  # by then a full channel has room again
DUE_POLL_S = 1.0  # while nothing is heard the sweeper is told to look so often
HEAR_WITHIN_S = 2.0  # a notification that has not arrived by then never will
HINTS = {VERSIONS_CHANGED: msg.LookAtVersions(), DAEMONS_LOOKED_AT: msg.LookAtDaemons()}
DEAF = "a pooler is in between, and no notification comes through it"
DEAF_NEXT = "set [database] listen_url to bypass the pooler"
_LISTEN_CHECK = "select count(*) from pg_listening_channels() as name where name = 'pgflowd'"


def main(channel: Channel, settings: Settings, log: Log) -> int:
    """Listen until the supervisor asks to end."""
    service = Service(channel, settings, log)
    try:
        keys = [settings.worker, *map(settings.worker_for, settings.flows)]
        if any(each.signal_strategy == "notify" for each in keys):
            Listener(service, settings, log).run()
        if not settings.database.max_connections:
            link = DatabaseLink(service, settings, log, "listener", settings.database.url)
            link.once(lambda conn: _measure(service, conn))
        service.channel.send(msg.Ready())
        while True:
            service.wait_until(time.monotonic() + DUE_POLL_S)
            service.channel.send(msg.LookAtDue())
    except StopRequested:
        return EXIT_ASKED


def _measure(service: Service, conn: psycopg.Connection[Any]) -> None:
    """Tell the supervisor how many connections the server has left, and what it serves."""
    service.channel.send(msg.ConnectionsLeft(execute(conn, server_connections()).left))
    for name, flows in served_versions(conn):
        service.channel.send(msg.ServeVersions(name, flows))


class Listener:
    """The connection, and the wakes that are held back."""

    def __init__(self, service: Service, settings: Settings, log: Log) -> None:
        self._service = service
        self._settings = settings
        self._log = log
        url = settings.database.listen_url or settings.database.url
        self._link = DatabaseLink(service, settings, log, "listener", url)
        self._is_listening = True
        self._tell_at = float("inf")  # when to tell the sweeper, without a notification
        self._throttle = Throttle(settings)

    def run(self) -> None:
        try:
            self._link.run(self._subscribe, self._listen)
        finally:
            self._link.leave()

    def _subscribe(self, conn: psycopg.Connection[Any]) -> None:
        _measure(self._service, conn)
        conn.execute("listen pgflowd")
        conn.execute("listen pgflowd_due")
        self._is_listening = not is_pooled(conn) or self._hears(conn)
        problems = []
        if not self._is_listening:
            conn.execute("unlisten *")  # in the session where it most likely is
            problems = [{"code": "W314", "text": DEAF, "next": DEAF_NEXT}]
            self._log.warning("listener.deaf", code="W314", error=f"{DEAF}; {DEAF_NEXT}")
        self._service.numbers["problems"] = problems

    def _hears(self, conn: psycopg.Connection[Any]) -> bool:
        """
        Whether a notification of another session arrives here.

        To ask the server which channels this session has proves nothing: a transaction pooler may
        answer by the very session that said LISTEN, and yet pass no notification on.
        """
        channel = f"pgflowd_{uuid4().hex}"
        conn.execute(f"listen {channel}")
        with contextlib.closing(self._link.open()) as other:
            other.execute("select pg_notify(%s, '')", (channel,))
        heard = any(each.channel == channel for each in conn.notifies(timeout=HEAR_WITHIN_S))
        conn.execute(f"unlisten {channel}")
        return heard

    def _listen(self, conn: psycopg.Connection[Any]) -> None:
        """Pass notifications on until the connection fails."""
        self._throttle.clear()
        self._wake(None)
        self._tell_sweeper()
        pgconn = conn.pgconn
        now = time.monotonic()
        check_at, answer_by = now + CHECK_INTERVAL_S, float("inf")
        poll_at = float("inf") if self._is_listening else now + self._settings.worker.poll_max_s
        while True:
            until = min(check_at, answer_by, poll_at, self._tell_at, self._throttle.due)
            if self._service.wait(until, [pgconn.socket]):
                pgconn.consume_input()
                is_due = False
                while (notification := pgconn.notifies()) is not None:
                    if notification.relname == b"pgflowd_due":
                        is_due = True
                    else:
                        self._on_notification(notification.extra.decode("utf-8", "replace"))
                if is_due:
                    self._tell_sweeper()
            now = time.monotonic()
            if now >= self._tell_at:
                self._tell_sweeper()
            for queue in self._throttle.due_queues(now):
                self._wake(queue)
            if answer_by < float("inf") and not pgconn.is_busy():
                # read the answer of the check; raise if it is an error
                while (result := pgconn.get_result()) is not None:
                    if result.error_message:
                        raise OSError(result.error_message.decode("utf-8", "replace"))
                if pgconn.transaction_status != TransactionStatus.IDLE:
                    raise OSError("the connection is in an unexpected state")
                answer_by = float("inf")
            if now >= answer_by:
                raise OSError("the server does not answer")
            if now >= check_at:
                pgconn.send_query(_LISTEN_CHECK.encode())
                check_at, answer_by = now + CHECK_INTERVAL_S, now + CHECK_TIMEOUT_S
            if now >= poll_at:
                self._wake(None)
                poll_at = now + self._settings.worker.poll_max_s

    def _tell_sweeper(self) -> None:
        """Something may be due. Tell it again if the channel is full, or if nothing is heard."""
        is_told = self._service.channel.send(msg.LookAtDue())
        pause_s = MIN_HOLD_S if not is_told else float("inf") if self._is_listening else DUE_POLL_S
        self._tell_at = time.monotonic() + pause_s

    def _on_notification(self, payload: str) -> None:
        run_id = requested_run(payload)
        if message := msg.Follow(run_id) if run_id else HINTS.get(payload):
            self._service.channel.send(message)
            return
        self._service.numbers["last_notification_at"] = time.time()
        if self._throttle.may_pass(payload, time.monotonic()):
            self._wake(payload)

    def _wake(self, queue: str | None) -> None:
        if not self._service.channel.send(msg.Wake(queue)) and queue is not None:
            self._throttle.hold(queue, time.monotonic())


class Throttle:
    """
    At most `MAX_WAKES` per queue in `notify_throttle`, and one at its end.

    With only one, a start every 200 ms would always fall into the window that the start before
    it opened, and wait for its end although the worker is idle.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._windows: dict[str, _Window] = {}
        self._held: set[str] = set()

    @property
    def due(self) -> float:
        """When the next held wake may pass."""
        return min((self._windows[queue].ends for queue in self._held), default=float("inf"))

    def may_pass(self, queue: str, now: float) -> bool:
        """Whether a wake passes now; if not, it is held back."""
        window = self._windows.get(queue)
        if window is None or now >= window.ends:
            window = self._open(queue, now)
        if window.passed >= MAX_WAKES:
            self._held.add(queue)
            return False
        window.passed += 1
        self._held.discard(queue)
        return True

    def hold(self, queue: str, now: float) -> None:
        """Hold a wake that found the channel full, also where nothing is throttled."""
        window = self._open(queue, now)
        window.passed, window.ends = MAX_WAKES, max(window.ends, now + MIN_HOLD_S)
        self._held.add(queue)

    def due_queues(self, now: float) -> list[str]:
        """Return the queues whose held wakes may pass now."""
        over = [queue for queue in self._held if self._windows[queue].ends <= now]
        return [queue for queue in over if self.may_pass(queue, now)]

    def clear(self) -> None:
        """Hold nothing any more: all workers are woken."""
        self._held.clear()
        self._windows.clear()

    def _open(self, queue: str, now: float) -> _Window:
        if len(self._windows) > MAX_QUEUES:  # any client may send any name
            self.clear()
        window = _Window(now + self._settings.worker_for(queue).notify_throttle_s)
        self._windows[queue] = window
        return window


@dataclass
class _Window:
    """The current window of a queue, and the wakes that have passed in it."""

    ends: float
    passed: int = 0
