"""The rows of daemons: written, read, silent, ended, deleted; and workers that are replaced."""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg
import pytest
from support.leases import LeaseDatabase

from pgflowd.core.documents.daemons import Daemons, ListedDaemon, silence
from pgflowd.core.verbs import RESTART_WORKER
from pgflowd.db.daemons import DAEMONS_LOOKED_AT, list_daemons, look_at_daemons, tell_daemon
from pgflowd.db.operations import calling
from pgflowd.db.query import execute
from pgflowd.errors import NotFound


def status(
    host: str = "app1", state: str = "healthy", *workers: Any, **more: Any
) -> dict[str, Any]:
    flows = [{"slug": "a", "state": "up", "worker_id": str(each)} for each in workers]
    flows.append({"slug": "b", "state": "failed", "worker_id": None})
    fields = {"id": str(uuid.uuid4()), "name": "shop", "host": host, "pid": 812, "version": "0.2"}
    counts = {"up_s": 60.0, "sweeper": {"interval_s": 20.0}}
    return {**fields, **counts, "state": state, "flows": flows, **more}


def tell(db: LeaseDatabase, told: dict[str, Any], **changes: Any) -> dict[str, Any]:
    told = {**told, **changes}
    execute(db.conn, tell_daemon(json.dumps(told)))
    return told


def listed(db: LeaseDatabase) -> list[ListedDaemon]:
    return execute(db.conn, list_daemons())


def age(db: LeaseDatabase, by: str) -> None:
    """Let everything that was told have been told earlier."""
    back = f"- interval '{by}'"
    db.do(f"update pgflowd.daemons set heartbeat_at = heartbeat_at {back},"
          f" alive_until = alive_until {back}")  # fmt: skip
    db.do(f"update pgflow.workers set last_heartbeat_at = last_heartbeat_at {back}")


def test_a_daemon_is_listed_as_it_has_told_last(own: LeaseDatabase) -> None:
    first = tell(own, status(host="app2"))
    tell(own, first, state="degraded", up_s=90.0)
    tell(own, status(host="app1", sweeper={"interval_s": None}))

    one, two = listed(own)

    assert (one.host, two.host, one.is_silent, two.is_silent) == ("app1", "app2", False, False)
    assert (two.state, two.pid, two.version, two.held_tasks) == ("degraded", 812, "0.2", None)
    assert 0 <= two.age_s < 10 and two.status["up_s"] == 90.0
    assert 50 < (two.heartbeat_at - two.started_at).total_seconds() < 70  # as it was told first
    lives_s = "select extract(epoch from alive_until - heartbeat_at)::int from pgflowd.daemons"
    assert own.column(f"{lives_s} order by host") == [30, 60]


def test_a_silent_daemon_says_what_becomes_of_its_tasks(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    worker = db.worker(flow)
    db.start(flow)
    task = db.claim_one(flow, worker)
    killed = tell(db, status("app1", "healthy", worker))
    age(db, "45 s")
    assert not listed(db)[0].is_silent  # it tells each 20 s
    age(db, "20 s")
    db.heartbeat(worker, task, lease="1 hour")
    db.do("update pgflow.workers set last_heartbeat_at = now()")

    (one,) = listed(db)
    assert (one.is_silent, one.living_workers, one.held_tasks) == (True, 1, 1)
    assert 3500 < (one.lapses_in_s or 0) <= 3600
    age(db, "31 s")
    (one,) = listed(db)
    text = "no heartbeat for 1m36s (was healthy). Its 1 task is recovered when"
    assert Daemons([one]).silence(one) == f"{text} a daemon runs: none does."
    assert silence(one, is_alone=False) == f"{text} its lease lapses, in 1h00m."

    db.lapse(task)
    tell(db, status("app1", "healthy"))  # another start of it: what it has left is not forgotten
    gone, lives = listed(db)
    assert [str(gone.daemon_id), gone.is_silent, lives.is_silent] == [killed["id"], True, False]
    assert Daemons([gone, lives]).silence(gone).endswith("recovered by the next sweep.")
    db.complete(task)
    assert silence(listed(db)[0], is_alone=False).endswith("It has left no task behind.")
    tell(db, lives.status)
    assert [each.daemon_id for each in listed(db)] == [lives.daemon_id]


def test_one_that_ends_as_asked_is_listed_while_a_worker_lives(
    own: LeaseDatabase,
) -> None:
    db = own
    worker = db.worker(db.flow())
    ending = tell(db, status("app1", "draining", worker))
    idle = tell(db, status("app2", "stopping"))

    (one,) = listed(db)
    assert (str(one.daemon_id), one.is_silent, one.living_workers) == (ending["id"], False, 1)
    age(db, "10 minutes")
    assert listed(db) == []

    tell(db, status("app3"))
    kept = db.column("select daemon_id::text from pgflowd.daemons")
    assert not {ending["id"], idle["id"]} & set(kept)


def test_rows_without_a_heartbeat_for_a_day_are_deleted(own: LeaseDatabase) -> None:
    for host in ("app1", "app2"):
        tell(own, status(host))
    age(own, "23 hours")
    other = own.connect()
    with other.transaction():  # one that another sweeper writes is passed over
        other.execute("select from pgflowd.daemons where host = 'app1' for update")
        age_by_key = "update pgflowd.daemons set heartbeat_at = heartbeat_at - interval '2 hours'"
        own.do(f"{age_by_key} where host = 'app2'")
        tell(own, status("app3"))
    assert [each.host for each in listed(own)] == ["app1", "app3"]
    assert [each.host for each in listed(own) if each.is_silent] == ["app1"]


def test_a_look_is_a_notification(own: LeaseDatabase) -> None:
    listener = own.connect()
    listener.execute("listen pgflowd")
    own.conn.execute("set default_transaction_read_only = on")

    execute(own.conn, look_at_daemons())

    heard = [each.payload for each in listener.notifies(timeout=5, stop_after=1)]
    assert heard == [DAEMONS_LOOKED_AT]


def test_a_worker_is_deprecated_once_with_a_reason(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    worker = db.worker(flow)

    answers = [
        execute(db.conn, calling(RESTART_WORKER, worker, actor="jane", reason="leaks"))
        for _ in range(2)
    ]

    assert answers == ["restarting", "repeated"]
    assert db.value("select deprecated_at is not null from pgflow.workers")
    (action,) = db.rows("select actor, action, flow_slug, reason, data from pgflowd.actions")
    data = {"queue": flow, "worker": str(worker)}
    assert action == ("jane", "restart_worker", flow, "leaks", data)
    with pytest.raises(NotFound, match="no running worker"):
        execute(db.conn, calling(RESTART_WORKER, uuid.uuid4()))


def test_a_worker_that_has_stopped_is_not_restarted(own: LeaseDatabase) -> None:
    worker = own.worker(own.flow())
    own.do("update pgflow.workers set stopped_at = now()")

    with pytest.raises(psycopg.Error, match="no running worker"):
        own.value("select pgflowd.restart_worker(%s)", worker)
