"""Which runs are followed, for how long, and which lines are sent. The clock is an argument."""

from __future__ import annotations

import json

import pytest

from pgflowd.core import output_stream
from pgflowd.core.output_stream import FollowedRuns, output_line, requested_run

RUN = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"


def line(text: str = "hello") -> dict[str, object]:
    return {"step_slug": "a", "task_index": 0, "attempt": 1, "stream": "stdout", "text": text}


def test_a_request_is_understood():
    assert requested_run(f"follow {RUN}") == RUN


@pytest.mark.parametrize("payload", ["", "orders", "follow", "follow ", "follow me", "follow\n1"])
def test_a_queues_name_or_nonsense_requests_nothing(payload):
    assert requested_run(payload) is None


def test_a_run_is_followed_for_a_minute_after_the_last_request():
    followed = FollowedRuns()
    assert not followed and not followed.wants(RUN, 0.0)

    followed.follow(RUN, 0.0)
    followed.follow(RUN, 20.0)

    assert followed.wants(RUN, 79.9)
    assert not followed.wants(RUN, 80.0)
    assert not followed


def test_a_request_that_is_not_renewed_is_forgotten():
    followed = FollowedRuns()
    followed.follow(RUN, 0.0)
    followed.follow("another", 10.0)
    followed.follow(RUN, 20.0)

    assert not followed.wants("a third", 75.0) and followed
    assert not followed.wants("a third", 80.0) and not followed


def test_of_too_many_runs_the_one_with_the_oldest_request_is_forgotten():
    followed = FollowedRuns()
    for number in range(output_stream.MAX_RUNS):
        followed.follow(str(number), 0.0)
    followed.follow("0", 1.0)
    followed.follow(RUN, 1.0)

    assert followed.wants("0", 2.0) and followed.wants(RUN, 2.0)
    assert not followed.wants("1", 2.0)


def test_equal_lines_become_different_payloads_in_their_order():
    followed = FollowedRuns()
    for _ in range(2):
        followed.keep(RUN, line("again"))

    (one, first), (two, second) = followed.take()

    assert one == two == RUN and first != second
    assert output_line(first)["number"] < output_line(second)["number"]
    assert not followed.is_waiting and followed.take() == []


def test_lines_that_find_no_room_are_counted_after_the_rest():
    followed = FollowedRuns()
    for number in range(output_stream.MAX_WAITING_LINES + 3):
        followed.keep(RUN, {**line(str(number)), "time": str(number)})

    taken = []
    while followed.is_waiting:
        some = followed.take()
        assert len(some) <= output_stream.MAX_LINES_AT_ONCE + 1
        taken += some

    lines = [output_line(payload) for _, payload in taken]
    assert [each["text"] for each in lines[:-1]] == [
        str(n) for n in range(output_stream.MAX_WAITING_LINES)
    ]
    assert lines[-1]["dropped"] == 3 and "3 more lines" in lines[-1]["text"]
    assert lines[-1]["time"] == str(output_stream.MAX_WAITING_LINES + 2)  # the last one's


@pytest.mark.parametrize("char", ["x", "ö", "語", "😀", '"', "\x01"])
def test_a_payload_is_never_longer_than_postgresql_takes(char):
    followed = FollowedRuns()
    followed.keep(RUN, line(char * 20_000))

    ((_, payload),) = followed.take()

    assert len(payload.encode()) <= output_stream.MAX_PAYLOAD_BYTES
    text = json.loads(payload)["text"]
    assert text.endswith("…") and set(text[:-1]) == {char}


def test_a_worker_that_is_refused_sends_nothing_more():
    followed = FollowedRuns()
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
def test_other_events_and_nonsense_are_not_lines(payload):
    assert output_line(payload) is None
