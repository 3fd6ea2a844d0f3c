"""What a child counts, and how little of it is kept."""

from __future__ import annotations

from pgflowd.core.numbers import LastMinute


def test_the_last_minute_is_counted_however_much_happens_in_it():
    minute = LastMinute()
    for second in range(100):
        minute.add("completed", 1000.5 + second, 1000)

    assert minute.counts(1099.9) == {"completed": 60 * 1000}
    assert minute.counts(1130.0) == {"completed": 30 * 1000}


def test_after_a_quiet_minute_nothing_is_left():
    minute = LastMinute()
    minute.add("failed", 10.0)

    assert minute.counts(11.0) == {"failed": 1}
    assert minute.counts(80.0) == {}
