"""What is due, stalled or old in large amounts: each call takes a part, and reads it once."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.leases import LeaseDatabase
from support.rows_read import rows_read

MAPPER = ("m*",)
PLANNED = """
    select pgflowd.start(%s, (select to_jsonb(array_agg(i)) from generate_series(1, %s) as i),
                         start_at => now() + interval '1 hour') from generate_series(1, %s)
"""
BEGIN = "update pgflowd.runs set start_at = now(), due_at = now() where state = 'planned'"


def planned(db: LeaseDatabase, elements: int, runs: int) -> str:
    flow = db.flow(*MAPPER)
    db.rows(PLANNED, flow, elements, runs)
    db.do(BEGIN)
    return flow


def started(db: LeaseDatabase) -> int:
    return int(db.value("select count(*) from pgflow.runs"))


def test_one_call_starts_runs_with_a_hundred_tasks_for_each_row(db: LeaseDatabase) -> None:
    planned(db, 99, 6)

    counts = []
    while db.value("select done from pgflowd.process_due(3)"):
        counts.append(started(db))
        if started(db) == 6:
            break

    assert counts == [3, 6]


def test_one_call_starts_one_run_that_is_larger_than_all_it_may(db: LeaseDatabase) -> None:
    planned(db, 700, 3)

    counts = []
    for _ in range(3):
        db.rows("select * from pgflowd.process_due(5)")
        counts.append(started(db))

    assert counts == [1, 2, 3]


def test_one_call_ends_no_more_of_what_has_expired(own: LeaseDatabase) -> None:
    db = own
    planned(db, 200, 4)
    for _ in range(4):
        db.rows("select * from pgflowd.process_due(1)")
    db.do("update pgflowd.runs set expires_at = now(), due_at = now()")

    ended = []
    for _ in range(3):
        db.rows("select * from pgflowd.process_due(4)")
        ended.append(db.value("select count(*) from pgflow.runs where status = 'failed'"))

    assert ended == [1, 2, 3]


def test_what_is_postponed_lets_the_others_go_first_and_is_late_for_longer_and_longer(
    own: LeaseDatabase,
) -> None:
    db = own
    planned(db, 1, 2)
    first = db.value("select run_id from pgflowd.runs order by due_at, run_id limit 1")
    db.do(f"update pgflowd.runs set due_at = due_at - interval '1 s' where run_id = '{first}'")
    due_in = (
        f"select extract(epoch from due_at - now())::int from pgflowd.runs where run_id = '{first}'"
    )

    db.rows("select pgflowd.postpone_due('runs', 'too slow')")
    assert db.value(due_in) == 60
    db.do(f"""update pgflowd.runs set start_at = now() - interval '20 min',
              due_at = now() - interval '1 s' where run_id = '{first}'""")
    db.rows("select pgflowd.postpone_due('runs', 'too slow')")
    assert db.value(due_in) == 1200

    db.rows("select * from pgflowd.process_due()")
    assert [row.run_id for row in db.rows("select run_id from pgflow.runs")] != [first]


@pytest.mark.parametrize("part", ["signals", "limits", "runs", "awaits", "waits"])
def test_a_call_for_one_kind_and_a_postponement_need_nothing_that_is_due(
    db: LeaseDatabase, part: str
) -> None:
    db.rows("select * from pgflowd.process_due(1, %s)", part)
    db.rows("select pgflowd.postpone_due(%s, 'x')", part)


@covers("attack 11")
def test_many_signals_to_a_planned_run_are_read_once(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("a")
    many = 12_000
    run = db.value(
        "select run_id from pgflowd.start(%s, '{}', start_at => now() + interval '1 day')", flow
    )
    db.rows(
        "insert into pgflowd.signals (run_id, name, sent_at)"
        " select %s, 's', now() - interval '1 min' from generate_series(1, %s) returning 1",
        run,
        many,
    )

    calls, read = 0, 0
    with db.conn.transaction():
        while db.value("select count(*) from pgflowd.signals where is_new"):
            calls += 1
            read += rows_read(db.conn, "select * from pgflowd.process_due(100)")
            assert calls < 10

    assert calls <= many / 5000 + 2
    assert read < 12 * many


@covers("use 1")
@pytest.mark.parametrize(
    "take", ["delete from pgmq.q_{}", "select pgmq.archive('{0}', msg_id) from pgmq.q_{0}"]
)
def test_a_started_task_whose_message_is_gone_is_recovered_by_its_attempt(
    own: LeaseDatabase, take: str
) -> None:
    db = own
    flow = db.flow("a")
    run = db.start(flow)
    worker = db.worker(flow)
    task = db.claim_one(flow, worker)
    db.do(take.format(flow.lower()))
    look = "select recovered from pgflowd.sweep_attempts()"
    assert db.value(look) == 0, "its worker is alive"

    db.lapse(task)
    assert db.value("select recovered from pgflowd.sweep()") == 0
    assert (db.value(look), db.value(look)) == (1, 0)

    again = db.claim_one(flow, worker)
    assert again.attempt == 1, "the attempt was not spent"
    db.complete(again, "done")
    assert db.status(run) == "completed"


@covers("attack 13")
def test_an_attempt_of_a_cancelled_run_whose_worker_died_is_closed(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("a")
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    db.rows("select pgflowd.cancel(%s, 'x', 'y')", run)
    open_ = "select count(*) from pgflowd.attempts where ended_at is null"
    db.lapse(task)
    db.rows("select * from pgflowd.sweep_attempts()")
    assert db.value(open_) == 1, "its result may come late"
    db.do("update pgflowd.attempts set lease_until = now() - interval '11 min'")
    db.rows("select pgflowd.sweeper_sleeps(gen_random_uuid(), 1)")
    assert {row.invariant for row in db.rows("select * from pgflowd.violations()")} == {"I24"}

    db.rows("select * from pgflowd.sweep_attempts()")

    assert db.value(open_) == 0
    assert db.value("select outcome from pgflowd.attempts") == "lost"
    assert db.rows("select * from pgflowd.violations()") == []


def test_a_stalled_task_that_cannot_be_recovered_stops_no_other(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("a")
    bad, good = db.start(flow), db.start(flow)
    worker = db.worker(flow)
    for task in db.claim(flow, worker, max_tasks=2):
        db.lapse(task)
    db.do(f"""
        create function refuse() returns trigger language plpgsql as
        $$ begin raise exception 'not this one'; end $$;
        create trigger refuse before update on pgflow.step_tasks for each row
        when (new.run_id = '{bad}') execute function refuse()
    """)

    assert db.value("select recovered from pgflowd.sweep()") == 1
    assert db.value("select recovered from pgflowd.sweep()") == 0

    assert db.claim_one(flow, worker).run_id == good
    left = (
        f"select lease_until > now() + interval '50 s' from pgflowd.attempts where run_id = '{bad}'"
    )
    assert db.value(left)
    db.do("drop trigger refuse on pgflow.step_tasks")


def test_a_prune_takes_families_with_a_hundred_tasks_for_each_run_or_one(
    own: LeaseDatabase,
) -> None:
    db = own
    planned(db, 300, 3)
    for _ in range(3):
        db.rows("select * from pgflowd.process_due(1)")
    db.do("select pgflowd.cancel(run_id, 'x', 'y') from pgflow.runs")
    db.do(
        "update pgflow.runs set started_at = now() - interval '9 days',"
        " failed_at = now() - interval '8 days'"
    )
    db.do("select pgflowd.set_setting('retention_failed', '\"168h\"', 'x')")
    db.do("update pgflowd.runs set due_at = null")

    place = db.rows("select * from pgflowd.prune_expired(5)")[0]
    assert (place.pruned, started(db)) == (1, 2)
    skipped = db.rows(
        "select * from pgflowd.prune_expired(1, %s, %s, true)", place.after_at, place.after_run
    )[0]
    assert (started(db), skipped.after_run is not None) == (2, True)
    db.rows("select * from pgflowd.prune_expired(5, %s, %s)", skipped.after_at, skipped.after_run)
    assert started(db) == 1
