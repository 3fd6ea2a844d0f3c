"""
Actions on one run, and its start.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from pgflowd.core.lookup import unknown_flow
from pgflowd.core.text import short_id
from pgflowd.db import operations, starts
from pgflowd.db.attempts import failed_attempts
from pgflowd.db.input_check import check_input
from pgflowd.db.lookup import flow_slugs
from pgflowd.db.operations import run_sync
from pgflowd.db.query import execute
from pgflowd.errors import UnknownFlow, WrongState
from pgflowd.web.actions.action import ActionRequest, ActionResult, PageAction, bad_field
from pgflowd.web.actions.run_verbs import RUN_VERBS, RunVerb
from pgflowd.web.shown_run import has_attempt, in_words, shown_of

_ASKED = frozenset({"reason", "shown"})
_LAST_DIGITS = 8  # of a run, that somebody types who deletes it


def start(request: ActionRequest) -> ActionResult:
    """Start a run. The form has its id, so the same form starts one run only."""
    flow, given = request.path["flow"], request.fields.text("run_id")
    input = request.fields.json("input", {})
    check_input(request.conn, flow, input)
    try:
        run_id = UUID(given) if given else starts.new_run_id()
    except ValueError:
        raise bad_field(f"'{given}' is not the id of a run") from None
    try:
        run = run_sync(
            request.conn, starts.start(flow, input, run_id, None, {"actor": request.actor})
        )
    except UnknownFlow as error:
        raise unknown_flow(flow, flow_slugs(request.conn)) from error
    return ActionResult(f"/runs/{run.run_id}", request.shown(run))


def change(verb: RunVerb, request: ActionRequest) -> ActionResult:
    """Do it to the run, unless the page that asked for it was old."""
    run_id = request.run_id()
    with request.conn.transaction():
        _refuse_stale(request, run_id)
        run = run_sync(request.conn, verb.operation(request, run_id))
    return ActionResult(f"/runs/{run_id}", request.shown(run))


def delete(request: ActionRequest) -> ActionResult:
    """Delete a run; whoever does so has typed its last digits."""
    run_id = request.run_id()
    typed = (request.fields.text("digits") or "").lower().removeprefix("…")
    if not str(run_id).endswith(typed) or len(typed) < _LAST_DIGITS:
        wanted = f"type {short_id(run_id)}, the last digits of the run"
        raise bad_field(f"run {short_id(run_id)} was not deleted", next=wanted)
    with request.conn.transaction():
        _refuse_stale(request, run_id)
        gone = run_sync(request.conn, operations.delete(run_id, request.actor))
    return ActionResult("/runs", {"run_id": str(run_id), "deleted": gone})


def signal(request: ActionRequest) -> ActionResult:
    run_id, name = request.run_id(), request.fields.required("name")
    payload, dedup = request.fields.json("payload"), request.fields.text("dedup")
    sent = run_sync(request.conn, operations.signal(run_id, name, payload, request.actor, dedup))
    return ActionResult(f"/runs/{run_id}", {"signal_id": sent.signal_id, "run_id": str(run_id)})


def approve(request: ActionRequest) -> ActionResult:
    return _answer(request, is_approved=True)


def reject(request: ActionRequest) -> ActionResult:
    return _answer(request, is_approved=False)


def _answer(request: ActionRequest, *, is_approved: bool) -> ActionResult:
    run_id, note = request.run_id(), request.fields.text("note") or ""
    answer = operations.answer(run_id, request.path["step"], is_approved, note, request.actor, None)
    sent = run_sync(request.conn, answer)
    return ActionResult(f"/runs/{run_id}", {"signal_id": sent.signal_id, "run_id": str(run_id)})


def _refuse_stale(request: ActionRequest, run_id: UUID) -> None:
    """Raise WrongState if the run is no longer as its page has shown it."""
    shown = request.fields.text("shown")
    if shown is None:
        return
    run = run_sync(request.conn, operations.get(run_id))
    failures = execute(request.conn, failed_attempts(run_id)) if has_attempt(shown) else ()
    if shown != (now := shown_of(run, failures)):
        raise WrongState(
            f"run {short_id(run_id)} was {in_words(shown)} when the page was made,"
            f" and is {in_words(now)} now",
            next="look at it again, and decide then",
        )


RUN_ACTIONS = (
    PageAction("/flows/{flow}/start", start, frozenset({"run_id", "input"})),
    *(
        PageAction(f"/runs/{{run}}/{name}", partial(change, verb), verb.options | _ASKED)
        for name, verb in RUN_VERBS.items()
    ),
    PageAction("/runs/{run}/delete", delete, frozenset({"digits", "shown"})),
    PageAction("/runs/{run}/signal", signal, frozenset({"name", "payload", "dedup"})),
    PageAction("/runs/{run}/steps/{step}/approve", approve, frozenset({"note"})),
    PageAction("/runs/{run}/steps/{step}/reject", reject, frozenset({"note"})),
)
