"""
Listener: turns the database's notifications into wakes, for all flows over one connection.

It listens on channel `pgflowd`, whose payload is a queue's name, or says that somebody follows
a run, which all workers are told. After each connect it first commits its LISTEN and then wakes
all workers, so nothing that was sent meanwhile is missed. At most ten wakes per flow pass in
`notify_throttle`, and one at its end. Every 10 s it asks whether it still listens; silence means
that the line is dead. Behind a transaction pooler nothing can be heard: then it warns (W314) and
wakes all workers every `poll_max`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import psycopg
from psycopg.pq import TransactionStatus

from pgflowd.core.messages import Follow, Ready, Wake
from pgflowd.core.output_stream import asked_for
from pgflowd.core.settings.sections import Settings
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.processes import EXIT_ASKED
from pgflowd.processes.service import LOST, DatabaseLink, Service, StopRequested

ASK_EVERY_S = 10.0
ANSWER_WITHIN_S = 4.0
MOST_QUEUES = 10_000
MOST_WAKES = 10
LEAST_HOLD_S = 0.05
_QUESTION = "select count(*) from pg_listening_channels() as name where name = 'pgflowd'"


def main(channel: Channel, settings: Settings, log: Log) -> int:
    """Listen until asked to end."""
    post = Service(channel, settings)
    try:
        if _is_wanted(settings):
            Listener(post, settings, log).live()
        post.say(Ready())
        while True:
            post.rest(time.monotonic() + 3600)
    except StopRequested:
        return EXIT_ASKED


def _is_wanted(settings: Settings) -> bool:
    """Whether any flow may wait for notifications."""
    keys = [settings.worker, *(settings.worker_for(slug) for slug in settings.flows)]
    return any(each.signal_strategy == "notify" for each in keys)


class Listener:
    """The connection, and which wakes are held back."""

    def __init__(self, post: Service, settings: Settings, log: Log) -> None:
        self._post = post
        self._settings = settings
        self._log = log
        url = settings.database.listen_url or settings.database.url
        self._line = DatabaseLink(post, settings, log, "listener", url)
        self._hears = True
        self._is_ready = False
        self._throttle = Throttle(settings)

    def live(self) -> None:
        """Connect, listen, and begin again when the line is lost."""
        while True:
            self._line.connected(self._subscribe)
            self._throttle.forget()
            self._wake(None)
            if not self._is_ready:
                self._post.say(Ready())
                self._is_ready = True
            try:
                self._listen()
            except LOST as error:
                self._line.lost(error)

    def _subscribe(self, conn: psycopg.Connection[tuple[object, ...]]) -> None:
        conn.execute("listen pgflowd")
        row = conn.execute(_QUESTION).fetchone()
        self._hears = row is not None and row[0] == 1
        if not self._hears:
            text = "a transaction pooler stands between; set [database] listen_url"
            self._log.warning("listener.deaf", code="W314", error=text)

    def _listen(self) -> None:
        """Pass notifications on, until something goes wrong."""
        assert self._line.conn is not None
        line = self._line.conn.pgconn
        now = time.monotonic()
        ask_at, answer_by = now + ASK_EVERY_S, float("inf")
        poll_at = float("inf") if self._hears else now + self._settings.worker.poll_max_s
        while True:
            until = min(ask_at, answer_by, poll_at, self._throttle.due)
            if self._post.wait(until, [line.socket]):
                line.consume_input()
                while (notification := line.notifies()) is not None:
                    self._on_notification(notification.extra.decode("utf-8", "replace"))
            now = time.monotonic()
            for queue in self._throttle.over(now):
                self._wake(queue)
            if answer_by < float("inf") and not line.is_busy():
                _check(line)
                answer_by = float("inf")
            if now >= answer_by:
                raise OSError("the server does not answer")
            if now >= ask_at:
                line.send_query(_QUESTION.encode())
                ask_at, answer_by = now + ASK_EVERY_S, now + ANSWER_WITHIN_S
            if now >= poll_at:
                self._wake(None)
                poll_at = now + self._settings.worker.poll_max_s

    def _on_notification(self, payload: str) -> None:
        if run_id := asked_for(payload):
            self._post.channel.send(Follow(run_id))
        else:
            self._on_queue(payload)

    def _on_queue(self, queue: str) -> None:
        self._post.numbers["last_notification_at"] = time.time()
        if self._throttle.may_pass(queue, time.monotonic()):
            self._wake(queue)

    def _wake(self, queue: str | None) -> None:
        if not self._post.channel.send(Wake(queue)) and queue is not None:
            self._throttle.hold(queue, time.monotonic())


class Throttle:
    """
    At most `MOST_WAKES` per queue in `notify_throttle`, and one at its end.

    Not one alone: a start every 200 ms would then always meet the window that the one before
    it has opened, and wait for its end, on a worker that has nothing to do.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._windows: dict[str, _Window] = {}
        self._held: set[str] = set()

    @property
    def due(self) -> float:
        """When the next wake that was held back may pass."""
        return min((self._windows[queue].ends for queue in self._held), default=float("inf"))

    def may_pass(self, queue: str, now: float) -> bool:
        """Whether a wake passes now; if not, it is held back."""
        window = self._windows.get(queue)
        if window is None or now >= window.ends:
            window = self._open(queue, now)
        if window.passed >= MOST_WAKES:
            self._held.add(queue)
            return False
        window.passed += 1
        self._held.discard(queue)
        return True

    def hold(self, queue: str, now: float) -> None:
        """Try a wake that found no room again a little later, also where none is throttled."""
        window = self._open(queue, now)
        window.passed, window.ends = MOST_WAKES, max(window.ends, now + LEAST_HOLD_S)
        self._held.add(queue)

    def over(self, now: float) -> list[str]:
        """Give the queues whose held wakes may pass now."""
        over = [queue for queue in self._held if self._windows[queue].ends <= now]
        return [queue for queue in over if self.may_pass(queue, now)]

    def forget(self) -> None:
        """All workers are woken, so nothing is held back any more."""
        self._held.clear()
        self._windows.clear()

    def _open(self, queue: str, now: float) -> _Window:
        if len(self._windows) > MOST_QUEUES:  # names of strangers
            self.forget()
        window = _Window(now + self._settings.worker_for(queue).notify_throttle_s)
        self._windows[queue] = window
        return window


@dataclass
class _Window:
    """The present span of a queue's throttle, and the wakes that have passed in it."""

    ends: float
    passed: int = 0


def _check(line: psycopg.pq.abc.PGconn) -> None:
    """Read the answer to our question; raise if we do not listen any more."""
    while (result := line.get_result()) is not None:
        if result.error_message:
            raise OSError(result.error_message.decode("utf-8", "replace"))
    if line.transaction_status != TransactionStatus.IDLE:
        raise OSError("the line is in disorder")
