"""
Live updates: an event stream for each open tab, or for a program that follows a run, and the same
by polling for tabs without a stream.

Below `/live` each page has a stream with its fragments, below `/fragments` the fragments that have
changed, as JSON. Streams are limited; who gets none polls. All of them share one watcher. A stream
sends what is new, then waits a moment; it has no queue. A tab that takes nothing for 20 seconds
loses its stream.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pgflowd.core.documents import versioned
from pgflowd.core.payloads import Payloads
from pgflowd.core.redact import one_line
from pgflowd.core.text import counted
from pgflowd.core.timeline import mark, sent_before, unsent
from pgflowd.web.guard import as_json, error_response
from pgflowd.web.rendering import View
from pgflowd.web.request_checks import NotLoggedIn, Refused
from pgflowd.web.watcher import FRAGMENT, Change, Open, Tab, WatchedPage, WatchedRun, Watcher, event

HEARTBEAT_S = 15.0
SEND_S = 20.0
LASTS_S = 3600.0  # then a browser connects again, and who it is is asked again
PAUSE_S = 0.25  # between two messages
MAX_PART = 200  # events of a run in one message
LAST_LINES_S = 0.3  # after the end of a run, lines of its handlers may still be on their way
MAX_STREAMS = 500
MAX_OF_SESSION = 16
MAX_SHOWN = 200  # rows that one tab asks for
LATER_S = 10  # after which a refused tab may try again
FIRST_S = 5.0  # the longest wait for the first reading of a page
POLLS_S = 12.0  # a polling tab is there for so long: it comes every 5 s
AFTER, SHOWN, LINES = "live_after", "live_shown", "live_lines"  # parameters of the streams
PARAMETERS = frozenset({AFTER, SHOWN, LINES})


class EventStream(Tab):
    """A tab with a stream: an ASGI answer that lasts."""

    _end: str | None = None
    _is_gone = False
    leave: Callable[[], None]  # is called at its end
    is_known: Callable[[], Awaitable[bool]]  # whether its user may still see it

    def end(self, reason: str) -> None:
        """End it soon, with a last event."""
        self._end = self._end or reason
        self.wake()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def wait_for_end() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._is_gone = True
            self.news.set()

        waits = asyncio.create_task(wait_for_end())
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send_all(send)
        except (TimeoutError, OSError):  # it takes nothing, or is gone
            pass
        finally:
            waits.cancel()
            self.leave()

    async def _send_all(self, send: Send) -> None:
        ends_at, beat_at = time.monotonic() + LASTS_S, 0.0
        while not self._is_gone:
            self.news.clear()
            data, end = self.take()
            now = time.monotonic()
            end = end or self._end or ("reconnect" if now >= ends_at else None)
            if now >= beat_at:
                beat_at = now + HEARTBEAT_S
                if end is None and not await self.is_known():
                    end = "login"  # its user has logged out, or may see nothing any more
                data = event("heartbeat", self.watched.now) + data
            if end is not None:
                data += event("end", end)
            if data:
                body = {"type": "http.response.body", "body": data, "more_body": end is None}
                await asyncio.wait_for(send(body), SEND_S)
            if end is not None:
                return
            if data:
                await asyncio.sleep(PAUSE_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.news.wait(), min(beat_at, ends_at) - time.monotonic())


class PageTab(EventStream):
    """Gets the fragments and lines of a page."""

    watched: WatchedPage

    def __init__(self, request: Request, number: int) -> None:
        """`number`: of the last change that it has."""
        query = request.query_params
        # the fragments of these rows are sent though the page has them no more
        super().__init__(query.get(SHOWN, "").split(",")[:MAX_SHOWN])
        line = query.get(LINES, "")
        is_number = line.isascii() and line.isdigit() and len(line) <= 18
        self.line = int(line) if is_number else None
        self.number = number

    def take(self) -> tuple[bytes, str | None]:
        parts = [change.event for change in self.changes()]
        missed, found = self.lines()
        if missed != 0:
            text = f"… {counted(missed, 'line') if missed else 'lines'} not shown"
            parts.append(event("line", f"{self.line}\n{json.dumps({'text': text})}"))
        for line in found:  # as the page shows it
            document = versioned(line.entry)
            names = ("at", "step", "task", "attempt", "stream", "level")
            shown = {name: document[name] for name in names}
            shown["text"] = one_line(str(document["text"] or ""))
            parts.append(event("line", f"{line.number}\n{json.dumps(shown)}"))
        return b"".join(parts), None

    def changes(self) -> list[Change]:
        """What has changed of what the tab shows, and of what it would show if it was new."""
        shown = self.watched.in_page | self.shown
        found = self.watched.fragments.after(self.number)
        self.number = found[-1].number if found else self.number
        return [each for each in found if each.kind != FRAGMENT or each.id in shown]


class RunTab(EventStream):
    """Gets the events of a run: the documents of `runs follow --json`."""

    watched: WatchedRun

    def __init__(self, position: str) -> None:
        super().__init__()
        self._position: str | None = position
        self._sent: set[str] = set()
        self._may_end_at: float | None = None  # when no more lines are expected

    def take(self) -> tuple[bytes, str | None]:
        if self.watched.is_gone or self.watched.run is None:  # or it was not read yet
            return b"", "finished" if self.watched.is_gone else None
        timeline, has_ended = self.watched.timeline, self._has_ended(self.watched.run.has_ended)
        marks = [mark(entry) for entry in timeline]
        if self._position is not None:
            self._sent = sent_before(self._position, marks)
            self._position = None
        missed, lines = self.lines()
        parts = [event("missed", str(missed))] if missed else []
        parts += [event("", _json(versioned(line.entry))) for line in lines]
        for entry, position in unsent(timeline, marks, self._sent):
            if entry is timeline[-1] and entry.is_end and not has_ended:
                break
            parts.append(event("", _json(versioned(entry)), position))
            if len(parts) >= MAX_PART:
                self._sent.add(mark(entry))
                self.news.set()  # there is more
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
            asyncio.get_running_loop().call_later(self._may_end_at - now, self.news.set)
        return now >= self._may_end_at


def _json(document: object) -> str:
    return json.dumps(document, ensure_ascii=False)


class Live:
    """The streams of one process."""

    def __init__(self, open_reading: Open, open_listening: Open, payloads: Payloads) -> None:
        self._payloads = payloads
        self.watcher = Watcher(open_reading, open_listening)
        self.streams: dict[EventStream, str] = {}  # which are open, and whose they are
        self._ended: str | None = None

    def end_streams(self, reason: str) -> None:
        """End all streams with an event, and open no new ones: the server stops."""
        self._ended = reason
        for stream in list(self.streams):
            stream.end(reason)
        self.watcher.stop()

    def page(self, request: Request, view: View) -> Any:
        """The stream of a page; or an answer to who gets none."""
        return self._refusal(request) or self._open(request, self._enter(request, view))

    def run(self, request: Request, run_id: UUID, position: str) -> Any:
        """The stream of what happens in a run; or an answer to who gets none."""
        if refusal := self._refusal(request):
            return refusal
        tab = RunTab(position)
        self.watcher.enter(("run", run_id), lambda: WatchedRun(run_id, self._payloads), tab)
        return self._open(request, tab)

    async def poll(self, request: Request, view: View) -> Response:
        """What has changed on a page, for a tab without a stream."""
        if self._ended is not None:
            return _later(request, "the server is about to stop")
        tab = self._enter(request, view)
        asyncio.get_running_loop().call_later(POLLS_S, self.watcher.leave, tab)
        if not tab.watched.was_read:
            try:
                await asyncio.wait_for(tab.news.wait(), FIRST_S)
            except TimeoutError:
                return _later(request, "the page was not read in time")
        changes = [(each.kind, each.data) for each in tab.changes()]
        last = self.watcher.numbers.id(tab.number)
        return as_json({"id": last, "now": tab.watched.now, "changes": changes})

    def _enter(self, request: Request, view: View) -> PageTab:
        """A tab that views the page, and has what it says that it has."""
        numbers = self.watcher.numbers
        after = request.headers.get("last-event-id") or request.query_params.get(AFTER, "")
        tab = PageTab(request, numbers.read(after))
        self.watcher.enter(view, lambda: WatchedPage(view, numbers), tab)
        return tab

    def _open(self, request: Request, tab: EventStream) -> EventStream:
        def leave() -> None:
            self.streams.pop(tab, None)
            self.watcher.leave(tab)

        async def is_known() -> bool:
            with suppress(NotLoggedIn):
                return await request.state.find_user() is not None
            return False

        tab.leave, tab.is_known = leave, is_known
        self.streams[tab] = _session_of(request)
        return tab

    def _refusal(self, request: Request) -> Response | None:
        """The answer to who gets no stream."""
        if self._ended is not None:
            return _later(request, "the server is about to stop")
        if len(self.streams) >= MAX_STREAMS:
            return _later(request, f"{MAX_STREAMS} streams are open")
        if Counter(self.streams.values())[_session_of(request)] >= MAX_OF_SESSION:
            return _later(request, f"you have {MAX_OF_SESSION} streams open")
        return None


def _session_of(request: Request) -> str:
    """Whose streams are counted together: a user's at an address."""
    user = getattr(request.state, "user", None)
    return f"{user.name if user else ''} {request.client.host if request.client else ''}"


def _later(request: Request, text: str) -> Response:
    error = Refused(
        HTTPStatus.SERVICE_UNAVAILABLE, text, code="E301", next="try again in a moment",
        headers={"Retry-After": str(LATER_S)},
    )  # fmt: skip
    return error_response(request.scope, error)
