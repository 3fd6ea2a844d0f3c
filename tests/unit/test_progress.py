"""What `ctx.progress` takes, and when a worker writes it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.engine import SECOND, Play

from pgflowd import TooLarge
from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.json import encode
from pgflowd.core.output_stream import Pace
from pgflowd.core.progress import BURST, Progress, is_sound, progress_of
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.task import PAUSE_S
from pgflowd.errors import OutputError
from pgflowd.testing import fake_context

NUMBERS = some.floats(allow_nan=False, allow_infinity=False) | some.integers(-(10**300), 10**300)


@given(
    NUMBERS, some.none() | NUMBERS, some.text(), some.dictionaries(some.text("ab"), some.text("c"))
)
def test_what_may_be_told_is_accepted_and_its_share_is_within_0_and_1(done, total, text, detail):
    told = progress_of(done, total, text, detail)

    assert is_sound(encode(told).encode())
    share = Progress.read(told).share
    assert share is None or 0 <= share <= 1


@pytest.mark.parametrize(
    ("args", "error", "said"),
    [
        (("12",), TypeError, "done is '12', which is not a number"),
        ((True,), TypeError, "done is True"),
        ((1, "30"), TypeError, "total is '30'"),
        ((float("nan"),), ValueError, "done is nan"),
        ((1, float("inf")), ValueError, "total is inf"),
        ((10**400,), ValueError, "done is 1000"),
    ],
)
def test_what_is_no_number_is_refused(args, error, said):
    with pytest.raises(error, match=said):
        fake_context().progress(*args)


def test_details_are_json_and_not_too_many():
    with pytest.raises(OutputError, match=r"progress\.detail\.when is a datetime"):
        fake_context().progress(1, when=datetime.now(UTC))
    with pytest.raises(TooLarge, match=r"the progress has 9\.0 kB, and 8\.0 kB are"):
        fake_context().progress(1, page="x" * 8980)


def test_a_fake_context_has_what_was_told():
    ctx = fake_context()
    ctx.progress(1, 3, "pages", url="x")
    ctx.progress(2.5)

    assert ctx.progress_told == [
        {"done": 1, "text": "pages", "total": 3, "detail": {"url": "x"}},
        {"done": 2.5},
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"7",
        b"{}",
        b'{"done": NaN}',
        b'{"done": "1"}',
        b'{"done": true}',
        b'{"done": 1, "at": 2}',
        b'{"done": 1, "text": 7}',
        b'{"done": 1, "detail": []}',
        b'{"done": 1, "text": "\\u0000"}',
        b'{"done": 1, "text": "\\ud800"}',
        b'{"done": 1, "text": "\xff"}',
        b'{"done": 1e999}',
        b'{"done": 1, "detail": {"x": %b}}' % (b"[" * 3000 + b"]" * 3000),
        b'{"done": 1, "text": "' + b"x" * 8000 + b'"}',
    ],
)
def test_nothing_passes_that_a_runner_would_not_send(body):
    assert not is_sound(body)


def test_a_burst_is_sent_at_once_and_a_flood_is_thinned_out():
    pace = Pace(BURST, BURST)

    assert sum(pace.may_pass(100.0) for _ in range(1000)) == BURST
    assert sum(pace.may_pass(100.0 + n / 1000) for n in range(1000)) in (BURST - 1, BURST)


def told(token: int, number: int) -> events.ProgressTold:
    return events.ProgressTold(token, b'{"done":%d}' % number)


def with_second(*tokens: int) -> Play:
    """A worker that has worked on these for so long that it has a second connection."""
    play = Play()
    play.busy(*tokens)
    if play.claiming() or play.sending():
        play.claim()
    play.feed(events.NextDueRead(None))
    play.feed(events.Tick(), after_s=2.5)
    play.feed(events.Connected(SECOND))
    return play


def test_a_thousand_calls_a_second_cost_one_write():
    play = with_second(1, 2)
    writes = []
    for number in range(1, 1001):
        play.feed(told(1, number), told(2, -number), after_s=PAUSE_S / 1000)
        for write in filter(lambda one: isinstance(one, actions.WriteProgress), play.actions):
            writes.append(write)
            play.feed(events.ProgressWritten(SECOND, (1, 2, 3)))

    assert len(writes) == 1
    play.feed(events.Tick(), after_s=PAUSE_S)
    last = {1: b'{"done":1000}', 2: b'{"done":-1000}'}
    assert play.actions == [actions.WriteProgress(SECOND, last)]


def test_a_value_that_may_not_have_arrived_goes_with_the_report():
    play = with_second(1, 2, 3)
    play.feed(told(1, 7), told(2, 8), told(3, 9))
    play.feed(told(2, 10))
    play.feed(events.ProgressWritten(SECOND, (1, 2, 3)))

    for token in (1, 2, 3):
        play.done(token)

    reports = [*play.sending(), *play.waiting_reports()]
    assert {one.task.token: one.progress for one in reports} == {
        1: None,
        2: b'{"done":10}',
        3: None,
    }


def test_values_of_a_call_that_failed_are_written_again_unless_newer_ones_came():
    play = with_second(1, 2)
    play.feed(told(1, 7), told(2, 8))
    play.feed(told(2, 9))
    play.feed(events.ConnectionLost(SECOND, DatabaseFailure.RETRY, "gone"))
    while not (found := [one for one in play.actions if isinstance(one, actions.WriteProgress)]):
        play.wait()
        if any(isinstance(one, actions.Connect) for one in play.actions):
            play.feed(events.Connected(SECOND))

    assert found[0].values == {1: b'{"done":7}', 2: b'{"done":9}'}


def test_a_value_that_met_a_lock_is_still_new():
    play = with_second(1)
    play.feed(told(1, 7))
    play.feed(events.ProgressWritten(SECOND, ()))

    play.done(1)

    assert [one.progress for one in play.sending()] == [b'{"done":7}']
