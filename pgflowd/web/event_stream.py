"""
An event stream: one open tab, or a program that follows a run.

A stream sends what is new, then waits a moment; it has no queue. A tab that takes nothing for 20
seconds loses its stream.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from starlette.types import Message, Receive, Scope, Send

from pgflowd.core.documents import versioned
from pgflowd.core.redact import one_line
from pgflowd.core.text import counted
from pgflowd.core.timeline import mark, sent_before, unsent
from pgflowd.web.answers import SECURITY_HEADERS
from pgflowd.web.fragments import FRAGMENT, Change
from pgflowd.web.output_lines import Line
from pgflowd.web.server_events import HEADERS, event
from pgflowd.web.watched import Tab, Watched, WatchedPage, WatchedRun

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
