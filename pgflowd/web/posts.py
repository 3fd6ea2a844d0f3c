"""
Receives what people and programs send: reads the form or the JSON, calls the action, and answers.

A page is redirected to the one that shows the result (303). A program below `/api/1` gets the
document that the command prints.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pgflowd.core.documents import versioned
from pgflowd.core.payloads import Payloads
from pgflowd.errors import AccessDenied, PgflowdError
from pgflowd.web import answers, many_runs
from pgflowd.web.actions import (
    ACTIONS,
    ActionRequest,
    ActionResult,
    Connection,
    Fields,
    PageAction,
    bad_field,
    decoded,
)
from pgflowd.web.actors import actor_of
from pgflowd.web.connections import Connections
from pgflowd.web.many_runs import ChangedRuns, ChosenRuns
from pgflowd.web.page_requests import root_of, wants_json

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
            if wants_json(request) or many_runs.is_confirmed(asked, ids):
                return many_runs.change(asked, ids)
            is_wrong = asked.fields.is_set("sure")
            return many_runs.choose(asked, ids, "type the number of runs" if is_wrong else "")

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
