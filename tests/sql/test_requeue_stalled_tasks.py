"""requeue_stalled_tasks: recovery of tasks whose worker vanished."""

import pytest


def age(suite, seconds, step="a"):
    """Let a task have started so many seconds ago."""
    suite.do(
        "update pgflow.step_tasks set queued_at = now() - interval '1 day',"
        " started_at = now() - make_interval(secs => %s) where step_slug = %s",
        seconds,
        step,
    )


def requeue(suite):
    return suite.value("select pgflow.requeue_stalled_tasks()")


@pytest.fixture
def run(suite):
    suite.flow("f", "a", timeout=60)
    run = suite.start("f")
    suite.claim("f")
    return run


def test_a_stalled_task_is_queued_again(suite, run):
    age(suite, 91)

    assert requeue(suite) == 1

    task = suite.task(run, "a")
    assert (task["status"], task["attempts_count"], task["requeued_count"]) == ("queued", 1, 1)
    assert task["started_at"] is None and task["last_worker_id"] is None
    assert task["last_requeued_at"] == suite.value("select now()")
    assert task["permanently_stalled_at"] is None
    assert suite.delay("f", task["message_id"]) <= 0
    assert suite.state(run, "a")["status"] == "started"


@pytest.mark.parametrize("seconds", [0, 60, 89, 90])
def test_a_task_within_its_timeout_and_30_seconds_stays(suite, run, seconds):
    age(suite, seconds)
    before = suite.snapshot()

    assert requeue(suite) == 0
    assert suite.snapshot() == before


@pytest.mark.parametrize(
    ("flow_timeout", "step_timeout", "seconds", "stalled"),
    [(60, 600, 200, False), (60, 600, 631, True), (600, 10, 41, True), (600, 10, 39, False)],
)
def test_the_step_s_timeout_comes_first(suite, flow_timeout, step_timeout, seconds, stalled):
    suite.flow("g", ("s", {"timeout": step_timeout}), timeout=flow_timeout)
    run = suite.start("g")
    suite.claim("g")
    age(suite, seconds, "s")

    assert requeue(suite) == int(stalled)
    assert suite.task(run, "s")["status"] == ("queued" if stalled else "started")


def test_it_can_be_claimed_again_and_counts_another_attempt(suite, run):
    age(suite, 100)
    requeue(suite)

    (record,) = suite.claim("f")

    assert record["run_id"] == run
    assert suite.task(run, "a")["attempts_count"] == 2
    suite.complete(run, "a", 1)
    assert suite.run(run)["status"] == "completed"


def test_after_three_times_it_is_given_up(suite, run):
    for count in (1, 2, 3):
        age(suite, 100)
        assert requeue(suite) == 1
        assert suite.task(run, "a")["requeued_count"] == count
        suite.claim("f")
    age(suite, 100)

    assert requeue(suite) == 0

    task = suite.task(run, "a")
    assert (task["status"], task["requeued_count"]) == ("started", 3)
    assert task["permanently_stalled_at"] == suite.value("select now()")
    assert suite.archive("f") == [task["message_id"]] and suite.active("f") == []
    assert suite.run(run)["status"] == "started"


def test_a_given_up_task_is_not_checked_again(suite, run):
    suite.do("update pgflow.step_tasks set requeued_count = 3")
    age(suite, 100)
    requeue(suite)
    before = suite.snapshot()

    assert requeue(suite) == 0
    assert suite.snapshot() == before


def test_giving_up_happens_beside_requeueing(suite):
    suite.flow("g", "a", "b")
    run = suite.start("g")
    suite.claim("g")
    suite.do("update pgflow.step_tasks set requeued_count = 3 where step_slug = 'a'")
    age(suite, 100, "a")
    age(suite, 100, "b")

    assert requeue(suite) == 1

    assert suite.task(run, "a")["permanently_stalled_at"] is not None
    assert suite.task(run, "b")["status"] == "queued"
    assert suite.archive("g") == [suite.task(run, "a")["message_id"]]


def test_queued_and_ended_tasks_stay(suite):
    suite.flow("g", "a", "b")
    run = suite.start("g")
    suite.start_tasks("g", [suite.task(run, "a")["message_id"]])
    suite.complete(run, "a", 1)
    suite.do("update pgflow.step_tasks set queued_at = now() - interval '1 day'")
    before = suite.snapshot()

    assert requeue(suite) == 0
    assert suite.snapshot() == before


def test_tasks_of_failed_runs_stay(suite):
    suite.flow("g", "a", "b", max_attempts=1)
    run = suite.start("g")
    suite.claim("g")
    suite.fail(run, "b")
    age(suite, 100)
    before = suite.snapshot()

    assert requeue(suite) == 0
    assert suite.snapshot() == before


def test_tasks_of_skipped_steps_stay(suite, run):
    suite.do(
        "update pgflow.step_states set status = 'skipped', skipped_at = now(),"
        " skip_reason = 'x', remaining_tasks = null"
    )
    age(suite, 100)

    assert requeue(suite) == 0
    assert suite.task(run, "a")["status"] == "started"


def test_a_task_without_a_message_does_no_harm(suite, run):
    suite.do("update pgflow.step_tasks set message_id = null")
    age(suite, 100)

    assert requeue(suite) == 1

    suite.do("update pgflow.step_tasks set requeued_count = 3, status = 'started'")
    age(suite, 100)
    assert requeue(suite) == 0
    assert suite.task(run, "a")["permanently_stalled_at"] is not None


def test_a_partial_row_as_the_suite_inserts_it_is_recovered(suite):
    suite.flow("g", "a")
    run = suite.start("g")
    suite.do(
        "insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index, status,"
        " queued_at, started_at) values ('g', %s, 'a', 1, 'started', now() - interval '1 day',"
        " now() - interval '1 hour')",
        run,
    )

    assert requeue(suite) == 1
    assert suite.task(run, "a", 1)["status"] == "queued"


def test_several_flows_at_once(suite):
    for slug in ("f", "g"):
        suite.flow(slug, "m*")
        suite.start(slug, [1, 2, 3])
        suite.claim(slug)
    age(suite, 100, "m")

    assert requeue(suite) == 6
    assert all(row["vt"] <= suite.value("select clock_timestamp()") for row in suite.queue("g"))


def test_it_sends_no_event(suite, run):
    events = suite.events()
    age(suite, 100)

    requeue(suite)

    assert suite.events() == events


def test_two_sweeps_share_the_work_and_do_not_wait(shared):
    shared.flow("f", "m*")
    shared.start("f", [1, 2, 3])
    shared.claim("f")
    age(shared, 100, "m")
    one, two = shared.session(), shared.session()
    one.do("select 1 from pgflow.step_tasks where task_index = 0 for update")
    two.do("set local lock_timeout = '300ms'")

    assert requeue(two) == 2
    two.conn.commit()
    one.conn.rollback()
    assert requeue(shared) == 1


def test_a_sweep_with_nothing_stalled_gives_0(suite, run):
    assert requeue(suite) == 0


def test_capitals_do_not_hide_a_queue(suite):
    suite.flow("MyFlow", "a")
    run = suite.start("MyFlow")
    suite.claim("MyFlow")
    age(suite, 100)

    assert requeue(suite) == 1
    assert suite.delay("MyFlow", suite.task(run, "a")["message_id"]) <= 0


def test_a_failure_of_what_was_given_up_is_its_last(suite, run):
    suite.do("update pgflow.flows set opt_max_attempts = 9")
    suite.do("update pgflow.step_tasks set requeued_count = 3")
    age(suite, 100)
    assert requeue(suite) == 0 and suite.archive("f")

    suite.fail(run, "a", "late")

    task = suite.task(run, "a")
    assert (task["status"], task["error_message"]) == ("failed", "late")
    assert suite.run(run)["status"] == "failed"


def test_a_result_of_what_was_given_up_counts(suite, run):
    suite.do("update pgflow.step_tasks set requeued_count = 3")
    age(suite, 100)
    assert requeue(suite) == 0 and suite.archive("f")

    suite.complete(run, "a", 1)

    assert suite.run(run)["output"] == {"a": 1}
