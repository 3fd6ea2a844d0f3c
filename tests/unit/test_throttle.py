"""The listener's throttle: few wakes for many notifications, and none late on an idle worker."""

from __future__ import annotations

from dataclasses import replace

from pgflowd.core.settings.sections import Settings
from pgflowd.processes.listener import MAX_WAKES, Throttle

SETTINGS = replace(Settings(), worker=replace(Settings().worker, notify_throttle_s=0.25))


def test_occasional_starts_are_never_delayed() -> None:
    throttle = Throttle(SETTINGS)

    assert all(throttle.may_pass("q", now=0.2 * start) for start in range(1000))
    assert throttle.due == float("inf")


def test_of_a_flood_ten_wakes_pass_and_one_at_the_end_of_the_time() -> None:
    throttle = Throttle(SETTINGS)

    passed = sum(throttle.may_pass("q", now=0.0001 * number) for number in range(2000))

    assert passed == MAX_WAKES
    assert throttle.due == 0.25
    assert throttle.due_queues(0.24) == []
    assert throttle.due_queues(0.25) == ["q"]
    assert throttle.due == float("inf")


def test_queues_do_not_hold_each_other_back() -> None:
    throttle = Throttle(SETTINGS)
    for _ in range(100):
        throttle.may_pass("busy", now=0.0)

    assert throttle.may_pass("quiet", now=0.0)


def test_a_wake_that_found_no_room_is_tried_again_at_the_end_of_the_time() -> None:
    throttle = Throttle(SETTINGS)

    throttle.hold("q", now=1.0)

    assert not throttle.may_pass("q", now=1.1)
    assert throttle.due_queues(1.25) == ["q"]


def test_a_wake_that_found_no_room_waits_a_little_where_nothing_is_throttled() -> None:
    worker = replace(SETTINGS.worker, notify_throttle_s=0.0)
    throttle = Throttle(replace(SETTINGS, worker=worker))

    throttle.hold("q", now=1.0)

    assert 1.0 < throttle.due < 1.25
    assert throttle.due_queues(1.0) == []
    assert throttle.due_queues(throttle.due) == ["q"]


def test_after_a_wake_of_all_workers_nothing_is_delayed() -> None:
    throttle = Throttle(SETTINGS)
    throttle.hold("q", now=1.0)

    throttle.clear()

    assert throttle.due == float("inf")
    assert throttle.may_pass("q", now=1.0)
