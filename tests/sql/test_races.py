"""
Pairs of calls meet, by locks held at an exact point; each time one of them wins.

One session does its part and keeps its transaction open; the other starts, and the test waits
until PostgreSQL shows it waiting (or it is done, because it passes over what is locked).
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from support.covers import covers

from pgflowd.testing.until import until


@contextmanager
def meanwhile(shared, session, act):
    """Let a session act in a thread, and go on when it waits for a lock or is done."""
    pid = session.value("select pg_backend_pid()")
    session.conn.commit()
    with ThreadPoolExecutor(1) as threads:
        acting = threads.submit(act, session)

        def held_up_or_done():
            waits = shared.value("select cardinality(pg_blocking_pids(%s)) > 0", pid)
            return waits or acting.done()

        until(held_up_or_done, within_s=10)
        yield acting
        acting.result(timeout=20)
        session.conn.commit()


@pytest.fixture
def run(shared):
    """Single steps a and b, b before c; a map of three before z; all claimed, aged an hour."""
    shared.flow("f", "a", "b", "c: b", "m*", "z: m", max_attempts=1)
    run = shared.start("f", [1, 2, 3])
    shared.claim("f")
    age(shared)
    return run


def age(session):
    session.do(
        "update pgflow.step_tasks set queued_at = now() - interval '1 day',"
        " started_at = now() - interval '1 hour' where status = 'started'"
    )


def requeue(session):
    return session.value("select pgflow.requeue_stalled_tasks()")


@pytest.fixture
def one(shared):
    return shared.session()


@pytest.fixture
def two(shared):
    return shared.session()


def test_a_report_that_waited_for_a_recovery_finds_the_task_queued(shared, run, one, two):
    assert requeue(one) == 5

    with meanwhile(shared, two, lambda two: two.complete(run, "a", 1)) as report:
        one.conn.commit()

    assert [row["status"] for row in report.result()] == ["queued"]
    task = shared.task(run, "a")
    assert (task["status"], task["started_at"], task["output"]) == ("queued", None, None)
    assert task["message_id"] in shared.active("f")


def test_a_failure_that_waited_for_a_recovery_finds_the_task_queued(shared, run, one, two):
    requeue(one)

    with meanwhile(shared, two, lambda two: two.fail(run, "a", "late")) as report:
        one.conn.commit()

    assert [row["status"] for row in report.result()] == ["queued"]
    assert shared.run(run)["status"] == "started"
    assert shared.task(run, "a")["error_message"] is None


def test_a_recovery_passes_over_what_is_being_reported(shared, run, one, two):
    one.complete(run, "a", 1)

    with meanwhile(shared, two, requeue) as recovery:
        one.conn.commit()

    assert recovery.result() == 4
    assert shared.task(run, "a")["status"] == "completed"


def test_a_recovery_does_not_revive_a_run_that_is_failing(shared, run, one, two):
    one.fail(run, "a", "boom")

    with meanwhile(shared, two, requeue) as recovery:
        one.conn.commit()

    assert recovery.result() == 0
    assert shared.active("f") == []
    assert requeue(shared) == 0


def test_a_failure_archives_what_a_recovery_makes_visible(shared, run, one, two):
    requeue(one)
    one.conn.commit()
    age(shared)
    claimed = one.claim("f")
    assert len(claimed) == 5
    one.conn.commit()
    age(shared)
    requeue(one)

    with meanwhile(shared, two, lambda two: two.fail(run, "a", "boom")):
        one.conn.commit()

    assert shared.task(run, "a")["status"] == "queued"
    shared.claim("f")
    shared.fail(run, "a", "boom")
    assert shared.active("f") == []


def test_two_failures_of_one_run_send_one_event(shared, run, one, two):
    one.fail(run, "a", "first")

    with meanwhile(shared, two, lambda two: two.fail(run, "b", "second")):
        one.conn.commit()

    assert shared.statuses(run)["a"] == "failed" and shared.statuses(run)["b"] == "started"
    assert shared.run(run)["status"] == "failed"
    task = shared.task(run, "b")
    assert (task["status"], task["error_message"]) == ("failed", "second")


def test_a_completion_that_waited_for_the_failure_of_its_run_changes_nothing(shared, run, one, two):
    one.fail(run, "a", "first")

    with meanwhile(shared, two, lambda two: two.complete(run, "b", 1)):
        one.conn.commit()

    assert shared.statuses(run)["b"] == "started" and shared.statuses(run)["c"] == "created"
    assert shared.task(run, "b")["status"] == "started"
    assert shared.run(run)["remaining_steps"] == 5


def test_a_failure_that_waited_for_the_completion_of_the_task_changes_nothing(
    shared, run, one, two
):
    one.complete(run, "b", 1)

    with meanwhile(shared, two, lambda two: two.fail(run, "b", "late")):
        one.conn.commit()

    assert shared.statuses(run)["b"] == "completed" and shared.statuses(run)["c"] == "started"
    assert shared.run(run)["status"] == "started"


def test_the_last_two_tasks_of_a_map_complete_it_once(shared, run, one, two):
    shared.complete(run, "m", 0, 0)
    one.complete(run, "m", 1, 1)

    with meanwhile(shared, two, lambda two: two.complete(run, "m", 2, 2)):
        one.conn.commit()

    assert shared.state(run, "m")["output"] == [0, 1, 2]
    assert shared.statuses(run)["z"] == "started"
    assert len(shared.tasks(run, "z")) == 1


def test_the_last_two_dependencies_of_a_step_start_it_once(shared, one, two):
    shared.flow("g", "a", "b", "c: a b", "m*: a", "d: m b")
    run = shared.start("g")
    shared.claim("g")
    one.complete(run, "a", [1])

    with meanwhile(shared, two, lambda two: two.complete(run, "b", 2)):
        one.conn.commit()

    assert shared.statuses(run)["c"] == "started" and len(shared.tasks(run, "c")) == 1
    assert shared.claim("g")[0]["input"] == {"a": [1], "b": 2}


def test_a_claim_does_not_wait_for_a_report_of_the_same_run(shared, one, two):
    shared.flow("g", "a", "b")
    run = shared.start("g")
    shared.start_tasks("g", [shared.task(run, "a")["message_id"]])
    one.complete(run, "a", 1)
    two.do("set local lock_timeout = '500ms'")

    assert [record["step_slug"] for record in two.claim("g")] == ["b"]


def test_a_claim_that_meets_the_failure_of_its_run_leaves_no_message_and_no_error(shared, one, two):
    shared.flow("g", "a", "b", max_attempts=1)
    run = shared.start("g")
    shared.worker("g")
    shared.start_tasks("g", [shared.task(run, "a")["message_id"]])
    one.fail(run, "a", "boom")

    with meanwhile(shared, two, lambda two: two.start_tasks("g", [1, 2])) as claim:
        one.conn.commit()

    assert claim.result() == []
    assert shared.task(run, "b")["status"] == "queued" and shared.active("g") == []


def test_a_failure_that_meets_a_claim_waits_and_archives_its_message(shared, one, two):
    shared.flow("g", "a", "b", max_attempts=1)
    run = shared.start("g")
    shared.worker("g")
    shared.start_tasks("g", [shared.task(run, "a")["message_id"]])
    assert len(one.start_tasks("g", [1, 2])) == 1

    with meanwhile(shared, two, lambda two: two.fail(run, "a", "boom")):
        one.conn.commit()

    assert shared.task(run, "b")["status"] == "started" and shared.active("g") == []
    assert shared.run(run)["status"] == "failed"


def test_a_claim_that_meets_a_skip_leaves_its_tasks(shared, one, two):
    shared.flow("g", ("m*", {"when_exhausted": "skip"}), "o", max_attempts=1)
    run = shared.start("g", [1, 2])
    shared.worker("g")
    shared.start_tasks("g", [shared.task(run, "m")["message_id"]])
    one.fail(run, "m", "boom")

    with meanwhile(shared, two, lambda two: two.start_tasks("g", [1, 2, 3])) as claim:
        one.conn.commit()

    assert [record["step_slug"] for record in claim.result()] == ["o"]
    assert {task["status"] for task in shared.tasks(run, "m")} == {"failed", "skipped"}


def test_a_run_cannot_start_in_a_flow_that_is_being_deleted(shared, one, two):
    shared.flow("g", "a")
    one.do("select pgflow.delete_flow_and_data('g')")

    with meanwhile(shared, two, lambda two: str(two.error("select pgflow.start_flow('g', '{}')"))):
        one.conn.commit()

    assert shared.value("select count(*) from pgflow.runs where flow_slug = 'g'") == 0


def test_a_flow_is_deleted_with_the_run_that_was_starting(shared, one, two):
    shared.flow("g", "a")
    one.start("g")

    with meanwhile(shared, two, lambda two: two.do("select pgflow.delete_flow_and_data('g')")):
        one.conn.commit()

    for table in ("flows", "steps", "runs", "step_states", "step_tasks"):
        assert shared.value(f"select count(*) from pgflow.{table}") == 0
    assert shared.rows("select * from pgmq.list_queues()") == []


def test_a_start_and_a_deletion_do_not_deadlock_over_the_rows_of_the_flow(shared, one, two):
    shared.flow("g", "a")
    one.do("select pgflow._lock_starts('g')")
    one.do("select from pgflow.flows where flow_slug = 'g' for key share")

    with meanwhile(shared, two, lambda two: two.do("select pgflow.delete_flow_and_data('g')")):
        one.start("g")
        one.conn.commit()

    assert shared.value("select count(*) from pgflow.runs") == 0


def test_a_run_starts_in_a_flow_that_was_recreated_meanwhile(shared, one, two):
    shared.flow("g", "a")
    one.do("select pgflow.delete_flow_and_data('g')")
    one.flow("g", "b")

    with meanwhile(shared, two, lambda two: two.start("g")) as start:
        one.conn.commit()

    assert shared.statuses(start.result()) == {"b": "started"}


def test_a_report_that_creates_tasks_and_a_deletion_do_not_deadlock(shared, one, two):
    shared.flow("g", "a", "b: a")
    run = shared.start("g")
    shared.claim("g")
    one.do("select from pgflow.runs where run_id = %s for no key update", run)

    with meanwhile(shared, two, lambda two: two.do("select pgflow.delete_flow_and_data('g')")):
        one.complete(run, "a", 1)
        one.conn.commit()

    assert shared.value("select count(*) from pgflow.step_tasks") == 0


@covers("database 11")
def test_a_start_holds_no_lock_that_a_role_without_rights_could_hold(shared, one):
    shared.flow("g", "a")
    one.start("g")

    held = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
    assert one.value(held) == 0


@covers("database 11")
def test_advisory_locks_of_a_stranger_stop_no_start(shared, one, two):
    shared.flow("one", "a")
    one.do("select pg_advisory_xact_lock(1, hashtext('starts of one'))")
    one.do("select pg_advisory_xact_lock(1, hashtext('one'))")
    two.do("set local lock_timeout = '2s'")

    run = two.start("one")

    assert two.statuses(run) == {"a": "started"}


def test_a_worker_starts_while_a_run_is_starting(shared, one, two):
    shared.do("""select pgflow.ensure_flow_compiled('g', '{"steps": []}')""")
    one.start("g")
    two.do("set local lock_timeout = '500ms'")

    found = two.value("""select pgflow.ensure_flow_compiled('g', '{"steps": []}')""")

    assert found["status"] == "verified"


def test_a_step_added_during_a_start_is_in_no_run(shared, one, two):
    shared.flow("g", "a")
    one.do("lock table pgflow.runs in exclusive mode")  # after the steps are listed
    one.step("g", "m*")

    with meanwhile(shared, two, lambda two: two.start("g")) as start:
        one.conn.commit()

    run = start.result()
    assert shared.statuses(run) == {"a": "started"}
    assert shared.run(run)["remaining_steps"] == 1


def test_a_report_ends_before_its_flow_is_deleted(shared, run, one, two):
    one.complete(run, "b", 1)

    with meanwhile(shared, two, lambda two: two.do("select pgflow.delete_flow_and_data('f')")):
        one.conn.commit()

    assert shared.value("select count(*) from pgflow.step_tasks") == 0
    assert shared.complete(run, "a", 1) == []


def test_a_report_of_a_deleted_run_finds_nothing(shared, run, one, two):
    one.do("select pgflow.delete_flow_and_data('f')")

    with meanwhile(shared, two, lambda two: two.complete(run, "b", 1)) as report:
        one.conn.commit()

    assert report.result() == []


def test_one_run_id_given_twice_at_once_starts_one_run(shared, one, two):
    shared.flow("g", "a")
    run = uuid.uuid4()
    one.start("g", {}, run)

    def again(two):
        return two.error("select pgflow.start_flow('g', '{}', %s)", run).diag.constraint_name

    with meanwhile(shared, two, again) as second:
        one.conn.commit()

    assert second.result() == "runs_pkey"
    assert len(shared.active("g")) == 1
