"""
Batches: one call records many reports, and one bad element spoils no other.
"""

from __future__ import annotations

import psycopg
import pytest
from support.leases import Connection, LeaseDatabase, element


def test_a_batch_records_every_kind_of_report(db: LeaseDatabase) -> None:
    flow = db.flow("m*", max_attempts=2)
    run = db.start(flow, list(range(8)))
    tasks = sorted(db.claim(flow, db.worker(flow)), key=lambda task: task.task_index)
    usage = {"cpu_s": 1.5, "peak_kb": 1024, "exit_signal": 9}

    answers = db.report(
        element(tasks[0], output='{"x": [1, null]}'),
        element(tasks[1], "failed", error_message="boom", error_type="E", traceback="line 1"),
        element(tasks[2], "timed_out", error_message="timed out", delay="1 hour"),
        element(tasks[3], "crashed", error_message="signal 9", usage=usage),
        element(tasks[4], "released", reason="stop"),
        element(tasks[5], "failed", error_message="again", delay="0 s"),
        element(tasks[6], output="null"),
    )

    assert [answer.token for answer in answers] == [task.token for task in tasks[:7]]
    became = ["completed", "queued", "queued", "queued", "queued", "queued", "completed"]
    assert [answer.verdict for answer in answers] == became
    assert db.task(run, "m", 0).output == {"x": [1, None]}
    query = "select cpu_s, peak_kb, exit_signal from pgflowd.attempts where token = %s"
    assert tuple(db.row(query, tasks[3].token)) == (1.5, 1024, 9)
    assert [db.task(run, "m", index).attempts_count for index in range(1, 6)] == [1, 1, 1, 0, 1]
    assert not db.queue(flow)[tasks[2].msg_id].visible
    visible = [db.queue(flow)[tasks[index].msg_id].visible for index in (1, 3, 4, 5)]
    assert visible == [True, True, True, True]


def test_one_bad_element_spoils_no_other(db: LeaseDatabase) -> None:
    flow = db.flow("m*")
    run = db.start(flow, list(range(6)))
    tasks = sorted(db.claim(flow, db.worker(flow)), key=lambda task: task.task_index)
    db.upstream_complete(tasks[2])

    answers = db.report(
        element(tasks[0]),
        element(tasks[1], output='{"no": json'),
        element(tasks[2]),
        element(tasks[3]._replace(task_index=77)),
        element(tasks[4], "vanished"),
        element(tasks[5]),
    )

    verdicts = ["completed", "error", "lost", "lost", "error", "completed"]
    assert [answer.verdict for answer in answers] == verdicts
    states = [None, "22P02", "PF001", "PF002", "22023", None]
    assert [answer.sqlstate for answer in answers] == states
    assert db.task(run, "m", 1).status == "started"
    assert db.outcomes(run, "m", 1) == [None]
    assert db.complete(tasks[1]) == "completed"


@pytest.mark.parametrize("bad", ["run_id", "task_index", "token"])
def test_rubbish_in_an_element_spoils_no_other(own: LeaseDatabase, bad: str) -> None:
    db = own
    flow = db.flow("a", "b")
    db.start(flow)
    one, other = db.claim(flow, db.worker(flow))

    answers = db.report(element(one) | {bad: "rubbish"}, element(other))

    assert answers[0].verdict in ("error", "lost")
    assert answers[1].verdict == "completed"


def test_an_output_that_breaks_a_type_fails_its_run_and_no_other(db: LeaseDatabase) -> None:
    flow = db.flow("a", "m*:a")
    first, second = db.start(flow), db.start(flow)
    tasks = {task.run_id: task for task in db.claim(flow, db.worker(flow))}

    bad, good = db.report(
        element(tasks[first], output='{"no": "array"}'), element(tasks[second], output="[1]")
    )

    assert (bad.verdict, good.verdict) == ("failed", "completed")
    assert db.status(first) == "failed"
    assert db.status(second) == "started"
    assert db.outcomes(first) == db.kept("failed")
    if db.history != "off":
        assert db.report(element(tasks[first], output='{"no": "array"}'))[0].verdict == "repeated"


def test_a_batch_spans_runs_and_flows(db: LeaseDatabase) -> None:
    flows = [db.flow("a", "b:a") for _ in range(3)]
    runs = [db.start(flow) for flow in flows for _ in range(4)]
    tasks = [task for flow in flows for task in db.claim(flow, db.worker(flow))]

    answers = db.report(*(element(task) for task in tasks))

    assert [answer.verdict for answer in answers] == ["completed"] * 12
    last = [task for flow in flows for task in db.claim(flow, db.worker(flow))]
    db.report(*(element(task) for task in last))
    assert {db.status(run) for run in runs} == {"completed"}


def test_the_common_path_works_without_falling_back_on_single_elements(db: LeaseDatabase) -> None:
    flow = db.flow("m*")
    db.start(flow, list(range(6)))
    tasks = db.claim(flow, db.worker(flow))
    db.do("drop function pgflowd._report_singly(jsonb, text[], timestamptz)")

    outcomes = ("completed", "failed", "released", "crashed", "completed", "failed")
    pairs = zip(tasks, outcomes, strict=True)
    answers = db.report(*(element(task, outcome, delay="1 s") for task, outcome in pairs))

    assert {answer.verdict for answer in answers} == {"completed", "queued"}


def test_a_task_reported_twice_in_a_batch_counts_once(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))

    answers = db.report(element(task), element(task))

    again = "repeated" if db.history == "all" else "lost"
    assert [answer.verdict for answer in answers] == ["completed", again]
    assert db.status(run) == "completed"


def test_a_run_that_stays_locked_for_five_seconds_is_left_out(own: LeaseDatabase) -> None:
    flow = own.flow()
    held, free = own.start(flow), own.start(flow)
    tasks = own.claim(flow, own.worker(flow))
    holder = own.connect()

    with holder.transaction():
        holder.execute("select from pgflow.runs where run_id = %s for update", (held,))
        answers = {
            task.run_id: answer
            for task, answer in zip(tasks, own.report(*map(element, tasks)), strict=True)
        }

    assert (answers[held].verdict, answers[held].sqlstate) == ("error", "55P03")
    assert answers[free].verdict == "completed"
    assert own.status(held) == "started"


def test_a_deadlock_is_raised_so_that_the_batch_is_sent_again(own: LeaseDatabase) -> None:
    flow = own.flow()
    low, high = sorted((own.start(flow), own.start(flow)))
    tasks = own.claim(flow, own.worker(flow))
    holder = own.connect()
    holder.execute("set deadlock_timeout = '1min'")  # so that the report notices first

    def report(conn: Connection) -> object:
        conn.execute("set deadlock_timeout = '2s'")
        return own.report(*map(element, tasks), conn=conn)

    with holder.transaction():
        lock = "select from pgflow.runs where run_id = %s for update"
        holder.execute(lock, (high,))
        reporting = own.meanwhile(report)
        holder.execute(lock, (low,))
    with pytest.raises(psycopg.errors.DeadlockDetected):
        reporting.result()

    assert [answer.verdict for answer in own.report(*map(element, tasks))] == ["completed"] * 2


def test_more_than_two_hundred_elements_are_refused(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.start(flow)
    task = own.claim_one(flow, own.worker(flow))

    with pytest.raises(psycopg.Error, match="up to 200 elements") as refused:
        own.report(*[element(task)] * 201)

    assert refused.value.sqlstate == "22023"


def test_an_empty_batch_is_answered_by_nothing(own: LeaseDatabase) -> None:
    assert own.report() == []


def test_failures_of_one_run_in_a_batch_fail_it_once(db: LeaseDatabase) -> None:
    flow = db.flow("m*", max_attempts=1)
    run = db.start(flow, [1, 2, 3])
    tasks = sorted(db.claim(flow, db.worker(flow)), key=lambda task: task.task_index)

    answers = db.report(
        element(tasks[0], "failed", error_message="first"),
        element(tasks[1], "failed", error_message="second"),
        element(tasks[2]),
    )

    assert {answers[0].verdict, answers[1].verdict} <= {"failed", "late"}
    assert answers[2].verdict in ("completed", "late")
    assert db.status(run) == "failed"
    assert not db.queue(flow)


def test_without_retry_a_task_fails_for_good(db: LeaseDatabase) -> None:
    flow = db.flow("a", max_attempts=5)
    runs = [db.start(flow), db.start(flow)]
    one, other = db.claim(flow, db.worker(flow))

    assert db.fail(one, "hopeless", retry=False) == "failed"
    answer = db.report(element(other, "failed", error_message="hopeless", retry=False))[0]

    assert answer.verdict == "failed"
    assert [db.status(run) for run in runs] == ["failed", "failed"]
    assert [db.task(run).attempts_count for run in runs] == [5, 5]


def test_a_delay_larger_than_an_integer_does_no_harm(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow(max_attempts=100, base_delay=1000)
    runs = [db.start(flow), db.start(flow)]
    db.do("update pgflow.step_tasks set attempts_count = 40")
    one, other = db.claim(flow, db.worker(flow))

    assert db.fail(one) == "queued"
    assert db.report(element(other, "failed", error_message="boom"))[0].verdict == "queued"

    assert [db.task(run).attempts_count for run in runs] == [41, 41]
