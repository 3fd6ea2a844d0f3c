"""Following: by notifications at once, without them by looking, and never too often."""

from __future__ import annotations

import json
import threading

import psycopg
import pytest
from support.covers import covers

from pgflowd.db import following, runs, schema
from pgflowd.db.following import Follower
from pgflowd.db.performing import follow_sync, run_sync
from pgflowd.db.run_details import RunEvents
from pgflowd.errors import Unreachable, WaitTimeout
from pgflowd.testing.until import until


def follower_of(run_id, timeout_s=None, *, with_output=False) -> Follower:
    return Follower([RunEvents(run_id)], timeout_s, with_output=with_output)


class Following:
    """A follower in a thread, its entries so far, and its connections."""

    def __init__(self, shop, run_id, *, listening: bool) -> None:
        self.entries: list[str] = []
        self.connections: list[psycopg.Connection] = []
        self._open = shop.database.connect
        follower = follower_of(run_id, 60)
        connection = self.connect()
        if listening:
            run_sync(connection, follower.listen())
        else:  # as through a pooler
            connection.prepare_threshold = None
        self.thread = threading.Thread(
            target=self._follow, args=(follower, connection), daemon=True
        )
        self.thread.start()

    def connect(self) -> psycopg.Connection:
        self.connections.append(self._open())
        return self.connections[-1]

    def _follow(self, follower: Follower, connection: psycopg.Connection) -> None:
        for entry in follow_sync(follower, self.connect, connection):
            self.entries.append(f"{entry.event} {entry.step or ''}".strip())

    def until_event(self, event: str) -> None:
        until(lambda: event in self.entries, within_s=20)


def test_a_notification_ends_the_longest_pause(shop, monkeypatch):
    monkeypatch.setattr(following, "MIN_PAUSE_S", 50.0)
    monkeypatch.setattr(following, "MAX_PAUSE_S", 50.0)
    run_id = shop.start()
    key = shop.claim_all()["website#0"]
    followed = Following(shop, run_id, listening=True)
    followed.until_event("run:started")

    shop.complete(key, 1)

    followed.until_event("step:completed website")
    shop.database.client.cancel(run_id)
    followed.thread.join(timeout=20)
    assert followed.entries[-1] == "run:cancelled"


def test_without_notifications_it_reads_by_itself(shop):
    run_id = shop.start()
    key = shop.claim_all()["website#0"]
    followed = Following(shop, run_id, listening=False)
    followed.until_event("run:started")

    shop.complete(key, 1)
    followed.until_event("step:completed website")

    for task in shop.claim_all().values():
        shop.complete(task, 2)
    shop.complete(shop.claim_all()["save_to_db#0"], 3)
    followed.thread.join(timeout=20)
    assert followed.entries[-1] == "run:completed"


def test_each_entry_comes_once_and_in_order(shop):
    run_id = shop.start()
    followed = Following(shop, run_id, listening=True)
    for _ in range(3):
        for key in shop.claim_all().values():
            shop.complete(key, 1)
    followed.thread.join(timeout=20)

    assert len(set(followed.entries)) == len(followed.entries) == 10
    assert followed.entries[0] == "run:started"
    assert followed.entries.index("step:completed website") < followed.entries.index(
        "step:started sentiment"
    )
    assert followed.entries[-1] == "run:completed"


def test_the_time_limit_is_kept_and_no_entry_comes_twice(shop):
    run_id = shop.start()
    follower = follower_of(run_id, 0.1)

    with pytest.raises(WaitTimeout, match=r"has not ended after 0\.1 s; it continues"):
        list(follow_sync(follower, None, shop.database.connect()))
    follower.limit(0)
    with pytest.raises(WaitTimeout):
        assert list(follow_sync(follower, None, shop.database.connect())) == []


def test_a_lost_connection_is_opened_again_and_no_entry_comes_twice(shop):
    run_id = shop.start()
    key = shop.claim_all()["website#0"]
    followed = Following(shop, run_id, listening=True)
    followed.until_event("run:started")
    for _ in range(3):
        known = len(followed.connections)
        lost = followed.connections[-1].info.backend_pid
        shop.conn.execute("select pg_terminate_backend(%s)", (lost,))
        until(lambda known=known: len(followed.connections) > known, within_s=20)

    shop.complete(key, 1)

    followed.until_event("step:completed website")
    shop.database.client.cancel(run_id)
    followed.thread.join(timeout=20)
    assert followed.entries[-1] == "run:cancelled"
    assert len(set(followed.entries)) == len(followed.entries)


@covers("database 12")
def test_lines_on_the_output_channel_are_shown_and_foreign_payloads_are_harmless(shop):
    run_id = shop.start()
    follower, conn = follower_of(run_id, 20, with_output=True), shop.database.connect()
    run_sync(conn, follower.listen())
    line = {"event_type": "task:output", "step_slug": "website", "task_index": 0, "text": "hello"}
    strange = [
        {"event_type": "step:progress", "step_slug": "website"},
        {"event_type": "task:output", "text": None},
        {**line, "step_slug": "\x1b[2J", "time": "once", "attempt": "two", "stream": 7},
        {**line, "task_index": 10**300, "attempt": -1, "time": "0001-01-01T00:00:00+14:00"},
        "nonsense",
    ]
    own = "select pg_notify(pgflowd.output_channel(%s), %s)"
    for sent in [*strange, line]:
        text = sent if isinstance(sent, str) else json.dumps(sent)
        shop.conn.execute(own, (run_id, text))
    forged = json.dumps({**line, "text": "from a stranger"})
    shop.conn.execute("select pg_notify(%s, %s)", (f"pgflow:run:{run_id}", forged))
    shop.database.client.cancel(run_id)

    entries = list(follow_sync(follower, None, conn))

    lines = [(one.step, one.task, one.attempt, one.text) for one in entries if one.text is not None]
    assert lines == [
        (None, 0, None, "hello"),
        ("website", None, None, "hello"),
        ("website", 0, None, "hello"),
    ]
    assert [one.event for one in entries].count("run:started") == 1
    assert entries[-1].event == "run:cancelled"


def test_a_follower_follows_at_once_and_again_in_time_and_wakes_workers(shop, monkeypatch):
    monkeypatch.setattr(runs, "FOLLOW_AGAIN_S", 0.2)
    run_id = shop.start()
    shop.conn.execute("listen pgflowd")

    with pytest.raises(WaitTimeout):
        follower = follower_of(run_id, 1, with_output=True)
        list(follow_sync(follower, None, shop.database.connect()))

    payloads = [notice.payload for notice in shop.conn.notifies(timeout=0.5)]
    assert payloads.count(f"follow {run_id}") >= 3
    rows = shop.conn.execute("select run_id, with_output from pgflowd.followers").fetchall()
    assert set(rows) == {(run_id, True)}


def test_a_role_that_may_not_request_output_follows_without_it(shop):
    shop.conn.execute(schema.roles_sql().encode())
    shop.conn.execute("revoke execute on function pgflowd.output_channel from pgflow_viewer")
    conn = shop.database.connect()
    conn.execute("set role pgflow_viewer")
    follower = follower_of(shop.run_through(), 20, with_output=True)

    entries = list(follow_sync(follower, None, conn))

    assert entries[-1].event == "run:completed"


def test_a_follower_that_cannot_reopen_reports_that_the_database_is_gone(shop):
    conn = shop.database.connect()
    shop.conn.execute("select pg_terminate_backend(%s)", (conn.info.backend_pid,))

    with pytest.raises(Unreachable):
        list(follow_sync(follower_of(shop.start(), 20), None, conn))
