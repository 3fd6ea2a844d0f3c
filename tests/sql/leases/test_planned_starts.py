"""
Runs that begin later: never before their time, once, and never after they expire.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from support.leases import LeaseDatabase
from support.rows_read import rows_read

from pgflowd.testing.until import until

START = """
    select run_id, status from pgflowd.start(
      %(flow)s, %(input)s::jsonb, %(run_id)s, now() + %(begins)s::interval,
      now() + %(expires)s::interval, %(labels)s::jsonb, %(key)s)
"""
NOW = "update pgflowd.runs set start_at = start_at - %s::interval, due_at = due_at - %s::interval"
LATER = "1 hour"


def start(db: LeaseDatabase, flow: str, conn: Any = None, **wishes: Any) -> Any:
    given = dict.fromkeys(("run_id", "begins", "expires", "labels", "key"))
    given |= {"flow": flow, "input": "{}", **wishes}
    (found,) = (conn or db.conn).execute(START, given).fetchall()
    return found


def planned(db: LeaseDatabase, flow: str | None = None, **wishes: Any) -> UUID:
    found = start(db, flow or db.flow(), **{"begins": LATER, **wishes})
    assert found.status == "scheduled"
    return UUID(str(found.run_id))


def status(db: LeaseDatabase, run: UUID) -> str | None:
    return db.value("select status from pgflowd.run_status where run_id = %s", run)


def process(db: LeaseDatabase, conn: Any = None) -> int | None:
    return db.row("select done from pgflowd.process_due()", conn=conn).done


def come(db: LeaseDatabase, *columns: str) -> None:
    """Let an hour and a minute pass for these columns of all runs."""
    for column in columns:
        db.do(f"update pgflowd.runs set {column} = {column} - interval '61 minutes'")


def begin(db: LeaseDatabase) -> None:
    come(db, "start_at", "due_at")


def expire(db: LeaseDatabase) -> None:
    come(db, "expires_at", "due_at")


def test_a_planned_run_begins_at_its_time_and_not_before(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = planned(db, flow, input='{"x": [1, "é"]}', labels='{"customer": "42"}')

    assert process(db) == 0
    assert db.claim(flow, db.worker(flow)) == []
    assert db.value("select count(*) from pgflow.runs") == 0
    assert status(db, run) == "scheduled"

    begin(db)
    assert process(db) == 1

    task = db.claim_one(flow, db.worker(flow))
    assert (task.run_id, status(db, run)) == (run, "started")
    assert db.value("select input from pgflow.runs where run_id = %s", run) == {"x": [1, "é"]}
    assert process(db) == 0
    db.complete(task)
    assert status(db, run) == "completed"


def test_a_run_that_begins_at_once_has_its_labels(own: LeaseDatabase) -> None:
    flow = own.flow()
    found = start(own, flow, labels='{"customer": "42"}')
    other = own.start(flow)

    def listed(labels: dict[str, str]) -> list[Any]:
        query = "select run_id from pgflowd.list_runs(labels => %s::jsonb)"
        return own.column(query, json.dumps(labels))

    assert found.status == "started"
    assert listed({"customer": "42"}) == [found.run_id]
    assert listed({"customer": "43"}) == []
    assert other in own.column("select run_id from pgflowd.list_runs()")
    own.complete(own.claim(flow, own.worker(flow))[0])


def test_runs_that_have_not_begun_are_listed_and_found(own: LeaseDatabase) -> None:
    flow = own.flow()
    run = planned(own, flow, labels='{"a": "b"}')
    begun = own.start(flow)

    def listed(**given: Any) -> list[tuple[Any, ...]]:
        named = ", ".join(f"{name} => %s" for name in given)
        query = f"select run_id, status, started_at from pgflowd.list_runs({named})"
        return [tuple(row) for row in own.rows(query, *given.values())]

    assert [row[0] for row in listed()] == [begun, run]
    assert [row[0] for row in listed(max_runs=1)] == [begun]
    assert listed(statuses=["scheduled"]) == [(run, "scheduled", None)]
    assert listed(flow_slug="other", statuses=["scheduled"]) == []
    found = own.rows("select run_id from pgflowd.find_runs(%s)", run.hex[-9:])
    assert [row.run_id for row in found] == [run]
    assert own.value("select pgflowd.active_runs(%s)", flow) == 2


def test_a_planned_run_that_expires_never_begins(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = planned(db, flow, expires="2 hours")
    late = start(db, flow, expires="-1 s")
    begin(db)
    db.do("update pgflowd.runs set expires_at = now() - interval '1 s' where run_id = %s", run)

    assert process(db) == 1

    assert (status(db, run), late.status, status(db, late.run_id)) == ("expired",) * 3
    assert db.value("select count(*) from pgflow.runs") == 0
    with pytest.raises(psycopg.Error, match="has never begun: it is expired") as error:
        db.retry(run)
    assert error.value.sqlstate == "PF004"
    with pytest.raises(psycopg.Error, match="it is expired") as error:
        db.cancel(run)
    assert error.value.sqlstate == "PF003"


def test_a_started_run_that_expires_ends_with_its_running_tasks(db: LeaseDatabase) -> None:
    flow = db.flow("a", "b:a")
    run = start(db, flow, expires=LATER).run_id
    worker = db.worker(flow)
    task = db.claim_one(flow, worker)
    assert process(db) == 0

    expire(db)
    assert process(db) == 1

    assert status(db, run) == "expired"
    assert db.heartbeat(worker, task) == ["cancel"]
    assert process(db) == 0


def test_a_run_that_ends_in_time_does_not_expire(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = start(db, flow, expires=LATER).run_id
    db.complete(db.claim_one(flow, db.worker(flow)))

    expire(db)
    process(db)

    assert status(db, run) == "completed"
    assert process(db) == 0


def test_an_expired_run_can_be_retried_and_has_no_end_then(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = start(db, flow, expires=LATER).run_id
    expire(db)
    process(db)

    with pytest.raises(psycopg.Error, match="was cancelled"):
        db.retry(run)
    assert db.retry(run, cancelled=True) == 1

    assert status(db, run) == "started"
    assert process(db) == 0
    db.complete(db.claim_one(flow, db.worker(flow)))
    assert status(db, run) == "completed"


def test_a_failed_run_that_is_retried_in_time_still_expires(db: LeaseDatabase) -> None:
    flow = db.flow(max_attempts=1)
    run = start(db, flow, expires=LATER, labels='{"a": "b"}').run_id
    db.fail(db.claim_one(flow, db.worker(flow)), "no")
    assert status(db, run) == "failed"

    db.retry(run)
    expire(db)
    process(db)

    assert status(db, run) == "expired"
    assert db.value("select labels from pgflowd.runs") == {"a": "b"}


def test_a_planned_run_that_is_cancelled_never_begins(db: LeaseDatabase) -> None:
    run = planned(db)

    assert (db.cancel(run), db.cancel(run)) == ("cancelled", "repeated")
    process(db)
    begin(db)

    assert process(db) == 0
    assert status(db, run) == "cancelled"
    with pytest.raises(psycopg.Error, match="has never begun: it is cancelled"):
        db.retry(run, cancelled=True)


def test_a_run_is_rescheduled(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = planned(db, flow)
    reschedule = "select pgflowd.reschedule(%s, now() + %s::interval, now() + %s::interval)"

    assert db.value(reschedule, run, "-1 s", LATER) == "scheduled"
    assert process(db) == 1
    assert status(db, run) == "started"

    with pytest.raises(psycopg.Error, match="has begun already") as error:
        db.value(reschedule, run, "1 s", None)
    assert error.value.sqlstate == "PF003"
    assert db.value(reschedule, run, None, "-1 s") == "started"
    assert process(db) == 1
    assert status(db, run) == "expired"
    with pytest.raises(psycopg.Error, match="has ended") as error:
        db.value(reschedule, run, None, LATER)
    assert error.value.sqlstate == "PF003"
    with pytest.raises(psycopg.Error, match="there is no run") as error:
        db.value(reschedule, uuid4(), None, LATER)
    assert error.value.sqlstate == "PF002"


def test_a_run_without_wishes_can_be_given_an_end(db: LeaseDatabase) -> None:
    run = db.start(db.flow())

    db.value("select pgflowd.reschedule(%s, expires_at => now() - interval '1 s')", run)
    process(db)

    assert status(db, run) == "expired"


def test_a_key_names_one_run_ended_or_not(db: LeaseDatabase) -> None:
    flow, other = db.flow(), db.flow()
    first = start(db, flow, key="order 42")

    assert first.status == "started"
    assert start(db, flow, key="order 42") == (first.run_id, "existing")
    db.complete(db.claim_one(flow, db.worker(flow)))
    assert start(db, flow, key="order 42", begins=LATER) == (first.run_id, "existing")
    assert start(db, other, key="order 42").run_id != first.run_id
    assert start(db, flow, key="order 43").run_id != first.run_id
    assert UUID(str(first.run_id)).version == 8
    for task in db.claim(flow, db.worker(flow)) + db.claim(other, db.worker(other)):
        db.complete(task)


def test_of_two_who_start_a_key_at_once_one_gets_the_others_run(own: LeaseDatabase) -> None:
    flow, first = own.flow(), own.connect()
    with first.transaction():
        found = start(own, flow, first, key="a")
        second = own.meanwhile(lambda conn: start(own, flow, conn, key="a"))
    assert second.result() == (found.run_id, "existing")


@pytest.mark.parametrize(
    "wishes",
    [
        {"begins": "2 hours", "expires": LATER},
        {"expires": "9000 years"},
        {"labels": "[1]"},
        {"labels": '{"a": 1}'},
        {"key": ""},
        {"key": "a", "run_id": UUID(int=1)},
    ],
    ids=str,
)
def test_wishes_that_cannot_be_are_refused(own: LeaseDatabase, wishes: dict[str, Any]) -> None:
    with pytest.raises(psycopg.Error) as error:
        start(own, own.flow(), **wishes)
    assert error.value.sqlstate == "PF009"
    assert own.value("select count(*) from pgflowd.runs") == 0


def test_a_planned_start_is_checked_at_once(own: LeaseDatabase) -> None:
    with pytest.raises(psycopg.Error, match="there is no flow nothing") as error:
        start(own, "nothing", begins=LATER)
    assert error.value.sqlstate == "PF002"
    with pytest.raises(psycopg.Error, match="has root map steps but input is not an array"):
        start(own, own.flow("m*"), begins=LATER)
    begun = own.start(own.flow())
    with pytest.raises(psycopg.errors.UniqueViolation):
        start(own, own.flow(), begins=LATER, run_id=begun)
    run = planned(own)
    with pytest.raises(psycopg.errors.UniqueViolation):
        start(own, own.flow(), begins=LATER, run_id=run)


def test_a_run_that_cannot_begin_spoils_no_other(own: LeaseDatabase) -> None:
    bad, good = own.flow(), own.flow()
    runs = [planned(own, bad), planned(own, good)]
    own.do("select pgflow.add_step(%s, 'm', step_type => 'map')", bad)
    begin(own)
    notices: list[str | None] = []
    own.conn.add_notice_handler(lambda notice: notices.append(notice.message_detail))

    assert process(own) == 2

    assert [status(own, run) for run in runs] == ["scheduled", "started"]
    assert [json.loads(detail or "{}")["run"] for detail in notices if detail] == [str(runs[0])]
    assert process(own) == 0
    own.do("update pgflowd.runs set due_at = now() where state = 'planned'")
    own.do("select pgflow.delete_flow_and_data(%s)", bad)
    assert own.column("select run_id from pgflowd.run_status") == [runs[1]]


def test_what_is_deleted_is_forgotten(own: LeaseDatabase) -> None:
    flow = own.flow()
    gone, kept = planned(own, flow), planned(own, flow)
    own.cancel(gone)
    process(own)
    own.do("update pgflowd.runs set cancelled_at = now() - interval '2 days' where state = 'ended'")
    begun = start(own, flow, labels='{"a": "b"}').run_id
    own.complete(own.claim_one(flow, own.worker(flow)))
    own.do(
        "update pgflow.runs set started_at = now() - interval '2 days',"
        "                       completed_at = now() - interval '2 days'"
    )

    (pruned,) = own.rows("select deleted_runs from pgflow.prune_data_older_than('1 day', null)")

    assert pruned.deleted_runs == 2
    assert own.column("select run_id from pgflowd.runs") == [kept]
    assert begun not in own.column("select run_id from pgflowd.run_status")
    own.do("select pgflow.delete_flow_and_data(%s)", flow)
    assert own.value("select count(*) from pgflowd.runs") == 0


def test_a_signal_to_a_planned_run_waits_for_it(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = planned(db, flow)
    db.do("select pgflowd.signal(%s, 'paid', '12')", run)
    process(db)
    assert db.row("select * from pgflowd.process_due()").done == 0
    begin(db)
    process(db)

    task = db.claim_one(flow, db.worker(flow))
    db.suspend(task, {"kind": "signal", "name": "paid", "checkpoint": "signal paid 1"})

    assert db.value("select data from pgflowd.checkpoints") == {"got": 12}


def test_a_run_whose_flow_is_being_deleted_holds_up_no_sweep(own: LeaseDatabase) -> None:
    flow, other = own.flow(), own.connect()
    planned(own, flow)
    begin(own)
    with other.transaction():
        other.execute("select pgflow.delete_flow_and_data(%s)", [flow])
        assert process(own) == 0
    assert process(own) == 0
    assert own.value("select count(*) from pgflowd.runs") == 0


def test_cancel_and_start_of_a_run_meet_and_one_wins(own: LeaseDatabase) -> None:
    flow, other = own.flow(), own.connect()
    run = planned(own, flow)
    begin(own)
    with other.transaction():
        other.execute("select pgflowd.process_due()")
        cancelled = own.meanwhile(lambda conn: own.cancel(run, conn))
    assert cancelled.result() == "cancelled"
    assert own.value("select status from pgflow.runs where run_id = %s", run) == "failed"

    run = planned(own, flow)
    begin(own)
    with other.transaction():
        own.cancel(run, other)
        assert process(own) == 0
    process(own)
    assert status(own, run) == "cancelled"
    assert own.value("select count(*) from pgflow.runs where run_id = %s", run) == 0


def test_a_start_that_is_not_committed_is_seen_when_it_is(own: LeaseDatabase) -> None:
    flow, other = own.flow(), own.connect()
    with other.transaction():
        run = start(own, flow, other, begins="1 ms").run_id
        other.execute("select pg_sleep(0.01)")
        assert process(own) == 0
    until(lambda: process(own) == 1, within_s=5)
    assert status(own, run) == "started"


def test_thousands_of_planned_runs_cost_a_sweep_nothing(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.do(
        "insert into pgflowd.runs (run_id, flow_slug, state, input, start_at, due_at)"
        " select gen_random_uuid(), %s, 'planned', '{}', now() + nr * interval '1 h',"
        "        now() + nr * interval '1 h' from generate_series(1, 5000) as nr",
        flow,
    )
    assert rows_read(own.conn, "select pgflowd.process_due()") < 20
