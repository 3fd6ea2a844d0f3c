"""
The fence: only the holder of a task's lease may report it.
"""

from __future__ import annotations

import psycopg
import pytest
from support.leases import LeaseDatabase, element


def test_a_claim_opens_an_attempt_and_a_completion_closes_it(db: LeaseDatabase) -> None:
    flow = db.flow()
    run, worker = db.start(flow, {"x": 1}), db.worker(flow)

    task = db.claim_one(flow, worker)

    assert (task.run_id, task.step_slug, task.task_index) == (run, "a", 0)
    assert (task.input, task.flow_input) == ({}, {"x": 1})
    assert (task.attempt, task.max_attempts, task.timeout) == (1, 3, 60)
    assert db.outcomes(run) == [None]

    assert db.complete(task, {"y": 2}) == "completed"

    assert db.outcomes(run) == db.kept("completed")
    assert db.status(run) == "completed"
    assert not db.queue(flow)


def test_tokens_of_a_task_grow(db: LeaseDatabase) -> None:
    flow = db.flow(max_attempts=5)
    db.start(flow)
    worker = db.worker(flow)

    tokens = []
    for end in (db.fail, db.release, db.fail, db.lapse, db.complete):
        task = db.claim_one(flow, worker)
        tokens.append(task.token)
        end(task)

    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
def test_after_a_takeover_the_old_token_is_refused_with_all_the_caller_wrote(
    db: LeaseDatabase, verb: str
) -> None:
    db.do("create table notes (text text)")
    flow = db.flow()
    run, old, new = db.start(flow), db.worker(flow), db.worker(flow)
    lost = db.claim_one(flow, old)
    db.lapse(lost)
    taken = db.claim_one(flow, new)
    before = db.task(run), db.rows("select * from pgflowd.attempts order by token")

    conn = db.connect()
    with pytest.raises(psycopg.Error) as refused, conn.transaction():
        conn.execute("insert into notes values ('half done')")
        getattr(db, verb)(lost, conn=conn)

    assert refused.value.sqlstate == "PF001"
    assert (db.task(run), db.rows("select * from pgflowd.attempts order by token")) == before
    assert not db.rows("select * from notes")
    assert db.heartbeat(old, lost) == ["lost"]
    assert db.complete(taken) == "completed"


def test_a_takeover_loses_the_old_token_in_a_batch_too(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    lost = db.claim_one(flow, db.worker(flow))
    db.lapse(lost)
    taken = db.claim_one(flow, db.worker(flow))

    (answer,) = db.report(element(lost))

    assert (answer.token, answer.verdict, answer.sqlstate) == (lost.token, "lost", "PF001")
    assert db.task(run).status == "started"
    assert db.report(element(taken))[0].verdict == "completed"
    assert db.outcomes(run) == db.kept("stalled", "completed")


def test_a_lapsed_lease_that_nobody_took_completes(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow), lease="0 s")

    assert db.complete(task) == "completed"

    assert db.status(run) == "completed"


def test_a_lapsed_lease_that_nobody_took_revives_by_a_beat(db: LeaseDatabase) -> None:
    flow = db.flow()
    db.start(flow)
    worker = db.worker(flow)
    task = db.claim_one(flow, worker, lease="0 s")

    assert db.heartbeat(worker, task) == ["ok"]

    assert db.claim(flow, db.worker(flow)) == []
    assert db.complete(task) == "completed"


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
def test_the_same_report_again_is_repeated_and_changes_nothing(
    own: LeaseDatabase, verb: str
) -> None:
    db = own
    flow = db.flow("a", "b:a")
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    getattr(db, verb)(task)
    before = db.task(run), db.rows("select * from pgflowd.attempts")

    assert getattr(db, verb)(task) == "repeated"
    outcome = {"complete": "completed", "fail": "failed", "release": "released"}[verb]
    assert db.report(element(task, outcome))[0].verdict == "repeated"

    assert (db.task(run), db.rows("select * from pgflowd.attempts")) == before


def test_another_report_than_the_recorded_one_is_lost(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    db.fail(task)

    with pytest.raises(psycopg.Error, match="holds no live lease") as refused:
        db.complete(task)

    assert refused.value.sqlstate == "PF001"


def test_a_token_of_another_task_or_of_none_is_refused(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("a", "b")
    db.start(flow)
    one, other = db.claim(flow, db.worker(flow))

    wrong = element(one) | {"token": other.token}
    none = element(one) | {"token": 999_999}

    assert db.report(wrong)[0].sqlstate == "PF001"
    assert db.report(none)[0].sqlstate == "PF001"
    assert [db.complete(task) for task in (one, other)] == ["completed", "completed"]


def test_an_unknown_task_is_not_found(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    db.start(flow)
    task = db.claim_one(flow, db.worker(flow))

    with pytest.raises(psycopg.Error, match="there is no task a#7 of run") as refused:
        db.complete(task._replace(task_index=7))

    assert refused.value.sqlstate == "PF002"
    answer = db.report(element(task._replace(task_index=7)))[0]
    assert (answer.verdict, answer.sqlstate) == ("lost", "PF002")


def test_a_task_done_by_an_unfenced_worker_is_lost_and_counted_once(db: LeaseDatabase) -> None:
    flow = db.flow("a", "b:a")
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    db.upstream_complete(task, "theirs")

    with pytest.raises(psycopg.Error, match="holds no live lease"):
        db.complete(task, "ours")

    assert db.task(run).output == "theirs"
    assert db.outcomes(run) == ["lost"]
    query = "select remaining_steps from pgflow.runs where run_id = %s"
    assert db.value(query, run) == 1


def test_a_report_that_an_unfenced_worker_only_delayed_continues(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    db.rows("select pgflow.fail_task(%s, 'a', 0, 'theirs')", run)
    assert db.task(run).status == "queued"

    assert db.complete(task) == "completed"

    assert db.status(run) == "completed"
