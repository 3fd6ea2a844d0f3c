"""The steps of a run as bars over its time."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.run_documents import NOW, at, details, failed, state, tasks

from pgflowd.core.documents.runs import Attempt
from pgflowd.core.run_graph import bars_of, length_s, ticks_of
from pgflowd.core.statuses import Outcome


def attempt(step: str, number: int, began: float, ended: float | None, outcome: str | None):
    return Attempt(
        step=step, task=0, token=number, attempt=number, outcome=outcome and Outcome(outcome),
        started_at=at(began), ended_at=at(ended), error_type=None, error=None, traceback=None,
        exit_code=None, exit_signal=None, cpu_s=None, peak_kb=None, worker_id=UUID(int=0),
    )  # fmt: skip


def parts_of(run):
    """Of each bar the times, full ones in upper case; `…` goes on."""
    return {
        bar.slug: [
            f"{part.start_s:g}-{part.end_s:g} {'EXEC' if part.is_executed else 'wait'}"
            f"{'…' if part.is_open else ''}"
            for part in bar.parts
        ]
        for bar in bars_of(run)
    }


def test_attempts_say_when_a_step_waited_and_when_it_was_executed():
    steps = (
        (state("pay", "completed", 1, 9), tasks("pay", attempts=2, completed=1)),
        (state("pack", "started", 9), tasks("pack", attempts=1, running=1, running_since=at(12))),
        (state("send", "created"), tasks("send", tasks=0)),
    )
    known = [
        attempt("pay", 1, 2, 4, "failed"), attempt("pay", 2, 6, 9, "completed"),
        attempt("pack", 1, 12, None, None),
    ]  # fmt: skip

    run = details(*steps, attempts=known)
    assert parts_of(run) == {
        "pay": ["1-2 wait", "2-4 EXEC", "4-6 wait", "6-9 EXEC"],
        "pack": ["9-12 wait", "12-40 EXEC…"],
        "send": [],
    }
    assert [(mark.at_s, mark.outcome) for mark in bars_of(run)[0].marks] == [(4, "failed")]
    failures = [failed("pay", 1, 2, 4, next_at=at(5))]
    assert parts_of(details(*steps, failures=failures)) == {
        "pay": ["1-2 wait", "2-4 EXEC", "4-5 wait", "5-9 EXEC"],  # as far as it is known
        "pack": ["9-12 wait", "12-40 EXEC…"],
        "send": [],
    }


def test_a_map_is_one_bar_that_says_how_far_it_is():
    step = tasks("links", step_type="map", tasks=100, completed=38, failed=2, running=1)
    run = details((state("links", "started", 2), step), failures=[failed("links", 3, 5, 6)])

    (bar,) = bars_of(run)
    assert parts_of(run) == {"links": ["2-40 EXEC…"]}
    assert bar.per_second == pytest.approx(1.0) and bar.left_s == pytest.approx(60.0)
    assert len(bar.marks) == 1


def test_what_waits_is_light_and_a_run_that_ended_is_not_open():
    waits = tasks("approve", waiting=1, attempts=0)
    assert parts_of(details((state("approve", "started", 3), waits))) == {"approve": ["3-40 wait…"]}
    cancelled = details((state("approve", "started", 3), waits), status="failed", ended=20)
    assert parts_of(cancelled) == {"approve": ["3-20 wait"]}
    assert length_s(cancelled, bars_of(cancelled)) == 20


moments = st.floats(0, 40)


@given(moments, moments, st.lists(st.tuples(moments, moments), max_size=5))
def test_the_parts_of_a_bar_are_its_whole_time_without_gaps(began, ended, spans):
    known = [
        attempt("pay", number, *sorted(span), "failed") for number, span in enumerate(spans, 1)
    ]
    began, ended = sorted((began, ended))
    run = details((state("pay", "failed", began, ended), tasks("pay", failed=1)), attempts=known)

    (bar,) = bars_of(run)
    assert bar.parts[0].start_s == pytest.approx(began, abs=1e-5)
    assert bar.parts[-1].end_s == pytest.approx(ended, abs=1e-5)
    assert all(part.start_s <= part.end_s for part in bar.parts)
    for one, other in pairwise(bar.parts):
        assert one.end_s == other.start_s


@given(st.floats(1e-4, 1e9))
def test_ticks_are_few_ascend_and_differ(length):
    ticks = ticks_of(length)

    times, texts = zip(*ticks, strict=True)
    assert times[0] == 0 and times[-1] <= length * 1.001
    assert list(times) == sorted(set(times)) and len(set(texts)) == len(texts) <= 9


def test_ticks_are_written_in_round_units():
    assert [text for _, text in ticks_of(0.02)] == ["0", "5ms", "10ms", "15ms", "20ms"]
    assert [text for _, text in ticks_of(61)][-2:] == ["50s", "1m"]
    assert [text for _, text in ticks_of(259_200)][1:4] == ["12h", "1d", "1d12h"]


def test_a_run_that_goes_on_has_room_to_grow_and_keeps_its_scale():
    step = tasks("pay", running=1, running_since=NOW)

    assert length_s(details((state("pay", "started", 0), step)), []) == 60
