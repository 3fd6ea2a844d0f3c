"""The statements that the upstream suite executes around its tests."""

import uuid

RESET = ["step_tasks", "step_states", "runs", "deps", "steps", "flows", "worker_functions"]


def reset(session):
    for table in RESET:
        session.do(f"delete from pgflow.{table}")
    session.do("select pgmq.drop_queue(queue_name) from pgmq.list_queues()")


def test_everything_goes_without_cascade(suite):
    suite.flow("f", "a", ("m*: a", {"when_exhausted": "skip"}), "b: m")
    suite.flow("Other", "a")
    run = suite.start("f")
    suite.start("Other")
    suite.claim("f")
    suite.complete(run, "a", [1, 2])
    suite.claim("f")
    suite.fail(run, "m", "x")
    suite.do("select pgflow.track_worker_function('one')")

    reset(suite)

    for table in RESET:
        assert suite.value(f"select count(*) from pgflow.{table}") == 0
    assert suite.rows("select * from pgmq.list_queues()") == []


def test_it_can_be_done_over_and_over_in_one_transaction(suite):
    for _ in range(3):
        suite.flow("f", "a", "m*: a")
        run = suite.start("f")
        suite.finish("f", {"a": [1, 2]})
        assert suite.run(run)["status"] == "completed"
        reset(suite)


def test_attempts_are_deleted_with_their_tasks(shared):
    shared.flow("f", "a")
    shared.start("f")
    worker = shared.worker("f")
    assert shared.rows("select * from pgflowd.claim('f', %s, 10)", worker)

    reset(shared)

    assert shared.value("select count(*) from pgflowd.attempts") == 0


def test_partial_steps_are_inserted(suite):
    suite.flow("f")

    suite.do("insert into pgflow.steps (flow_slug, step_slug, step_index) values ('f', 'a', 0)")

    row = suite.row("select * from pgflow.steps")
    assert (row["step_type"], row["deps_count"]) == ("single", 0)
    run = suite.start("f")
    suite.finish("f")
    assert suite.run(run)["status"] == "completed"


def test_partial_tasks_are_inserted(suite):
    suite.flow("f", "a")
    run = suite.start("f")

    suite.do(
        "insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index, status,"
        " queued_at, started_at) values ('f', %s, 'a', 1, 'started', now(), now())",
        run,
    )

    assert suite.task(run, "a", 1)["message_id"] is None


def test_partial_workers_are_inserted(suite):
    suite.do(
        "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, 'f', 'x')",
        uuid.uuid4(),
    )


def test_a_flow_inserted_by_hand_has_no_queue_and_no_steps_yet(suite):
    suite.do("insert into pgflow.flows (flow_slug) values ('f')")
    suite.step("f", "a")
    suite.do("select pgflow.create_flow('f')")

    run = suite.start("f")

    suite.finish("f")
    assert suite.run(run)["status"] == "completed"


def test_rows_put_by_hand_into_a_run_obey_the_constraints(suite):
    suite.flow("f", "a", "b: a")
    run = suite.start("f")
    change = "update pgflow.step_states set {} where step_slug = 'b'"

    for what, constraint in {
        "output = '1'": "output_only_for_completed_or_null",
        "status = 'started', initial_tasks = null": "initial_tasks_known_when_started",
        "status = 'completed', remaining_tasks = 1": "status_and_remaining_tasks_match",
        "remaining_tasks = 1": "remaining_tasks_state_consistency",
        "status = 'skipped'": "skip_reason_matches_status",
        "skip_reason = 'x'": "skip_reason_matches_status",
        "remaining_deps = -1": "step_states_remaining_deps_check",
        "status = 'lost'": "status_is_valid",
        "completed_at = now(), failed_at = now()": "completed_at_or_failed_at_or_skipped_at",
    }.items():
        error = suite.error(change.format(what))
        assert error.diag.constraint_name == constraint, what
        assert f'violates check constraint "{constraint}"' in error.diag.message_primary
    assert suite.run(run)["status"] == "started"


def test_the_message_of_an_output_put_too_early_is_exact(suite):
    suite.flow("f", "a")
    suite.start("f")

    error = suite.error("update pgflow.step_states set output = '1'")

    assert error.diag.message_primary == (
        'new row for relation "step_states" violates check constraint'
        ' "output_only_for_completed_or_null"'
    )


def test_runs_and_steps_keep_their_times_in_order(suite):
    suite.flow("f", "a")
    suite.start("f")

    for change, constraint in {
        "runs set completed_at = now() - interval '1 day'": "completed_at_is_after_started_at",
        "runs set failed_at = now() - interval '1 day'": "failed_at_is_after_started_at",
        "runs set failed_at = now(), completed_at = now()": "completed_at_or_failed_at",
        "runs set remaining_steps = -1": "runs_remaining_steps_check",
        "runs set status = 'lost'": "status_is_valid",
        "step_states set started_at = now() - interval '1 day'": "started_at_is_after_created_at",
        "step_tasks set started_at = now() - interval '1 day'": "started_at_is_after_queued_at",
        "step_tasks set attempts_count = -1": "attempts_count_nonnegative",
        "step_tasks set output = '1'": "output_valid_only_for_completed",
        "step_tasks set status = 'lost'": "valid_status",
    }.items():
        error = suite.error(f"update pgflow.{change}")
        assert error.diag.constraint_name == constraint, change


def test_rolled_back_it_was_never_there(shared):
    session = shared.session()
    session.flow("f", "a")
    session.start("f")
    session.conn.rollback()

    assert shared.rows("select * from pgmq.list_queues()") == []
    assert shared.value("select count(*) from pgflow.flows") == 0
