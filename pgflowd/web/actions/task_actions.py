"""
Actions on tasks: those that are stalled, that wait, and that a person does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgflowd.core.documents.flows import TaskKey
from pgflowd.core.json import encode
from pgflowd.core.text import task_name
from pgflowd.db import people, stalled, waits
from pgflowd.db.query import Query, execute
from pgflowd.errors import NotFound, WrongState
from pgflowd.web.actions.action import ActionRequest, ActionResult, PageAction
from pgflowd.web.pages.troubles import STALE_S

_LEASE_S = 2 * 3600.0  # of what a person claims who names none
_MAX_HOURS = 30 * 24  # as the database says


def requeue(request: ActionRequest) -> ActionResult:
    return _change_stalled(request, stalled.requeue_task, "requeued")


def give_up(request: ActionRequest) -> ActionResult:
    return _change_stalled(request, stalled.give_up_task, "failed")


def _change_stalled(request: ActionRequest, change: Callable[..., bool], done: str) -> ActionResult:
    key = request.task()
    if not change(request.conn, *key, STALE_S, request.reason, request.actor):
        raise WrongState(f"{task_name(*key)} is not stalled (any more)", next="look at it again")
    return ActionResult(f"/runs/{key.run_id}", {done: [key.to_json()], "left": []})


def wake(request: ActionRequest) -> ActionResult:
    """End the wait of a task."""
    key = request.task()
    return _result(key, execute(request.conn, waits.wake(key, request.actor, request.reason)))


def claim(request: ActionRequest) -> ActionResult:
    """Take a task of a flow that needs these caps."""
    flow, caps = request.path["flow"], (request.fields.text("caps") or "").split(",")
    hours = request.fields.number("hours", _MAX_HOURS)
    lease_s = _LEASE_S if hours is None else hours * 3600.0
    found = execute(
        request.conn, people.claim(flow, [cap for cap in caps if cap], lease_s, request.actor)
    )
    if found is None:
        raise NotFound(f"no task of {flow} is ready", code="E415", next="look at the inbox again")
    return ActionResult("/inbox", {"task": request.shown(found)})


def complete(request: ActionRequest) -> ActionResult:
    output = encode(request.fields.json("output"), what="output")
    return _report(request, lambda key, *by: people.complete(key, output, *by))


def fail(request: ActionRequest) -> ActionResult:
    final = request.fields.is_set("final")
    return _report(request, lambda key, *by: people.fail(key, request.reason, final, *by))


def release(request: ActionRequest) -> ActionResult:
    return _report(request, lambda key, *by: people.release(key, 0.0, (), *by))


def _report(request: ActionRequest, query: Callable[..., Query[str]]) -> ActionResult:
    """What a person says of a task that is theirs, or that nobody has."""
    key, token = request.task(), request.fields.number("token", 2**63 - 1)
    return _result(key, execute(request.conn, query(key, request.actor, token)))


def _result(key: TaskKey, result: str) -> ActionResult:
    document: dict[str, Any] = {**key.to_json(), "result": result}
    return ActionResult(f"/runs/{key.run_id}", document)


_TASK = "/runs/{run}/steps/{step}/tasks/{task}"
_HELD = frozenset({"token"})
TASK_ACTIONS = (
    PageAction(f"{_TASK}/requeue", requeue, frozenset({"reason"})),
    PageAction(f"{_TASK}/give-up", give_up, frozenset({"reason"})),
    PageAction(f"{_TASK}/wake", wake, frozenset({"reason"})),
    PageAction(f"{_TASK}/complete", complete, _HELD | {"output"}),
    PageAction(f"{_TASK}/fail", fail, _HELD | {"reason", "final"}),
    PageAction(f"{_TASK}/release", release, _HELD),
    PageAction("/flows/{flow}/claim", claim, frozenset({"caps", "hours"})),
)
