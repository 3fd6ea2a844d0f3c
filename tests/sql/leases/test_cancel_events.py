"""What those who follow a run hear when it is cancelled."""

from __future__ import annotations

import json

from support.covers import covers
from support.leases import LeaseDatabase


def test_events_go_through_realtime_where_that_is(own: LeaseDatabase) -> None:
    own.do("create schema realtime")
    own.do("create table realtime.sent (event text, topic text, payload jsonb)")
    own.do(
        "create function realtime.send(payload jsonb, event text, topic text, private boolean)"
        " returns void language sql as"
        " 'insert into realtime.sent values (event, topic, payload)'"
    )
    run = own.start(own.flow())
    own.do("delete from realtime.sent")

    own.cancel(run)

    sent = own.rows("select event, topic, payload ->> 'error_message' as text from realtime.sent")
    text = "cancelled by me: enough"
    topic = f"pgflow:run:{run}"
    assert [tuple(row) for row in sent] == [
        ("step:a:failed", topic, text),
        ("run:failed", topic, text),
    ]


@covers("database 12")
def test_a_notification_says_what_happened_and_not_why(own: LeaseDatabase) -> None:
    run = own.start(own.flow())
    listener = own.connect()
    listener.execute(f'listen "pgflow:run:{run}"'.encode())
    listener.execute("select pgflowd.follow(%s)", ([run],))

    own.do("select pgflowd.cancel(%s, repeat('ä', 9000), 'me')", run)

    events = list(listener.notifies(timeout=5, stop_after=2))
    assert len(events) == 2
    found = [json.loads(event.payload) for event in events]
    assert found == [
        {"event_type": "step:failed", "run_id": str(run), "step_slug": "a", "status": "failed"},
        {"event_type": "run:failed", "run_id": str(run), "status": "failed"},
    ]
