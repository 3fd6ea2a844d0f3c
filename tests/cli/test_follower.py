"""Following: by notifications at once, without them by looking, and never too often."""

from __future__ import annotations

import json
import threading

import pytest
from support.covers import covers

from pgflowd.db import follower as follower_module
from pgflowd.db import runs, schema
from pgflowd.db.follower import Follower
from pgflowd.errors import Unreachable, WaitTimeout
from pgflowd.testing.until import until


class Following:
    """A follower in a thread, and its entries so far."""

    def __init__(self, shop, run_id, *, listening: bool) -> None:
        self.entries: list[str] = []
        self.follower = Follower(shop.database.connect(), [run_id], shop.database.connect)
        if listening:
            self.follower.listen()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        for entry in self.follower.follow(timeout_s=60):
            self.entries.append(f"{entry.event} {entry.step or ''}".strip())

    def until_event(self, event: str) -> None:
        until(lambda: event in self.entries, within_s=20)


def test_a_notification_ends_the_longest_pause(shop, monkeypatch):
    monkeypatch.setattr(follower_module, "MIN_PAUSE_S", 50.0)
    monkeypatch.setattr(follower_module, "MAX_PAUSE_S", 50.0)
    run_id = shop.start()
    key = shop.claim_all()["website#0"]
    following = Following(shop, run_id, listening=True)
    following.until_event("run:started")

    shop.complete(key, 1)

    following.until_event("step:completed website")
    shop.database.client.cancel(run_id)
    following.thread.join(timeout=20)
    assert following.entries[-1] == "run:cancelled"


def test_without_notifications_it_reads_by_itself(shop):
    run_id = shop.start()
    key = shop.claim_all()["website#0"]
    following = Following(shop, run_id, listening=False)
    following.until_event("run:started")

    shop.complete(key, 1)
    following.until_event("step:completed website")

    for task in shop.claim_all().values():
        shop.complete(task, 2)
    shop.complete(shop.claim_all()["save_to_db#0"], 3)
    following.thread.join(timeout=20)
    assert following.entries[-1] == "run:completed"


def test_each_entry_comes_once_and_in_order(shop):
    run_id = shop.start()
    following = Following(shop, run_id, listening=True)
    for _ in range(3):
        for key in shop.claim_all().values():
            shop.complete(key, 1)
    following.thread.join(timeout=20)

    assert len(set(following.entries)) == len(following.entries) == 10
    assert following.entries[0] == "run:started"
    assert following.entries.index("step:completed website") < following.entries.index(
        "step:started sentiment"
    )
    assert following.entries[-1] == "run:completed"


def test_the_time_limit_is_kept_and_no_entry_comes_twice(shop):
    run_id = shop.start()
    follower = Follower(shop.database.connect(), [run_id])

    with pytest.raises(WaitTimeout, match=r"did not end within 0\.1 s"):
        list(follower.follow(timeout_s=0.1))
    with pytest.raises(WaitTimeout):
        assert list(follower.follow(timeout_s=0.0)) == []


def test_a_lost_connection_is_opened_again_and_no_entry_comes_twice(shop):
    run_id = shop.start()
    key = shop.claim_all()["website#0"]
    following = Following(shop, run_id, listening=True)
    following.until_event("run:started")
    for _ in range(3):
        lost = following.follower.connection.info.backend_pid
        shop.conn.execute("select pg_terminate_backend(%s)", (lost,))
        until(lambda lost=lost: _pid(following) not in (lost, None), within_s=20)

    shop.complete(key, 1)

    following.until_event("step:completed website")
    shop.database.client.cancel(run_id)
    following.thread.join(timeout=20)
    assert following.entries[-1] == "run:cancelled"
    assert len(set(following.entries)) == len(following.entries)


@covers("database 12")
def test_lines_on_the_output_channel_are_shown_and_foreign_payloads_are_harmless(shop):
    run_id = shop.start()
    follower = Follower(shop.database.connect(), [run_id])
    follower.listen()
    follower.request_output()
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

    entries = list(follower.follow(timeout_s=20))

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
        follower = Follower(shop.database.connect(), [run_id])
        follower.listen()
        follower.request_output()
        list(follower.follow(timeout_s=1))

    payloads = [notice.payload for notice in shop.conn.notifies(timeout=0.5)]
    assert payloads.count(f"follow {run_id}") >= 3
    rows = shop.conn.execute("select run_id, with_output from pgflowd.followers").fetchall()
    assert set(rows) == {(run_id, False), (run_id, True)}


def test_a_role_that_may_not_request_output_follows_without_it(shop):
    shop.conn.execute(schema.roles_sql().encode())
    shop.conn.execute("revoke execute on function pgflowd.output_channel from pgflow_viewer")
    conn = shop.database.connect()
    conn.execute("set role pgflow_viewer")
    follower = Follower(conn, [shop.run_through()])
    follower.listen()
    follower.request_output()

    assert [entry.event for entry in follower.follow(timeout_s=20)][-1] == "run:completed"


def _pid(following: Following) -> int | None:
    conn = following.follower.connection
    return None if conn.closed else conn.info.backend_pid


def test_a_follower_that_cannot_reopen_reports_that_the_database_is_gone(shop):
    follower = Follower(shop.database.connect(), [shop.start()])
    shop.conn.execute("select pg_terminate_backend(%s)", (follower.connection.info.backend_pid,))

    with pytest.raises(Unreachable):
        list(follower.follow(timeout_s=20))
