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
from pgflowd.web.event_stream import EventStream, PageSource, RunSource, Source, server_time
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

    def page(self, request: Request, view: View, session: str) -> Callable[..., Awaitable[None]]:
        """The stream of a page."""
        if refusal := self._refusal(session):
            return refusal
        tab = Tab(_shown(request))
        watched = self._enter(view, tab)
        after = request.headers.get("last-event-id") or request.query_params.get(AFTER, "")
        line = _number(request.query_params.get(LINES, ""))
        number = self.watcher.numbers.read(after)
        return self._open(PageSource(tab, watched, number, line), watched, session)

    def run(self, run_id: UUID, position: str, session: str) -> Callable[..., Awaitable[None]]:
        """The stream of what happens in a run."""
        if refusal := self._refusal(session):
            return refusal
        tab = Tab()
        watched = self.watcher.enter(
            ("run", run_id), lambda: WatchedRun(run_id, self._payloads), tab
        )
        return self._open(RunSource(tab, watched, position), watched, session)

    async def poll(self, request: Request, view: View) -> Response:
        """What has changed on a page, for a tab without a stream."""
        tab = Tab(_shown(request))
        watched = self._enter(view, tab)
        loop = asyncio.get_running_loop()
        loop.call_later(POLLS_S, self.watcher.leave, watched, tab)
        if not watched.was_read:
            try:
                await asyncio.wait_for(tab.news.wait(), FIRST_S)
            except TimeoutError:
                return _later("the page was not read in time")
        numbers = self.watcher.numbers
        number = numbers.read(request.query_params.get(AFTER, ""))
        shown = watched.in_page | tab.shown
        changes = [
            each for each in watched.fragments.after(number) if not each.id or each.id in shown
        ]
        last = numbers.id(changes[-1].number if changes else number)
        document = {
            "id": last,
            "now": server_time(),
            "changes": [(each.kind, each.data) for each in changes],
        }
        return _answer(document)

    def _enter(self, view: View, tab: Tab) -> WatchedPage:
        numbers = self.watcher.numbers
        return self.watcher.enter(view, lambda: WatchedPage(view, numbers), tab)

    def _open(self, source: Source, watched: Watched, session: str) -> EventStream:
        def leave() -> None:
            self._streams.pop(stream, None)
            self.watcher.leave(watched, source.tab)

        stream = EventStream(source, leave)
        self._streams[stream] = session
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
