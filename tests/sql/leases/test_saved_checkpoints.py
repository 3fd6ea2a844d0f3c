"""
Checkpoints: what a task saves under its lease, and its next attempt finds.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from support.database import Connection, Row, key
from support.leases import LeaseDatabase

BIG = 1 << 20  # bytes that a checkpoint may have


def save(
    db: LeaseDatabase,
    task: Row,
    name: str | None = "page",
    data: str | None = "7",
    version: int | None = 1,
    lease: str = "30 s",
    conn: Connection | None = None,
) -> str:
    query = "select pgflowd.checkpoint_save(%s, %s, %s, %s, %s, %s, %s, %s::interval)"
    return str(db.value(query, *key(task), name, data, version, lease, conn=conn))


def drop(db: LeaseDatabase, task: Row, name: str = "page", conn: Connection | None = None) -> str:
    query = "select pgflowd.checkpoint_drop(%s, %s, %s, %s, %s)"
    return str(db.value(query, *key(task), name, conn=conn))


def load(db: LeaseDatabase, task: Row) -> dict[str, tuple[int, Any]]:
    query = "select name, version, data from pgflowd.checkpoint_load(%s, %s, %s)"
    found = db.rows(query, *key(task)[:3])
    assert [row.name for row in found] == sorted(row.name for row in found)
    return {row.name: (row.version, row.data) for row in found}


def claimed(db: LeaseDatabase, **more: Any) -> Row:
    flow = db.flow(max_attempts=9)
    db.start(flow)
    return db.claim_one(flow, db.worker(flow), **more)


def refused(db: LeaseDatabase, task: Row, **more: Any) -> psycopg.Error:
    """The error of a save, which has changed nothing."""
    before = load(db, task)
    with pytest.raises(psycopg.Error) as caught:
        save(db, task, **more)
    assert load(db, task) == before
    return caught.value


def test_what_an_attempt_saves_is_there_for_the_next_one(db: LeaseDatabase) -> None:
    task = claimed(db)

    assert save(db, task, "page", "7") == "ok"
    assert save(db, task, "charge", '{"id": "c1"}', 2) == "ok"
    assert save(db, task, "page", "8", 3) == "ok"
    db.fail(task, delay="0 s")

    again = db.claim_one(task.flow_slug, db.worker(task.flow_slug))
    assert load(db, again) == {"charge": (2, {"id": "c1"}), "page": (3, 8)}
    assert drop(db, again) == "ok"
    assert drop(db, again) == "ok"
    assert load(db, again) == {"charge": (2, {"id": "c1"})}


def test_checkpoints_of_tasks_do_not_mix(own: LeaseDatabase) -> None:
    flow = own.flow("m*")
    own.start(flow, [1, 2])
    own.start(flow, [3])
    tasks = own.claim(flow, own.worker(flow))

    for number, task in enumerate(tasks):
        save(own, task, "page", str(number))

    assert [load(own, task) for task in tasks] == [{"page": (1, n)} for n in range(3)]


@pytest.mark.parametrize("name", ["a" * 200, "sleepy", "sleep", "signal", "é'; \\", " ", "runs"])
def test_names_are_free(own: LeaseDatabase, name: str) -> None:
    task = claimed(own)

    assert save(own, task, name) == "ok"
    assert load(own, task) == {name: (1, 7)}


@pytest.mark.parametrize(
    ("bad", "state"),
    [
        ({"name": None}, "22023"),
        ({"name": ""}, "22023"),
        ({"name": "a" * 201}, "22023"),
        ({"name": "sleep 1"}, "22023"),
        ({"name": "signal paid 1"}, "22023"),
        ({"name": "runs 1"}, "22023"),
        ({"version": 0}, "22023"),
        ({"version": None}, "22023"),
        ({"data": "{no json"}, "22P02"),
        ({"data": '"\\u0000"'}, "22P05"),
        ({"data": None}, "23502"),
        ({"data": f'"{"x" * BIG}"'}, "PF021"),
    ],
)
def test_a_bad_checkpoint_is_refused_and_the_old_one_stays(
    own: LeaseDatabase, bad: dict[str, Any], state: str
) -> None:
    task = claimed(own)
    save(own, task, "page", "6")

    assert refused(own, task, **bad).sqlstate == state


def test_a_checkpoint_may_have_as_many_bytes_as_the_setting_says(own: LeaseDatabase) -> None:
    task = claimed(own)
    assert save(own, task, data=f'"{"x" * (BIG - 2)}"') == "ok"

    assert own.set("checkpoint_max", 1024) == BIG
    assert save(own, task, data=f'"{"x" * 1022}"') == "ok"
    error = refused(own, task, data=f'"{"é" * 512}"')
    assert error.diag.message_primary == (
        f"checkpoint page of task a#0 of run {task.run_id} has 1026 bytes, and 1024 are allowed"
    )


def test_a_task_has_ten_thousand_checkpoints_at_most(own: LeaseDatabase) -> None:
    task = claimed(own)
    fill = """
        insert into pgflowd.checkpoints (run_id, step_slug, task_index, name, token, data)
        select %s, 'a', 0, 'n' || n, 1, '1' from generate_series(1, 9999) as n
    """
    own.do(fill, task.run_id)

    assert save(own, task, "last") == "ok"
    assert save(own, task, "last", "8") == "ok"
    assert refused(own, task, name="more").sqlstate == "PF021"
    drop(own, task, "n1")
    assert save(own, task, "more") == "ok"


def test_all_checkpoints_of_a_task_have_64_mib_at_most(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b")
    own.start(flow)
    task, other = own.claim(flow, own.worker(flow))
    fill = """
        insert into pgflowd.checkpoints (run_id, step_slug, task_index, name, token, data)
        select %s, %s, %s, 'x' || nr, 0, to_jsonb(repeat('y', 1000000))
          from generate_series(1, %s) as nr
    """
    own.do(fill, *key(task)[:3], 67)

    with pytest.raises(psycopg.Error, match="have 67000134 bytes already") as refused:
        save(own, task, "page", json.dumps("z" * 200_000))
    assert refused.value.sqlstate == "PF021"
    assert save(own, task, "x1", "1") == save(own, other, "page", "1") == "ok"
    assert save(own, task, "page", json.dumps("z" * 200_000)) == "ok"
    assert len(load(own, task)) == 68

    own.do(fill.replace("'x'", "'more'"), *key(task)[:3], 70)  # as signals may
    with pytest.raises(psycopg.Error, match="134217728 can be read") as refused:
        load(own, task)
    assert refused.value.sqlstate == "PF021"


@pytest.mark.parametrize("verb", [save, drop])
def test_after_a_takeover_neither_save_nor_drop_changes_anything(
    db: LeaseDatabase, verb: Any
) -> None:
    lost = claimed(db)
    save(db, lost)
    db.lapse(lost)
    taken = db.claim_one(lost.flow_slug, db.worker(lost.flow_slug))

    with pytest.raises(psycopg.Error) as caught:
        verb(db, lost)

    assert caught.value.sqlstate == "PF001"
    assert load(db, taken) == {"page": (1, 7)}
    assert save(db, taken, data="8") == "ok"


@pytest.mark.parametrize("end", ["complete", "fail", "release", "cancel"])
def test_who_has_reported_saves_nothing_more(db: LeaseDatabase, end: str) -> None:
    task = claimed(db)
    db.cancel(task.run_id) if end == "cancel" else getattr(db, end)(task)

    assert refused(db, task).sqlstate == "PF001"


def test_a_revoked_attempt_saves_nothing_more(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b")
    run = own.start(flow)
    first, second = own.claim(flow, own.worker(flow))
    own.fail(first, retry=False)
    own.retry(run)

    assert refused(own, second).sqlstate == "PF001"


@pytest.mark.parametrize("verb", [save, drop])
def test_a_task_that_does_not_exist_is_said_to(own: LeaseDatabase, verb: Any) -> None:
    task = claimed(own)._replace(run_id=uuid4())

    with pytest.raises(psycopg.Error) as caught:
        verb(own, task)

    assert caught.value.sqlstate == "PF002"
    assert str(task.run_id) in str(caught.value)


@pytest.mark.parametrize("verb", [save, drop])
def test_nothing_waits_for_who_has_the_task_locked(own: LeaseDatabase, verb: Any) -> None:
    task = claimed(own)
    other = own.connect()
    with other.transaction():
        own.do("select from pgflow.step_tasks for no key update", conn=other)

        assert verb(own, task) == "busy"
        assert load(own, task) == {}

    assert verb(own, task) == "ok"


def test_a_save_leaves_half_of_a_lease_at_least(db: LeaseDatabase) -> None:
    task = claimed(db, lease="8 s")
    left = "select extract(epoch from lease_until - clock_timestamp()) from pgflowd.attempts"

    save(db, task, lease="8 s")
    assert 4 < db.value(left) <= 8
    save(db, task, lease="60 s")
    assert 55 < db.value(left) <= 60
    assert not any(message.visible for message in db.queue(task.flow_slug).values())


def test_a_save_takes_back_a_task_that_recovery_of_the_core_has_queued(own: LeaseDatabase) -> None:
    task = claimed(own)
    own.age(task, "1 hour")
    own.lapse(task)
    own.do("select pgflow.requeue_stalled_tasks()")
    assert own.task(task.run_id).status == "queued"

    assert save(own, task) == "ok"

    assert own.task(task.run_id).status == "started"
    assert own.claim(task.flow_slug, own.worker(task.flow_slug)) == []
    assert own.complete(task) == "completed"


def test_a_save_that_is_rolled_back_was_not(own: LeaseDatabase) -> None:
    task = claimed(own)
    conn = own.connect()

    with conn.transaction(force_rollback=True):
        assert save(own, task, conn=conn) == "ok"

    assert load(own, task) == {}


def test_checkpoints_go_with_their_run(own: LeaseDatabase) -> None:
    task = claimed(own)
    save(own, task)
    own.complete(task)
    assert load(own, task) == {"page": (1, 7)}

    own.do("select pgflow.delete_flow_and_data(%s)", task.flow_slug)

    assert own.rows("select * from pgflowd.checkpoints") == []
