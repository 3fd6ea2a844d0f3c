"""
What people and programs do in the dashboard: the rows of `core.verbs` that have a path, with the
name of the person, and some actions of their own.

An action is a POST. A page is answered with a redirection to the page that shows the result, a
program with the document that the command prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote
from uuid import UUID

import psycopg

from pgflowd.core.documents import encoded
from pgflowd.core.documents.flows import TaskKey
from pgflowd.core.documents.runs import FailedAttempt, Run
from pgflowd.core.documents.waits import HeldTask
from pgflowd.core.json import decode, encode
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.payloads import Payloads
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import is_storable, short_id, task_name
from pgflowd.core.verbs import (
    MAX_LEASE_S,
    RETRY,
    RUN_VERBS,
    UNDO,
    VERBS,
    Argument,
    Kind,
    Target,
    Verb,
)
from pgflowd.db import operations
from pgflowd.db.flows import check_input
from pgflowd.db.history import failed_attempts
from pgflowd.db.operations import perform
from pgflowd.db.performing import run_sync
from pgflowd.db.query import execute
from pgflowd.db.run_search import find_run, flow_slugs
from pgflowd.db.waits import claim as claim_task
from pgflowd.errors import NotFound, PgflowdError, UnknownFlow, WrongState
from pgflowd.web.pages.tasks import STALE_S

# What a form tells of the run that it was made for, so that nobody acts on what is no longer so.
#
# It is the status of the run, and once that has ended, where the page shows them, the attempt that
# failed last. While a run goes on attempts fail and are retried, which makes no form old.
_AND = "."


def shown_of(run: Run, failures: Iterable[FailedAttempt] = ()) -> str:
    """The run as a form tells it."""
    newest = max((attempt.token for attempt in failures), default=None)
    return f"{run.status}{_AND}{newest}" if run.has_ended and newest else str(run.status)


def has_attempt(shown: str) -> bool:
    """Whether the page has shown which attempt failed last."""
    return _AND in shown


def in_words(shown: str) -> str:
    status, _, token = shown.partition(_AND)
    word = status.replace("_", " ")
    return f"{word}, with attempt {token} as the last that failed" if token else word


Connection = psycopg.Connection[Any]
_SHOWN = Payloads()
_LAST_DIGITS = 8  # of a run, that somebody types who deletes it
_LEASE_S = 2 * 3600.0  # of what a person claims who names none
_MAX_NUMBER = 2**63 - 1
_FIELDS = (Kind.FLAG, Kind.TEXT, Kind.NUMBER, Kind.JSON)  # arguments that forms have


def bad_field(text: str, next: str | None = None) -> PgflowdError:
    """The error about a field of a form that cannot be used."""
    return PgflowdError(text, code="E511", next=next)


@dataclass(frozen=True)
class Fields:
    """The fields of a form, which are texts, or of a JSON object."""

    values: Mapping[str, Any]
    is_json: bool = False

    def text(self, name: str) -> str | None:
        """A text; None for an empty one."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise bad_field(f"the field '{name}' must be a text")
        if value and not is_storable(value):
            raise bad_field(f"the field '{name}' has a character that no text can hold")
        return value or None

    def required(self, name: str) -> str:
        """A text that is not empty."""
        text = self.text(name)
        if text is None:
            raise bad_field(f"the field '{name}' is missing")
        return text

    def is_set(self, name: str) -> bool:
        """Whether a box is ticked."""
        value = self.values.get(name, False)
        if isinstance(value, bool):
            return value
        return self.text(name) is not None

    def number(self, name: str, high: int) -> int | None:
        """A whole number from 1 on; None without one."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        digits = str(value) if type(value) in (int, str) else ""
        is_whole = digits.isascii() and digits.isdigit() and len(digits) <= len(str(high))
        if not is_whole or not 1 <= int(digits) <= high:
            raise bad_field(f"the field '{name}' must be a whole number from 1 to {high}")
        return int(digits)

    def json(self, name: str, default: Any = None) -> Any:
        """A value: of a JSON object as it is there, of a form from its text."""
        if self.is_json:
            return self.values.get(name, default)
        text = self.text(name)
        if text is None:
            return default
        return decoded(text.encode(), f"the field '{name}'")


def decoded(text: bytes, what: str) -> Any:
    """The value of a JSON text that somebody has sent."""
    try:
        return decode(text)
    except ValueError as error:
        raise bad_field(f"{what} is not JSON: {error}") from None
    except RecursionError:
        raise bad_field(f"{what} is nested too deeply") from None


@dataclass(frozen=True)
class ActionRequest:
    """What somebody asks for."""

    conn: Connection
    path: Mapping[str, str]
    fields: Fields
    actor: str  # `jane (web)`
    payloads: Payloads = _SHOWN

    def run_id(self) -> UUID:
        """The run of the address."""
        return find_run(self.conn, self.path["run"])

    def task(self) -> TaskKey:
        """The task of the address."""
        index = self.path["task"]
        if not (index.isascii() and index.isdigit() and len(index) < 10):
            raise PgflowdError(f"'{index}' is not the number of a task", code="E506")
        return TaskKey(self.run_id(), self.path["step"], int(index))

    def shown(self, document: Run | HeldTask) -> dict[str, Any]:
        """The document with its values as they may be shown."""
        found: dict[str, Any] = encoded(self.payloads.of(document))
        return found

    @property
    def reason(self) -> str | None:
        return self.fields.text("reason")


@dataclass(frozen=True)
class ActionResult:
    """What an action did: the document of the command, and the page that shows the result."""

    to: str
    document: Mapping[str, Any]


@dataclass(frozen=True)
class PageAction:
    """An action, and the fields that it takes."""

    path: str
    act: Callable[[ActionRequest], ActionResult]
    fields: frozenset[str]


MANY_VERBS = tuple(verb for verb in RUN_VERBS if verb.path and verb.is_many and not verb.asks)


def fields_of(verb: Verb[Any]) -> frozenset[str]:
    """The fields that a verb takes."""
    names = {each.name for each in verb.arguments if each.kind in _FIELDS}
    if verb.target is Target.RUN:
        names |= {"shown", "digits"} if verb.asks else {"shown"}
    return frozenset(names)


def given_of(verb: Verb[Any], fields: Fields) -> dict[str, Any]:
    """The arguments of a verb, as somebody has sent them."""
    return {each.name: _value(each, fields) for each in verb.arguments if each.kind in _FIELDS}


def _value(argument: Argument, fields: Fields) -> Any:
    match argument.kind:
        case Kind.FLAG:
            return fields.is_set(argument.name)
        case Kind.NUMBER:
            return fields.number(argument.name, _MAX_NUMBER)
        case Kind.JSON:
            return encode(fields.json(argument.name), what=argument.name)
    return fields.text(argument.name)


def _do_to_run(verb: Verb[Any], request: ActionRequest) -> ActionResult:
    """Do it to the run, unless the page that asked for it was old."""
    run_id = request.run_id()
    if verb.asks:
        _require_digits(request, run_id)
    operation = perform(verb, run_id, actor=request.actor, **given_of(verb, request.fields))
    with request.conn.transaction():
        _refuse_stale(request, run_id)
        answer = run_sync(request.conn, operation)
    if isinstance(answer, Run):
        return ActionResult(f"/runs/{run_id}", request.shown(answer))
    return ActionResult("/runs", {"run_id": str(run_id), "deleted": answer})


def _do_to_task(verb: Verb[Any], request: ActionRequest) -> ActionResult:
    key, given = request.task(), given_of(verb, request.fields)
    if verb.done:  # to one that is stalled
        given["stale_threshold"] = STALE_S
    answer = run_sync(request.conn, perform(verb, *key, actor=request.actor, **given))
    if answer is False:
        raise WrongState(f"{task_name(*key)} is not stalled (any more)", next="look at it again")
    became = {verb.done: [key], "left": []} if answer is True else {"result": answer}
    return ActionResult(f"/runs/{key.run_id}", became if verb.done else {**encoded(key), **became})


def _do_to_flow(verb: Verb[Any], request: ActionRequest) -> ActionResult:
    flow, given = request.path["flow"], given_of(verb, request.fields)
    try:
        changed = run_sync(request.conn, perform(verb, flow, actor=request.actor, **given))
    except NotFound as error:
        raise unknown_flow(flow, flow_slugs(request.conn)) from error
    return ActionResult(f"/flows/{quote(flow, '')}", {"flow": flow, "changed": changed})


def _do_to_schedule(verb: Verb[Any], request: ActionRequest) -> ActionResult:
    name = request.path["schedule"]
    answer = run_sync(request.conn, perform(verb, name, actor=request.actor))
    if isinstance(answer, bool):
        return ActionResult("/schedules", {"name": name, "changed": answer})
    return ActionResult(f"/runs/{answer.run_id}", {"name": name, **encoded(answer)})


def _do_to_worker(verb: Verb[Any], request: ActionRequest) -> ActionResult:
    try:
        worker_id = UUID(request.path["worker"])
    except ValueError:
        text = f"'{request.path['worker']}' is not the id of a worker"
        raise PgflowdError(text, code="E506") from None
    given = given_of(verb, request.fields)
    result = run_sync(request.conn, perform(verb, worker_id, actor=request.actor, **given))
    return ActionResult("/daemons", {"worker_id": str(worker_id), "result": result})


def _require_digits(request: ActionRequest, run_id: UUID) -> None:
    """Whoever does what cannot be taken back has typed the last digits of the run."""
    typed = (request.fields.text("digits") or "").lower().removeprefix("…")
    if not str(run_id).endswith(typed) or len(typed) < _LAST_DIGITS:
        wanted = f"type {short_id(run_id)}, the last digits of the run"
        raise bad_field(f"run {short_id(run_id)} was not deleted", next=wanted)


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


def offered(run: Run, has_undos: bool) -> list[Verb[Any]]:
    """What can be done to a run now."""
    verbs = [verb for verb in RUN_VERBS if verb.path and run.status in verb.allowed]
    if run.undo_wanted_at is not None:
        verbs = [verb for verb in verbs if verb is not RETRY]
    if run.undo_of or not has_undos:
        verbs = [verb for verb in verbs if verb is not UNDO]
    return sorted(verbs, key=lambda verb: verb.is_danger)


def flags_for(verb: Verb[Any], status: RunStatus) -> list[Argument]:
    """The flags that are set for a run with this status, which needs them."""
    usual = verb.chosen or verb.allowed
    return [each for each in verb.arguments if status in each.of and status not in usual]


# actions of their own


def start(request: ActionRequest) -> ActionResult:
    """Start a run. The form has its id, so the same form starts one run only."""
    flow, given = request.path["flow"], request.fields.text("run_id")
    input = request.fields.json("input", {})
    check_input(request.conn, flow, input)
    try:
        run_id = UUID(given) if given else operations.new_run_id()
    except ValueError:
        raise bad_field(f"'{given}' is not the id of a run") from None
    try:
        run = run_sync(
            request.conn, operations.start(flow, input, run_id, None, {"actor": request.actor})
        )
    except UnknownFlow as error:
        raise unknown_flow(flow, flow_slugs(request.conn)) from error
    return ActionResult(f"/runs/{run.run_id}", request.shown(run))


def signal(request: ActionRequest) -> ActionResult:
    run_id, name = request.run_id(), request.fields.required("name")
    payload, dedup = request.fields.json("payload"), request.fields.text("dedup")
    sent = run_sync(request.conn, operations.signal(run_id, name, payload, request.actor, dedup))
    return ActionResult(f"/runs/{run_id}", {"signal_id": sent.signal_id, "run_id": str(run_id)})


def answer(request: ActionRequest, *, is_approved: bool) -> ActionResult:
    run_id, note = request.run_id(), request.fields.text("note") or ""
    answering = operations.answer(
        run_id, request.path["step"], is_approved, note, request.actor, None
    )
    sent = run_sync(request.conn, answering)
    return ActionResult(f"/runs/{run_id}", {"signal_id": sent.signal_id, "run_id": str(run_id)})


def claim(request: ActionRequest) -> ActionResult:
    """Take a task of a flow that needs these caps."""
    flow, caps = request.path["flow"], (request.fields.text("caps") or "").split(",")
    hours = request.fields.number("hours", int(MAX_LEASE_S // 3600))
    lease_s = _LEASE_S if hours is None else hours * 3600.0
    found = execute(
        request.conn, claim_task(flow, [cap for cap in caps if cap], lease_s, request.actor)
    )
    if found is None:
        raise NotFound(f"no task of {flow} is ready", code="E415", next="look at the inbox again")
    return ActionResult("/inbox", {"task": request.shown(found)})


_DOES: dict[Target, tuple[str, Callable[[Verb[Any], ActionRequest], ActionResult]]] = {
    Target.RUN: ("/runs/{run}", _do_to_run),
    Target.TASK: ("/runs/{run}/steps/{step}/tasks/{task}", _do_to_task),
    Target.FLOW: ("/flows/{flow}", _do_to_flow),
    Target.SCHEDULE: ("/schedules/{schedule}", _do_to_schedule),
    Target.WORKER: ("/daemons/workers/{worker}", _do_to_worker),
}


def _action_of(verb: Verb[Any]) -> PageAction:
    place, act = _DOES[verb.target]
    return PageAction(f"{place}/{verb.path}", partial(act, verb), fields_of(verb))


ACTIONS = (
    *(_action_of(verb) for verb in VERBS if verb.path),
    PageAction("/flows/{flow}/start", start, frozenset({"run_id", "input"})),
    PageAction("/flows/{flow}/claim", claim, frozenset({"caps", "hours"})),
    PageAction("/runs/{run}/signal", signal, frozenset({"name", "payload", "dedup"})),
    PageAction("/runs/{run}/steps/{step}/approve", partial(answer, is_approved=True),
               frozenset({"note"})),
    PageAction("/runs/{run}/steps/{step}/reject", partial(answer, is_approved=False),
               frozenset({"note"})),
)  # fmt: skip
