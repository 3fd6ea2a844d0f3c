"""
Server-sent events, as they go over the line.

An event has a kind, lines of data and perhaps an id; a browser sends the id of the last one when it
connects again.
"""

from __future__ import annotations

import re

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx passes each event on at once
}
_LINE_END = re.compile("\r\n|\r|\n")  # what the format takes for one; str.splitlines knows others


def event(kind: str, data: str, id: str | None = None) -> bytes:
    """An event; one without an id leaves the last id as it is."""
    lines = [f"event: {kind}"] if kind else []
    if id is not None:
        lines.append(f"id: {id}")
    lines += [f"data: {line}" for line in _LINE_END.split(data)]
    return "\n".join([*lines, "", ""]).encode()
