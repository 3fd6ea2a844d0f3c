"""
Actions on flows, schedules and workers.
"""

from __future__ import annotations

from urllib.parse import quote
from uuid import UUID

from pgflowd.core.lookup import unknown_flow
from pgflowd.db import daemons, operations, schedule_operations
from pgflowd.db.lookup import flow_slugs
from pgflowd.db.operations import Operation, run_sync
from pgflowd.db.query import execute
from pgflowd.errors import NotFound, PgflowdError
from pgflowd.web.actions.action import ActionRequest, ActionResult, PageAction


def pause_flow(request: ActionRequest) -> ActionResult:
    flow = request.path["flow"]
    return _change_flow(request, operations.pause_flow(flow, request.reason, request.actor))


def resume_flow(request: ActionRequest) -> ActionResult:
    flow = request.path["flow"]
    return _change_flow(request, operations.resume_flow(flow, request.reason, request.actor))


def _change_flow(request: ActionRequest, operation: Operation[bool]) -> ActionResult:
    flow = request.path["flow"]
    try:
        changed = run_sync(request.conn, operation)
    except NotFound as error:
        raise unknown_flow(flow, flow_slugs(request.conn)) from error
    return ActionResult(f"/flows/{quote(flow, '')}", {"flow": flow, "changed": changed})


def fire(request: ActionRequest) -> ActionResult:
    name = request.path["schedule"]
    fired = run_sync(request.conn, schedule_operations.fire(name, request.actor))
    return ActionResult(f"/runs/{fired.run_id}", {"name": name, **fired.to_json()})


def pause_schedule(request: ActionRequest) -> ActionResult:
    return _change_schedule(
        request, schedule_operations.pause(request.path["schedule"], request.actor)
    )


def resume_schedule(request: ActionRequest) -> ActionResult:
    return _change_schedule(
        request, schedule_operations.resume(request.path["schedule"], request.actor)
    )


def _change_schedule(request: ActionRequest, operation: Operation[bool]) -> ActionResult:
    changed = run_sync(request.conn, operation)
    return ActionResult("/schedules", {"name": request.path["schedule"], "changed": changed})


def restart_worker(request: ActionRequest) -> ActionResult:
    """Let a worker finish its tasks, and its daemon start another one in its place."""
    try:
        worker_id = UUID(request.path["worker"])
    except ValueError:
        text = f"'{request.path['worker']}' is not the id of a worker"
        raise PgflowdError(text, code="E506") from None
    result = execute(request.conn, daemons.restart_worker(worker_id, request.actor, request.reason))
    return ActionResult("/daemons", {"worker_id": str(worker_id), "result": result})


_REASON = frozenset({"reason"})
FLOW_ACTIONS = (
    PageAction("/flows/{flow}/pause", pause_flow, _REASON),
    PageAction("/flows/{flow}/resume", resume_flow, _REASON),
    PageAction("/schedules/{schedule}/fire", fire, frozenset()),
    PageAction("/schedules/{schedule}/pause", pause_schedule, frozenset()),
    PageAction("/schedules/{schedule}/resume", resume_schedule, frozenset()),
    PageAction("/daemons/workers/{worker}/restart", restart_worker, _REASON),
)
