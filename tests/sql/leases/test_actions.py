"""
What people and clients do leaves an action: one for each verb that did something, and none else.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import psycopg
import pytest
from support.leases import LeaseDatabase
from support.verbs import VERBS

ACTIONS = """
    select action, actor, flow_slug, run_id, step_slug, task_index, reason, data
      from pgflowd.actions order by action_id
"""


def actions(db: LeaseDatabase) -> list[Any]:
    return db.rows(ACTIONS)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_verb_leaves_one_action_and_a_refused_or_repeated_one_none(
    own: LeaseDatabase, verb: str
) -> None:
    call, params = VERBS[verb](own)
    before = len(actions(own))

    own.rows(f"select pgflowd.{call}", *params)

    (action,) = actions(own)[before:]
    kept_as = {"answer": "approve", "prune_next": "prune"}.get(verb, verb)
    assert (action.action, action.actor) == (kept_as, "jane")
    with contextlib.suppress(psycopg.Error):
        own.rows(f"select pgflowd.{call}", *params)
    assert len(actions(own)) == before + 1


def test_an_action_says_why_and_what_it_was_before(own: LeaseDatabase) -> None:
    flow = own.flow("a")
    run = own.start(flow)

    own.value("select pgflowd.pause(%s, 'too hot', 'jane')", run)
    own.value("select pgflowd.resume(%s)", run)
    own.value("select pgflowd.reschedule(%s, null, '2100-01-01', '', '')", run)
    own.value("select pgflowd.cancel(%s, '', '')", run)
    own.value("select pgflowd.retry(%s, 'joe', true, 'once more')", run)
    own.set("crash_limit", 7)

    role = own.value("select session_user::text")
    pause, resume, reschedule, cancel, retry, setting = actions(own)
    assert pause == ("pause", "jane", flow, run, None, None, "too hot", None)
    assert resume == ("resume", role, flow, run, None, None, None, None)
    assert reschedule.data["before"] == {}
    assert cancel == ("cancel", role, flow, run, None, None, None, None)
    assert retry[:7] == ("retry", "joe", flow, run, None, None, "once more")
    assert retry.data["status"] == "cancelled"
    assert retry.data["error"] == "cancelled by an unknown user"
    assert setting.data == {"name": "crash_limit", "value": 7, "before": 5}


def test_a_verb_that_is_rolled_back_leaves_no_action(own: LeaseDatabase) -> None:
    run = own.start(own.flow("a"))

    with own.conn.transaction(force_rollback=True):
        own.value("select pgflowd.cancel(%s, '', '')", run)

    assert actions(own) == []


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
