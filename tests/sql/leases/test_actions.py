"""
What people and clients do leaves an action: one for each verb that did something, and none else.
"""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
import pytest
from support.leases import LeaseDatabase

ACTIONS = """
    select action, actor, flow_slug, run_id, step_slug, task_index, reason, data
      from pgflowd.actions order by action_id
"""


def actions(db: LeaseDatabase) -> list[Any]:
    return db.rows(ACTIONS)


def test_a_verb_leaves_who_did_it_and_why_and_a_repeated_one_nothing(own: LeaseDatabase) -> None:
    flow = own.flow("a")
    run = own.start(flow)

    for _ in range(2):
        own.value("select pgflowd.pause(%s, 'too hot', 'jane')", run)
    for _ in range(2):
        own.value("select pgflowd.resume(%s)", run)
    for _ in range(2):
        own.value("select pgflowd.cancel(%s, '', '')", run)
    own.value("select pgflowd.retry(%s, 'joe', true, 'once more')", run)

    role = own.value("select session_user::text")
    pause, resume, cancel, retry = actions(own)
    assert pause == ("pause", "jane", flow, run, None, None, "too hot", None)
    assert resume == ("resume", role, flow, run, None, None, None, None)
    assert cancel == ("cancel", role, flow, run, None, None, None, None)
    assert retry[:7] == ("retry", "joe", flow, run, None, None, "once more")
    assert retry.data["status"] == "cancelled"


def test_a_refused_verb_leaves_no_action(own: LeaseDatabase) -> None:
    run, unknown = own.start(own.flow("a")), uuid.uuid4()

    for verb, run_id in (("retry(%s, '')", run), ("pause(%s)", unknown), ("resume(%s)", unknown),
                         ("cancel(%s, '', '')", unknown)):  # fmt: skip
        with pytest.raises(psycopg.Error):
            own.value("select pgflowd." + verb, run_id)

    assert actions(own) == []


def test_what_the_system_does_by_itself_leaves_no_action(own: LeaseDatabase) -> None:
    flow = own.flow("a")
    run = own.value(
        "select run_id from pgflowd.start(%s, '{}', expires_at => now() + interval '1 hour')", flow
    )
    own.do("update pgflowd.runs set expires_at = now(), due_at = now()")

    own.value("select done from pgflowd.process_due()")

    assert own.value("select status from pgflowd.run_status where run_id = %s", run) == "expired"
    assert actions(own) == []
