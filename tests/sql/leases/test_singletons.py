"""
Runs with a singleton key: one at a time has it; others wait in line, are refused, or replace it.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.covers import covers
from support.leases import LeaseDatabase

from pgflowd.testing.until import until

START = """
    select run_id, status from pgflowd.start(
      %(flow)s, '{}', singleton_key => %(key)s, on_conflict => %(on_conflict)s,
      start_at => now() + %(begins)s::interval, expires_at => now() + %(expires)s::interval,
      key => %(id_key)s)
"""
DUE = "select count(*) from pgflowd.runs where due_at <= now() + interval '1 s'"


def start(
    db: LeaseDatabase, flow: str, on_conflict: str = "wait", key: str = "k", conn: Any = None,
    **wishes: Any,
) -> Any:  # fmt: skip
    given = dict.fromkeys(("begins", "expires", "id_key")) | wishes
    given |= {"flow": flow, "key": key, "on_conflict": on_conflict}
    return (conn or db.conn).execute(START, given).fetchone()


def process(db: LeaseDatabase) -> None:
    """Sweep until nothing is due."""

    def is_quiet() -> bool:
        db.rows("select * from pgflowd.process_due()")
        return bool(db.value(DUE) == 0)

    until(is_quiet, within_s=10)


def begun(db: LeaseDatabase) -> list[UUID]:
    return db.column("select run_id from pgflow.runs order by started_at")


def status(db: LeaseDatabase, run: Any) -> str:
    return str(db.value("select status from pgflowd.run_status where run_id = %s", run.run_id))


def work(db: LeaseDatabase, flow: str) -> None:
    for task in db.claim(flow, db.worker(flow)):
        db.complete(task)
    process(db)


def come(db: LeaseDatabase, run: Any, *columns: str) -> None:
    """Let these moments of a run have come."""
    changed = ", ".join(f"{name} = now()" for name in (*columns, "due_at"))
    db.do(f"update pgflowd.runs set {changed} where run_id = %s", run.run_id)


@covers("G17")
def test_runs_of_a_key_begin_one_after_the_other_in_their_order(own: LeaseDatabase) -> None:
    flow = own.flow()
    runs = [start(own, flow) for _ in range(4)]
    other = start(own, flow, key="another")
    assert [run.status for run in runs] == ["started", "blocked", "blocked", "blocked"]
    assert other.status == "started"
    process(own)
    assert set(begun(own)) == {runs[0].run_id, other.run_id}
    assert status(own, runs[3]) == "blocked"
    query = "select blocked_by from pgflowd.run_status where run_id = %s"
    assert own.value(query, runs[3].run_id) == [runs[0].run_id]

    for _ in runs:
        work(own, flow)

    assert [run for run in begun(own) if run != other.run_id] == [run.run_id for run in runs]


def test_a_line_at_rest_is_due_for_nobody(own: LeaseDatabase) -> None:
    flow = own.flow()
    for _ in range(5):
        start(own, flow)
    process(own)
    assert own.value("select count(*) from pgflowd.runs where due_at is not null") == 0
    assert own.row("select done, next_s from pgflowd.process_due()") == (0, None)


def test_existing_is_the_run_that_has_the_key_or_the_first_in_line(own: LeaseDatabase) -> None:
    flow = own.flow()
    first = start(own, flow, "existing")
    assert first.status == "started"
    assert start(own, flow, "existing") == (first.run_id, "existing")
    scheduled = start(own, flow, key="later", begins="1 hour")
    assert start(own, flow, "existing", key="later") == (scheduled.run_id, "existing")


def test_reject_names_the_run_that_has_the_key(own: LeaseDatabase) -> None:
    flow = own.flow()
    first = start(own, flow, "reject")
    with pytest.raises(psycopg.Error, match=f"run {first.run_id} has the singleton key 'k'") as e:
        start(own, flow, "reject")
    assert e.value.sqlstate == "PF006"
    assert own.value("select count(*) from pgflowd.runs") == 1


def test_who_does_not_have_to_know_waits_for_no_other_client(own: LeaseDatabase) -> None:
    flow, other = own.flow(), own.connect()
    with other.transaction():
        first = start(own, flow, conn=other)
        second, third = start(own, flow), start(own, flow, "replace", key="k")
        knowing = own.meanwhile(lambda conn: start(own, flow, "existing", conn=conn))
        own.rows("select * from pgflowd.process_due()")
        assert (first.status, second.status, third.status) == ("started", "blocked", "blocked")
    assert knowing.result() == (first.run_id, "existing")
    process(own)
    assert [status(own, run) for run in (first, second, third)] == [
        "cancelled", "cancelled", "started",
    ]  # fmt: skip


def test_a_starter_that_dies_leaves_the_key_to_the_next(own: LeaseDatabase) -> None:
    flow, other = own.flow(), own.connect()
    other.execute("begin")
    first = start(own, flow, conn=other)
    second = start(own, flow)
    own.rows("select pg_terminate_backend(%s, 5000)", other.info.backend_pid)
    process(own)
    assert begun(own) == [second.run_id] != [first.run_id]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_start_that_reads_by_an_old_snapshot_goes_into_line(
    own: LeaseDatabase, isolation: str
) -> None:
    flow, other = own.flow(), own.connect()
    other.execute(f"begin isolation level {isolation}".encode())
    other.execute("select from pgflowd.runs")
    first = start(own, flow)
    second = start(own, flow, conn=other)
    other.execute("commit")
    assert (first.status, second.status) == ("started", "blocked")
    process(own)
    assert begun(own) == [first.run_id]
    work(own, flow)
    assert begun(own) == [first.run_id, second.run_id]


@covers("G17")
@pytest.mark.parametrize("end", ["complete", "cancel", "fail", "expire", "delete"])
def test_the_key_is_free_when_its_holder_ends_in_any_way(own: LeaseDatabase, end: str) -> None:
    flow, doomed = own.flow(max_attempts=1), own.flow(max_attempts=1)
    first, second = start(own, doomed, expires="1 hour"), start(own, flow)
    process(own)
    assert begun(own) == [first.run_id]
    if end == "complete":
        own.complete(own.claim_one(doomed, own.worker(doomed)))
    elif end == "cancel":
        own.cancel(first.run_id)
    elif end == "fail":
        own.fail(own.claim_one(doomed, own.worker(doomed)), "no")
    elif end == "expire":
        come(own, first, "expires_at")
    else:
        own.do("select pgflow.delete_flow_and_data(%s)", doomed)
    process(own)
    assert second.run_id in begun(own)


def test_a_run_without_tasks_gives_its_key_on(own: LeaseDatabase) -> None:
    empty, flow = own.flow("a*"), own.flow()
    query = "select status from pgflowd.start(%s, '[]', singleton_key => 'k')"
    assert own.column(query, empty) == ["started"]
    second = start(own, flow)
    own.rows("select run_id from pgflowd.start(%s, '[]', singleton_key => 'k')", empty)
    last = start(own, flow)
    process(own)
    work(own, flow)
    assert (status(own, second), status(own, last)) == ("completed", "started")


@covers("G17")
def test_the_next_begins_only_when_the_handlers_of_a_cancelled_run_have_ended(
    own: LeaseDatabase,
) -> None:
    flow = own.flow()
    first = start(own, flow)
    task = own.claim_one(flow, own.worker(flow))
    second = start(own, flow, "replace")

    def sweep() -> bool:
        own.rows("select * from pgflowd.process_due()")
        return status(own, first) == "cancelled"

    until(sweep, within_s=10)
    assert begun(own) == [first.run_id]
    assert own.fail(task, "killed") == "late"
    process(own)
    assert begun(own) == [first.run_id, second.run_id]


def test_a_lapsed_lease_of_a_cancelled_run_holds_up_nobody(own: LeaseDatabase) -> None:
    flow = own.flow()
    first = start(own, flow)
    own.claim_one(flow, own.worker(flow))
    second = start(own, flow)
    own.cancel(first.run_id)
    own.do("update pgflowd.attempts set lease_until = now()")
    process(own)
    assert begun(own) == [first.run_id, second.run_id]


def test_the_next_moves_up_when_the_first_in_line_ends(own: LeaseDatabase) -> None:
    flow, other = own.flow(), own.connect()
    runs = [start(own, flow) for _ in range(4)]
    process(own)
    with other.transaction():
        own.cancel(runs[1].run_id, other)
        for task in own.claim(flow, own.worker(flow)):
            own.complete(task)
        own.rows("select * from pgflowd.process_due()")
        assert begun(own) == [runs[0].run_id]
    process(own)
    assert begun(own) == [runs[0].run_id, runs[2].run_id]


def test_a_run_that_expires_in_line_never_begins(own: LeaseDatabase) -> None:
    flow = own.flow()
    first, second, third = start(own, flow), start(own, flow, expires="1 hour"), start(own, flow)
    process(own)
    come(own, second, "expires_at")
    process(own)
    assert status(own, second) == "expired"
    work(own, flow)
    assert begun(own) == [first.run_id, third.run_id]


def test_a_scheduled_run_joins_the_line_when_its_time_has_come(own: LeaseDatabase) -> None:
    flow = own.flow()
    later, first = start(own, flow, begins="1 hour"), start(own, flow)
    assert (later.status, first.status) == ("scheduled", "started")
    process(own)
    second = start(own, flow)
    come(own, later, "start_at")
    process(own)
    assert status(own, later) == "blocked"
    work(own, flow)
    assert begun(own) == [first.run_id, later.run_id]
    work(own, flow)
    assert begun(own)[-1] == second.run_id


def test_a_run_that_is_put_off_leaves_the_line(own: LeaseDatabase) -> None:
    flow = own.flow()
    runs = [start(own, flow) for _ in range(3)]
    process(own)
    query = "select pgflowd.reschedule(%s, now() + interval '1 hour')"
    assert own.value(query, runs[1].run_id) == "scheduled"
    work(own, flow)
    assert begun(own) == [runs[0].run_id, runs[2].run_id]
    assert own.value("select pgflowd.reschedule(%s, now())", runs[1].run_id) == "blocked"
    process(own)
    work(own, flow)
    assert begun(own)[-1] == runs[1].run_id


def test_who_replaces_leaves_alone_what_is_scheduled(own: LeaseDatabase) -> None:
    flow = own.flow()
    later, first, second = start(own, flow, begins="1 hour"), start(own, flow), start(own, flow)
    last = start(own, flow, "replace")
    process(own)
    found = [status(own, run) for run in (later, first, second, last)]
    assert found == ["scheduled", "cancelled", "cancelled", "started"]


def test_of_a_chain_that_replaces_the_last_one_is_left(own: LeaseDatabase) -> None:
    flow = own.flow()
    runs = [start(own, flow, "replace") for _ in range(10)]
    process(own)
    assert begun(own) == [runs[0].run_id, runs[-1].run_id]
    assert [status(own, run) for run in runs] == ["cancelled"] * 9 + ["started"]
    query = "select cancel_reason from pgflowd.run_status where run_id = %s"
    assert own.value(query, runs[0].run_id) == f"replaced by run {runs[-1].run_id}"


def test_who_replaces_waits_until_the_run_is_free(own: LeaseDatabase) -> None:
    flow, other = own.flow(), own.connect()
    first, second = start(own, flow), start(own, flow, "replace")
    with other.transaction():
        other.execute("select from pgflow.runs for update")
        own.rows("select * from pgflowd.process_due()")
        assert (status(own, first), status(own, second)) == ("started", "blocked")
    process(own)
    assert (status(own, first), status(own, second)) == ("cancelled", "started")


def test_a_run_that_cannot_be_started_is_named_and_the_others_wait_behind_it(
    own: LeaseDatabase,
) -> None:
    flow, notices = own.flow(), []
    own.conn.add_notice_handler(lambda notice: notices.append(notice.sqlstate))
    runs = [start(own, flow) for _ in range(3)]
    own.do(
        "update pgflowd.runs set flow_slug = %s where run_id = %s", own.flow("a*"), runs[1].run_id
    )
    work(own, flow)
    assert (begun(own), notices) == ([runs[0].run_id], ["PF013"])
    own.cancel(runs[1].run_id)
    process(own)
    assert begun(own) == [runs[0].run_id, runs[2].run_id]


def test_the_deletion_of_the_first_in_line_lets_the_next_one_begin(own: LeaseDatabase) -> None:
    flow, doomed = own.flow(), own.flow("a*")
    runs = [start(own, flow) for _ in range(3)]
    own.do("update pgflowd.runs set flow_slug = %s where run_id = %s", doomed, runs[1].run_id)
    work(own, flow)
    own.do("select pgflow.delete_flow_and_data(%s)", doomed)
    process(own)
    assert begun(own) == [runs[0].run_id, runs[2].run_id]


def test_a_run_comes_to_rest_only_behind_one_that_nobody_deletes(own: LeaseDatabase) -> None:
    flow, doomed, other = own.flow(), own.flow(), own.connect()
    start(own, doomed)
    with other.transaction():
        other.execute("select pgflow.delete_flow_and_data(%s)", [doomed])
        second = start(own, flow)
        own.rows("select * from pgflowd.process_due()")
        assert own.value(DUE) == 1
    process(own)
    assert begun(own) == [second.run_id]


def test_an_ended_holder_is_retried_only_while_its_key_is_free(own: LeaseDatabase) -> None:
    flow = own.flow()
    first, second = start(own, flow), start(own, flow)
    own.cancel(first.run_id)
    process(own)
    with pytest.raises(psycopg.Error, match=f"run {second.run_id} has its singleton key") as error:
        own.retry(first.run_id, cancelled=True)
    assert error.value.sqlstate == "PF006"
    own.cancel(second.run_id)
    process(own)

    own.retry(first.run_id, cancelled=True)
    assert start(own, flow, "existing") == (first.run_id, "existing")
    work(own, flow)
    assert start(own, flow).status == "started"


def test_a_retry_before_the_key_is_given_on_keeps_it(own: LeaseDatabase) -> None:
    flow = own.flow()
    first, second = start(own, flow), start(own, flow)
    own.cancel(first.run_id)
    own.retry(first.run_id, cancelled=True)
    process(own)
    assert (status(own, first), status(own, second)) == ("started", "blocked")


def test_a_start_with_both_keys_gets_its_own_run_again(own: LeaseDatabase) -> None:
    flow = own.flow()
    first = start(own, flow, "reject", id_key="order 42")
    assert start(own, flow, "reject", id_key="order 42") == (first.run_id, "existing")
    waiting = start(own, flow, id_key="order 43")
    assert waiting.status == "blocked"
    assert start(own, flow, "reject", id_key="order 43") == (waiting.run_id, "existing")


@pytest.mark.parametrize(
    "wish", ["singleton_key => repeat('k', 5000)", "on_conflict => 'reject'", "on_conflict => null",
             "singleton_key => 'k', on_conflict => 'perhaps'"],
)  # fmt: skip
def test_wishes_that_cannot_be_are_refused(own: LeaseDatabase, wish: str) -> None:
    with pytest.raises(psycopg.Error) as error:
        own.rows(f"select pgflowd.start(%s, '{{}}', {wish})", own.flow())
    assert error.value.sqlstate == "PF009"


def test_a_person_with_a_task_of_a_cancelled_run_holds_up_nobody(own: LeaseDatabase) -> None:
    flow = own.flow()
    first = start(own, flow)
    own.row("select * from pgflowd.task_claim(%s, null, '3 days', 'ann')", flow)
    second = start(own, flow)
    own.cancel(first.run_id)
    process(own)
    assert begun(own) == [first.run_id, second.run_id]


MOVE = "select pgflowd.reschedule(%s, singleton_key => %s)"


@covers("promise 9")
def test_a_run_in_line_gets_another_key_and_those_behind_it_move_up(own: LeaseDatabase) -> None:
    flow = own.flow()
    holder, first, second = start(own, flow), start(own, flow), start(own, flow)
    other = start(own, flow, key="other")
    process(own)

    assert own.value(MOVE, first.run_id, "other") == "blocked"
    process(own)
    own.cancel(holder.run_id)
    process(own)

    assert (status(own, first), status(own, second)) == ("blocked", "started")
    own.cancel(other.run_id)
    process(own)
    assert status(own, first) == "started"
    data = "select data -> 'before' ->> 'singleton_key' from pgflowd.actions"
    assert own.column(data + " where action = 'reschedule'") == ["k"]


def test_a_run_in_line_without_a_key_begins(own: LeaseDatabase) -> None:
    flow = own.flow()
    start(own, flow)
    waiting = start(own, flow)

    own.value(MOVE, waiting.run_id, "")
    process(own)

    assert status(own, waiting) == "started"


def test_who_has_a_key_keeps_it(own: LeaseDatabase) -> None:
    run = start(own, own.flow())

    with pytest.raises(psycopg.Error, match="has begun already") as error:
        own.value(MOVE, run.run_id, "other")

    assert error.value.sqlstate == "PF003"
