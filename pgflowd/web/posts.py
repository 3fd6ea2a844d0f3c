"""
Receives what people and programs send: reads the form or the JSON, calls the action, and answers.

A page is redirected to the one that shows the result (303). A program below `/api/1` gets the
document that the command prints.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pgflowd.core.documents import Hidden, versioned
from pgflowd.core.documents.runs import ListedRun
from pgflowd.core.payloads import Payloads
from pgflowd.core.verbs import Verb
from pgflowd.db import operations
from pgflowd.db.operations import perform
from pgflowd.db.performing import run_sync
from pgflowd.db.query import execute
from pgflowd.db.run_search import runs_by_id, search_runs
from pgflowd.db.runs import AT_ONCE, change_many
from pgflowd.errors import AccessDenied, PgflowdError
from pgflowd.web import answers
from pgflowd.web.actions import (
    ACTIONS,
    MANY_VERBS,
    ActionRequest,
    ActionResult,
    Connection,
    Fields,
    PageAction,
    bad_field,
    decoded,
    given_of,
)
from pgflowd.web.answers import root_of, wants_json
from pgflowd.web.connections import Connections
from pgflowd.web.pages.page import PageRequest
from pgflowd.web.pages.runs import filter_of
from pgflowd.web.request_checks import actor_of

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
    text: str = ""  # why it asks again

    @property
    def ids(self) -> str:
        return ",".join(str(run.run_id) for run in self.runs)

    @property
    def flows(self) -> list[tuple[str, int]]:
        """Each flow with the number of its runs, the most first."""
        return Counter(run.flow_slug for run in self.runs).most_common()

    @property
    def oldest(self) -> datetime | None:
        return min((run.started_at for run in self.runs if run.started_at), default=None)

    @property
    def is_typed(self) -> bool:
        """Whether somebody has to type the number."""
        return needs_number(self.verb, len(self.runs))


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
    reason: Hidden[str | None]
    done: Annotated[Sequence[UUID], "the runs of which it was done"]
    already: Annotated[Sequence[UUID], "those that were so before"]
    refused: Annotated[Sequence[RefusedRun], "those that refused, and why"]
    left: Annotated[Sequence[UUID], "those that were not tried"] = ()  # its time was over

    @property
    def left_ids(self) -> str:
        return ",".join(map(str, self.left))


def choose(request: ActionRequest, ids: Sequence[str], text: str = "") -> ChosenRuns:
    """
    The runs of these ids, or those that the filter of a list finds, in the order in which their
    locks are taken.
    """
    _verb(request.path["verb"])
    if request.fields.is_set("all"):
        filter = parse_qsl((request.fields.text("filter") or "").removeprefix("?"))
        wanted = filter_of(PageRequest(request.conn, query=dict(filter)))
        found = list(execute(request.conn, search_runs(wanted, MOST)).runs)
    else:
        found = execute(request.conn, runs_by_id(_checked(ids)))
    if not found:
        raise bad_field("no run is chosen", next="tick some runs of the list")
    return ChosenRuns(request.path["verb"], sorted(found, key=lambda run: run.run_id), text)


def change(request: ActionRequest, ids: Sequence[str]) -> ChangedRuns:
    """Do it to each run, fifty in a transaction."""
    verb, until = _verb(request.path["verb"]), time.monotonic() + _TIME_S
    given = {**given_of(verb, request.fields), "actor": request.actor}
    rest = sorted(set(_checked(ids)))
    done: list[UUID] = []
    already: list[UUID] = []
    refused: list[RefusedRun] = []

    def change_one(run_id: UUID) -> bool:
        """Whether something was done."""
        before = run_sync(request.conn, operations.get(run_id)).status
        if before in verb.already:
            return False
        run_sync(request.conn, perform(verb, run_id, **given))
        return True

    while rest and time.monotonic() < until:
        some, rest = rest[:AT_ONCE], rest[AT_ONCE:]
        for run_id, result in change_many(request.conn, some, change_one):
            if isinstance(result, PgflowdError):
                refused.append(RefusedRun(run_id, result.code, result.text, result.next))
            else:
                (done if result else already).append(run_id)
    return ChangedRuns(request.path["verb"], request.reason, done, already, refused, rest)


def is_confirmed(request: ActionRequest, ids: Sequence[str]) -> bool:
    """Whether somebody is sure; perhaps they have typed how many."""
    if not request.fields.is_set("sure"):
        return False
    is_typed = needs_number(request.path["verb"], len(ids))
    return not is_typed or request.fields.number("count", MOST) == len(ids)


def needs_number(verb: str, runs: int) -> bool:
    """Whether the number of these runs is typed."""
    return _verb(verb).is_danger and runs > ASKED_TWICE


def _verb(path: str) -> Verb[Any]:
    found = {verb.path: verb for verb in MANY_VERBS}
    if path not in found:
        known = f"these can: {', '.join(found)}"
        raise PgflowdError(f"'{path}' cannot be done to many runs", code="E507", next=known)
    return found[path]


def _checked(ids: Sequence[str]) -> list[UUID]:
    if len(ids) > MOST:
        raise bad_field(f"{len(ids)} runs are chosen; {MOST} are the most", next="choose fewer")
    try:
        return [UUID(one) for one in ids]
    except ValueError:
        raise bad_field("what is chosen are not ids of runs") from None


Show = Callable[[Request, str, Any], Awaitable[Response]]  # a template with a document
MAX_FIELDS = 200
_FORM = "application/x-www-form-urlencoded"
_MANY = "/runs/many/{verb}"


class Posts:
    """The routes of all actions. Without a connection that may act, no action is possible."""

    def __init__(
        self, connections: Connections | None, api: str, show: Show, payloads: Payloads
    ) -> None:
        self._connections = connections
        self._payloads = payloads
        self._api = api
        self._show = show

    def routes(self) -> list[Route]:
        one = [(action.path, self._one(action)) for action in ACTIONS]
        return [
            Route(f"{prefix}{path}", answer, methods=["POST"])
            for path, answer in [(_MANY, self._many), *one]
            for prefix in ("", self._api)
        ]

    def _one(self, action: PageAction) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            fields = await self._fields(request)
            if unknown := sorted(fields.values.keys() - action.fields):
                known = ", ".join(sorted(action.fields)) or "none"
                raise bad_field(
                    f"there is no field '{unknown[0]}' here", f"the fields are: {known}"
                )
            done: ActionResult = await self._act(request, fields, action.act)
            if wants_json(request):
                return _document(versioned(done.document))
            return _see(request, done.to)

        return answer

    async def _many(self, request: Request) -> Response:
        """Ask about many runs, or, once somebody is sure, act on them."""
        fields = await self._fields(request, repeated="run")
        ids = _ids(fields)

        def work(asked: ActionRequest) -> ChosenRuns | ChangedRuns:
            if wants_json(request) or is_confirmed(asked, ids):
                return change(asked, ids)
            is_wrong = asked.fields.is_set("sure")
            return choose(asked, ids, "type the number of runs" if is_wrong else "")

        became = await self._act(request, fields, work)
        if wants_json(request):
            assert isinstance(became, ChangedRuns)
            return _document(versioned(became))
        asks = isinstance(became, ChosenRuns)
        return await self._show(
            request, "many_chosen.html" if asks else "many_changed.html", became
        )

    async def _act(
        self, request: Request, fields: Fields, work: Callable[[ActionRequest], Any]
    ) -> Any:
        user = request.state.user
        if not user.may_act or self._connections is None:
            raise _no_right(user.name, is_open=self._connections is not None)
        path, actor = dict(request.path_params), actor_of(user)

        def call(conn: Connection) -> Any:
            return work(ActionRequest(conn, path, fields, actor, self._payloads))

        return await self._connections.call(call)

    async def _fields(self, request: Request, repeated: str = "") -> Fields:
        body = await request.body()
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == answers.JSON:
            return Fields(_object(body), is_json=True)
        if kind not in ("", _FORM) or (body and not kind):
            raise bad_field(f"the type of the body is '{kind}'", f"send {_FORM} or {answers.JSON}")
        return Fields(_form(body, repeated))


def _ids(fields: Fields) -> Sequence[str]:
    """The runs that are chosen: ticked rows, or the list of a page that asks."""
    found = fields.values.get("runs") or fields.values.get("run") or []
    if isinstance(found, str):
        found = found.split(",")
    if not (isinstance(found, list) and all(isinstance(one, str) for one in found)):
        raise bad_field("the field 'runs' must be a list of ids")
    return list(dict.fromkeys(found))


def _object(body: bytes) -> dict[str, Any]:
    value = decoded(body or b"{}", "the body")
    if not isinstance(value, dict):
        raise bad_field("the body must be a JSON object, with the fields as its keys")
    return value


def _form(body: bytes, repeated: str) -> dict[str, Any]:
    """The fields of a form; only one of them may be there more than once."""
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except ValueError as error:  # UnicodeDecodeError, too
        raise bad_field(
            f"the form cannot be read: {error}", f"{MAX_FIELDS} fields at most"
        ) from None
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name == repeated:
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise bad_field(f"the field '{name}' is there twice")
        else:
            fields[name] = value
    return fields


def _no_right(name: str, *, is_open: bool) -> PgflowdError:
    if not is_open:
        remedy = "set operator_url in [web], and start `pgflowd web` without --read-only"
        return AccessDenied("this dashboard changes nothing: it is read-only", next=remedy)
    remedy = "log in as somebody who may act"
    return AccessDenied(f"{name} may look, and change nothing", next=remedy)


def _see(request: Request, path: str) -> Response:
    headers = {"Location": f"{root_of(request)}{path}"}
    return Response(status_code=HTTPStatus.SEE_OTHER, headers=headers)


def _document(document: Any) -> Response:
    return answers.response(json.dumps(document, ensure_ascii=False), answers.JSON)
