"""Who follows which run, for how long, and what is sent to him. The clock is an argument."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from pgflowd.core import output_stream
from pgflowd.core.output_stream import Followed, asked_for, asking, line_in

RUN = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"


def line(text: str = "hello") -> dict[str, object]:
    return {"step_slug": "a", "task_index": 0, "attempt": 1, "stream": "stdout", "text": text}


def test_what_a_follower_asks_is_understood():
    assert asked_for(asking(UUID(RUN))) == RUN


@pytest.mark.parametrize("payload", ["", "orders", "follow", "follow ", "follow me", "follow\n1"])
def test_a_queues_name_or_nonsense_asks_for_nothing(payload):
    assert asked_for(payload) is None


def test_a_run_is_followed_for_a_minute_after_the_last_asking():
    followed = Followed()
    assert not followed and not followed.wants(RUN, 0.0)

    followed.follow(RUN, 0.0)
    followed.follow(RUN, 20.0)

    assert followed.wants(RUN, 79.9)
    assert not followed.wants(RUN, 80.0)
    assert not followed


def test_when_nobody_asks_any_more_nothing_is_looked_at():
    followed = Followed()
    followed.follow(RUN, 0.0)
    followed.follow("another", 10.0)
    followed.follow(RUN, 20.0)

    assert not followed.wants("a third", 75.0) and followed
    assert not followed.wants("a third", 80.0) and not followed


def test_of_too_many_runs_the_longest_unasked_for_is_forgotten():
    followed = Followed()
    for number in range(output_stream.MOST_RUNS):
        followed.follow(str(number), 0.0)
    followed.follow("0", 1.0)
    followed.follow(RUN, 1.0)

    assert followed.wants("0", 2.0) and followed.wants(RUN, 2.0)
    assert not followed.wants("1", 2.0)


def test_equal_lines_become_different_payloads_in_their_order():
    followed = Followed()
    for _ in range(2):
        followed.keep(RUN, line("again"))

    (one, first), (two, second) = followed.take()

    assert one == two == RUN and first != second
    assert line_in(first)["number"] < line_in(second)["number"]
    assert not followed.is_waiting and followed.take() == []


def test_what_finds_no_room_is_counted_and_told_behind_the_rest():
    followed = Followed()
    for number in range(output_stream.MOST_KEPT + 3):
        followed.keep(RUN, {**line(str(number)), "time": str(number)})

    taken = []
    while followed.is_waiting:
        some = followed.take()
        assert len(some) <= output_stream.MOST_SENT + 1
        taken += some

    told = [line_in(payload) for _, payload in taken]
    assert [each["text"] for each in told[:-1]] == [str(n) for n in range(output_stream.MOST_KEPT)]
    assert told[-1]["dropped"] == 3 and "3 lines more" in told[-1]["text"]
    assert told[-1]["time"] == str(output_stream.MOST_KEPT + 2)  # the last one's


@pytest.mark.parametrize("char", ["x", "ö", "語", "😀", '"', "\x01"])
def test_a_payload_is_never_longer_than_postgresql_takes(char):
    followed = Followed()
    followed.keep(RUN, line(char * 20_000))

    ((_, payload),) = followed.take()

    assert len(payload.encode()) <= output_stream.LARGEST
    text = json.loads(payload)["text"]
    assert text.endswith("…") and set(text[:-1]) == {char}


def test_who_is_refused_sends_nothing_more():
    followed = Followed()
    followed.follow(RUN, 0.0)
    followed.keep(RUN, line())

    followed.forget()

    assert not followed and not followed.is_waiting


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "{",
        '"task:output"',
        '["task:output"]',
        '{"event_type": "step:completed", "output": "task:output"}',
        '{"event_type": "task:output"}',
        '{"event_type": "task:output", "text": 1}',
        '["task:output",' + "[" * 7800,
        '{"event_type": "task:output", "text": "x", "n": %s}' % ("9" * 7800),
    ],
)
def test_other_events_and_nonsense_are_no_lines(payload):
    assert line_in(payload) is None
