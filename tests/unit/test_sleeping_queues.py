"""When the sweeper looks at the queues of sleeping workers."""

from __future__ import annotations

from support.covers import covers

from pgflowd.core.messages import Asleep
from pgflowd.core.sweeper import SleepingQueues


def queues(*names, every_s=30.0, now=0.0):
    found = SleepingQueues()
    for name in names:
        found.add(Asleep(name, f"id of {name}", every_s), now)
    return found


def looked(sleepers, now):
    """The queues that are looked at now."""
    return [order.queue for order in sleepers.take_due(now)]


@covers("rule 55")
def test_a_queue_is_looked_at_as_soon_as_its_worker_sleeps_and_then_now_and_then():
    sleepers = queues("a")

    assert looked(sleepers, 0.0) == ["a"]
    assert looked(sleepers, 1.0) == []
    assert sleepers.due == 30.0
    assert looked(sleepers, 30.0) == ["a"]


@covers("rule 55")
def test_queues_that_are_due_at_about_the_same_time_are_looked_at_together():
    sleepers = queues(*(f"q{n}" for n in range(50)))
    for n in range(50):  # they fell asleep one after another
        sleepers.add(Asleep(f"q{n}", "id", 30.0), n / 10)
        sleepers.take_due(n / 10)

    looks = []
    now = 0.0
    while now < 300:
        now = sleepers.due
        looks.append(len(sleepers.take_due(now)))

    assert set(looks) == {50}
    assert len(looks) <= 11


@covers("rule 55")
def test_a_polled_queue_is_looked_at_more_often_and_others_are_not():
    sleepers = queues("slow")
    sleepers.add(Asleep("quick", "id", 5.0), 0.0)
    sleepers.take_due(0.0)

    assert sleepers.due == 5.0
    assert looked(sleepers, 5.0) == ["quick"]


@covers("rule 55")
def test_all_are_looked_at_when_notifications_may_have_been_missed():
    sleepers = queues("a", "b")
    sleepers.take_due(0.0)

    sleepers.look_at_all(1.0)

    assert looked(sleepers, 1.0) == ["a", "b"]


def test_a_queue_can_be_looked_at_earlier_and_no_more():
    sleepers = queues("a", "b")
    sleepers.take_due(0.0)
    sleepers.look_by("a", 0.1)
    sleepers.look_by("a", 99.0)
    assert sleepers.due == 0.1

    sleepers.remove("a")
    sleepers.remove("unknown")

    assert sleepers.worker_ids == ["id of b"]
    assert looked(sleepers, 1.0) == []
