"""
The dashboard as an ASGI application, to be served or mounted.

A page and its twin below `/api/1` read the same document; one answers with HTML, the other with
JSON. Nothing here needs a lifespan, since a mounted application has none.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pgflowd.core.stream_position import is_position
from pgflowd.db.lookup import find_run
from pgflowd.errors import PgflowdError, Problem
from pgflowd.web import answers
from pgflowd.web.assets import asset
from pgflowd.web.connections import Connection, Connections
from pgflowd.web.live import PARAMETERS, Live, session_of
from pgflowd.web.pages import PAGES, Document, Page
from pgflowd.web.rendering import Look, render
from pgflowd.web.views import view_of

API = "/api/1"
_PAGE_CONNECTIONS = 4
_LONGEST_FORM = 4096  # of the one about the look of pages
_YEAR_S = 365 * 86400
_IN_URLS = "/?&=%:;,@!$'()*+~"
_THEMES, _TIMES = ("light", "dark"), ("local",)
_HTML, _JSON = "text/html; charset=utf-8", "application/json"


def app(url: str = "") -> ASGIApp:
    """
    Return the dashboard of a database as an ASGI application.

    `url` is the database's; an empty one means the environment of libpq.
    """
    return Dashboard(url).routes()


class Dashboard:
    """What all requests share."""

    def __init__(self, url: str) -> None:
        self.connections = Connections(url, _PAGE_CONNECTIONS, read_only=True)
        # it follows runs, which writes a row
        listening = Connections(url, 1, read_only=False)
        self.live = Live(self.connections.open, listening.open)

    def routes(self) -> ASGIApp:
        """The application."""
        pages = [Route(page.path, self._page(page), methods=["GET"]) for page in PAGES]
        api = [Route(_api_path(page), self._json(page), methods=["GET"]) for page in PAGES]
        assets = Route("/assets/{name}", self._asset, methods=["GET"])
        live = [Route(f"/live{page.path}", self._stream(page), methods=["GET"]) for page in PAGES]
        live += [
            Route(f"/fragments{page.path}", self._poll(page), methods=["GET"]) for page in PAGES
        ]
        live += [Route(f"{API}/runs/{{run}}/events", self._run_events, methods=["GET"])]
        return Starlette(
            routes=[
                *live,
                *pages,
                *api,
                assets,
                Route("/appearance", self._appearance, methods=["POST"]),
            ],
            exception_handlers={PgflowdError: self._error, HTTPStatus.NOT_FOUND: self._no_page},
        )

    def end_streams(self, reason: str) -> None:
        """End all event streams, which a server waits for when it stops."""
        self.live.end_streams(reason)

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            view, look, back = view_of(page, request), _look(request), _back(request)

            def work(conn: Connection) -> str:
                return view.render(conn, view.read(conn), look=look, back=back).html

            return _response(await self.connections.call(work), _HTML)

        return answer

    def _json(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            view = view_of(page, request)
            return _response(
                await self.connections.call(lambda conn: _as_json(view.read(conn))), _JSON
            )

        return answer

    def _stream(self, page: Page) -> Callable[[Request], Awaitable[Any]]:
        async def answer(request: Request) -> Any:
            view = view_of(page, request, PARAMETERS)
            return self.live.page(request, view, session_of(request))

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
        run = request.path_params["run"]
        run_id = await self.connections.call(lambda conn: find_run(conn, run))
        return self.live.run(run_id, position, session_of(request))

    async def _appearance(self, request: Request) -> Response:
        """Remember how somebody wants pages to look, and return to the page."""
        fields = dict(
            parse_qsl((await request.body()).decode("utf-8", "replace"), max_num_fields=9)
        )
        back = fields.get("back", "/")
        is_ours = back.startswith("/") and not back.startswith(("//", "/\\"))
        answer = _response("", _HTML, HTTPStatus.SEE_OTHER)
        answer.headers["Location"] = _root(request) + quote(back if is_ours else "/", safe=_IN_URLS)
        for name in ("theme", "times"):
            answer.set_cookie(
                name, fields.get(name, "")[:10], _YEAR_S, path=_root(request) or "/",
                httponly=True, samesite="strict",
            )  # fmt: skip
        return answer

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
        """An error as the commands print it: a list under `errors`, or a page."""
        assert isinstance(error, PgflowdError)
        status = answers.status_of(error)
        problems = error.problems
        if _wants_json(request):
            document = json.dumps({"errors": [_problem_json(each) for each in problems]})
            return _response(document, _JSON, status)
        html = render(
            "error.html", root=_root(request), status=status, problems=problems,
            look=_look(request), back=_back(request), command=["pgflowd", "doctor"],
        ).html  # fmt: skip
        return _response(html, _HTML, status)


def _as_json(document: Document) -> str:
    return json.dumps(document.to_json(), ensure_ascii=False)


def _look(request: Request) -> Look:
    theme, times = request.cookies.get("theme", ""), request.cookies.get("times", "")
    return Look(theme if theme in _THEMES else "", times if times in _TIMES else "")


def _back(request: Request) -> str:
    """The address of this page below the dashboard's, with its parameters."""
    path = request.url.path.removeprefix(_root(request)) or "/"
    return f"{path}?{request.url.query}" if request.url.query else path


def _api_path(page: Page) -> str:
    return f"{API}/overview" if page.path == "/" else f"{API}{page.path}"


def _wants_json(request: Request) -> bool:
    path = request.url.path.removeprefix(_root(request))
    return path.startswith(("/api/", "/live/", "/fragments/"))


def _root(request: Request) -> str:
    """The path below which the dashboard is mounted."""
    return str(request.scope.get("root_path", ""))


def _problem_json(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code, "place": problem.place, "text": problem.text, "next": problem.next,
    }  # fmt: skip


def _response(body: str, type: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    headers = {**answers.SECURITY_HEADERS, **answers.NOT_KEPT}
    return Response(body.encode(), status, headers, media_type=type)
