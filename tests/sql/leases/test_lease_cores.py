"""
Cores: the differences of upstream's releases, made on our own core seen through their adapters.
"""

from __future__ import annotations

import json

import psycopg
import pytest
from support.covers import covers
from support.leases import LeaseDatabase, element

KNOWS_CANCELLED = """
    alter table pgflow.step_tasks drop constraint valid_status, add constraint valid_status
      check (status in ('queued', 'started', 'completed', 'failed', 'skipped', 'cancelled'))
"""
THREE_ARGUMENTS = "drop function pgflow.start_tasks(text, bigint[], uuid)"
FIVE_ARGUMENTS = "drop function pgflow.start_tasks(text, bigint[], uuid, text, text)"


def test_a_core_that_knows_cancelled_tasks_gets_them(foreign: LeaseDatabase) -> None:
    foreign.do(KNOWS_CANCELLED)
    flow = foreign.flow("a", "b")
    run = foreign.start(flow)
    worker = foreign.worker(flow)
    one, other = foreign.claim(flow, worker)

    foreign.cancel(run)

    assert {foreign.task(run, step).status for step in "ab"} == {"cancelled"}
    assert foreign.heartbeat(worker, one) == ["cancel"]
    assert foreign.complete(one, "kept") == "late"
    assert foreign.report(element(other))[0].verdict == "late"
    assert foreign.retry(run, cancelled=True) == 2
    for task in foreign.claim(flow, worker):
        foreign.complete(task)
    assert foreign.status(run) == "completed"


def test_a_claim_of_four_arguments_names_its_queue(foreign: LeaseDatabase) -> None:
    foreign.do("alter table pgflow.flows add queue_mode text not null default 'flow'")
    foreign.do(THREE_ARGUMENTS)
    flow = foreign.flow("a", "b:a")
    run = foreign.start(flow)
    worker = foreign.worker(flow)

    for _ in range(2):
        foreign.complete(foreign.claim_one(flow, worker))

    assert foreign.status(run) == "completed"
    assert not foreign.queue(flow)


def test_a_core_without_any_claim_we_know_is_refused(foreign: LeaseDatabase) -> None:
    flow = foreign.flow()
    foreign.start(flow)
    foreign.do(THREE_ARGUMENTS)
    foreign.do(FIVE_ARGUMENTS)

    with pytest.raises(psycopg.Error, match="no start_tasks that we know") as refused:
        foreign.claim(flow, foreign.worker(flow))

    assert refused.value.sqlstate == "PF030"


def test_events_go_through_realtime_where_that_is(foreign: LeaseDatabase) -> None:
    foreign.do("create schema realtime")
    foreign.do("create table realtime.sent (event text, topic text, payload jsonb)")
    foreign.do(
        "create function realtime.send(payload jsonb, event text, topic text, private boolean)"
        " returns void language sql as"
        " 'insert into realtime.sent values (event, topic, payload)'"
    )
    run = foreign.start(foreign.flow())
    foreign.do("delete from realtime.sent")

    foreign.cancel(run)

    sent = foreign.rows(
        "select event, topic, payload ->> 'error_message' as text from realtime.sent"
    )
    text = "cancelled by me: enough"
    topic = f"pgflow:run:{run}"
    assert [tuple(row) for row in sent] == [
        ("step:a:failed", topic, text),
        ("run:failed", topic, text),
    ]


@covers("database 12")
def test_a_notification_says_what_happened_and_not_why(foreign: LeaseDatabase) -> None:
    run = foreign.start(foreign.flow())
    listener = foreign.connect()
    listener.execute(f'listen "pgflow:run:{run}"'.encode())
    listener.execute("select pgflowd.follow(%s)", ([run],))

    foreign.do("select pgflowd.cancel(%s, repeat('ä', 9000), 'me')", run)

    events = list(listener.notifies(timeout=5, stop_after=2))
    assert len(events) == 2
    found = [json.loads(event.payload) for event in events]
    assert found == [
        {"event_type": "step:failed", "run_id": str(run), "step_slug": "a", "status": "failed"},
        {"event_type": "run:failed", "run_id": str(run), "status": "failed"},
    ]
