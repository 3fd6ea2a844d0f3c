"""
What people and clients do leaves an action: one for each verb that did something, and none else.
"""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from support.covers import covers
from support.leases import LeaseDatabase
from support.verbs import (
    KEPT_AS,
    VERBS,
    ended,
    paused,
    paused_flow,
    planned,
    run_of,
    scheduled,
    shape_of,
    undoable,
)  # fmt: skip

from pgflowd import Client, Schedule
from pgflowd.testing.until import until

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
    assert (action.action, action.actor) == (KEPT_AS.get(verb, verb), "jane")
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


SHAPE = json.loads(shape_of("one"))


def shape(**options: Any) -> str:
    return json.dumps(SHAPE | {"options": options})


def test_a_deploy_that_changes_options_only_leaves_what_they_were_before(
    own: LeaseDatabase,
) -> None:
    define = "select pgflowd.define('shop', %s::jsonb, actor => 'jane', take_code => %s)"
    own.value(define, shape(timeout=20), False)
    own.value(define, shape(timeout=30), False)
    own.value("select pgflowd.set_option('shop', '', 'timeout', '40', 'joe')")
    own.value(define, shape(timeout=30), False)
    own.value(define, shape(timeout=30), True)
    own.value(define, shape(timeout=30), True)

    changed = [
        (one.action, one.actor, [each["before"] for each in (one.data or {}).get("options", [])])
        for one in actions(own)
    ]
    assert changed == [
        ("define", "jane", []),
        ("define", "jane", [20]),
        ("set_option", "joe", []),
        ("define", "jane", [40]),
    ]


def test_options_of_a_version_that_is_current_already_are_an_action(own: LeaseDatabase) -> None:
    deploy = "select pgflowd.deploy_version('shop', %s::jsonb, 'jane')"
    own.value("select pgflowd.define('shop', %s::jsonb)", shape_of("other"))

    for timeout in (20, 20, 30, 30):
        own.value(deploy, shape(timeout=timeout))
    own.value("select pgflowd.set_option('shop', '', 'timeout', '50', 'joe')")
    own.do("update pgflow.flows set opt_timeout = 60 where flow_slug = 'shop'")
    own.value("select pgflowd.set_option('shop', '', 'timeout', '50', 'joe')")

    done = [(one.action, (one.data or {}).get("version")) for one in actions(own)[1:]]
    version = ("deploy_version", 2)
    assert done == [version, version, ("set_option", None), ("set_option", None)]


def test_pruning_as_upstream_does_it_is_an_action(own: LeaseDatabase) -> None:
    run = own.start(own.flow("a"))
    own.value("select pgflowd.cancel(%s, '', 'jane')", run)
    prune = "select deleted_runs from pgflow.prune_data_older_than('-1 s', null)"

    assert [own.value(prune), own.value(prune)] == [1, 0]

    pruned = actions(own)[-1]
    assert (pruned.action, pruned.actor) == ("prune", own.value("select session_user::text"))
    assert pruned.data["runs"] == 1 and len(actions(own)) == 2


def test_two_who_delete_a_run_that_never_began_leave_one_action(own: LeaseDatabase) -> None:
    start = "select run_id from pgflowd.start(%s, '{}', start_at => now() + interval '1 h')"
    run = own.value(start, own.flow("a"))
    own.value("select pgflowd.cancel(%s, '', 'jane')", run)
    own.value("select pgflowd.process_due()")
    first, second = own.connect(), own.connect()
    refused: list[psycopg.Error] = []

    def delete() -> None:
        try:
            second.execute("select pgflowd.delete_run(%s, 'joe')", (run,))
        except psycopg.Error as error:
            refused.append(error)

    with first.transaction():
        first.execute("select pgflowd.delete_run(%s, 'jane')", (run,))
        later = threading.Thread(target=delete)
        later.start()
        waits = "select true from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
        until(lambda: own.rows(waits, second.info.backend_pid))
    later.join()

    assert [one.actor for one in actions(own) if one.action == "delete_run"] == ["jane"]
    assert [error.sqlstate for error in refused] == ["PF002"]


CALLS: dict[str, Callable[[LeaseDatabase], tuple[Any, ...]]] = {
    "add_schedule": lambda db: ("nightly", db.flow(), Schedule("0 3 * * *")),
    "approve": lambda db: (run_of(db), "a"),
    "cancel": lambda db: (run_of(db),),
    "delete": lambda db: (ended(db),),
    "fire_schedule": lambda db: (scheduled(db),),
    "pause": lambda db: (run_of(db),),
    "pause_flow": lambda db: (db.flow(),),
    "pause_schedule": lambda db: (scheduled(db),),
    "reject": lambda db: (run_of(db), "a"),
    "remove_schedule": lambda db: (scheduled(db),),
    "reschedule": lambda db: (planned(db),),
    "resume": lambda db: (paused(db),),
    "resume_flow": lambda db: (paused_flow(db),),
    "resume_schedule": lambda db: (scheduled(db, is_paused=True),),
    "retry": lambda db: (failed(db),),
    "signal": lambda db: (run_of(db), "paid"),
    "undo": lambda db: (undoable(db),),
}
STARTS = {"start_flow", "start_flows", "start_flow_sync"}  # a run keeps who asked for it
READS = {
    "close",
    "count",
    "daemons",
    "flows",
    "follow",
    "get_run",
    "get_run_with_states",
    "runs",
    "schedules",
    "step_tasks",
    "tasks",
    "timeline",
    "wait",
}


def failed(db: LeaseDatabase) -> Any:
    flow = db.flow("a", max_attempts=1)
    run = db.start(flow)
    db.fail(db.claim_one(flow, db.worker(flow)))
    return run


def test_each_verb_of_a_client_leaves_one_action_by_its_actor_or_the_role(
    own: LeaseDatabase,
) -> None:
    methods = {name for name in dir(Client) if name[0] != "_"}
    role = own.value("select session_user::text")

    with Client(own.dsn) as client:
        for verb, arguments in CALLS.items():
            for given, actor in (({"actor": "jane"}, "jane"), ({}, role)):
                values, more = arguments(own), {"delay": 60} if verb == "reschedule" else {}
                before = len(actions(own))
                getattr(client, verb)(*values, **more, **given)
                assert [one.actor for one in actions(own)[before:]] == [actor], verb

    assert methods == CALLS.keys() | STARTS | READS


@covers("attack 18")
def test_beside_who_somebody_says_to_be_stands_the_role_of_the_session(own: LeaseDatabase) -> None:
    run, conn = own.start(own.flow()), own.connect()
    with conn.transaction(force_rollback=True):
        conn.execute("create role a_shop_app superuser")
        conn.execute("set local session authorization a_shop_app")
        conn.execute("select pgflowd.signal(%s, 'paid', actor => 'ada')", [run])
        conn.execute("select pgflowd.answer(%s, 'a', true, actor => 'ada')", [run])
        conn.execute("select pgflowd.cancel(%s, 'why', 'ada')", [run])

        done = conn.execute("select action, actor, session_role from pgflowd.actions").fetchall()
        said = conn.execute("select sent_by, session_role from pgflowd.signals").fetchall()

    assert {(each.actor, each.session_role) for each in done} == {("ada", "a_shop_app")}
    assert {each.action for each in done} == {"signal", "approve", "cancel"}
    assert {tuple(each) for each in said} == {("ada", "a_shop_app")}
