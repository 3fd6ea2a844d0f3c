"""
What people and programs do in the dashboard: the rows of `core.verbs` that have a path, with the
name of the person, and some actions of their own.

An action is a POST. A page is answered with a redirection to the page that shows the result, a
program with the document that the command prints.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl, quote
from uuid import UUID

from pgflowd.core import verbs
from pgflowd.core.documents import Hidden, TaskKey, encoded
from pgflowd.core.documents.run_tasks import HeldTask
from pgflowd.core.documents.runs import FailedAttempt, ListedRun, Run
from pgflowd.core.json import decode, encode
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.payloads import Payloads
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import is_storable, short_id, task_name
from pgflowd.core.verbs import RUN_VERBS, VERBS, Argument, Kind, SignalReceipt, Target, Verb
from pgflowd.db import operations
from pgflowd.db.flows import check_input
from pgflowd.db.operations import Operation, perform
from pgflowd.db.run_details import flow_slugs, runs_by_id, search_runs
from pgflowd.db.runs import AT_ONCE, change_many, failed_attempts
from pgflowd.db.waits import claim as claim_task
from pgflowd.errors import NotFound, PgflowdError, UnknownFlow, WrongState
from pgflowd.web.pages.page import PageRequest
from pgflowd.web.pages.runs import filter_of
from pgflowd.web.pages.system import STALE_S

# What a form tells of the run that it was made for, so that nobody acts on what is no longer so.
#
# It is the status of the run, and once that has ended, where the page shows them, the attempt that
# failed last. While a run goes on attempts fail and are retried, which makes no form old.
_AND = "."


def shown_of(run: Run, failures: Iterable[FailedAttempt] = ()) -> str:
    """The run as a form tells it."""
    newest = max((attempt.token for attempt in failures), default=None)
    return f"{run.status}{_AND}{newest}" if run.has_ended and newest else str(run.status)


def _in_words(shown: str) -> str:
    status, _, token = shown.partition(_AND)
    word = status.replace("_", " ")
    return f"{word}, with attempt {token} as the last that failed" if token else word


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


@dataclass(frozen=True, kw_only=True)
class ActionRequest(PageRequest):
    """What somebody asks for."""

    fields: Fields
    actor: str  # `jane (web)`
    payloads: Payloads

    def shown(self, document: Run | HeldTask) -> dict[str, Any]:
        """The document with its values as they may be shown."""
        found: dict[str, Any] = encoded(self.payloads.of(document))
        return found


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


def given_of(verb: Verb[Any], fields: Fields) -> dict[str, Any]:
    """The arguments of a verb, as somebody has sent them."""
    given: dict[str, Any] = {}
    for each in verb.arguments:
        match each.kind:
            case Kind.FLAG:
                given[each.name] = fields.is_set(each.name)
            case Kind.NUMBER:
                given[each.name] = fields.number(each.name, _MAX_NUMBER)
            case Kind.JSON:
                given[each.name] = encode(fields.json(each.name), what=each.name)
            case Kind.TEXT:
                of = fields.required if each.is_required else fields.text
                given[each.name] = of(each.name)
    return given


def _do(verb: Verb[Any], request: ActionRequest, *target: Any, **more: Any) -> Any:
    """Do it, in the name of who asks for it."""
    given = given_of(verb, request.fields)
    return request.perform(perform(verb, *target, actor=request.actor, **given, **more))


def _do_to_run(verb: Verb[Any], request: ActionRequest) -> ActionResult:
    """Do it to the run, unless the page that asked for it was old."""
    run_id = request.run_id()
    typed = (request.fields.text("digits") or "").lower().removeprefix("…")
    if verb.asks and (len(typed) < _LAST_DIGITS or not str(run_id).endswith(typed)):
        wanted = f"type {short_id(run_id)}, the last digits of the run"
        raise bad_field(f"run {short_id(run_id)} was not deleted", next=wanted)
    shown = request.fields.text("shown")
    with request.conn.transaction():
        if shown is not None:
            run = request.perform(operations.get(run_id))
            failures = request.read(failed_attempts(run_id)) if _AND in shown else ()
            if shown != (now := shown_of(run, failures)):
                raise WrongState(
                    f"run {short_id(run_id)} was {_in_words(shown)} when the page was made,"
                    f" and is {_in_words(now)} now",
                    next="look at it again, and decide then",
                )
        answer = _do(verb, request, run_id)
    if isinstance(answer, Run):
        return ActionResult(f"/runs/{run_id}", request.shown(answer))
    return ActionResult("/runs", {"run_id": str(run_id), "deleted": answer})


def _do_to_task(verb: Verb[Any], request: ActionRequest) -> ActionResult:
    index = request.path["task"]
    if not (index.isascii() and index.isdigit() and len(index) < 10):
        raise PgflowdError(f"'{index}' is not the number of a task", code="E506")
    key = TaskKey(request.run_id(), request.path["step"], int(index))
    of_stalled = {"stale_threshold": STALE_S} if verb.done else {}
    answer = _do(verb, request, *key, **of_stalled)
    if answer is False:
        raise WrongState(f"{task_name(*key)} is not stalled (any more)", next="look at it again")
    became = {verb.done: [key], "left": []} if answer is True else {"result": answer}
    return ActionResult(f"/runs/{key.run_id}", became if verb.done else {**encoded(key), **became})


def _do_to_flow(verb: Verb[Any], request: ActionRequest) -> ActionResult:
    flow = request.path["flow"]
    try:
        changed = _do(verb, request, flow)
    except NotFound as error:
        raise unknown_flow(flow, flow_slugs(request.conn)) from error
    return ActionResult(f"/flows/{quote(flow, '')}", {"flow": flow, "changed": changed})


def _do_to_schedule(verb: Verb[Any], request: ActionRequest) -> ActionResult:
    name = request.path["schedule"]
    answer = _do(verb, request, name)
    if isinstance(answer, bool):
        return ActionResult("/schedules", {"name": name, "changed": answer})
    return ActionResult(f"/runs/{answer.run_id}", {"name": name, **encoded(answer)})


def _do_to_worker(verb: Verb[Any], request: ActionRequest) -> ActionResult:
    worker_id = _uuid(request.path["worker"], "E506", "a worker")
    result = _do(verb, request, worker_id)
    return ActionResult("/daemons", {"worker_id": str(worker_id), "result": result})


def _uuid(text: str, code: str, whose: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise PgflowdError(f"'{text}' is not the id of {whose}", code=code) from None


def offered(run: Run, has_undos: bool) -> list[Verb[Any]]:
    """What can be done to a run now."""
    found = [verb for verb in RUN_VERBS if verb.path and run.status in verb.allowed]
    if run.undo_wanted_at is not None:
        found = [verb for verb in found if verb is not verbs.RETRY]
    if run.undo_of or not has_undos:
        found = [verb for verb in found if verb is not verbs.UNDO]
    return sorted(found, key=lambda verb: verb.is_danger)


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
    run_id = _uuid(given, "E511", "a run") if given else operations.new_run_id()
    starting = operations.start(flow, input, run_id, None, {"actor": request.actor})
    try:
        run = request.perform(starting)
    except UnknownFlow as error:
        raise unknown_flow(flow, flow_slugs(request.conn)) from error
    return ActionResult(f"/runs/{run.run_id}", request.shown(run))


def signal(request: ActionRequest) -> ActionResult:
    name, dedup = request.fields.required("name"), request.fields.text("dedup")
    payload, run_id = request.fields.json("payload"), request.run_id()
    return _sent(request, run_id, operations.signal(run_id, name, payload, request.actor, dedup))


def answer(request: ActionRequest, *, is_approved: bool) -> ActionResult:
    note, run_id, step = request.fields.text("note") or "", request.run_id(), request.path["step"]
    answering = operations.answer(run_id, step, is_approved, note, request.actor, None)
    return _sent(request, run_id, answering)


def _sent(request: ActionRequest, run_id: UUID, sending: Operation[SignalReceipt]) -> ActionResult:
    sent = request.perform(sending)
    return ActionResult(f"/runs/{run_id}", {"signal_id": sent.signal_id, "run_id": str(run_id)})


def claim(request: ActionRequest) -> ActionResult:
    """Take a task of a flow that needs these caps."""
    flow = request.path["flow"]
    caps = [cap for cap in (request.fields.text("caps") or "").split(",") if cap]
    hours = request.fields.number("hours", int(verbs.MAX_LEASE_S // 3600))
    lease_s = _LEASE_S if hours is None else hours * 3600.0
    found = request.read(claim_task(flow, caps, lease_s, request.actor))
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
    names = {each.name for each in verb.arguments if each.kind in _FIELDS}
    if verb.target is Target.RUN:
        names |= {"shown", "digits"} if verb.asks else {"shown"}
    return PageAction(f"{place}/{verb.path}", partial(act, verb), frozenset(names))


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


# Actions on many runs: those that somebody has chosen in a list.
#
# The first request chooses: the answer is a page that says how many runs there are, of which flows,
# and asks. The ids stand in that page, so the second request acts on the runs that were counted,
# and on no others. It acts for ten seconds at most; the page with the result has a button for the
# rest.
MOST = 1000  # runs of a choice; a form holds no more ids
ASKED_TWICE = 50  # of more than these the number is typed, for a verb that nothing takes back
_TIME_S = 10.0


@dataclass(frozen=True)
class ChosenRuns:
    """The runs that somebody has chosen, before anything is done."""

    verb: str
    runs: Sequence[ListedRun]
    is_typed: bool  # whether somebody has to type their number
    text: str = ""  # why it asks again
    given: Hidden[Mapping[str, Any]] = field(default_factory=dict)  # what the form had then

    @property
    def flows(self) -> list[tuple[str, int]]:
        """Each flow with the number of its runs, the most first."""
        return Counter(run.flow_slug for run in self.runs).most_common()

    @property
    def oldest(self) -> datetime | None:
        return min((run.started_at for run in self.runs if run.started_at), default=None)


class RefusedRun(NamedTuple):
    """A run that refused a change, and why."""

    run_id: UUID
    code: str
    text: str
    next: str | None


@dataclass(frozen=True)
class ChangedRuns:
    """What became of runs that somebody has chosen."""

    verb: Annotated[str, "what was done: `cancel`, `retry` and others"]
    given: Hidden[Mapping[str, Any]]  # for what is left
    done: Annotated[Sequence[UUID], "the runs of which it was done"]
    already: Annotated[Sequence[UUID], "those that were so before"]
    refused: Annotated[Sequence[RefusedRun], "those that refused, and why"]
    left: Annotated[Sequence[UUID], "those that were not tried"] = ()  # its time was over


def do_to_many(request: ActionRequest, *, at_once: bool) -> ChosenRuns | ChangedRuns:
    """Ask about many runs, or, once somebody is sure, act on them."""
    known, path = {verb.path: verb for verb in MANY_VERBS}, request.path["verb"]
    if path not in known:
        remedy = f"these can: {', '.join(known)}"
        raise PgflowdError(f"'{path}' cannot be done to many runs", code="E507", next=remedy)
    verb, fields = known[path], request.fields
    ids = fields.values.get("runs") or fields.values.get("run") or []
    ids = ids.split(",") if isinstance(ids, str) else ids
    if not (isinstance(ids, list) and all(isinstance(one, str) for one in ids)):
        raise bad_field("the field 'runs' must be a list of ids")
    ids, is_sure = list(dict.fromkeys(ids)), fields.is_set("sure")
    is_right = not _is_typed(verb, ids) or fields.number("count", MOST) == len(ids)
    if at_once or (is_sure and is_right):
        return _change(request, verb, _checked(ids))
    if fields.is_set("all"):
        filter = parse_qsl((fields.text("filter") or "").removeprefix("?"))
        wanted = filter_of(PageRequest(request.conn, query=dict(filter)))
        found = request.read(search_runs(wanted, MOST)).runs
    else:
        found = request.read(runs_by_id(_checked(ids)))
    if not found:
        raise bad_field("no run is chosen", next="tick some runs of the list")
    text = "type the number of runs" if is_sure else ""
    chosen = sorted(found, key=lambda run: run.run_id)  # as their locks are taken
    given = given_of(verb, fields) if is_sure else {}
    return ChosenRuns(path, chosen, _is_typed(verb, chosen), text, given)


def _is_typed(verb: Verb[Any], runs: Sequence[object]) -> bool:
    """Whether somebody has to type the number of these runs."""
    return verb.is_danger and len(runs) > ASKED_TWICE


def _change(request: ActionRequest, verb: Verb[Any], ids: Sequence[UUID]) -> ChangedRuns:
    """Do it to each run, fifty in a transaction."""
    until, rest = time.monotonic() + _TIME_S, sorted(ids)
    became: dict[bool, list[UUID]] = {True: [], False: []}
    refused: list[RefusedRun] = []
    given = given_of(verb, request.fields)

    def change_one(run_id: UUID) -> bool:
        """Whether something was done."""
        is_so = request.perform(operations.get(run_id)).status in verb.already
        if is_so and True not in given.values():  # a flag may want more, as `undo` of a cancel
            return False
        request.perform(perform(verb, run_id, actor=request.actor, **given))
        return True

    while rest and time.monotonic() < until:
        some, rest = rest[:AT_ONCE], rest[AT_ONCE:]
        for run_id, result in change_many(request.conn, some, change_one):
            if isinstance(result, PgflowdError):
                refused.append(RefusedRun(run_id, result.code, result.text, result.next))
            else:
                became[result].append(run_id)
    return ChangedRuns(verb.path, given, became[True], became[False], refused, rest)


def _checked(ids: Sequence[str]) -> list[UUID]:
    if len(ids) > MOST:
        raise bad_field(f"{len(ids)} runs are chosen; {MOST} are the most", next="choose fewer")
    try:
        return list({UUID(one) for one in ids})
    except ValueError:
        raise bad_field("what is chosen are not ids of runs") from None
