"""What handlers tell of their progress: who may write it, and who reads it."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from support.database import Row, key
from support.leases import LeaseDatabase, element

from pgflowd.db import runs, tasks
from pgflowd.db.query import execute


def worker_of(db: LeaseDatabase, task: Row) -> UUID:
    query = "select worker_id from pgflowd.attempts where token = %s"
    return db.value(query, task.token)  # type: ignore[no-any-return]


def tell(db: LeaseDatabase, task: Row, told: Any, worker: UUID | None = None) -> list[int]:
    """Tell of a task's progress; the tokens whose values are stored."""
    query = "select token from pgflowd.progress(%s, %s, %s::text[]::jsonb[])"
    return db.column(query, worker or worker_of(db, task), [task.token], [json.dumps(told)])


def told(db: LeaseDatabase, task: Row) -> dict[str, Any] | None:
    query = "select progress - 'at' from pgflowd.attempts where token = %s"
    return db.value(query, task.token)  # type: ignore[no-any-return]


def claimed(db: LeaseDatabase, *steps: str, given: Any = None, **more: Any) -> list[Row]:
    flow = db.flow(*steps, **more)
    db.start(flow, *([] if given is None else [given]))
    return db.claim(flow, db.worker(flow), max_tasks=1000)


def test_the_last_value_is_there_and_when_it_was_told(db: LeaseDatabase) -> None:
    (task,) = claimed(db)

    tell(db, task, {"done": 1, "total": 3})
    tell(db, task, {"done": 2, "total": 3, "text": "pages"})

    (found,) = execute(db.conn, runs.run_progress(task.run_id))
    assert (found.step_slug, found.task_index, found.attempt) == ("a", 0, 1)
    assert (found.progress.words, found.progress.at is None) == ("2/3 pages", False)


def test_a_token_that_is_lost_writes_nothing(db: LeaseDatabase) -> None:
    (task,) = claimed(db)
    other = db.worker(task.flow_slug)

    tell(db, task, {"done": 1}, worker=other)
    assert told(db, task) is None

    db.release(task)
    (again,) = db.claim(task.flow_slug, other)
    tell(db, task, {"done": 1})
    assert told(db, task) is None and told(db, again) is None

    tell(db, again, {"done": 2})
    assert told(db, again) == {"done": 2}


def test_a_task_that_another_session_has_is_passed_over_without_waiting(db: LeaseDatabase) -> None:
    (task,) = claimed(db)
    holder = db.connect()
    with holder.transaction():
        lock = "select from pgflow.step_tasks where run_id = %s for update"
        db.rows(lock, task.run_id, conn=holder)
        assert tell(db, task, {"done": 1}) == []
    assert told(db, task) is None
    assert tell(db, task, {"done": 1}) == [task.token]


def test_what_is_kept_comes_with_the_report_or_not_at_all(db: LeaseDatabase) -> None:
    (task,) = claimed(db, max_attempts=2)
    worker = worker_of(db, task)
    keep = ("select pgflowd.keep_last(%s, %s, %s, %s, %s)", worker, [task.token], ['{"done": 3}'])

    db.rows(*keep, ["0.5 stdout hello\n"], [1])
    assert told(db, task) is None  # it has not ended

    with db.conn.transaction():
        db.report(element(task, "failed", error_message="no"))
        db.rows(*keep, ["0.5 stdout hello\n"], [1])
    query = "select printed, printed_lines from pgflowd.attempt_history where token = %s"
    if "failed" in db.kept("failed"):
        assert told(db, task) == {"done": 3}
        assert tuple(db.rows(query, task.token)[0]) == ("0.5 stdout hello\n", 1)
    (trouble,) = execute(db.conn, runs.failed_attempts(task.run_id)) or [None]
    assert trouble is None or trouble.output_lines == 1


def test_what_cannot_be_stored_costs_no_report(own: LeaseDatabase) -> None:
    (task,) = claimed(own)
    worker = worker_of(own, task)

    with own.conn.transaction():
        own.report(element(task, "completed", output="1"))
        query = "select pgflowd.keep_last(%s, %s, %s, %s, %s)"
        own.rows(query, worker, [task.token], ['{"done": "\\u0000"}'], [None], [None])

    assert own.value("select status from pgflow.runs where run_id = %s", task.run_id) == "completed"
    assert told(own, task) is None


@pytest.mark.parametrize(
    ("value", "share"),
    [
        ({"done": 12, "total": 30}, 0.4),
        ({"done": -1, "total": 30}, 0.0),
        ({"done": 31, "total": 30}, 1.0),
        ({"done": 5e-324, "total": 1.7e308}, 0.0),
        ({"done": 1.7e308, "total": 5e-324}, 1.0),
        ({"done": 1, "total": 0}, None),
        ({"done": 1, "total": -5}, None),
        ({"done": 1}, None),
        ({"done": "x", "total": []}, None),
        ([], None),
    ],
)
def test_shares_are_within_0_and_1(own: LeaseDatabase, value: Any, share: float | None) -> None:
    assert own.value("select pgflowd._share(%s::jsonb)", json.dumps(value)) == share


def test_the_share_of_a_run_has_its_open_tasks(own: LeaseDatabase) -> None:
    flow = own.flow("a", "m*", "z:a+m")
    run = own.start(flow, [1, 2])
    one = own.worker(flow)
    single, first, second = own.claim(flow, one, max_tasks=3)

    def share() -> float | None:
        (listed,) = execute(own.conn, runs.list_runs(flow))
        return listed.share

    assert (single.step_slug, share()) == ("a", 0.0)
    tell(own, single, {"done": 1, "total": 2})
    tell(own, first, {"done": 3, "total": 4})
    assert share() == pytest.approx((1 / 2 + 3 / 8) / 3)

    own.report(*[element(each, "completed", output="1") for each in (single, first)])
    tell(own, second, {"done": 900, "total": 1})
    assert share() == pytest.approx(2 / 3)
    steps = {each.step_slug: each for each in execute(own.conn, runs.run_steps(run))}
    assert [steps[slug].share for slug in ("a", "m", "z")] == [1.0, 1.0, 0.0]
    assert steps["m"].progress and steps["m"].progress.words == "900/1"

    own.report(element(second, "completed", output="1"))
    own.report(element(own.claim_one(flow, one), "completed", output="1"))
    assert share() == 1.0


def test_a_worker_writes_for_all_its_tasks_at_once(own: LeaseDatabase) -> None:
    claims = claimed(own, "m*", given=[1, 2, 3])
    worker = own.value("select distinct worker_id from pgflowd.attempts")
    values = {task.token: b'{"done":%d}' % task.task_index for task in claims}

    execute(own.conn, tasks.write_progress(worker, values))

    assert [told(own, task) for task in claims] == [{"done": n} for n in range(3)]
    assert len({key(task) for task in claims}) == 3
