"""
The fence: only who holds a task's lease may report it.
"""

from __future__ import annotations

import psycopg
import pytest
from support.leases import House, element


def test_a_claim_opens_an_attempt_and_a_completion_closes_it(house: House) -> None:
    flow = house.flow()
    run, worker = house.start(flow, {"x": 1}), house.worker(flow)

    task = house.claim_one(flow, worker)

    assert (task.run_id, task.step_slug, task.task_index) == (run, "a", 0)
    assert (task.input, task.flow_input) == ({}, {"x": 1})
    assert (task.attempt, task.max_attempts, task.timeout) == (1, 3, 60)
    assert house.outcomes(run) == [None]

    assert house.complete(task, {"y": 2}) == "completed"

    assert house.outcomes(run) == house.kept("completed")
    assert house.run_status(run) == "completed"
    assert not house.queue(flow)


def test_tokens_of_a_task_grow(house: House) -> None:
    flow = house.flow(max_attempts=5)
    house.start(flow)
    worker = house.worker(flow)

    tokens = []
    for end in (house.fail, house.release, house.fail, house.lapse, house.complete):
        task = house.claim_one(flow, worker)
        tokens.append(task.token)
        end(task)

    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
def test_after_a_takeover_the_old_token_is_refused_with_all_the_caller_wrote(
    house: House, verb: str
) -> None:
    house.do("create table notes (text text)")
    flow = house.flow()
    run, old, new = house.start(flow), house.worker(flow), house.worker(flow)
    lost = house.claim_one(flow, old)
    house.lapse(lost)
    taken = house.claim_one(flow, new)
    before = house.task(run), house.rows("select * from pgflowd.attempts order by token")

    conn = house.connect()
    with pytest.raises(psycopg.Error) as refused, conn.transaction():
        conn.execute("insert into notes values ('half done')")
        getattr(house, verb)(lost, conn=conn)

    assert refused.value.sqlstate == "PF001"
    assert (house.task(run), house.rows("select * from pgflowd.attempts order by token")) == before
    assert not house.rows("select * from notes")
    assert house.beat(old, lost) == ["lost"]
    assert house.complete(taken) == "completed"


def test_a_takeover_loses_the_old_token_in_a_batch_too(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)
    lost = house.claim_one(flow, house.worker(flow))
    house.lapse(lost)
    taken = house.claim_one(flow, house.worker(flow))

    (answer,) = house.report(element(lost))

    assert (answer.token, answer.verdict, answer.sqlstate) == (lost.token, "lost", "PF001")
    assert house.task(run).status == "started"
    assert house.report(element(taken))[0].verdict == "completed"
    assert house.outcomes(run) == house.kept("stalled", "completed")


def test_a_lapsed_lease_that_nobody_took_completes(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow), lease="0 s")

    assert house.complete(task) == "completed"

    assert house.run_status(run) == "completed"


def test_a_lapsed_lease_that_nobody_took_revives_by_a_beat(house: House) -> None:
    flow = house.flow()
    house.start(flow)
    worker = house.worker(flow)
    task = house.claim_one(flow, worker, lease="0 s")

    assert house.beat(worker, task) == ["ok"]

    assert house.claim(flow, house.worker(flow)) == []
    assert house.complete(task) == "completed"


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
def test_the_same_report_again_is_repeated_and_changes_nothing(any_core: House, verb: str) -> None:
    house = any_core
    flow = house.flow("a", "b:a")
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow))
    getattr(house, verb)(task)
    before = house.task(run), house.rows("select * from pgflowd.attempts")

    assert getattr(house, verb)(task) == "repeated"
    outcome = {"complete": "completed", "fail": "failed", "release": "released"}[verb]
    assert house.report(element(task, outcome))[0].verdict == "repeated"

    assert (house.task(run), house.rows("select * from pgflowd.attempts")) == before


def test_another_report_than_the_recorded_one_is_lost(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    house.start(flow)
    task = house.claim_one(flow, house.worker(flow))
    house.fail(task)

    with pytest.raises(psycopg.Error, match="holds no live lease") as refused:
        house.complete(task)

    assert refused.value.sqlstate == "PF001"


def test_a_token_of_another_task_or_of_none_is_refused(any_core: House) -> None:
    house = any_core
    flow = house.flow("a", "b")
    house.start(flow)
    one, other = house.claim(flow, house.worker(flow))

    wrong = element(one) | {"token": other.token}
    none = element(one) | {"token": 999_999}

    assert house.report(wrong)[0].sqlstate == "PF001"
    assert house.report(none)[0].sqlstate == "PF001"
    assert [house.complete(task) for task in (one, other)] == ["completed", "completed"]


def test_an_unknown_task_is_not_found(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    house.start(flow)
    task = house.claim_one(flow, house.worker(flow))

    with pytest.raises(psycopg.Error, match="there is no task a#7 of run") as refused:
        house.complete(task._replace(task_index=7))

    assert refused.value.sqlstate == "PF002"
    answer = house.report(element(task._replace(task_index=7)))[0]
    assert (answer.verdict, answer.sqlstate) == ("lost", "PF002")


def test_a_task_done_by_an_unfenced_worker_is_lost_and_counted_once(house: House) -> None:
    flow = house.flow("a", "b:a")
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow))
    house.upstream_complete(task, "theirs")

    with pytest.raises(psycopg.Error, match="holds no live lease"):
        house.complete(task, "ours")

    assert house.task(run).output == "theirs"
    assert house.outcomes(run) == ["lost"]
    query = "select remaining_steps from pgflow.runs where run_id = %s"
    assert house.value(query, run) == 1


def test_a_report_that_an_unfenced_worker_only_delayed_goes_on(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow))
    house.rows("select pgflow.fail_task(%s, 'a', 0, 'theirs')", run)
    assert house.task(run).status == "queued"

    assert house.complete(task) == "completed"

    assert house.run_status(run) == "completed"
