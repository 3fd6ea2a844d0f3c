"""What the database says of queues and rows of workers that sleep."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.covers import covers
from support.leases import LeaseDatabase

from pgflowd.db.connection import connect
from pgflowd.db.query import execute
from pgflowd.db.workers import look_at_queues, renew_sleeping

STOPPED = """
update pgflow.workers
   set started_at = now() - interval '2 hours', stopped_at = now() - %s::interval,
       last_heartbeat_at = now() - interval '90 min' where worker_id = %s
"""


class Sleeper:
    """A worker that has stopped, and its flow."""

    def __init__(self, own: LeaseDatabase) -> None:
        self.own, self.flow = own, own.flow("a")
        self.id: UUID = own.worker(self.flow)
        own.do(STOPPED, "1 hour", self.id)

    def renew(self) -> None:
        execute(connect(self.own.dsn), renew_sleeping([str(self.id)]))

    def shown(self) -> tuple[bool, int, list[bool]]:
        """Whether the flow sleeps, how many workers it has, and which of its workers sleep."""
        query = "select is_asleep, workers from pgflowd.list_flows() where flow_slug = %s"
        listed = self.own.row(query, self.flow)
        query = "select is_asleep from pgflowd.worker_status where queue_name = %s order by 1"
        return listed.is_asleep, listed.workers, self.own.column(query, self.flow)


@pytest.fixture
def sleeper(own: LeaseDatabase) -> Sleeper:
    return Sleeper(own)


@covers("rule 55")
def test_each_queue_with_a_message_is_told_and_when_it_is_due(own: LeaseDatabase) -> None:
    empty, visible, hidden, never = (own.flow("a") for _ in range(4))
    for flow in (visible, hidden, never):
        own.start(flow, {})
    own.do(f"update pgmq.q_{hidden} set vt = clock_timestamp() + interval '60 s'")
    own.do(f"update pgmq.q_{never} set vt = 'infinity'")

    names = [empty, visible, hidden, never, "gone"]
    found = dict(execute(connect(own.dsn), look_at_queues(names)))

    assert set(found) == {visible, hidden, "gone"}
    assert found[visible] <= 0
    assert 0 < found[hidden] <= 60
    assert found["gone"] == 0


@covers("rule 55")
def test_a_stopped_worker_sleeps_as_long_as_its_row_is_renewed(sleeper: Sleeper) -> None:
    assert sleeper.shown() == (False, 0, [])

    sleeper.renew()
    assert sleeper.shown() == (True, 0, [True])

    age = "update pgflow.workers set last_heartbeat_at = now() - interval '2 min'"
    sleeper.own.do(f"{age} where worker_id = %s", sleeper.id)
    assert sleeper.shown() == (False, 0, [])


@covers("rule 55")
def test_a_worker_that_was_woken_sleeps_no_more(sleeper: Sleeper) -> None:
    sleeper.renew()

    sleeper.own.worker(sleeper.flow)

    assert sleeper.shown() == (False, 1, [False])


@covers("rule 55")
def test_a_locked_row_holds_up_no_renewal(sleeper: Sleeper) -> None:
    with sleeper.own.conn.transaction():
        sleeper.own.do("select from pgflow.workers where worker_id = %s for update", sleeper.id)
        sleeper.renew()

    assert sleeper.shown() == (False, 0, [])
