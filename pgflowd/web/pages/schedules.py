"""The schedules and their next ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from pgflowd.core.documents import Hidden
from pgflowd.core.documents.schedules import ListedSchedule
from pgflowd.core.ticks import expression_fault, ticks_after, zone_fault, zone_of
from pgflowd.db.query import database_time, execute_together
from pgflowd.db.schedules import list_schedules
from pgflowd.web.pages.page import Page, PageRequest

TICKS = 5


@dataclass(frozen=True)
class ShownSchedules:
    """The schedules by their names, as they were at `now`."""

    schedules: Sequence[ListedSchedule]
    now: Hidden[datetime]

    def ticks(self, schedule: ListedSchedule) -> list[datetime]:
        """The next ticks, as the clock of their zone shows them; none if it cannot be read."""
        cron, zone = schedule.cron, schedule.timezone
        if expression_fault(cron) or zone_fault(zone):
            return []
        ticks = islice(ticks_after(cron, zone, self.now), TICKS)
        return [tick.astimezone(zone_of(zone)) for tick in ticks]


def schedule_list(request: PageRequest) -> ShownSchedules:
    found, now = execute_together(request.conn, [list_schedules(), database_time()])
    return ShownSchedules(found, now)


PAGES = (
    Page("/schedules", "schedules.html", schedule_list, lambda _: ["pgflowd", "schedules", "list"]),
)
