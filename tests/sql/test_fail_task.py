"""A task reported failed; retries, exhaustion, skips."""

import uuid

import psycopg
import pytest


@pytest.fixture
def run(suite):
    suite.flow("f", "a", "b: a", "other")
    run = suite.start("f")
    suite.claim("f")
    return run


def skipping(mode, **more):
    return {"when_exhausted": mode, "max_attempts": 1, **more}


# -- retry -------------------------------------------------------------------------------------


def test_with_attempts_left_the_task_is_queued_again(suite, run):
    (row,) = suite.fail(run, "a", "first failure")

    assert row == suite.task(run, "a")
    assert (row["status"], row["attempts_count"]) == ("queued", 1)
    assert row["error_message"] == "first failure"
    assert row["started_at"] is None and row["failed_at"] is None
    assert row["last_worker_id"] == suite.worker("f")
    state = suite.state(run, "a")
    assert (state["status"], state["error_message"]) == ("started", None)
    assert state["remaining_tasks"] == 1
    assert suite.run(run)["status"] == "started"


def test_a_retry_does_not_renew_queued_at(suite, run):
    suite.do("update pgflow.step_tasks set queued_at = queued_at - interval '1 hour'")
    before = suite.task(run, "a")["queued_at"]

    suite.fail(run, "a")

    assert suite.task(run, "a")["queued_at"] == before


def test_a_retry_sends_no_event_and_archives_nothing(suite, run):
    events = suite.events()

    suite.fail(run, "a")

    assert suite.events() == events
    assert suite.archive("f") == [] and len(suite.active("f")) == 2


def test_base_5_waits_10_20_40(suite, run):
    suite.do("update pgflow.flows set opt_max_attempts = 9")
    message = suite.task(run, "a")["message_id"]
    for wanted in (10, 20, 40, 80):
        suite.fail(run, "a")

        assert wanted - 1 < suite.delay("f", message) <= wanted
        assert suite.start_tasks("f", [message])


def test_the_step_s_base_delay_comes_first(suite):
    suite.flow("g", ("a", {"base_delay": 100}), ("z", {"base_delay": 0}), base_delay=1)
    run = suite.start("g")
    suite.claim("g")

    suite.fail(run, "a")
    suite.fail(run, "z")

    assert 199 < suite.delay("g", suite.task(run, "a")["message_id"]) <= 200
    assert suite.delay("g", suite.task(run, "z")["message_id"]) <= 0


def test_a_retry_ignores_the_start_delay(suite):
    suite.flow("g", ("a", {"start_delay": 1000, "base_delay": 1}))
    run = suite.start("g")
    suite.start_tasks("g", suite.active("g"))

    suite.fail(run, "a")

    assert suite.delay("g", suite.task(run, "a")["message_id"]) <= 2


def test_a_delay_beyond_all_measure_does_not_lose_the_failure(suite):
    suite.flow("g", ("a", {"base_delay": 2_000_000_000, "max_attempts": 40}))
    run = suite.start("g")
    suite.claim("g")
    suite.do("update pgflow.step_tasks set attempts_count = 35")

    (row,) = suite.fail(run, "a")

    assert (row["status"], row["error_message"]) == ("queued", "boom")
    assert suite.delay("g", row["message_id"]) > 3600


def test_a_task_without_a_message_is_retried_all_the_same(suite, run):
    suite.do("update pgflow.step_tasks set message_id = null")

    (row,) = suite.fail(run, "a")

    assert (row["status"], row["error_message"]) == ("queued", "boom")


def test_attempts_are_those_of_the_step_first(suite):
    suite.flow("g", ("a", {"max_attempts": 2}), max_attempts=1)
    run = suite.start("g")
    suite.claim("g")

    suite.fail(run, "a")
    assert suite.task(run, "a")["status"] == "queued"
    suite.show("g")
    suite.claim("g")
    suite.fail(run, "a")

    assert suite.task(run, "a")["status"] == "failed"
    assert suite.run(run)["status"] == "failed"


@pytest.mark.parametrize("attempts", [0, 1])
def test_zero_attempts_act_as_one(suite, attempts):
    suite.flow("g", "a", max_attempts=attempts)
    run = suite.start("g")
    assert suite.claim("g")

    suite.fail(run, "a")

    assert suite.task(run, "a")["status"] == "failed"


def test_a_retry_that_completes_keeps_its_last_error(suite, run):
    suite.fail(run, "a", "once")
    suite.show("f")
    suite.claim("f")

    (row,) = suite.complete(run, "a", 1)

    assert (row["status"], row["attempts_count"]) == ("completed", 2)
    assert suite.statuses(run)["b"] == "started"


# -- exhausted with fail -----------------------------------------------------------------------


def exhaust(suite, run, step, message="boom", index=0):
    suite.do("update pgflow.step_tasks set attempts_count = 3 where step_slug = %s", step)
    return suite.fail(run, step, message, index)


def test_the_last_attempt_fails_task_step_and_run(suite, run):
    (row,) = exhaust(suite, run, "a", "the reason")

    now = suite.value("select now()")
    assert (row["status"], row["error_message"], row["failed_at"]) == ("failed", "the reason", now)
    state = suite.state(run, "a")
    assert (state["status"], state["error_message"]) == ("failed", "the reason")
    assert state["failed_at"] == now and state["remaining_tasks"] == 1
    found = suite.run(run)
    assert (found["status"], found["failed_at"], found["completed_at"]) == ("failed", now, None)
    assert found["output"] is None and found["remaining_steps"] == 3


def test_steps_not_touched_keep_their_status(suite, run):
    exhaust(suite, run, "a")

    assert suite.statuses(run) == {"a": "failed", "b": "created", "other": "started"}
    assert suite.task(run, "other")["status"] == "started"


def test_the_step_s_event_comes_before_the_run_s_and_both_have_the_message(suite, run):
    exhaust(suite, run, "a", "the reason")

    assert suite.events(run)[-2:] == ["step:a:failed", "run:failed"]
    assert suite.payload(run, "step:a:failed")["error_message"] == "the reason"
    assert suite.payload(run, "run:failed")["error_message"] == "the reason"


def test_every_active_message_of_the_run_is_archived(suite, run):
    second = suite.start("f")

    exhaust(suite, run, "a")

    of_second = [task["message_id"] for task in suite.tasks(second)]
    assert suite.active("f") == sorted(of_second)
    assert suite.archive("f") == sorted(task["message_id"] for task in suite.tasks(run))


def test_siblings_of_a_failed_map_task_keep_their_status_and_lose_their_messages(suite):
    suite.flow("g", "m*", max_attempts=1)
    run = suite.start("g", [0, 1, 2, 3])
    ids = suite.active("g")
    suite.start_tasks("g", ids[:3])
    suite.complete(run, "m", 0, 0)

    suite.fail(run, "m", "boom", 1)

    assert [task["status"] for task in suite.tasks(run)] == [
        "completed",
        "failed",
        "started",
        "queued",
    ]
    assert suite.active("g") == [] and suite.archive("g") == ids
    assert suite.state(run, "m")["remaining_tasks"] == 3


def test_a_started_sibling_stays_started_after_a_late_completion(suite):
    suite.flow("g", "a", "b", max_attempts=1)
    run = suite.start("g")
    suite.claim("g")
    suite.fail(run, "a")

    suite.complete(run, "b", 1)

    assert suite.task(run, "b")["status"] == "started"


def test_in_a_failed_run_a_started_task_becomes_failed(suite):
    suite.flow("g", "a", "b", max_attempts=1)
    run = suite.start("g")
    suite.claim("g")
    suite.fail(run, "a", "first")
    events = suite.events()
    states = suite.rows("select * from pgflow.step_states order by step_slug")

    (row,) = suite.fail(run, "b", "second")

    assert row == suite.task(run, "b")
    assert (row["status"], row["error_message"]) == ("failed", "second")
    assert row["failed_at"] == suite.value("select now()")
    assert suite.events() == events
    assert suite.rows("select * from pgflow.step_states order by step_slug") == states


def test_in_a_failed_run_attempts_left_do_not_matter(suite):
    suite.flow("g", ("a", {"max_attempts": 1}), ("b", {"max_attempts": 9}))
    run = suite.start("g")
    suite.claim("g")
    suite.fail(run, "a")

    (row,) = suite.fail(run, "b")

    assert row["status"] == "failed"


def test_in_a_failed_run_a_queued_task_stays(suite):
    suite.flow("g", "a", "b", max_attempts=1)
    run = suite.start("g")
    suite.start_tasks("g", [suite.task(run, "a")["message_id"]])
    suite.fail(run, "a")

    (row,) = suite.fail(run, "b")

    assert row["status"] == "queued"


def test_replaying_the_failure_changes_nothing(suite, run):
    (first,) = exhaust(suite, run, "a", "the reason")
    before, events = suite.snapshot(), suite.events()

    (second,) = suite.fail(run, "a", "another")

    assert second == first
    assert suite.snapshot() == before and suite.events() == events


# -- reports that come at the wrong time -------------------------------------------------------


def test_no_such_task_gives_no_row(suite, run):
    before = suite.snapshot()

    assert suite.fail(run, "nobody") == []
    assert suite.fail(run, "a", index=5) == []
    assert suite.fail(uuid.uuid4(), "a") == []
    assert suite.snapshot() == before


def test_a_queued_task_is_left_alone_and_its_message_too(suite):
    suite.flow("g", "a")
    run = suite.start("g")
    before = suite.snapshot()

    (row,) = suite.fail(run, "a")

    assert row["status"] == "queued" and row["error_message"] is None
    assert suite.snapshot() == before


def test_a_completed_task_of_a_started_map_stays_and_nothing_is_archived(suite):
    suite.flow("g", "m*", max_attempts=1)
    run = suite.start("g", [1, 2])
    suite.claim("g")
    suite.complete(run, "m", 1, 0)
    before = suite.snapshot()

    (row,) = suite.fail(run, "m", "late", 0)

    assert row["status"] == "completed" and row["error_message"] is None
    assert suite.snapshot() == before


def test_on_a_step_that_is_not_started_the_message_is_archived(suite, run):
    suite.do(
        "update pgflow.step_states set status = 'skipped', skipped_at = now(),"
        " skip_reason = 'free text', remaining_tasks = null where step_slug = 'a'"
    )
    before = suite.task(run, "a")

    (row,) = suite.fail(run, "a", "late")

    assert row == before
    assert suite.archive("f") == [row["message_id"]]


def test_a_completed_step_is_not_failed_any_more(suite, run):
    suite.complete(run, "a", 1)
    before = suite.snapshot()

    (row,) = suite.fail(run, "a", "late")

    assert row["status"] == "completed"
    assert suite.snapshot() == before


# -- exhausted with skip -----------------------------------------------------------------------


def test_exhausted_with_skip_the_step_is_skipped_and_the_run_continues(suite):
    suite.flow("g", ("a", skipping("skip")), "b: a", "other")
    run = suite.start("g")
    suite.claim("g")

    (row,) = suite.fail(run, "a", "the reason")

    assert (row["status"], row["error_message"]) == ("failed", "the reason")
    state = suite.state(run, "a")
    assert (state["status"], state["skip_reason"]) == ("skipped", "handler_failed")
    assert state["error_message"] == "the reason" and state["remaining_tasks"] is None
    assert state["skipped_at"] == suite.value("select now()") and state["failed_at"] is None
    assert suite.run(run)["status"] == "started" and suite.run(run)["remaining_steps"] == 2
    assert suite.statuses(run)["b"] == "started"
    records = suite.claim("g")
    assert [(record["step_slug"], record["input"]) for record in records] == [("b", {})]


def test_the_event_of_a_skip_has_its_message_and_comes_first(suite):
    suite.flow("g", ("a", skipping("skip")), "b: a")
    run = suite.start("g")
    suite.claim("g")

    suite.fail(run, "a", "the reason")

    assert suite.events(run) == [
        "run:started",
        "step:a:started",
        "step:a:skipped",
        "step:b:started",
    ]
    payload = suite.payload(run, "step:a:skipped")
    assert payload["error_message"] == "the reason"
    assert payload["skip_reason"] == "handler_failed" and payload["status"] == "skipped"


def test_retries_come_before_the_skip(suite):
    suite.flow("g", ("a", skipping("skip", max_attempts=2)))
    run = suite.start("g")
    suite.claim("g")

    suite.fail(run, "a")

    assert suite.task(run, "a")["status"] == "queued"
    assert suite.statuses(run) == {"a": "started"}


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_a_map_counts_once_however_many_of_its_tasks_fail(suite, mode):
    suite.flow("g", ("m*", skipping(mode)), "z: m", "other")
    run = suite.start("g", [0, 1, 2])
    records = suite.claim("g")
    remaining = {"skip": 2, "skip-cascade": 1}[mode]

    for record in records:
        if record["step_slug"] == "m":
            suite.fail(run, "m", f"boom {record['task_index']}", record["task_index"])
            assert suite.run(run)["remaining_steps"] == remaining

    assert suite.events(run).count("step:m:skipped") == 1
    assert suite.state(run, "m")["error_message"] == "boom 0"
    assert suite.run(run)["status"] == "started"


def test_the_messages_of_a_skipped_map_are_archived_and_no_others(suite):
    suite.flow("g", ("m*", skipping("skip")), "other")
    run = suite.start("g", [0, 1, 2])
    ids = [task["message_id"] for task in suite.tasks(run, "m")]
    suite.start_tasks("g", ids[:2])

    suite.fail(run, "m", "boom", 0)

    assert suite.archive("g") == ids
    assert suite.active("g") == [suite.task(run, "other")["message_id"]]


def test_siblings_of_a_skipped_step_do_not_run_any_more(suite):
    suite.flow("g", ("m*", skipping("skip")), "other")
    run = suite.start("g", [0, 1, 2])
    suite.start_tasks("g", [suite.task(run, "m", 0)["message_id"]])

    suite.fail(run, "m", "boom", 0)

    assert {task["status"] for task in suite.tasks(run, "m")[1:]} <= {"skipped", "queued"}
    assert suite.value(
        "select pg_get_constraintdef(oid) ~ 'skipped' from pg_constraint"
        " where conrelid = 'pgflow.step_tasks'::regclass and conname = 'valid_status'"
    ) == (suite.task(run, "m", 1)["status"] == "skipped")


def test_a_plain_skip_makes_dependent_maps_empty(suite):
    suite.flow("g", ("a", skipping("skip")), "m*: a", "z: m")
    run = suite.start("g")
    suite.claim("g")

    suite.fail(run, "a")

    assert suite.state(run, "m")["status"] == "completed"
    assert suite.state(run, "m")["output"] == []
    (record,) = suite.claim("g")
    assert record["input"] == {"m": []}


def test_a_plain_skip_tests_the_conditions_behind_it(suite):
    suite.flow(
        "g",
        ("a", skipping("skip")),
        ("b: a", {"required_input_pattern": {"a": {}}}),
        ("c: a", {"forbidden_input_pattern": {"a": {}}}),
    )
    run = suite.start("g")
    suite.claim("g")

    suite.fail(run, "a")

    assert suite.statuses(run) == {"a": "skipped", "b": "skipped", "c": "started"}
    assert suite.state(run, "b")["skip_reason"] == "condition_unmet"


def test_a_condition_behind_a_plain_skip_may_fail_the_run(suite):
    suite.flow(
        "g",
        ("a", skipping("skip")),
        ("b: a", {"required_input_pattern": {"a": {}}, "when_unmet": "fail"}),
        "other",
    )
    run = suite.start("g")
    suite.claim("g")

    (row,) = suite.fail(run, "a")

    assert row["status"] == "failed"
    assert suite.run(run)["status"] == "failed"
    assert suite.statuses(run) == {"a": "skipped", "b": "failed", "other": "started"}
    assert suite.active("g") == []
    assert suite.events(run)[-3:] == ["step:a:skipped", "step:b:failed", "run:failed"]


def test_a_run_whose_last_step_is_skipped_completes(suite):
    suite.flow("g", ("a", skipping("skip")), "b")
    run = suite.start("g")
    suite.claim("g")
    suite.complete(run, "b", 2)

    suite.fail(run, "a")

    assert suite.run(run)["status"] == "completed"
    assert suite.run(run)["output"] == {"b": 2}
    assert suite.events(run)[-2:] == ["step:a:skipped", "run:completed"]


def test_a_run_whose_only_step_is_skipped_completes_with_null(suite):
    suite.flow("g", ("a", skipping("skip")))
    run = suite.start("g")
    suite.claim("g")

    suite.fail(run, "a")

    assert suite.run(run)["status"] == "completed"
    assert suite.value("select output is null from pgflow.runs where flow_slug = 'g'")


def test_a_cascade_takes_everything_downstream(suite):
    suite.flow("g", ("a", skipping("skip-cascade")), "other", "b: a", "c: b other")
    run = suite.start("g")
    suite.claim("g")

    suite.fail(run, "a", "the reason")

    assert suite.statuses(run) == {
        "a": "skipped", "b": "skipped", "c": "skipped", "other": "started",
    }  # fmt: skip
    assert suite.state(run, "a")["skip_reason"] == "handler_failed"
    assert suite.state(run, "b")["skip_reason"] == "dependency_skipped"
    assert suite.state(run, "c")["skip_reason"] == "dependency_skipped"
    assert suite.state(run, "b")["error_message"] is None
    assert suite.run(run)["remaining_steps"] == 1
    assert suite.events(run)[-3:] == ["step:a:skipped", "step:b:skipped", "step:c:skipped"]


def test_a_cascade_over_everything_left_completes_the_run(suite):
    suite.flow("g", "other", ("a", skipping("skip-cascade")), "b: a")
    run = suite.start("g")
    suite.claim("g")
    suite.complete(run, "other", 5)

    suite.fail(run, "a")

    assert suite.run(run)["status"] == "completed"
    assert suite.run(run)["output"] == {"other": 5}


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_replaying_a_skip_changes_nothing_and_sends_nothing(suite, mode):
    suite.flow("g", ("a", skipping(mode)), "b: a", "other")
    run = suite.start("g")
    suite.claim("g")
    (first,) = suite.fail(run, "a", "the reason")
    before, events = suite.snapshot(), suite.events()

    (second,) = suite.fail(run, "a", "another")

    assert second == first
    assert suite.snapshot() == before and suite.events() == events


def test_a_late_completion_of_a_skipped_map_changes_nothing_but_messages(suite):
    suite.flow("g", ("m*", skipping("skip")), "other")
    run = suite.start("g", [0, 1])
    suite.claim("g")
    suite.fail(run, "m", "boom", 0)
    states = suite.rows("select * from pgflow.step_states order by step_slug")

    suite.complete(run, "m", 1, 1)

    assert suite.rows("select * from pgflow.step_states order by step_slug") == states
    assert suite.task(run, "m", 1)["output"] is None


# -- at once -----------------------------------------------------------------------------------


def test_a_report_that_waited_for_the_failure_of_its_run_changes_nothing(shared):
    shared.flow("f", "a", "b", "c: b", max_attempts=1)
    run = shared.start("f")
    shared.claim("f")
    one, two = shared.session(), shared.session()
    one.fail(run, "a")
    two.do("set local lock_timeout = '300ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        two.complete(run, "b", 1)
    two.conn.rollback()
    one.conn.commit()

    (row,) = two.complete(run, "b", 1)
    two.conn.commit()

    assert row["status"] == "started"
    assert shared.statuses(run) == {"a": "failed", "b": "started", "c": "created"}
