"""Budgets and delays of restarts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.covers import covers

from pgflowd.core.backoff import reconnect_delay_s, restart_delay_s
from pgflowd.core.supervision.tree import Budget


@covers("rule 20")
def test_the_last_restart_of_the_budget_is_allowed_and_the_next_is_not():
    budget = Budget(20, 60)
    answers = []

    for now in range(21):
        budget, allowed = budget.spend(now)
        answers.append(allowed)

    assert answers == [True] * 20 + [False]


@covers("rule 20")
def test_with_a_budget_of_none_the_first_crash_ends_it():
    assert Budget(0, 60).spend(0)[1] is False


@covers("rule 21")
@pytest.mark.parametrize(("now", "allowed"), [(60.0, False), (60.001, True)])
def test_a_restart_exactly_one_period_old_counts(now, allowed):
    budget, _ = Budget(1, 60).spend(0.0)

    assert budget.spend(now)[1] is allowed


@covers("rule 1")
def test_a_negative_budget_is_refused():
    with pytest.raises(ValueError, match="negative"):
        Budget(-1, 60)


@covers("rule 22")
def test_the_first_restart_is_immediate_and_the_delays_double_up_to_the_most():
    delays = [restart_delay_s(n, 0.1, 2.0) for n in range(8)]

    assert delays == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


@covers("rule 22")
@given(some.integers(0, 10**9))
def test_no_delay_is_longer_than_the_most(earlier):
    assert 0 <= restart_delay_s(earlier, 0.1, 30.0) <= 30.0


@covers("rule 21")
@given(some.lists(some.floats(0, 1000), max_size=60), some.integers(0, 10), some.floats(0.1, 100))
def test_no_window_ever_holds_more_allowed_restarts_than_the_budget(steps, most, period):
    budget, allowed, now = Budget(most, period), [], 0.0
    for step in steps:
        now += step
        budget, yes = budget.spend(now)
        if yes:
            allowed.append(now)

    assert all(later - first > period for first, later in pairwise(allowed[:: max(most, 1)]))


@given(some.integers(-5, 10**6), some.floats(0, 1))
def test_a_reconnect_waits_between_half_and_all_of_its_delay(attempt, chance):
    assert 0.125 <= reconnect_delay_s(attempt, 0.25, 30.0, chance) <= 30.0
