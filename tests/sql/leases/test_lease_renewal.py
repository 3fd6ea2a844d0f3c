"""
Heartbeats renew leases, and return a verdict for each token.
"""

from __future__ import annotations

from support.leases import LeaseDatabase


def test_a_heartbeat_has_a_verdict_for_each_token(db: LeaseDatabase) -> None:
    flow = db.flow("m*")
    db.start(flow, [1, 2, 3, 4])
    worker, thief = db.worker(flow), db.worker(flow)
    done, stolen, living, foreign = db.claim(flow, worker)
    db.complete(done)
    db.lapse(stolen)
    assert len(db.claim(flow, thief)) == 1

    verdicts = db.heartbeat(worker, done, stolen, living, foreign._replace(token=12345))

    assert verdicts == ["lost", "lost", "ok", "lost"]


def test_a_heartbeat_of_another_worker_finds_the_token_lost_and_changes_nothing(
    own: LeaseDatabase,
) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))

    assert db.heartbeat(db.worker(flow), task) == ["lost"]

    assert db.outcomes(run) == [None]
    assert db.complete(task) == "completed"


def test_a_heartbeat_returns_cancel_when_run_or_step_has_ended(db: LeaseDatabase) -> None:
    flow = db.flow("a", "b", max_attempts=1)
    cancelled, failed = db.start(flow), db.start(flow)
    worker = db.worker(flow)
    tasks = {(task.run_id, task.step_slug): task for task in db.claim(flow, worker)}
    db.cancel(cancelled)
    db.fail(tasks[failed, "a"])

    held = [tasks[cancelled, "a"], tasks[cancelled, "b"], tasks[failed, "b"]]

    assert db.heartbeat(worker, *held) == ["cancel", "cancel", "cancel"]
    assert db.heartbeat(worker, *held) == ["cancel", "cancel", "cancel"]


def test_a_heartbeat_after_a_run_was_deleted_finds_its_task_lost(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    worker = db.worker(flow)
    task = db.claim_one(flow, worker)
    for table in ("step_tasks", "step_states", "runs"):
        db.do(f"delete from pgflow.{table} where run_id = %s", run)

    assert db.heartbeat(worker, task) == ["lost"]
    assert db.value("select count(*) from pgflowd.attempts") == 0


def test_young_tasks_keep_their_time_and_old_ones_get_a_new_one(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("a", "b")
    run = db.start(flow)
    worker = db.worker(flow)
    young, old = sorted(db.claim(flow, worker), key=lambda task: task.step_slug)
    db.age(old, "30 s")
    before = db.task(run, "a").started_at

    db.heartbeat(worker, young, old)

    assert db.task(run, "a").started_at == before
    assert db.task(run, "b").started_at > before


def test_a_heartbeat_without_tokens_returns_no_rows(own: LeaseDatabase) -> None:
    flow = own.flow()
    assert own.heartbeat(own.worker(flow)) == []
