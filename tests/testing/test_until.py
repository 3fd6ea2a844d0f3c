"""
Until: returns at once when it can, and fails with a sentence when it cannot.
"""

from __future__ import annotations

import pytest

from pgflowd.testing.until import until


def test_it_returns_the_first_true_answer():
    answers = iter([None, 0, "", "there"])

    assert until(lambda: next(answers)) == "there"


def test_a_condition_that_holds_is_asked_once():
    asked = []

    until(lambda: asked.append(None) or True)

    assert len(asked) == 1


def test_it_gives_up_in_time_and_names_the_condition():
    with pytest.raises(AssertionError, match=r"within 0.1 s: .*1 > 2.*last value: False"):
        until(lambda: 1 > 2, within_s=0.1)


def test_an_error_in_the_condition_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        until(lambda: 1 / 0)
