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

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pgflowd.errors import PgflowdError, Problem
from pgflowd.web import answers
from pgflowd.web.assets import asset
from pgflowd.web.connections import Connection, Connections
from pgflowd.web.pages import PAGES, Document, Page, PageRequest
from pgflowd.web.rendering import render

API = "/api/1"
_PAGE_CONNECTIONS = 4
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

    def routes(self) -> ASGIApp:
        """The application."""
        pages = [Route(page.path, self._page(page), methods=["GET"]) for page in PAGES]
        api = [Route(_api_path(page), self._json(page), methods=["GET"]) for page in PAGES]
        assets = Route("/assets/{name}", self._asset, methods=["GET"])
        return Starlette(
            routes=[*pages, *api, assets],
            exception_handlers={PgflowdError: self._error, HTTPStatus.NOT_FOUND: self._no_page},
        )

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            html = await self._call(page, request, lambda document: _html(page, request, document))
            return _response(html, _HTML)

        return answer

    def _json(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return _response(await self._call(page, request, _as_json), _JSON)

        return answer

    async def _call(self, page: Page, request: Request, show: Callable[[Document], str]) -> str:
        """Read the document of a page, and show it; both in a thread."""
        path, query = dict(request.path_params), _query_of(page, request)

        def work(conn: Connection) -> str:
            return show(page.read(PageRequest(conn, path, query)))

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
        """An error as the commands print it: a list under `errors`, or a page."""
        assert isinstance(error, PgflowdError)
        status = answers.status_of(error)
        problems = error.problems
        if _wants_json(request):
            document = json.dumps({"errors": [_problem_json(each) for each in problems]})
            return _response(document, _JSON, status)
        html = render("error.html", root=_root(request), status=status, problems=problems).html
        return _response(html, _HTML, status)


def _html(page: Page, request: Request, document: Document) -> str:
    return render(page.template, root=_root(request), doc=document, query=request.query_params).html


def _as_json(document: Document) -> str:
    return json.dumps(document.to_json(), ensure_ascii=False)


def _query_of(page: Page, request: Request) -> dict[str, str]:
    """The parameters of the address; an unknown or repeated one is an error."""
    query = request.query_params
    for name in query:
        if name not in page.parameters:
            known = ", ".join(sorted(page.parameters)) or "no parameters"
            text = f"this page has no parameter '{name}'"
            raise PgflowdError(text, code="E506", next=f"it has {known}")
        if (times := len(query.getlist(name))) > 1:
            raise PgflowdError(f"the parameter '{name}' is given {times} times", code="E506")
    return dict(query)


def _api_path(page: Page) -> str:
    return f"{API}/overview" if page.path == "/" else f"{API}{page.path}"


def _wants_json(request: Request) -> bool:
    return request.url.path.removeprefix(_root(request)).startswith("/api/")


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
