"""
Run changes: a report's own transaction returns how runs and steps changed, on every core.
"""

from __future__ import annotations

import uuid

import psycopg
from support.leases import LeaseDatabase, Row, element

NEWS = """
select * from pgflowd.news(%s) order by run_id, step_slug is null, status = 'started', step_slug
"""


def report(db: LeaseDatabase, *elements: dict[str, object]) -> list[tuple[str | None, str]]:
    """Report in a transaction that then reads the run changes; return them without times."""
    runs = [uuid.UUID(str(each["run_id"])) for each in elements]
    with psycopg.connect(db.dsn, row_factory=db.conn.row_factory) as conn:
        db.report(*elements, conn=conn)
        return [(row.step_slug, row.status) for row in news(db, *runs, conn=conn)]


def news(db: LeaseDatabase, *runs: uuid.UUID, conn: psycopg.Connection) -> list[Row]:
    return db.rows(NEWS, list(dict.fromkeys(runs)), conn=conn)


def claim(db: LeaseDatabase, flow: str) -> list[Row]:
    return db.claim(flow, db.worker(flow))


def test_a_step_that_ends_starts_the_next_and_the_last_one_ends_the_run(own: LeaseDatabase):
    db = own
    flow = db.flow("a", "b:a")
    db.start(flow)

    assert report(db, element(*claim(db, flow))) == [("a", "completed"), ("b", "started")]
    assert report(db, element(*claim(db, flow))) == [
        ("b", "completed"),
        (None, "completed"),
    ]


def test_another_transaction_and_another_run_are_not_run_changes(own: LeaseDatabase):
    db = own
    flow = db.flow("a", "b:a")
    first, second = db.start(flow), db.start(flow)
    tasks = {task.run_id: task for task in claim(db, flow)}
    db.complete(tasks[first])

    with psycopg.connect(db.dsn, row_factory=db.conn.row_factory) as conn:
        db.report(element(tasks[second]), conn=conn)

        assert news(db, first, conn=conn) == []
        assert {row.run_id for row in news(db, first, second, conn=conn)} == {second}


def test_a_map_without_elements_completes_with_one_run_change(own: LeaseDatabase):
    db = own
    flow = db.flow("a", "m*:a", "b:m")
    db.start(flow)

    told = report(db, element(*claim(db, flow), output="[]"))

    assert told == [("a", "completed"), ("m", "completed"), ("b", "started")]


def test_a_failed_run_is_reported_with_its_step_and_error(own: LeaseDatabase):
    db = own
    flow = db.flow("a", "b", max_attempts=1)
    run = db.start(flow)
    tasks = {task.step_slug: task for task in claim(db, flow)}

    with psycopg.connect(db.dsn, row_factory=db.conn.row_factory) as conn:
        db.report(element(tasks["b"], "failed", error_message="no such page"), conn=conn)
        step, ended = news(db, run, conn=conn)

    assert (step.step_slug, step.status, step.error) == ("b", "failed", "no such page")
    assert (ended.step_slug, ended.status) == (None, "failed")
    assert step.took_s >= 0 and ended.took_s >= 0


def test_an_attempt_that_will_be_repeated_is_not_a_run_change(own: LeaseDatabase):
    db = own
    flow = db.flow("a", max_attempts=2)
    db.start(flow)

    assert report(db, element(*claim(db, flow), "failed", error_message="no")) == []


def test_what_is_skipped_says_why(own: LeaseDatabase):
    db = own
    flow = db.flow(max_attempts=1)
    db.rows("select pgflow.add_step(%s, 'b', when_exhausted => 'skip', max_attempts => 1)", flow)
    run = db.start(flow)
    tasks = {task.step_slug: task for task in claim(db, flow)}

    with psycopg.connect(db.dsn, row_factory=db.conn.row_factory) as conn:
        db.report(element(tasks["b"], "failed", error_message="no such page"), conn=conn)
        [step] = news(db, run, conn=conn)

    assert (step.status, step.error) == ("skipped", "handler_failed: no such page")


def test_a_start_later_than_the_transaction_of_the_report_is_reported_all_the_same(
    own: LeaseDatabase,
):
    """A step's end is never written before its start, though a report be older than that."""
    db = own
    flow = db.flow()
    run = db.start(flow)
    [task] = claim(db, flow)
    for table in ("pgflow.runs", "pgflow.step_states"):
        db.do(f"update {table} set started_at = now() + '1 h' where run_id = '{run}'")

    assert report(db, element(task)) == [("a", "completed"), (None, "completed")]


def test_a_completed_run_is_counted_by_the_worker_that_completed_it(own: LeaseDatabase):
    db = own
    flow = db.flow("a", "b")
    first, second = db.start(flow), db.start(flow)
    one, other = db.worker(flow), db.worker(flow)
    for task in db.claim(flow, one, 2):
        db.complete(task)
    for task in db.claim(flow, other, 1):
        db.complete(task)

    query = "select pgflowd.completed_by(%s, %s)"
    counted = [db.value(query, worker, [first, second]) for worker in (one, other)]

    completed = [db.status(run) for run in (first, second)].count("completed")
    assert completed == 1
    assert sorted(counted) == [0, 1]


def test_cancelled_runs_are_reported_by_the_tokens_of_their_attempts(own: LeaseDatabase):
    db = own
    flow = db.flow()
    first, _ = db.start(flow), db.start(flow)
    tokens = [task.token for task in claim(db, flow)]
    db.cancel(first)

    told = db.rows("select * from pgflowd.cancellations(%s)", tokens)

    assert [tuple(row) for row in told] == [(first, "me", "enough")]
