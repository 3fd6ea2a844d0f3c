"""
The ticks of schedules: the moments at which their runs are to start.

An expression has the five fields of Debian's cron, `@daily` and the like, or `@every 30s`: the
multiples of that time since 1970. cronsim finds the times on the wall; this module makes moments of
them, as cron does where the clock is changed. A fixed time that does not exist comes at the next
one that does, and one that exists twice comes once. Where hour or minute begin with `*`, the clock
on the wall decides: what does not exist does not come, what exists twice comes twice.

Pure but for the time zones, which are read anew each time, so that an update of them counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from heapq import heappop, heappush
from itertools import count, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pgflowd.core.settings.values import format_duration, parse_duration

EVERY = "@every "
NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
LATE = timedelta(minutes=1)  # a tick that is later is one for `Catchup`
MAX_CAUGHT_UP = 100
MAX_PERIOD_S = 366 * 86400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)
_WIDER = 16  # how much farther back each look for late ticks goes than the one before


class Catchup(StrEnum):
    """Which ticks are run that are more than a minute late, since no daemon lived."""

    ONE = "one"  # the last
    NONE = "none"
    ALL = "all"  # the last hundred


def expression_fault(cron: object) -> str | None:
    """What is wrong with an expression."""
    if not isinstance(cron, str):
        return "must be a text, such as '0 3 * * *'"
    if cron.startswith(EVERY):
        seconds = 0.0
        with suppress(ValueError, OverflowError):
            seconds = _period(cron).total_seconds()
        is_good = seconds % 1 == 0 and 1 <= seconds <= MAX_PERIOD_S
        return None if is_good else "must have whole seconds, up to 366 days, as in '@every 30s'"
    if cron.startswith("@"):
        return None if cron in NAMED else f"is not one of {', '.join(NAMED)}, @every 30s"
    if len(cron.split()) != 5:
        return "must have five fields: minute, hour, day of the month, month, day of the week"
    try:
        is_empty = next(CronSim(cron, _EPOCH.replace(tzinfo=None)), None) is None
    except CronSimError as error:
        return f"cannot be read: {str(error).lower()}"
    except ValueError:  # a number of thousands of digits
        return "cannot be read: a number has too many digits"
    return "never comes" if is_empty else None


def zone_fault(name: object) -> str | None:
    """What is wrong with the name of a time zone."""
    try:
        zone_of(name)  # type: ignore[arg-type]
    except (OSError, ValueError, TypeError, AttributeError, LookupError):
        return "is not a name of the tz database, such as 'Europe/Berlin'"
    return None


def zone_of(name: str) -> tzinfo:
    """The zone of this name; UTC needs no database."""
    return UTC if name == "UTC" else ZoneInfo.no_cache(name)


def ticks_after(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    """All ticks after a moment, each once, in their order, in UTC."""
    if cron.startswith(EVERY):
        period = _period(cron)
        first = (after - _EPOCH) // period + 1
        yield from (_EPOCH + number * period for number in count(first))
    zone = zone_of(timezone)
    fields = NAMED.get(cron, cron)
    last = after
    for tick in _in_order(fields, zone, after):
        if tick > last:
            yield tick
            last = tick


def due_ticks(
    cron: str, timezone: str, after: datetime, now: datetime, catchup: str
) -> list[datetime]:
    """The ticks after a moment and up to now that are to be run: those in time, and late ones."""
    until = max(after, now - LATE - timedelta.resolution)
    in_time = takewhile(lambda tick: tick <= now, ticks_after(cron, timezone, until))
    most = {Catchup.ONE: 1, Catchup.ALL: MAX_CAUGHT_UP}.get(Catchup(catchup), 0)
    # the late ones may be of years, and are found without computing all of them
    back, late = _MINUTE, list[datetime]()
    while most and until > after:
        start = max(until - back, after)
        late = list(takewhile(lambda tick: tick <= until, ticks_after(cron, timezone, start)))
        if len(late) >= most or start == after:
            break
        back = min(back * _WIDER, until - after)
    return [*late[-most:], *in_time]


def planned_ticks(
    cron: str, timezone: str, first: datetime, now: datetime, catchup: str
) -> tuple[list[datetime], datetime]:
    """The ticks from a moment up to now that are to be run, and the next one. ValueError."""
    if fault := expression_fault(cron):
        raise ValueError(f"its expression {cron!r} {fault}")
    if fault := zone_fault(timezone):
        raise ValueError(f"its time zone {timezone!r} {fault}")
    upcoming = next(ticks_after(cron, timezone, now), None)
    if upcoming is None:
        raise ValueError(f"its expression {cron!r} has no further tick")
    return due_ticks(cron, timezone, first - timedelta.resolution, now, catchup), upcoming


def in_words(cron: str, timezone: str) -> str:
    """`every 15m`, or `at 03:00 every day (Europe/Berlin)`."""
    if cron.startswith(EVERY):
        return f"every {format_duration(_period(cron).total_seconds())}"
    words = CronSim(NAMED.get(cron, cron), _EPOCH).explain()
    return f"{words[:1].lower()}{words[1:]} ({timezone})"


def _period(cron: str) -> timedelta:
    return timedelta(seconds=parse_duration(cron.removeprefix(EVERY).strip()))


def _in_order(fields: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """The moments of all times on the wall from about `after` on."""
    minute, hour = fields.split()[:2]
    is_fixed = not minute.startswith("*") and not hour.startswith("*")
    second_times: list[datetime] = []  # of times that exist twice
    # the clock may be put back within the day: then earlier times come again
    start = min(_wall(after, zone), _wall(after + _DAY, zone) - _DAY)
    for time in CronSim(fields, start):
        moments = _shown(time, zone)
        while is_fixed and not moments:
            time += _MINUTE
            moments = _shown(time, zone)
        for moment in moments[:1]:
            while second_times and second_times[0] <= moment:
                yield heappop(second_times)
            yield moment
        for moment in () if is_fixed else moments[1:]:
            heappush(second_times, moment)


def _shown(time: datetime, zone: tzinfo) -> list[datetime]:
    """The moments at which a clock on the wall shows this time: none, one or two."""
    both = {time.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(moment for moment in both if _wall(moment, zone) == time)


def _wall(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)
