"""
Heartbeats: what they say of each token.
"""

from __future__ import annotations

from support.leases import House


def test_a_beat_tells_each_token_apart(house: House) -> None:
    flow = house.flow("m*")
    house.start(flow, [1, 2, 3, 4])
    worker, thief = house.worker(flow), house.worker(flow)
    done, stolen, living, foreign = house.claim(flow, worker)
    house.complete(done)
    house.lapse(stolen)
    assert len(house.claim(flow, thief)) == 1

    verdicts = house.beat(worker, done, stolen, living, foreign._replace(token=12345))

    assert verdicts == ["lost", "lost", "ok", "lost"]


def test_a_beat_of_another_worker_finds_the_token_lost_and_changes_nothing(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow))

    assert house.beat(house.worker(flow), task) == ["lost"]

    assert house.outcomes(run) == [None]
    assert house.complete(task) == "completed"


def test_a_beat_says_cancel_when_run_or_step_has_ended(house: House) -> None:
    flow = house.flow("a", "b", max_attempts=1)
    cancelled, failed = house.start(flow), house.start(flow)
    worker = house.worker(flow)
    tasks = {(task.run_id, task.step_slug): task for task in house.claim(flow, worker)}
    house.cancel(cancelled)
    house.fail(tasks[failed, "a"])

    held = [tasks[cancelled, "a"], tasks[cancelled, "b"], tasks[failed, "b"]]

    assert house.beat(worker, *held) == ["cancel", "cancel", "cancel"]
    assert house.beat(worker, *held) == ["cancel", "cancel", "cancel"]


def test_a_beat_after_a_run_was_deleted_finds_its_task_lost(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    run = house.start(flow)
    worker = house.worker(flow)
    task = house.claim_one(flow, worker)
    for table in ("step_tasks", "step_states", "runs"):
        house.do(f"delete from pgflow.{table} where run_id = %s", run)

    assert house.beat(worker, task) == ["lost"]
    assert house.value("select count(*) from pgflowd.attempts") == 0


def test_young_tasks_keep_their_time_and_old_ones_get_a_new_one(any_core: House) -> None:
    house = any_core
    flow = house.flow("a", "b")
    run = house.start(flow)
    worker = house.worker(flow)
    young, old = sorted(house.claim(flow, worker), key=lambda task: task.step_slug)
    house.age(old, "30 s")
    before = house.task(run, "a").started_at

    house.beat(worker, young, old)

    assert house.task(run, "a").started_at == before
    assert house.task(run, "b").started_at > before


def test_a_beat_for_nothing_says_nothing(any_core: House) -> None:
    flow = any_core.flow()
    assert any_core.beat(any_core.worker(flow)) == []
