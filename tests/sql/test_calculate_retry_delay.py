"""Delays are floor(base x 2^attempts), and no failure that cannot be recorded."""

import pytest


@pytest.mark.parametrize(
    ("base", "attempts", "wanted"),
    [(5, 1, 10), (5, 2, 20), (5, 3, 40), (1, 0, 1), (1, 10, 1024), (0, 5, 0), (2.5, 1, 5),
     (0.3, 1, 0), (0.3, 2, 1), (1.9, 0, 1), (3, 20, 3145728)],
)  # fmt: skip
def test_small_numbers_follow_the_formula(suite, base, attempts, wanted):
    found = suite.value(
        "select pgflow.calculate_retry_delay(base_delay => %s::numeric, attempts_count => %s)",
        base,
        attempts,
    )

    assert found == wanted


def test_the_result_is_an_int(suite):
    assert suite.value("select pg_typeof(pgflow.calculate_retry_delay(1, 1))::text") == "integer"


@pytest.mark.parametrize(
    ("base", "attempts"), [(5, 30), (5, 31), (2147483647, 2), (1, 100), (1, 5000)]
)
def test_huge_delays_are_capped_and_do_not_raise(suite, base, attempts):
    found = suite.value("select pgflow.calculate_retry_delay(%s, %s)", base, attempts)

    assert 86400 <= found <= 2**31 - 1


def test_the_delay_never_shrinks_with_more_attempts(suite):
    delays = suite.column(
        "select pgflow.calculate_retry_delay(5, n) from generate_series(0, 60) n order by n"
    )

    assert delays == sorted(delays)
