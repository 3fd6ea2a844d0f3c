"""From a position a follower gets each event once, however late some are written down."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pgflowd.core.documents.runs import TimelineEntry
from pgflowd.core.timeline import NAMED, is_position, mark, sent_before, unsent

START = datetime(2026, 1, 1, tzinfo=UTC)


def entry(number: int) -> TimelineEntry:
    at = START + timedelta(seconds=number // 3)  # three each are of one moment
    return TimelineEntry("task:failed", "r", "f", at, 0.0, step="s", task=number)


@dataclass
class Follower:
    """Reads what is there, loses its connection after each event, and comes back."""

    position: str = ""

    def __post_init__(self) -> None:
        self.got: list[int | None] = []

    def read(self, timeline: list[TimelineEntry]) -> None:
        while True:
            marks = [mark(each) for each in timeline]
            found = next(unsent(timeline, marks, sent_before(self.position, marks)), None)
            if found is None:
                return
            event, self.position = found
            assert is_position(self.position)
            self.got.append(event.task)


@given(st.lists(st.integers(0, NAMED - 2), min_size=1, max_size=80), st.data())
def test_each_event_comes_once_though_the_connection_is_lost_after_each(delays, data: Any):
    """Event `n` is written down `delays[n]` events later than its time says."""
    order = sorted(range(len(delays)), key=lambda number: (number + delays[number], number))
    follower, written = Follower(), []
    while order:
        for _ in range(data.draw(st.integers(1, 5))):
            if order:
                written.append(order.pop(0))
        follower.read([entry(number) for number in sorted(written)])

    assert sorted(follower.got) == list(range(len(delays)))
    assert len(follower.position) <= NAMED * 6


def test_what_is_gone_later_brings_nothing_back():
    first = [entry(number) for number in range(5)]
    follower = Follower()
    follower.read(first)
    follower.read([*first[:2], entry(7)])  # a retry has taken the rest away

    assert follower.got == [0, 1, 2, 3, 4, 7]


def test_other_texts_are_no_positions():
    assert is_position("")
    assert not is_position("abc")
    assert not is_position("äöüäöü")
    assert not is_position("a" * 6 * (NAMED + 1))
