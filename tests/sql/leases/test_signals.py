"""
Signals: what they are checked for, and that to send one waits for nobody.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import IsolationLevel
from support.database import Connection
from support.leases import LeaseDatabase


def signal(
    db: LeaseDatabase,
    run: Any,
    name: str | None = "paid",
    payload: Any = None,
    actor: str | None = "me",
    dedup: str | None = None,
    conn: Connection | None = None,
) -> Any:
    query = "select pgflowd.signal(%s, %s, %s::jsonb, %s, %s)"
    return db.value(query, run, name, json.dumps(payload), actor, dedup, conn=conn)


def sent(db: LeaseDatabase) -> list[Any]:
    query = """
        select signal_id, run_id, name, payload, dedup, sent_by from pgflowd.signals order by 1
    """
    return [tuple(row) for row in db.rows(query)]


def test_a_signal_is_kept_with_its_sender(db: LeaseDatabase) -> None:
    run = db.start(db.flow())

    first = signal(db, run, "paid", {"amount": 12})
    second = signal(db, run, "paid", actor=None)
    third = db.value("select pgflowd.signal(%s, 'x')", run)

    assert first < second < third
    assert sent(db) == [
        (first, run, "paid", {"amount": 12}, None, "me"),
        (second, run, "paid", None, None, None),
        (third, run, "x", None, None, None),
    ]


def test_with_one_dedup_a_signal_is_given_once_for_a_run_and_name(own: LeaseDatabase) -> None:
    flow = own.flow()
    run, other = own.start(flow), own.start(flow)

    first = signal(own, run, "paid", 1, dedup="k")

    assert signal(own, run, "paid", 2, dedup="k") == first
    assert signal(own, run, "paid", 1, dedup="l") != first
    assert signal(own, run, "owed", 1, dedup="k") != first
    assert signal(own, other, "paid", 1, dedup="k") != first
    assert own.value("select payload from pgflowd.signals where signal_id = %s", first) == 1
    own.cancel(run)
    assert signal(own, run, "paid", 3, dedup="k") == first


def test_of_two_at_once_with_one_dedup_the_second_gets_the_first_one_s_id(
    own: LeaseDatabase,
) -> None:
    run, conn = own.start(own.flow()), own.connect()
    with conn.transaction():
        first = signal(own, run, dedup="k", conn=conn)
        other = own.meanwhile(lambda conn: signal(own, run, dedup="k", conn=conn))

    assert other.result() == first
    assert len(sent(own)) == 1


@pytest.mark.parametrize(
    ("bad", "state"),
    [
        ({"name": None}, "22023"),
        ({"name": ""}, "22023"),
        ({"name": "a" * 201}, "22023"),
        ({"dedup": ""}, "22023"),
        ({"dedup": "a" * 201}, "22023"),
        ({"payload": "x" * 2_000_000}, "PF021"),
        ({"run": uuid4()}, "PF002"),
        ({"run": None}, "PF002"),
    ],
)
def test_a_bad_signal_is_refused(own: LeaseDatabase, bad: dict[str, Any], state: str) -> None:
    given = {"run": own.start(own.flow()), **bad}

    with pytest.raises(psycopg.Error) as caught:
        signal(own, **given)

    assert caught.value.sqlstate == state
    assert sent(own) == []


@pytest.mark.parametrize("end", ["complete", "cancel"])
def test_a_run_that_has_ended_takes_no_signal(db: LeaseDatabase, end: str) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    db.cancel(run) if end == "cancel" else db.complete(task)

    with pytest.raises(psycopg.Error) as caught:
        signal(db, run)

    assert caught.value.sqlstate == "PF003"
    assert sent(db) == []


def test_a_signal_waits_for_nobody_and_nobody_waits_for_a_signal(own: LeaseDatabase) -> None:
    flow = own.flow()
    run, worker = own.start(flow), own.worker(flow)
    holder, sender = own.connect(), own.connect()
    with sender.transaction():
        with holder.transaction():
            own.do("select from pgflow.runs for update", conn=holder)
            signal(own, run, conn=sender)

        assert own.complete(own.claim_one(flow, worker)) == "completed"
        assert own.sweep() == (0, 0)

    assert len(sent(own)) == 1


@pytest.mark.parametrize("level", list(IsolationLevel))
def test_a_signal_notifies_while_a_sweeper_sleeps_for_longer(
    own: LeaseDatabase, level: IsolationLevel
) -> None:
    run, listener, sender = own.start(own.flow()), own.connect(), own.connect()
    listener.execute("listen pgflowd_due")
    sender.isolation_level = level
    with sender.transaction():
        sender.execute("select count(*) from pgflow.runs")  # its snapshot exists now
        own.do("select pgflowd.sweeper_sleeps(%s, 60)", uuid4())
        signal(own, run, conn=sender)

    assert [each.channel for each in listener.notifies(timeout=5, stop_after=1)] == ["pgflowd_due"]


def test_a_signal_notifies_nobody_while_all_sweepers_are_awake(own: LeaseDatabase) -> None:
    run, listener, sweeper = own.start(own.flow()), own.connect(), uuid4()
    listener.execute("listen pgflowd_due")

    signal(own, run)
    own.do("select pgflowd.sweeper_sleeps(%s, 60)", sweeper)
    own.do("select pgflowd.sweeper_sleeps(%s, 0)", sweeper)
    signal(own, run)
    own.do("notify pgflowd_due, 'end'")

    heard = [each.payload for each in listener.notifies(timeout=5, stop_after=1)]
    assert heard == ["end"]
