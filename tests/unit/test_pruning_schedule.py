"""When the sweeper prunes, and which database has grown too much."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from pgflowd.core.sweeper import (
    EVERY_S,
    MANY_BYTES,
    Kept,
    Pruned,
    PruneSchedule,
    RunPlace,
    growth_problem,
    told_retention,
)

PLACE = RunPlace(datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1))


def test_it_begins_at_the_oldest_run_and_rests_as_long_as_each_part_took() -> None:
    schedule = PruneSchedule()
    assert schedule.look_at == float("inf")

    schedule.connected(5.0)
    assert (schedule.look_at, schedule.place) == (5.0, None)
    schedule.pruned(5.0, 5.5, Pruned(100, PLACE))
    assert (schedule.look_at, schedule.place) == (6.0, PLACE)
    schedule.pruned(6.0, 6.1, Pruned(3, None))
    assert (schedule.look_at, schedule.place) == (6.1 + EVERY_S, None)


def test_who_finds_another_sweeper_at_it_comes_again_in_an_hour() -> None:
    schedule = PruneSchedule()
    schedule.connected(5.0)

    schedule.pruned(5.0, 5.1, Pruned(None, None))

    assert schedule.look_at == 5.1 + EVERY_S


def test_a_failure_is_tried_again_after_growing_pauses_from_the_oldest_on() -> None:
    schedule = PruneSchedule()
    schedule.connected(0.0)
    schedule.pruned(0.0, 0.0, Pruned(100, PLACE))

    pauses = []
    for _ in range(9):
        schedule.failed(0.0)
        pauses.append(schedule.look_at)
    assert pauses[:3] == [60.0, 120.0, 240.0] and pauses[-1] == EVERY_S
    assert schedule.place is None
    schedule.pruned(0.0, 0.0, Pruned(1, None))
    schedule.failed(0.0)
    assert schedule.look_at == 60.0


def test_a_large_database_without_a_retention_is_a_warning() -> None:
    def found(size: int, completed: str | None) -> str | None:
        problem = growth_problem(Kept(size, 7, None, completed, None))
        return problem and problem.code

    assert found(MANY_BYTES, None) == "W326"
    assert found(MANY_BYTES - 1, None) is None
    assert found(10 * MANY_BYTES, "30d") is None


def test_the_retention_is_told_in_words() -> None:
    def told(completed: str | None, failed: str | None) -> str:
        return told_retention(Kept(1, 1, None, completed, failed))

    assert told(None, None) == "runs are kept for ever"
    assert told("30d", "30d") == "runs are kept for 30d"
    assert told("30d", None) == "completed runs are kept for 30d, others for ever"
