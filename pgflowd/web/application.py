"""
The dashboard as an ASGI application, to be served or mounted; `guard` stands around it.

A page and its twin below `/api/1` read the same document; one answers with HTML, the other with
JSON. A form is answered with a redirection to the page that shows the result, a program with the
document that the command prints. Nothing here needs a lifespan, since a mounted application has
none. What is raised becomes an answer in `guard`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from pgflowd.core.documents import versioned
from pgflowd.core.payloads import Payloads
from pgflowd.core.redact import one_line
from pgflowd.core.timeline import is_position
from pgflowd.db import schema
from pgflowd.db.client_connections import IdleConnections
from pgflowd.db.connection import Limits, connect, is_pooled
from pgflowd.db.operations import get
from pgflowd.db.performing import run_sync
from pgflowd.db.run_details import find_run
from pgflowd.errors import AccessDenied, DatabaseError, PgflowdError, Unreachable
from pgflowd.web import actions, rendering
from pgflowd.web.auth import own_path, see_other
from pgflowd.web.event_stream import PARAMETERS, Live
from pgflowd.web.guard import JSON, KEPT_FOR_EVER, as_json, download
from pgflowd.web.pages import PAGES, Page, PageRequest
from pgflowd.web.pages.page import Connection, read_frame
from pgflowd.web.pages.runs import whole_value
from pgflowd.web.rendering import View, back_of, look_of, render, root_of, view_of, wants_json
from pgflowd.web.request_checks import actor_of, read_form, type_of

API = "/api/1"
_PAGE_CONNECTIONS = 4
_ACTION_CONNECTIONS = 2
_YEAR_S = 365 * 86400
_IN_URLS = "/?&=%:;,@!$'()*+~\\"  # a backslash stays for `own_path`, which refuses it at the start


class Dashboard:
    """What all requests share."""

    def __init__(
        self, url: str, *, operator_url: str, payloads: str, redact: Iterable[str]
    ) -> None:
        self._payloads = Payloads(payloads, frozenset(key.lower() for key in redact))
        self.connections = Connections(url, _PAGE_CONNECTIONS, read_only=True)
        self.operators: Connections | None = None  # nobody can act without them
        if operator_url:
            self.operators = Connections(operator_url, _ACTION_CONNECTIONS, read_only=False)
        # it follows runs, which writes a row
        listening = Connections(url, 1, read_only=False)
        self.live = Live(self.connections.open, listening.open, self._payloads)

    def routes(self) -> Router:
        """The application."""
        routes = [Route(f"{API}/runs/{{run}}/events", self._run_events)]
        for page in PAGES:
            api = f"{API}/overview" if page.path == "/" else f"{API}{page.path}"
            routes += [
                Route(f"/live{page.path}", partial(self._stream, page)),
                Route(f"/fragments{page.path}", partial(self._poll, page)),
                Route(page.path, partial(self._page, page)),
                Route(api, partial(self._json, page)),
            ]
        for prefix in ("", API):
            routes.append(Route(f"{prefix}/runs/many/{{verb}}", self._many, methods=["POST"]))
            for each in actions.ACTIONS:
                act = partial(self._act, each)
                routes.append(Route(f"{prefix}{each.path}", act, methods=["POST"]))
        routes += [
            Route("/assets/{name}", self._asset),
            Route("/download/{run}", self._download),
            Route("/appearance", self._appearance, methods=["POST"]),
        ]
        # it would make an address with another slash out of `Host`
        return Router(routes, redirect_slashes=False, default=_no_page)

    def end(self) -> None:
        """Give up what is open, before the process ends; browsers come back."""
        self.live.end_streams("reconnect")
        for connections in (self.connections, self.operators):
            if connections is not None:
                connections.close()

    async def _page(self, page: Page, request: Request) -> Response:
        view, look, back = self._view(page, request), look_of(request), back_of(request)

        def work(conn: Connection) -> str:
            document, leaver = view.read(conn), rendering.leaver_of(request)
            return view.render(conn, document, look=look, back=back, leaver=leaver).html

        return HTMLResponse(await self._call(view, work))

    async def _json(self, page: Page, request: Request) -> Response:
        view = self._view(page, request)
        return as_json(await self._call(view, lambda conn: versioned(view.read(conn))))

    async def _stream(self, page: Page, request: Request) -> Any:
        return self.live.page(request, self._view(page, request, PARAMETERS))

    async def _poll(self, page: Page, request: Request) -> Response:
        return await self.live.poll(request, self._view(page, request, PARAMETERS))

    def _view(self, page: Page, request: Request, others: Collection[str] = ()) -> View:
        return view_of(page, request, self._payloads, others)

    async def _call(self, view: View, work: Callable[[Any], Any]) -> Any:
        """Call it with a connection; for a page that needs none also without."""
        try:
            return await self.connections.call(work)
        except DatabaseError:
            if view.page.needs_database:
                raise
            return await asyncio.to_thread(work, None)

    async def _run_events(self, request: Request) -> Any:
        """What happens in a run, as `runs follow --json` prints it."""
        position = request.headers.get("last-event-id") or request.query_params.get("after", "")
        if not is_position(position):
            text = "this is no id of an event"
            raise PgflowdError(text, code="E506", next="send the id of the last event, or none")
        words = request.path_params["run"]
        run = await self.connections.call(lambda conn: run_sync(conn, get(find_run(conn, words))))
        return self.live.run(request, run.run_id, position)

    async def _act(self, action: actions.PageAction, request: Request) -> Response:
        """Do what a form or a program asks for."""
        fields = await _fields(request)
        if unknown := sorted(fields.values.keys() - action.fields):
            known = f"the fields are: {', '.join(sorted(action.fields)) or 'none'}"
            raise actions.bad_field(f"there is no field '{unknown[0]}' here", known)
        done = await self._call_operator(request, fields, action.act)
        if wants_json(request):
            return as_json(versioned(done.document))
        return see_other(request.scope, done.to)

    async def _many(self, request: Request) -> Response:
        """Do it to many runs, or answer with a page that asks."""
        fields, at_once = await _fields(request, repeated="run"), wants_json(request)
        act = partial(actions.do_to_many, at_once=at_once)
        became = await self._call_operator(request, fields, act)
        if at_once:
            return as_json(versioned(became))
        template = f"many_{'chosen' if isinstance(became, actions.ChosenRuns) else 'changed'}.html"

        def work(conn: Connection) -> str:
            return render(
                template, root=root_of(request), doc=became, frame=read_frame(conn), query={},
                look=look_of(request), back=back_of(request),
            ).html  # fmt: skip

        return HTMLResponse(await self.connections.call(work))

    async def _call_operator(
        self, request: Request, fields: actions.Fields, act: Callable[[actions.ActionRequest], Any]
    ) -> Any:
        user, path = request.state.user, dict(request.path_params)
        if self.operators is None:
            remedy = "set operator_url in [web], and start `pgflowd web` without --read-only"
            raise AccessDenied("this dashboard changes nothing: it is read-only", next=remedy)
        if not user.may_act:
            remedy = "log in as somebody who may act"
            raise AccessDenied(f"{user.name} may look, and change nothing", next=remedy)

        asked = partial(
            actions.ActionRequest, path=path, fields=fields, actor=actor_of(user),
            payloads=self._payloads,
        )  # fmt: skip
        return await self.operators.call(lambda conn: act(asked(conn)))

    async def _appearance(self, request: Request) -> Response:
        """Remember how somebody wants pages to look, and return to the page."""
        fields = dict(await read_form(request))
        answer = see_other(request.scope, own_path(quote(fields.get("back", "/"), safe=_IN_URLS)))
        for name, known in (("theme", rendering.THEMES), ("times", rendering.TIMES)):
            word = fields.get(name, "")
            answer.set_cookie(
                name, word if word in known else "", _YEAR_S, path=root_of(request) or "/",
                httponly=True, samesite="strict",
            )  # fmt: skip
        return answer

    async def _download(self, request: Request) -> Response:
        """An input or output as it is, to be kept as a file."""
        words, query = dict(request.path_params), dict(request.query_params)

        def work(conn: Connection) -> Response:
            name, value = whole_value(PageRequest(conn, words, query))
            return download(self._payloads.show(value), name)

        return await self.connections.call(work)

    async def _asset(self, request: Request) -> Response:
        found = rendering.BY_ADDRESS.get(f"assets/{request.path_params['name']}")
        if found is None:
            raise PgflowdError(f"there is no file {request.path_params['name']}", code="E507")
        return Response(found.body, headers=KEPT_FOR_EVER, media_type=found.type)


async def _no_page(scope: Scope, receive: Receive, send: Send) -> None:
    raise PgflowdError(f"there is no page {scope['path']}", code="E507")


async def _fields(request: Request, repeated: str = "") -> actions.Fields:
    """The fields of a JSON object, or of a form; only one may be there more than once."""
    if type_of(request) == JSON:
        values = actions.decoded(await request.body() or b"{}", "the body")
        if not isinstance(values, dict):
            raise actions.bad_field("the body must be a JSON object, with the fields as its keys")
        return actions.Fields(values, is_json=True)
    fields: dict[str, Any] = {}
    for name, value in await read_form(request):
        if name == repeated:
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise actions.bad_field(f"the field '{name}' is there twice")
        else:
            fields[name] = value
    return actions.Fields(fields)


# The few connections that requests share, each used by one of them at a time. Requests are answered
# by asyncio, and the database is read in threads, by the functions that the commands call too.
T = TypeVar("T")
STATEMENT_S = 2.0  # no page needs longer; a database that does is too busy for pages
FREE_S = 2.0  # so long a request waits for a connection
_LIMITS = Limits(connect_s=5.0, statement_s=STATEMENT_S, lock_s=1.0)
NAME = "pgflowd web"


_IN_THE_WAY = (
    psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected,
)  # fmt: skip


class Connections:
    """At most `most` connections to one database, opened when they are needed."""

    def __init__(self, url: str, most: int, *, read_only: bool) -> None:
        self._url = url
        self._is_read_only = read_only
        self._places = asyncio.Semaphore(most)
        self._idle: IdleConnections[Connection] = IdleConnections()

    async def call(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` returns; it is called with a connection, in a thread."""
        try:
            await asyncio.wait_for(self._places.acquire(), FREE_S)
        except TimeoutError:
            text = f"no connection to the database was free for {FREE_S:g} seconds"
            raise Unreachable(text, next="try again in a moment") from None
        try:
            return await asyncio.to_thread(self._work, work)
        except _IN_THE_WAY as error:
            text = f"the database did not answer in time: {one_line(str(error), 200)}"
            next = "try again in a moment; `pgflowd doctor database` names old transactions"
            raise Unreachable(text, next=next) from None
        finally:
            self._places.release()

    def _work(self, work: Callable[[Connection], T]) -> T:
        conn = self._idle.take() or self.open()
        try:
            return work(conn)
        finally:
            if not (conn.autocommit and self._idle.keep(conn)):
                conn.pgconn.finish()

    def open(self) -> Connection:
        """Open a connection; the caller closes it. E302 or E303 for another schema than ours."""
        conn = connect(self._url, name=NAME, limits=_LIMITS)
        try:
            with suppress(AccessDenied):  # of a role that may not see which it is
                schema.require(conn)
        except BaseException:
            conn.pgconn.finish()
            raise
        if self._is_read_only and not is_pooled(conn):  # a pooler would pass it on to others
            conn.execute("set default_transaction_read_only = on")
        return conn

    def close(self) -> None:
        """Close those that nobody uses."""
        self._idle.closed = True
        while conn := self._idle.take():
            conn.pgconn.finish()
