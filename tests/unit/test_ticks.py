"""
The ticks of expressions: what cron does, also where the clock is changed, and what is caught up.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from pgflowd.core.ticks import (
    due_ticks,
    expression_fault,
    in_words,
    planned_ticks,
    ticks_after,
    zone_fault,
    zone_of,
)

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Beirut")
EXPRESSIONS = (
    "0 3 * * *", "30 2 * * *", "15,45 1-3 * * *", "*/10 * * * *", "*/10 */2 * * *", "15 */3 * * *",
    "*/30 2 * * *", "0 */2 * * *", "* 1-2 * * *", "0 0 29 2 *", "5 0 * * MON#1", "59 23 L * *",
)  # fmt: skip
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def local(zone: str, start: str, cron: str, count: int) -> list[str]:
    """The next ticks on the wall."""
    after = datetime.fromisoformat(start).replace(tzinfo=zone_of(zone)).astimezone(UTC)
    found = islice(ticks_after(cron, zone, after), count)
    return [f"{tick.astimezone(zone_of(zone)):%d %H:%M%z}" for tick in found]


@pytest.mark.parametrize(
    ("zone", "start", "cron", "expected"),
    [
        # in spring a fixed time that does not exist comes at the next that does, once
        ("Europe/Berlin", "2026-03-28", "30 2 * * *",
         ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"]),
        ("Europe/Berlin", "2026-03-29", "0,30 2-3 * * *",
         ["29 03:00+0200", "29 03:30+0200", "30 02:00+0200"]),
        ("America/New_York", "2026-03-08", "15 2 * * *", ["08 03:00-0400", "09 02:15-0400"]),
        ("Australia/Lord_Howe", "2026-10-04", "15 2 * * *", ["04 02:30+1100", "05 02:15+1100"]),
        # in autumn one that comes twice runs once
        ("Europe/Berlin", "2026-10-25", "30 2 * * *", ["25 02:30+0200", "26 02:30+0100"]),
        ("America/New_York", "2026-11-01", "30 1 * * *", ["01 01:30-0400", "02 01:30-0500"]),
        ("Australia/Lord_Howe", "2026-04-05", "45 1 * * *", ["05 01:45+1100", "06 01:45+1030"]),
        # the clock on the wall decides where minute or hour begin with a star
        ("Europe/Berlin", "2026-03-29T01:10", "*/30 * * * *",
         ["29 01:30+0100", "29 03:00+0200", "29 03:30+0200"]),
        ("Europe/Berlin", "2026-10-25T01:40", "*/30 2 * * *",
         ["25 02:00+0200", "25 02:30+0200", "25 02:00+0100", "25 02:30+0100", "26 02:00+0100"]),
        ("Australia/Lord_Howe", "2026-04-05T01:20", "*/30 * * * *",
         ["05 01:30+1100", "05 01:30+1030", "05 02:00+1030"]),
        ("UTC", "2026-03-29", "30 2 * * *", ["29 02:30+0000", "30 02:30+0000"]),
        ("UTC", "2026-01-01", "0 0 29 2 *", ["29 00:00+0000"]),
        ("Europe/Berlin", "2026-01-01", "@daily", ["02 00:00+0100"]),
    ],
)  # fmt: skip
def test_ticks_on_the_wall(zone: str, start: str, cron: str, expected: list[str]) -> None:
    assert local(zone, start, cron, len(expected)) == expected


def by_minutes(cron: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """The minutes whose time on the wall fits: what cron does with a star."""
    fields, tick, found = CronSim(cron, start.replace(tzinfo=None)), start, list[datetime]()
    while (tick := tick + timedelta(minutes=1)) <= end:
        shown = tick.astimezone(zone_of(zone))
        if shown.minute in fields.minutes and shown.hour in fields.hours:
            found += [tick] * (shown.month in fields.months and fields.match_day(shown.date()))
    return found


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", ["*/10 */2 * * *", "15 */3 * * *", "*/30 2 * * *"])
def test_with_a_star_each_minute_on_the_wall_counts(zone: str, cron: str) -> None:
    for start in (datetime(2026, 3, 6, tzinfo=UTC), datetime(2026, 10, 2, tzinfo=UTC)):
        end = start + timedelta(days=31)
        expected = by_minutes(cron, zone, start, end)
        assert list(islice(ticks_after(cron, zone, start), len(expected))) == expected


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES), st.integers(0, 400 * 86400))
def test_it_does_not_matter_from_where_ticks_are_computed(cron: str, zone: str, s: int) -> None:
    after = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=s)
    all_ticks = ticks_after(cron, zone, after - timedelta(days=3))
    later = [tick for tick in islice(all_ticks, 600) if tick > after][:20]

    assert list(islice(ticks_after(cron, zone, after), len(later))) == later


def test_periods_are_counted_from_1970() -> None:
    ticks = list(islice(ticks_after("@every 90s", "UTC", NOON + timedelta(seconds=1)), 2))

    assert ticks == [NOON + timedelta(seconds=90), NOON + timedelta(seconds=180)]
    assert next(ticks_after("@every 90s", "UTC", ticks[0])) == ticks[1]


def due(cron: str, first: datetime, now: datetime, catchup: str) -> list[str]:
    moments = due_ticks(cron, "UTC", first - timedelta.resolution, now, catchup)
    return [f"{moment:%H:%M:%S}" for moment in moments]


@pytest.mark.parametrize(
    ("catchup", "late"),
    [("none", []), ("one", ["11:00:00"]), ("all", ["09:00:00", "10:00:00", "11:00:00"])],
)
def test_late_ticks_are_caught_up_as_asked(catchup: str, late: list[str]) -> None:
    nine, hourly = NOON - timedelta(hours=3), "0 * * * *"

    in_time = NOON + timedelta(seconds=60)
    assert due(hourly, nine, in_time, catchup) == [*late, "12:00:00"]
    assert due(hourly, nine, NOON - timedelta(seconds=1), catchup) == late
    assert due(hourly, nine, NOON + timedelta(minutes=10), catchup) == {
        "none": [], "one": ["12:00:00"], "all": [*late, "12:00:00"],
    }[catchup]  # fmt: skip
    assert due(hourly, NOON, NOON, catchup) == ["12:00:00"]
    assert due(hourly, NOON + timedelta(seconds=1), NOON + timedelta(minutes=5), catchup) == []


@pytest.mark.parametrize("cron", ["@every 1s", "* * * * *"])
def test_of_an_outage_of_years_the_last_hundred_ticks_are_caught_up(cron: str) -> None:
    first = NOON - timedelta(days=2000)
    late = [tick for tick in due_ticks(cron, "Europe/Berlin", first, NOON, "all")
            if tick < NOON - timedelta(minutes=1)]  # fmt: skip

    assert len(late) == 100
    apart = timedelta(seconds=1 if "s" in cron else 60)
    assert all(after - before == apart for before, after in pairwise(late))


def test_a_plan_has_the_next_tick_or_says_why_there_is_none() -> None:
    fires, upcoming = planned_ticks("0 * * * *", "UTC", NOON, NOON, "one")
    assert (fires, upcoming) == ([NOON], NOON + timedelta(hours=1))
    for cron, zone, why in (("0 * * *", "UTC", "five fields"), ("@daily", "Mars", "tz database")):
        with pytest.raises(ValueError, match=why):
            planned_ticks(cron, zone, NOON, NOON, "one")


@pytest.mark.parametrize(
    "cron",
    ["", "x", "* * * *", "0 0 * * * *", "60 * * * *", "0 0 30 2 *", "@every 30", "@every 0.5s",
     "@every 0s", "@every 3000d", "@never", 3, None],
)  # fmt: skip
def test_a_wrong_expression_is_told(cron: object) -> None:
    assert expression_fault(cron)


@pytest.mark.parametrize("cron", [*EXPRESSIONS, "@weekly", "@every 30s", "@every 1h30m"])
def test_a_good_expression_has_no_fault(cron: str) -> None:
    assert expression_fault(cron) is None


@pytest.mark.parametrize("zone", ["", "Europe", "../etc", "Mars/Olympus", "\0", 3, None])
def test_a_wrong_zone_is_told(zone: object) -> None:
    assert zone_fault(zone)


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 3 * * *", "at 03:00 every day (Europe/Berlin)"),
        ("0 9 * * MON-FRI", "at 09:00 on Monday through Friday (Europe/Berlin)"),
        ("@hourly", "at the start of every hour (Europe/Berlin)"),
        ("@every 15m", "every 15m"),
    ],
)
def test_expressions_in_words(cron: str, words: str) -> None:
    assert in_words(cron, "Europe/Berlin") == words
