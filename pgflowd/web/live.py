"""
Live updates: the streams of open tabs, and the same by polling for tabs without a stream.

Below `/live` each page has a stream with its fragments, below `/fragments` the fragments that have
changed, as JSON. Streams are limited; who gets none polls. All of them share one watcher.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from pgflowd.core.payloads import Payloads
from pgflowd.web.answers import NOT_KEPT, SECURITY_HEADERS
from pgflowd.web.event_stream import EventStream, PageSource, RunSource, Source
from pgflowd.web.refusals import NotLoggedIn
from pgflowd.web.views import View
from pgflowd.web.watched import Tab, Watched, WatchedPage, WatchedRun
from pgflowd.web.watcher import Open, Watcher

MAX_STREAMS = 500
MAX_OF_SESSION = 16
MAX_SHOWN = 200  # rows that one tab asks for
LATER_S = 10  # after which a refused tab may try again
FIRST_S = 5.0  # the longest wait for the first reading of a page
POLLS_S = 12.0  # a polling tab is there for so long: it comes every 5 s
AFTER, SHOWN, LINES = "live_after", "live_shown", "live_lines"  # parameters of the streams
PARAMETERS = frozenset({AFTER, SHOWN, LINES})


class Live:
    """The streams of one process."""

    def __init__(self, open_reading: Open, open_listening: Open, payloads: Payloads) -> None:
        self._payloads = payloads
        self.watcher = Watcher(open_reading, open_listening)
        self._streams: dict[EventStream, str] = {}
        self._ended: str | None = None

    @property
    def streams(self) -> int:
        """How many are open."""
        return len(self._streams)

    def end_streams(self, reason: str) -> None:
        """End all streams with an event, and open no new ones: the server stops."""
        self._ended = reason
        for stream in list(self._streams):
            stream.end(reason)
        self.watcher.stop()

    def page(self, request: Request, view: View) -> Callable[..., Awaitable[None]]:
        """The stream of a page."""
        if refusal := self._refusal(session_of(request)):
            return refusal
        tab = Tab(_shown(request))
        watched = self._enter(view, tab)
        return self._open(request, self._source(request, tab, watched), watched)

    def run(self, request: Request, run_id: UUID, position: str) -> Callable[..., Awaitable[None]]:
        """The stream of what happens in a run."""
        if refusal := self._refusal(session_of(request)):
            return refusal
        tab = Tab()
        watched = self.watcher.enter(
            ("run", run_id), lambda: WatchedRun(run_id, self._payloads), tab
        )
        return self._open(request, RunSource(tab, watched, position), watched)

    async def poll(self, request: Request, view: View) -> Response:
        """What has changed on a page, for a tab without a stream."""
        if self._ended is not None:
            return _later("the server is about to stop")
        tab = Tab(_shown(request))
        watched = self._enter(view, tab)
        loop = asyncio.get_running_loop()
        loop.call_later(POLLS_S, self.watcher.leave, watched, tab)
        if not watched.was_read:
            try:
                await asyncio.wait_for(tab.news.wait(), FIRST_S)
            except TimeoutError:
                return _later("the page was not read in time")
        source = self._source(request, tab, watched)
        changes = [(each.kind, each.data) for each in source.changes()]
        last = self.watcher.numbers.id(source.number)
        return _answer({"id": last, "now": watched.now, "changes": changes})

    def _source(self, request: Request, tab: Tab, watched: WatchedPage) -> PageSource:
        """What the tab gets, after what it says that it has."""
        query = request.query_params
        after = request.headers.get("last-event-id") or query.get(AFTER, "")
        number = self.watcher.numbers.read(after)
        return PageSource(tab, watched, number, _number(query.get(LINES, "")))

    def _enter(self, view: View, tab: Tab) -> WatchedPage:
        numbers = self.watcher.numbers
        return self.watcher.enter(view, lambda: WatchedPage(view, numbers), tab)

    def _open(self, request: Request, source: Source, watched: Watched) -> EventStream:
        def leave() -> None:
            self._streams.pop(stream, None)
            self.watcher.leave(watched, source.tab)

        async def is_known() -> bool:
            try:
                return await request.state.find_user() is not None
            except NotLoggedIn:
                return False

        stream = EventStream(source, leave, is_known)
        self._streams[stream] = session_of(request)
        return stream

    def _refusal(self, session: str) -> Response | None:
        """The answer to who gets no stream."""
        if self._ended is not None:
            return _later("the server is about to stop")
        if len(self._streams) >= MAX_STREAMS:
            return _later(f"{MAX_STREAMS} streams are open")
        if Counter(self._streams.values())[session] >= MAX_OF_SESSION:
            return _later(f"you have {MAX_OF_SESSION} streams open")
        return None


def session_of(request: Request) -> str:
    """Whose streams are counted together: a user's at an address."""
    user = getattr(request.state, "user", None)
    return f"{user.name if user else ''} {request.client.host if request.client else ''}"


def _shown(request: Request) -> list[str]:
    """The rows that a tab shows: their fragments are sent though the page has them no more."""
    return request.query_params.get(SHOWN, "").split(",")[:MAX_SHOWN]


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _later(text: str) -> Response:
    document = {"errors": [{"code": "E301", "text": text, "next": "try again in a moment"}]}
    return _answer(document, HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": str(LATER_S)})


def _answer(
    document: object,
    status: HTTPStatus = HTTPStatus.OK,
    headers: dict[str, str] | None = None,
) -> Response:
    body = json.dumps(document, ensure_ascii=False).encode()
    headers = {**SECURITY_HEADERS, **NOT_KEPT, **(headers or {})}
    return Response(body, status, headers, media_type="application/json")
