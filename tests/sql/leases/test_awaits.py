"""
Runs that begin after others: when all of these have ended, once; or never, if one did not complete.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from support.covers import covers
from support.leases import LeaseDatabase, element

START = """
    select run_id, status from pgflowd.start(
      %(flow)s, '{}', %(run_id)s, start_at => now() + %(begins)s::interval,
      expires_at => now() + %(expires)s::interval, key => %(key)s, after => %(after)s::uuid[],
      after_mode => %(mode)s)
"""
WATCHED = "select run_id from pgflow.runs where is_watched"
LATER = "1 hour"


def start(db: LeaseDatabase, flow: str, *after: UUID, mode: str = "completed", **more: Any) -> UUID:
    """A run that begins after others."""
    given = dict.fromkeys(("run_id", "begins", "expires", "key"))
    given |= {"flow": flow, "after": list(after), "mode": mode, **more}
    run: UUID = db.conn.execute(START, given).fetchone().run_id
    return run


def status(db: LeaseDatabase, run: UUID) -> str | None:
    found = db.column("select status from pgflowd.run_status where run_id = %s", run)
    return found[0] if found else None


def why(db: LeaseDatabase, run: UUID) -> str:
    return str(db.value("select cancel_reason from pgflowd.run_status where run_id = %s", run))


def process(db: LeaseDatabase, conn: Any = None) -> None:
    """Do all that is due, as far as it is free."""
    while db.value("select done from pgflowd.process_due()", conn=conn):
        pass


def come(db: LeaseDatabase, column: str, *runs: UUID) -> None:
    """Let a time of these runs come."""
    query = f"update pgflowd.runs set {column} = now(), due_at = now() where run_id = any (%s)"
    db.do(query, list(runs))


def end(db: LeaseDatabase, run: UUID, how: str = "completed") -> None:
    """End a run of one step that has begun."""
    if how == "cancelled":
        db.cancel(run)
    elif how == "expired":
        db.do("select pgflowd.reschedule(%s, expires_at => now() - interval '1 s')", run)
        process(db)
    elif how == "deleted":
        flow = db.value("select flow_slug from pgflow.runs where run_id = %s", run)
        db.do("select pgflow.delete_flow_and_data(%s)", flow)
    else:
        flow = db.value("select flow_slug from pgflow.runs where run_id = %s", run)
        for task in db.claim(flow, db.worker(flow), 100):
            if task.run_id != run:
                db.release(task)
            elif how == "completed":
                db.complete(task)
            else:
                db.fail(task, "no")


def test_a_run_begins_when_all_before_it_have_completed(own: LeaseDatabase) -> None:
    flow = own.flow()
    first, second = own.start(flow), own.start(flow)
    waiter = start(own, flow, first, second)
    last = start(own, flow, waiter)
    process(own)

    assert (status(own, waiter), status(own, last)) == ("blocked", "blocked")
    end(own, first)
    process(own)
    assert status(own, waiter) == "blocked"
    end(own, second)
    process(own)
    assert (status(own, waiter), status(own, last)) == ("started", "blocked")
    end(own, waiter)
    process(own)
    assert status(own, last) == "started"
    assert own.value("select count(*) from pgflowd.awaits") == 0


def test_a_run_that_has_ended_already_holds_up_nobody(own: LeaseDatabase) -> None:
    flow = own.flow(max_attempts=1)
    good, bad = own.start(flow), own.start(flow)
    end(own, good)
    end(own, bad, "failed")
    runs = [start(own, flow, good), start(own, flow, good, bad)]
    runs.append(start(own, flow, bad, mode="ended"))

    process(own)

    assert [status(own, run) for run in runs] == ["started", "cancelled", "started"]
    assert own.column(WATCHED) == []


ENDS = ["failed", "cancelled", "expired", "deleted"]


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize("how", ENDS)
def test_a_run_before_it_that_does_not_complete_cancels_a_run_or_not(
    own: LeaseDatabase, how: str, is_watched: bool
) -> None:
    flow, others = own.flow(max_attempts=1), own.flow()
    first, open = own.start(flow), own.start(others)
    strict = start(own, others, first, open)
    patient = start(own, others, first, mode="ended")
    behind = start(own, others, strict)
    if is_watched:
        process(own)
        assert set(own.column(WATCHED)) == {first, open}

    end(own, first, how)
    process(own)

    assert [status(own, run) for run in (strict, patient)] == ["cancelled", "started"]
    became = "was deleted" if how == "deleted" else f"is {how}"
    assert why(own, strict) == f"run {first} did not complete: it {became} (E428)"
    assert why(own, behind) == f"run {strict} did not complete: it is cancelled (E428)"
    with pytest.raises(psycopg.Error, match="has never begun"):
        own.retry(strict, cancelled=True)


@pytest.mark.parametrize("end_it", ["cancel", "expire", "delete", "begin"])
@pytest.mark.parametrize("is_watched", [True, False])
def test_a_planned_run_is_waited_for_as_any_other(
    own: LeaseDatabase, end_it: str, is_watched: bool
) -> None:
    flow, others = own.flow(), own.flow()
    first = start(own, flow, begins=LATER, expires="2 hours")
    strict, patient = start(own, others, first), start(own, others, first, mode="ended")
    if is_watched:
        process(own)

    if end_it == "cancel":
        own.cancel(first)
    elif end_it == "delete":
        own.do("select pgflow.delete_flow_and_data(%s)", flow)
    elif end_it == "expire":
        come(own, "expires_at", first)
    else:
        come(own, "start_at", first)
        process(own)
        assert own.column(WATCHED) == [first]
        end(own, first)
    process(own)

    expected = "started" if end_it == "begin" else "cancelled"
    assert (status(own, strict), status(own, patient)) == (expected, "started")


def test_a_run_with_a_time_begins_at_that_time_or_later(own: LeaseDatabase) -> None:
    flow = own.flow()
    first, second = own.start(flow), own.start(flow)
    early, late = start(own, flow, first, begins=LATER), start(own, flow, second, begins=LATER)
    assert status(own, early) == "scheduled"
    end(own, first)
    process(own)
    assert status(own, early) == "scheduled"

    come(own, "start_at", early, late)
    process(own)

    assert (status(own, early), status(own, late)) == ("started", "blocked")
    end(own, second)
    process(own)
    assert status(own, late) == "started"


def test_a_run_that_waits_expires_and_is_rescheduled(own: LeaseDatabase) -> None:
    flow = own.flow()
    first = own.start(flow)
    expiring, moved = start(own, flow, first, expires=LATER), start(own, flow, first)
    process(own)
    come(own, "expires_at", expiring)
    reschedule = "select pgflowd.reschedule(%s, now() + %s::interval, now() + %s::interval)"
    assert own.value(reschedule, moved, LATER, None) == "scheduled"
    process(own)
    assert status(own, expiring) == "expired"

    end(own, first)
    process(own)
    assert own.value(reschedule, moved, "0 s", LATER) == "scheduled"
    process(own)

    assert (status(own, expiring), status(own, moved)) == ("expired", "started")


def test_a_reschedule_forgets_no_run_that_may_begin(own: LeaseDatabase) -> None:
    flow = own.flow()
    first = own.start(flow)
    waiter = start(own, flow, first)
    process(own)
    end(own, first)
    own.value("select pgflowd._process_due_runs(9)")
    own.value("select pgflowd._process_due_awaits(9)")

    own.value("select pgflowd.reschedule(%s, expires_at => now() + interval '1 hour')", waiter)
    process(own)

    assert status(own, waiter) == "started"


def test_who_waits_for_a_run_that_is_retried_in_time_waits_on(own: LeaseDatabase) -> None:
    flow = own.flow(max_attempts=1)
    first = own.start(flow)
    waiter = start(own, flow, first)
    process(own)
    end(own, first, "failed")
    own.retry(first)
    process(own)
    assert status(own, waiter) == "blocked"

    end(own, first)
    process(own)

    assert status(own, waiter) == "started"


def test_a_start_that_cannot_be_is_refused(own: LeaseDatabase) -> None:
    flow, unknown = own.flow(), uuid4()
    known = own.start(flow)
    with pytest.raises(psycopg.Error, match=f"there is no run {unknown}") as error:
        start(own, flow, known, unknown)
    assert error.value.sqlstate == "PF007"
    assert own.value("select count(*) from pgflowd.runs") == 0
    with pytest.raises(psycopg.Error, match=f"run {unknown} cannot wait for run {unknown}"):
        start(own, flow, unknown, run_id=unknown)  # it would wait for itself
    for wrong in ({"mode": "perhaps"}, {"mode": None}, {"after": [known, None]}):
        with pytest.raises(psycopg.Error, match="cannot begin after") as error:
            start(own, flow, known, **wrong)
        assert error.value.sqlstate == "PF009"


def test_a_start_that_is_repeated_by_its_key_waits_once(own: LeaseDatabase) -> None:
    flow = own.flow()
    first, other = own.start(flow), own.start(flow)
    runs = [start(own, flow, first, first, key="a"), start(own, flow, other, key="a")]
    process(own)
    end(own, first)
    process(own)
    assert runs[0] == runs[1]
    assert status(own, runs[0]) == "started"


def test_whoever_is_locked_is_told_later_and_holds_up_nobody(own: LeaseDatabase) -> None:
    """The awaited run; a waiter that is cancelled, and one that is deleted, meanwhile."""
    flow, doomed, other = own.flow(), own.flow(), own.connect()
    first, held = own.start(flow), own.start(flow)
    with other.transaction():
        other.execute("select from pgflow.runs where run_id = %s for update", [held])
        waiters = [start(own, flow, held), start(own, flow, first)]
        process(own)
        assert own.column(WATCHED) == [first]
    process(own)
    assert set(own.column(WATCHED)) == {first, held}

    third, gone = start(own, flow, first), start(own, doomed, first)
    process(own)
    with other.transaction():
        own.do("select pgflowd.cancel(%s, 'enough', 'me')", waiters[1], conn=other)
        other.execute("select pgflow.delete_flow_and_data(%s)", [doomed])
        end(own, first)
        process(own)
        assert status(own, third) == "started"
    own.do("update pgflowd.runs set due_at = now() where due_at is not null")
    process(own)

    assert [status(own, run) for run in (waiters[1], gone)] == ["cancelled", None]
    assert own.column("select awaited from pgflowd.awaits") == [held]


def test_a_deletion_that_is_undone_forgets_nobody(own: LeaseDatabase) -> None:
    flow, doomed, other = own.flow(), own.flow(), own.connect()
    first = own.start(flow)
    waiter = start(own, doomed, first)
    process(own)
    with other.transaction():
        other.execute("select pgflow.delete_flow_and_data(%s)", [doomed])
        end(own, first)
        process(own)
        assert own.value("select due_at from pgflowd.runs where run_id = %s", first)
        raise psycopg.Rollback
    own.do("update pgflowd.runs set due_at = now() where run_id = %s", first)
    process(own)

    assert status(own, waiter) == "started"


def test_a_thousand_runs_before_one_and_after_one(own: LeaseDatabase) -> None:
    flow = own.flow()
    first = own.start(flow)
    many = own.column(
        "select run_id from generate_series(1, 1000) as n,"
        " lateral pgflowd.start(%s, to_jsonb(n), after => array[%s::uuid])",
        flow,
        first,
    )
    last = start(own, flow, *many)
    process(own)
    end(own, first)
    process(own)
    begun = "select count(*) from pgflow.runs where status = 'started'"
    assert (own.value(begun), status(own, last)) == (1000, "blocked")

    worker = own.worker(flow)
    while tasks := own.claim(flow, worker, 200):
        own.report(*[element(task) for task in tasks])
    process(own)

    assert status(own, last) == "started"
    assert own.value("select count(*) from pgflowd.awaits") == 0


def test_what_must_not_be_is_a_violation(own: LeaseDatabase) -> None:
    flow = own.flow()
    first = own.start(flow)
    waiter, other = start(own, flow, first), start(own, flow, first)
    process(own)
    violations = "select invariant, run_id from pgflowd.due_violations()"
    assert own.rows(violations) == []

    own.do("update pgflow.runs set is_watched = false")
    own.do("delete from pgflowd.awaits where run_id = %s", other)
    assert [tuple(row) for row in own.rows(violations)] == [("I18", waiter), ("I18", other)]

    own.do("update pgflow.runs set is_watched = true")
    own.do("update pgflowd.awaits set due_at = now() - interval '61 s'")
    own.do("insert into pgflowd.sweepers values (%s, now())", uuid4())
    assert [tuple(row) for row in own.rows(violations)] == [("I18", other), ("I16", waiter)]
    process(own)
    own.do("update pgflowd.runs set after_mode = null, due_at = now() where state = 'planned'")
    process(own)
    assert own.rows(violations) == []


def test_one_that_cannot_be_told_spoils_no_other(own: LeaseDatabase) -> None:
    flow, bad = own.flow(), own.flow()
    first = own.start(flow)
    wrong, right = start(own, bad, first), start(own, flow, first)
    process(own)
    own.do(
        "create function pgflowd.spoil() returns trigger language plpgsql as"
        f" $$ begin raise 'spoilt' ; end $$;"
        f" create trigger spoil before delete on pgflowd.awaits for each row"
        f" when (old.run_id = '{wrong}') execute function pgflowd.spoil()"
    )
    notices: list[str | None] = []
    own.conn.add_notice_handler(lambda notice: notices.append(notice.sqlstate))
    end(own, first)
    process(own)
    assert notices == ["PF013"]
    assert (status(own, wrong), status(own, right)) == ("blocked", "started")
    own.do("drop function pgflowd.spoil cascade")
    own.do("update pgflowd.awaits set due_at = now()")
    process(own)
    assert status(own, wrong) == "started"


RESCHEDULE = "select pgflowd.reschedule(%s, after => %s::uuid[], after_keys => %s::text[])"


@covers("promise 9")
def test_a_run_begins_after_others_by_their_keys(own: LeaseDatabase) -> None:
    flow = own.flow()
    first = start(own, flow, key="order 7")
    by_key = "select run_id, status from pgflowd.start(%s, '{}', after_keys => array[%s])"

    (waiter,) = own.rows(by_key, flow, "order 7")
    with pytest.raises(psycopg.Error, match="no run with key 'order 8'") as unknown:
        own.rows(by_key, flow, "order 8")

    assert unknown.value.sqlstate == "PF007"
    assert waiter.status == "blocked"
    process(own)
    assert status(own, waiter.run_id) == "blocked"
    end(own, first)
    process(own)
    assert status(own, waiter.run_id) == "started"


@covers("promise 9")
def test_a_planned_run_waits_for_other_runs_instead(own: LeaseDatabase) -> None:
    flow = own.flow()
    old, new = start(own, flow), start(own, flow, key="new")
    waiter = start(own, flow, old)
    process(own)

    assert own.value(RESCHEDULE, waiter, None, ["new"]) == "blocked"
    end(own, old)
    process(own)

    assert status(own, waiter) == "blocked"
    assert own.column("select awaited from pgflowd.awaits where run_id = %s", waiter) == [new]
    end(own, new)
    process(own)
    assert status(own, waiter) == "started"
    with pytest.raises(psycopg.Error, match="has begun already") as error:
        own.value(RESCHEDULE, waiter, [], None)
    assert error.value.sqlstate == "PF003"


def test_a_planned_run_waits_for_no_run_any_more(own: LeaseDatabase) -> None:
    flow = own.flow()
    waiter = start(own, flow, start(own, flow))
    process(own)

    own.value(RESCHEDULE, waiter, [], None)
    process(own)

    assert status(own, waiter) == "started"


def test_a_circle_of_runs_that_wait_is_refused(own: LeaseDatabase) -> None:
    flow = own.flow()
    first = start(own, flow, begins=LATER)
    second = start(own, flow, first)
    third = start(own, flow, second)

    for behind in (first, third):
        with pytest.raises(psycopg.Error, match="waits for it") as error:
            own.value(RESCHEDULE, first, [behind], None)
        assert error.value.sqlstate == "PF007"
