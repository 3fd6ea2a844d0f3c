"""Server-sent events, as a client reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx


class SentEvent(NamedTuple):
    kind: str
    data: str
    id: str  # the last that was sent

    @property
    def fragment(self) -> str:
        """The id of the element that it replaces."""
        return self.data.partition("\n")[0] if self.kind == "fragment" else ""

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@contextmanager
def stream(client: httpx.Client, path: str, last: str = "") -> Iterator[Iterator[SentEvent]]:
    """The events of a stream; `last` is the id of the last one that the client has."""
    headers = {"Last-Event-ID": last} if last else {}
    with client.stream("GET", path, headers=headers, timeout=30) as answer:
        assert answer.status_code == 200, answer.read()
        yield events_of(answer)


def events_of(answer: httpx.Response) -> Iterator[SentEvent]:
    """The events of an answer, as they come, without heartbeats."""
    kind, data, last = "message", [], ""
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "id":
            last = value
        elif name == "data":
            data.append(value)
        elif not line:
            if kind != "heartbeat":
                yield SentEvent(kind, "\n".join(data), last)
            kind, data = "message", []


def until_event(events: Iterator[SentEvent], fragment: str, text: str) -> SentEvent:
    """The next event about this fragment that holds a text."""
    return next(each for each in events if each.fragment == fragment and text in each.data)
