"""
`run_status` of a report: the status in which the call has ended the run, on every core.
"""

from __future__ import annotations

import pytest
from support.leases import LeaseDatabase, Row, element


def claim(db: LeaseDatabase, flow: str) -> list[Row]:
    tasks = db.claim(flow, db.worker(flow))
    return sorted(tasks, key=lambda task: (str(task.run_id), task.step_slug, task.task_index))


def report(db: LeaseDatabase, *elements: dict[str, object]) -> list[tuple[str, str | None]]:
    return [(answer.verdict, answer.run_status) for answer in db.report(*elements)]


def test_only_the_report_that_ends_a_run_has_its_status(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b:a")
    own.start(flow)

    assert report(own, *map(element, claim(own, flow))) == [("completed", None)]
    (last,) = claim(own, flow)
    assert report(own, element(last)) == [("completed", "completed")]
    assert report(own, element(last)) == [("repeated", None)]


@pytest.mark.parametrize("history", ["failures", "off"])
def test_the_history_does_not_matter(own: LeaseDatabase, history: str) -> None:
    own.set("history", history)
    flow = own.flow(max_attempts=1)
    own.start(flow)
    own.start(flow)
    one, other = claim(own, flow)

    found = report(own, element(one), element(other, "failed", error_message="boom"))

    assert found == [("completed", "completed"), ("failed", "failed")]


def test_a_run_fails_with_its_last_attempt_and_not_before(own: LeaseDatabase) -> None:
    flow = own.flow(max_attempts=2)
    own.start(flow)

    for expected in [("queued", None), ("failed", "failed")]:
        (task,) = claim(own, flow)
        assert report(own, element(task, "failed", error_message="boom")) == [expected]


def test_an_output_that_breaks_a_type_fails_the_run(own: LeaseDatabase) -> None:
    flow = own.flow("a", "m*:a")
    own.start(flow)
    (task,) = claim(own, flow)

    assert report(own, element(task, output='{"no": "array"}')) == [("failed", "failed")]


def test_steps_without_tasks_end_the_run_at_once(own: LeaseDatabase) -> None:
    flow = own.flow("a", "m*:a", "n*:m")
    own.start(flow)

    found = report(own, *(element(task, output="[]") for task in claim(own, flow)))

    assert found == [("completed", "completed")]


@pytest.mark.parametrize(("mode", "status"), [("skip", None), ("skip-cascade", "completed")])
def test_a_run_completes_when_its_last_steps_are_skipped(
    db: LeaseDatabase, mode: str, status: str | None
) -> None:
    flow = db.flow("a", "b:a", max_attempts=1)
    db.do("update pgflow.steps set when_exhausted = %s", mode)
    db.start(flow)
    (task,) = claim(db, flow)

    assert report(db, element(task, "failed", error_message="boom")) == [("failed", status)]
    assert db.status(task.run_id) == (status or "started")


def test_all_elements_of_a_run_have_its_status_and_those_of_other_runs_have_not(
    own: LeaseDatabase,
) -> None:
    flow = own.flow("a", "b")
    own.start(flow)
    own.start(flow)
    one, two, three, four = claim(own, flow)

    found = report(own, element(three), element(one), element(two))

    assert found == [("completed", None), ("completed", "completed"), ("completed", "completed")]
    assert report(own, element(four)) == [("completed", "completed")]


def test_an_element_whose_task_continues_has_the_status_that_another_gave_its_run(
    own: LeaseDatabase,
) -> None:
    flow = own.flow("m*", max_attempts=1)
    own.start(flow, [1, 2, 3])
    one, two, three = claim(own, flow)

    answers = own.report(
        element(one, "released"), element(two, "failed", error_message="boom"), element(three)
    )

    assert {answer.run_status for answer in answers} == {"failed"}


def test_elements_that_are_reported_one_by_one_have_it_too(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b", "c")
    own.start(flow)
    own.start(flow)
    one, two, three, other, _, bad = claim(own, flow)

    found = report(
        own,
        element(bad, output='{"no": json'),
        *map(element, (one, two, three, other)),
        element(one),
    )

    of_the_run = [("completed", "completed")] * 3
    assert found == [("error", None), *of_the_run, ("completed", None), ("repeated", "completed")]


def test_a_report_after_the_end_of_its_run_has_none(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b", max_attempts=1)
    run = own.start(flow)
    one, two = claim(own, flow)
    report(own, element(one, "failed", error_message="boom"))
    assert own.status(run) == "failed"

    ((_, status),) = report(own, element(two))

    assert status is None


def test_a_cancelled_run_was_not_ended_by_a_report(own: LeaseDatabase) -> None:
    flow = own.flow()
    run = own.start(flow)
    (task,) = claim(own, flow)
    own.cancel(run)

    assert report(own, element(task)) == [("late", None)]


def test_a_lost_or_unknown_task_has_none(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.start(flow)
    (task,) = claim(own, flow)

    found = report(own, element(task._replace(token=0)), element(task._replace(task_index=7)))

    assert found == [("lost", None), ("lost", None)]
    assert report(own, element(task)) == [("completed", "completed")]


def test_of_two_calls_in_one_transaction_only_the_one_that_ended_the_run_has_it(
    own: LeaseDatabase,
) -> None:
    flow = own.flow("a", "b")
    own.start(flow)
    one, two = claim(own, flow)

    with own.conn.transaction():
        assert report(own, element(one)) == [("completed", None)]
        assert report(own, element(two)) == [("completed", "completed")]
        assert report(own, element(two)) == [("repeated", None)]
