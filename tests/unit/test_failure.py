"""What becomes of an exception that leaves an attempt unspent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pgflowd import Fail, RetryAfter
from pgflowd.core.failure import failure_of

KINDLY = RetryAfter(5, "429", spend=False, at_most="2h")


@pytest.mark.parametrize(
    ("at_most", "seconds"),
    [
        (None, 86_400),
        ("90m", 5400),
        (7, 7),
        (0.5, 0.5),
        (timedelta(days=2), 172_800),
        (1e99, 2**31 - 1),
    ],
)
def test_at_most_is_a_day_unless_it_says(at_most: Any, seconds: float) -> None:
    failure = failure_of(RetryAfter(5, spend=False, at_most=at_most))

    assert (failure.delay_s, failure.at_most_s) == (5, seconds)


@pytest.mark.parametrize("at_most", ["soon", "5", 0, -1, float("nan"), float("inf"), "0s", ""])
def test_what_is_no_time_is_refused_where_it_is_written(at_most: Any) -> None:
    with pytest.raises(ValueError, match="at_most"):
        RetryAfter(5, spend=False, at_most=at_most)


def test_at_most_without_spend_is_refused() -> None:
    with pytest.raises(ValueError, match="give spend=False too"):
        RetryAfter(5, at_most="1h")


def test_no_task_may_be_tried_again_and_again_at_once() -> None:
    assert failure_of(RetryAfter(0, spend=False)).delay_s == 1
    assert failure_of(RetryAfter(0)).delay_s == 0


def test_the_last_attempt_is_not_told_as_the_last() -> None:
    assert (
        failure_of(RetryAfter(5, spend=False), is_last=True).message == "asked for a retry in 5 s"
    )


@pytest.mark.parametrize(
    ("others", "at_most_s", "retry"),
    [
        ([], 7200, True),
        ([RetryAfter(9, spend=False)], 7200, True),
        ([ValueError("x")], None, True),
        ([RetryAfter(1)], None, True),
        ([Fail("x")], None, False),
    ],
)
def test_a_group_is_unspent_if_all_in_it_are(
    others: list[Exception], at_most_s: float | None, retry: bool
) -> None:
    failure = failure_of(ExceptionGroup("both", [KINDLY, *others]))

    assert (failure.at_most_s, failure.retry) == (at_most_s, retry)


def test_a_subclass_that_says_no_delay_is_retried_at_once() -> None:
    class Slower(RetryAfter):
        def __init__(self) -> None:
            pass

    failure = failure_of(Slower())

    assert (failure.delay_s, failure.at_most_s, failure.retry) == (0, None, True)
