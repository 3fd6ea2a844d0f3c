"""
An event stream: one open tab, or a program that follows a run.

A stream sends what is new, then waits a moment; it has no queue. A tab that takes nothing for 20
seconds loses its stream.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Protocol
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from pgflowd.core.documents import versioned
from pgflowd.core.payloads import Payloads
from pgflowd.core.redact import one_line
from pgflowd.core.text import counted
from pgflowd.core.timeline import mark, sent_before, unsent
from pgflowd.web.answers import NOT_KEPT, SECURITY_HEADERS
from pgflowd.web.fragments import FRAGMENT, HEADERS, Change, Line, event
from pgflowd.web.request_checks import NotLoggedIn
from pgflowd.web.views import View
from pgflowd.web.watcher import Open, Tab, Watched, WatchedPage, WatchedRun, Watcher

HEARTBEAT_S = 15.0
SEND_S = 20.0
LASTS_S = 3600.0  # then a browser connects again, and who it is is asked again
PAUSE_S = 0.25  # between two messages
MAX_PART = 200  # events of a run in one message
LAST_LINES_S = 0.3  # after the end of a run, lines of its handlers may still be on their way


class Source(Protocol):
    """What one tab gets: it knows what the tab has."""

    tab: Tab

    @property
    def watched(self) -> Watched: ...

    def take(self) -> tuple[bytes, str | None]:
        """What is new, as events; and why the stream ends, if it does."""
        ...


class PageSource:
    """The fragments and lines of a page, for one tab."""

    def __init__(self, tab: Tab, watched: WatchedPage, number: int, line: int | None) -> None:
        self.tab, self.watched = tab, watched
        self.number = number
        self._line = watched.lines.last if watched.lines and line is None else line or 0

    def take(self) -> tuple[bytes, str | None]:
        changes = self.changes()
        return b"".join([*(change.event for change in changes), *self._lines()]), None

    def changes(self) -> list[Change]:
        """What has changed of what the tab shows, and of what it would show if it was new."""
        shown = self.watched.in_page | self.tab.shown
        found = self.watched.fragments.after(self.number)
        self.number = found[-1].number if found else self.number
        return [each for each in found if each.kind != FRAGMENT or each.id in shown]

    def _lines(self) -> list[bytes]:
        lines = self.watched.lines
        if lines is None:
            return []
        missed, found = lines.after(self._line)
        parts = []
        if missed is None or missed:
            text = f"… {counted(missed, 'line') if missed else 'lines'} not shown"
            parts.append(event("line", f"{lines.last}\n{json.dumps({'text': text})}"))
        parts += [event("line", f"{line.number}\n{_shown(line)}") for line in found]
        self._line = lines.last if not found else found[-1].number
        return parts


def _shown(line: Line) -> str:
    """A line as the page shows it."""
    document = versioned(line.entry)
    names = ("at", "step", "task", "attempt", "stream", "level")
    text = one_line(str(document["text"] or ""))
    return json.dumps({**{name: document[name] for name in names}, "text": text})


class RunSource:
    """The events of a run, for one who follows it: the documents of `runs follow --json`."""

    def __init__(self, tab: Tab, watched: WatchedRun, position: str) -> None:
        self.tab, self.watched = tab, watched
        self._position: str | None = position
        self._sent: set[str] = set()
        self._line = watched.lines.last
        self._may_end_at: float | None = None  # when no more lines are expected

    def take(self) -> tuple[bytes, str | None]:
        if self.watched.is_gone or self.watched.run is None:  # or it was not read yet
            return b"", "finished" if self.watched.is_gone else None
        timeline, has_ended = self.watched.timeline, self._has_ended(self.watched.run.has_ended)
        marks = [mark(entry) for entry in timeline]
        if self._position is not None:
            self._sent = sent_before(self._position, marks)
            self._position = None
        parts = self._lines()
        for entry, position in unsent(timeline, marks, self._sent):
            if entry is timeline[-1] and entry.is_end and not has_ended:
                break
            parts.append(event("", _json(versioned(entry)), position))
            if len(parts) >= MAX_PART:
                self._sent.add(mark(entry))
                self.tab.news.set()  # there is more
                return b"".join(parts), None
        return b"".join(parts), "finished" if has_ended else None

    def _has_ended(self, is_over: bool) -> bool:
        """Whether the run has ended, and the last lines of its handlers have come."""
        now = time.monotonic()
        if not is_over:
            self._may_end_at = None
            return False
        if self._may_end_at is None:
            self._may_end_at = now + LAST_LINES_S
        if now < self._may_end_at:
            asyncio.get_running_loop().call_later(self._may_end_at - now, self.tab.news.set)
        return now >= self._may_end_at

    def _lines(self) -> list[bytes]:
        lines = self.watched.lines
        missed, found = lines.after(self._line)
        self._line = lines.last if not found else found[-1].number
        parts = [event("", _json(versioned(line.entry))) for line in found]
        return [event("missed", str(missed)), *parts] if missed else parts


def _json(document: object) -> str:
    return json.dumps(document, ensure_ascii=False)


class EventStream:
    """An ASGI answer that lasts."""

    def __init__(
        self, source: Source, leave: Callable[[], None], is_known: Callable[[], Awaitable[bool]]
    ) -> None:
        self._source, self._leave, self._is_known = source, leave, is_known
        self._end: str | None = None
        self._is_gone = False

    def end(self, reason: str) -> None:
        """End it soon, with a last event."""
        self._end = self._end or reason
        self._source.tab.wake()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        waits = asyncio.create_task(self._wait_for_end(receive))
        try:
            await send(_START)
            await self._send_all(send)
        except (TimeoutError, OSError):  # it takes nothing, or is gone
            pass
        finally:
            waits.cancel()
            self._leave()

    async def _wait_for_end(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        self._source.tab.news.set()

    async def _still_known(self) -> str | None:
        """Why the stream ends if its user has logged out, or may see nothing any more."""
        return None if await self._is_known() else "login"

    async def _send_all(self, send: Send) -> None:
        ends_at, beat_at = time.monotonic() + LASTS_S, 0.0
        news = self._source.tab.news
        while not self._is_gone:
            news.clear()
            data, end = self._source.take()
            now = time.monotonic()
            end = end or self._end or ("reconnect" if now >= ends_at else None)
            if now >= beat_at:
                beat_at = now + HEARTBEAT_S
                end = end or await self._still_known()
                data = event("heartbeat", self._source.watched.now) + data
            if end is not None:
                data += event("end", end)
            if data:
                await asyncio.wait_for(send(_body(data, more=end is None)), SEND_S)
            if end is not None:
                return
            if data:
                await asyncio.sleep(PAUSE_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), min(beat_at, ends_at) - time.monotonic())


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


_START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (name.lower().encode(), value.encode())
        for name, value in {**SECURITY_HEADERS, **HEADERS}.items()
    ],
}


# Live updates: the streams of open tabs, and the same by polling for tabs without a stream.
#
# Below `/live` each page has a stream with its fragments, below `/fragments` the fragments that
# have changed, as JSON. Streams are limited; who gets none polls. All of them share one watcher.
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
        tab = Tab(_shown_rows(request))
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
        tab = Tab(_shown_rows(request))
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


def _shown_rows(request: Request) -> list[str]:
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
