"""
How far somebody is who follows a run, as a short text, from which another process continues. Pure.

Events are read from the database again and again, and those that are new are sent in the order of
their time. A slow transaction may add an event before others that were sent already, and what a
task told of its progress is gone when it tells more. So a position does not say "all up to this
one": it names the last events that were sent. Of those before them all were sent.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence

from pgflowd.core.documents.runs import TimelineEntry

NAMED = 24  # events that a position names: one that comes later than so many others may be lost
_LETTERS = 6  # of base64, for each: among 10,000 events two are alike in one of 300,000 positions


def mark(entry: TimelineEntry) -> str:
    """What tells an event from the others of its run."""
    digest = hashlib.sha256(repr(entry.key).encode()).digest()
    return base64.urlsafe_b64encode(digest)[:_LETTERS].decode()


def is_position(text: str) -> bool:
    """Whether it may be a position."""
    is_plain = re.fullmatch(r"[A-Za-z0-9_-]*", text) is not None
    return is_plain and len(text) % _LETTERS == 0 and len(text) <= NAMED * _LETTERS


def sent_before(position: str, marks: Sequence[str]) -> set[str]:
    """What was sent to who has this position, of a run with these marks."""
    named = {position[i : i + _LETTERS] for i in range(0, len(position), _LETTERS)}
    if len(named) < NAMED:  # these are all
        return named
    first = next((i for i, each in enumerate(marks) if each in named), 0)
    return named | set(marks[:first])


def unsent(
    timeline: Sequence[TimelineEntry], marks: Sequence[str], sent: set[str]
) -> Iterator[tuple[TimelineEntry, str]]:
    """
    Yield the events that were not sent, each with the position after it.

    `marks` are those of the timeline. An event is added to `sent` when the next is asked for.
    """
    known = [i for i, each in enumerate(marks) if each in sent]
    for i, (entry, own) in enumerate(zip(timeline, marks, strict=True)):
        if own in sent:
            continue
        before = marks[max(0, i + 1 - NAMED) : i + 1]  # all of them were sent by now
        later = [marks[at] for at in known[-NAMED:] if at > i]
        yield entry, "".join([*before, *later][-NAMED:])
        sent.add(own)
