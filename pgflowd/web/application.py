"""
The dashboard as an ASGI application, to be served or mounted.

A page and its twin below `/api/1` read the same document; one answers with HTML, the other with
JSON. Nothing here needs a lifespan, since a mounted application has none.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote
from uuid import UUID

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pgflowd.core.documents import versioned
from pgflowd.core.payloads import Payloads
from pgflowd.core.timeline import is_position
from pgflowd.db.operations import get
from pgflowd.db.performing import run_sync
from pgflowd.db.run_search import find_run
from pgflowd.errors import DatabaseError, PgflowdError
from pgflowd.web import answers
from pgflowd.web.answers import THEMES, TIMES, back_of, leaver_of, look_of, root_of
from pgflowd.web.assets import asset
from pgflowd.web.connections import Connection, Connections
from pgflowd.web.event_stream import PARAMETERS, Live
from pgflowd.web.pages import PAGES, Page, PageRequest
from pgflowd.web.pages.page import read_frame
from pgflowd.web.pages.runs import whole_value
from pgflowd.web.posts import Posts
from pgflowd.web.rendering import render
from pgflowd.web.views import View, view_of

API = "/api/1"
_PAGE_CONNECTIONS = 4
_ACTION_CONNECTIONS = 2
_LONGEST_FORM = 4096  # of the one about the look of pages
_YEAR_S = 365 * 86400
_IN_URLS = "/?&=%:;,@!$'()*+~"


class Dashboard:
    """What all requests share."""

    def __init__(self, url: str, *, operator_url: str = "", payloads: Payloads) -> None:
        self._payloads = payloads
        self.connections = Connections(url, _PAGE_CONNECTIONS, read_only=True)
        self.operators: Connections | None = None  # nobody can act without them
        if operator_url:
            self.operators = Connections(operator_url, _ACTION_CONNECTIONS, read_only=False)
        # it follows runs, which writes a row
        listening = Connections(url, 1, read_only=False)
        self.live = Live(self.connections.open, listening.open, payloads)

    def routes(self) -> ASGIApp:
        """The application."""
        pages = [Route(page.path, self._page(page), methods=["GET"]) for page in PAGES]
        api = [Route(_api_path(page), self._json(page), methods=["GET"]) for page in PAGES]
        assets = Route("/assets/{name}", self._asset, methods=["GET"])
        live = [Route(f"/live{page.path}", self._stream(page), methods=["GET"]) for page in PAGES]
        live += [
            Route(f"/fragments{page.path}", self._poll(page), methods=["GET"]) for page in PAGES
        ]
        downloads = Route("/download/{run}", self._download, methods=["GET"])
        live += [Route(f"{API}/runs/{{run}}/events", self._run_events, methods=["GET"])]
        posts = Posts(self.operators, API, self._show, self._payloads)
        application = Starlette(
            routes=[
                *live,
                *posts.routes(),
                *pages,
                *api,
                assets,
                downloads,
                Route("/appearance", self._appearance, methods=["POST"]),
            ],
            exception_handlers={
                PgflowdError: self._error,
                HTTPStatus.NOT_FOUND: self._no_page,
                Exception: self._bug,
            },
        )
        application.router.redirect_slashes = False  # it would make an address out of `Host`
        application.state.payloads = self._payloads
        return application

    def end_streams(self, reason: str) -> None:
        """End all event streams, which a server waits for when it stops."""
        self.live.end_streams(reason)

    def end(self) -> None:
        """Give up what is open, before the process ends; browsers come back."""
        self.end_streams("reconnect")
        for connections in (self.connections, self.operators):
            if connections is not None:
                connections.close()

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            view, look, back = view_of(page, request), look_of(request), back_of(request)
            leaver = leaver_of(request)

            def work(conn: Connection) -> str:
                document = view.read(conn)
                return view.render(conn, document, look=look, back=back, leaver=leaver).html

            return answers.response(await self._call(view, work), answers.HTML)

        return answer

    def _json(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            view = view_of(page, request)
            document = await self._call(view, lambda conn: _as_json(view.read(conn)))
            return answers.response(document, answers.JSON)

        return answer

    async def _call(self, view: View, work: Callable[[Any], str]) -> str:
        """Call it with a connection; for a page that needs none also without."""
        try:
            return await self.connections.call(work)
        except DatabaseError:
            if view.page.needs_database:
                raise
            return await asyncio.to_thread(work, None)

    async def _show(self, request: Request, template: str, document: Any) -> Response:
        """A page that is the answer to a form."""
        look, back = look_of(request), back_of(request)

        def work(conn: Connection) -> str:
            return render(
                template, root=root_of(request), doc=document, frame=read_frame(conn),
                query={}, look=look, back=back,
            ).html  # fmt: skip

        return answers.response(await self.connections.call(work), answers.HTML)

    def _stream(self, page: Page) -> Callable[[Request], Awaitable[Any]]:
        async def answer(request: Request) -> Any:
            view = view_of(page, request, PARAMETERS)
            return self.live.page(request, view)

        return answer

    def _poll(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await self.live.poll(request, view_of(page, request, PARAMETERS))

        return answer

    async def _run_events(self, request: Request) -> Any:
        """What happens in a run, as `runs follow --json` prints it."""
        position = request.headers.get("last-event-id") or request.query_params.get("after", "")
        if not is_position(position):
            text = "this is no id of an event"
            raise PgflowdError(text, code="E506", next="send the id of the last event, or none")
        words = request.path_params["run"]

        def work(conn: Connection) -> UUID:
            return run_sync(conn, get(find_run(conn, words))).run_id

        run_id = await self.connections.call(work)
        return self.live.run(request, run_id, position)

    async def _appearance(self, request: Request) -> Response:
        """Remember how somebody wants pages to look, and return to the page."""
        body = (await request.body())[:_LONGEST_FORM].decode("utf-8", "replace")
        fields = dict(parse_qsl(body))
        back = fields.get("back", "/")
        is_ours = back.startswith("/") and not back.startswith(("//", "/\\"))
        answer = answers.response("", answers.HTML, HTTPStatus.SEE_OTHER)
        path = quote(back if is_ours else "/", safe=_IN_URLS)
        answer.headers["Location"] = root_of(request) + path
        for name, known in (("theme", THEMES), ("times", TIMES)):
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
            shown = self._payloads.show(value)
            return answers.download(json.dumps(shown, ensure_ascii=False), name)

        return await self.connections.call(work)

    async def _asset(self, request: Request) -> Response:
        found = asset(request.path_params["name"])
        if found is None:
            raise PgflowdError(f"there is no file {request.path_params['name']}", code="E507")
        return Response(found.body, headers=answers.KEPT_FOR_EVER, media_type=found.type)

    async def _no_page(self, request: Request, error: Exception) -> Response:
        return await self._error(
            request, PgflowdError(f"there is no page {request.url.path}", code="E507")
        )

    async def _error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, PgflowdError)
        return answers.error_response(request.scope, error)

    async def _bug(self, request: Request, error: Exception) -> Response:
        """A page with a number; Starlette raises the error again, and `guard` logs it."""
        request.state.number = secrets.token_hex(4)
        return answers.error_response(request.scope, answers.bug(request.state.number))


def _as_json(document: Any) -> str:
    return json.dumps(versioned(document), ensure_ascii=False)


def _api_path(page: Page) -> str:
    return f"{API}/overview" if page.path == "/" else f"{API}{page.path}"
