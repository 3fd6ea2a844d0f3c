"""
News: a report's own transaction tells what became of runs and steps, on every core.
"""

from __future__ import annotations

import uuid

import psycopg
from support.leases import House, Row, element


def report(house: House, *elements: dict[str, object]) -> list[tuple[str | None, str]]:
    """Report in a transaction that then asks for news; what is told, without times."""
    runs = [uuid.UUID(str(each["run_id"])) for each in elements]
    with psycopg.connect(house.dsn, row_factory=house.conn.row_factory) as conn:
        house.report(*elements, conn=conn)
        return [(row.step_slug, row.status) for row in news(house, *runs, conn=conn)]


def news(house: House, *runs: uuid.UUID, conn: psycopg.Connection) -> list[Row]:
    return house.rows("select * from pgflowd.news(%s)", list(dict.fromkeys(runs)), conn=conn)


def claim(house: House, flow: str) -> list[Row]:
    return house.claim(flow, house.worker(flow))


def test_a_step_that_ends_starts_the_next_and_the_last_one_ends_the_run(any_core: House):
    house = any_core
    flow = house.flow("a", "b:a")
    house.start(flow)

    assert report(house, element(*claim(house, flow))) == [("a", "completed"), ("b", "started")]
    assert report(house, element(*claim(house, flow))) == [
        ("b", "completed"),
        (None, "completed"),
    ]


def test_another_transaction_and_another_run_are_no_news(any_core: House):
    house = any_core
    flow = house.flow("a", "b:a")
    first, second = house.start(flow), house.start(flow)
    tasks = {task.run_id: task for task in claim(house, flow)}
    house.complete(tasks[first])

    with psycopg.connect(house.dsn, row_factory=house.conn.row_factory) as conn:
        house.report(element(tasks[second]), conn=conn)

        assert news(house, first, conn=conn) == []
        assert {row.run_id for row in news(house, first, second, conn=conn)} == {second}


def test_a_map_without_elements_completes_and_is_told_once(any_core: House):
    house = any_core
    flow = house.flow("a", "m*:a", "b:m")
    house.start(flow)

    told = report(house, element(*claim(house, flow), output="[]"))

    assert told == [("a", "completed"), ("m", "completed"), ("b", "started")]


def test_a_failed_run_is_told_with_its_step_and_why(any_core: House):
    house = any_core
    flow = house.flow("a", "b", max_attempts=1)
    run = house.start(flow)
    tasks = {task.step_slug: task for task in claim(house, flow)}

    with psycopg.connect(house.dsn, row_factory=house.conn.row_factory) as conn:
        house.report(element(tasks["b"], "failed", error_message="no such page"), conn=conn)
        step, ended = news(house, run, conn=conn)

    assert (step.step_slug, step.status, step.error) == ("b", "failed", "no such page")
    assert (ended.step_slug, ended.status) == (None, "failed")
    assert step.took_s >= 0 and ended.took_s >= 0


def test_an_attempt_that_will_be_repeated_is_no_news(any_core: House):
    house = any_core
    flow = house.flow("a", max_attempts=2)
    house.start(flow)

    assert report(house, element(*claim(house, flow), "failed", error_message="no")) == []


def test_what_is_skipped_says_why(own: House):
    house = own
    flow = house.flow(max_attempts=1)
    house.rows("select pgflow.add_step(%s, 'b', when_exhausted => 'skip', max_attempts => 1)", flow)
    run = house.start(flow)
    tasks = {task.step_slug: task for task in claim(house, flow)}

    with psycopg.connect(house.dsn, row_factory=house.conn.row_factory) as conn:
        house.report(element(tasks["b"], "failed", error_message="no such page"), conn=conn)
        [step] = news(house, run, conn=conn)

    assert (step.status, step.error) == ("skipped", "handler_failed: no such page")


def test_a_start_later_than_the_transaction_of_the_report_is_told_all_the_same(own: House):
    """A step's end is never written before its start, though a report be older than that."""
    house = own
    flow = house.flow()
    run = house.start(flow)
    [task] = claim(house, flow)
    for table in ("pgflow.runs", "pgflow.step_states"):
        house.do(f"update {table} set started_at = now() + '1 h' where run_id = '{run}'")

    assert report(house, element(task)) == [("a", "completed"), (None, "completed")]


def test_a_completed_run_is_counted_by_the_worker_that_completed_it(any_core: House):
    house = any_core
    flow = house.flow("a", "b")
    first, second = house.start(flow), house.start(flow)
    one, other = house.worker(flow), house.worker(flow)
    for task in house.claim(flow, one, 2):
        house.complete(task)
    for task in house.claim(flow, other, 1):
        house.complete(task)

    query = "select pgflowd.completed_by(%s, %s)"
    counted = [house.value(query, worker, [first, second]) for worker in (one, other)]

    completed = [house.run_status(run) for run in (first, second)].count("completed")
    assert completed == 1
    assert sorted(counted) == [0, 1]


def test_cancelled_runs_are_told_by_the_tokens_of_their_attempts(any_core: House):
    house = any_core
    flow = house.flow()
    first, _ = house.start(flow), house.start(flow)
    tokens = [task.token for task in claim(house, flow)]
    house.cancel(first)

    told = house.rows("select * from pgflowd.cancellations(%s)", tokens)

    assert [tuple(row) for row in told] == [(first, "me", "enough")]
