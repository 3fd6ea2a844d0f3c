"""Server-sent events, as a client reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import httpx


class SentEvent(NamedTuple):
    kind: str
    data: str
    id: str  # the last that was sent


def events_of(answer: httpx.Response) -> Iterator[SentEvent]:
    """The events of a stream, as they come."""
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
            yield SentEvent(kind, "\n".join(data), last)
            kind, data = "message", []
