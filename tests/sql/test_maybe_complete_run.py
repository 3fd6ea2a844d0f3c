"""The end of a run, and its output."""

import uuid


def finished(suite, slug, outputs, given=None):
    run = suite.start(slug, given)
    suite.finish(slug, outputs)
    return suite.run(run)


def test_the_output_holds_the_leaves_only(suite):
    suite.flow("f", "a", "b: a", "c: a")

    row = finished(suite, "f", {"a": 1, "b": {"x": [2]}, "c": "three"})

    assert row["status"] == "completed" and row["remaining_steps"] == 0
    assert row["output"] == {"b": {"x": [2]}, "c": "three"}
    assert row["completed_at"] == suite.value("select now()")
    assert row["failed_at"] is None


def test_a_map_leaf_is_the_array_of_its_outputs(suite):
    suite.flow("f", "m*")

    assert finished(suite, "f", {}, ["a", "b"])["output"] == {"m": [0, 1]}


def test_a_skipped_leaf_has_no_key(suite):
    suite.flow("f", "a", ("s", {"required_input_pattern": {"x": 1}}))

    assert finished(suite, "f", {"a": 1})["output"] == {"a": 1}


def test_a_completed_leaf_with_sql_null_is_json_null(suite):
    suite.flow("f", "a", "b")
    run = suite.start("f")
    suite.claim("f")
    suite.complete(run, "a", sql_null=True)
    suite.complete(run, "b", None)

    assert suite.run(run)["output"] == {"a": None, "b": None}
    assert suite.state(run, "a")["output"] is None
    assert suite.value("select output is null from pgflow.step_states where step_slug = 'a'")
    assert suite.value("select output = 'null' from pgflow.step_states where step_slug = 'b'")


def test_without_a_completed_leaf_the_output_is_sql_null(suite):
    suite.flow("f", "a", ("b: a", {"required_input_pattern": {"a": 1}}))

    row = finished(suite, "f", {"a": 2})

    assert row["status"] == "completed"
    assert suite.value("select output is null from pgflow.runs")


def test_the_event_carries_the_output_and_comes_last(suite):
    suite.flow("f", "a")

    row = finished(suite, "f", {"a": 5})

    payload = suite.payload(row["run_id"], "run:completed")
    assert payload["output"] == {"a": 5} and payload["status"] == "completed"
    assert suite.events()[-1] == "run:completed"


def test_it_may_be_called_at_any_time(suite):
    suite.flow("f", "a", max_attempts=1)
    started, done, failed = suite.start("f"), suite.start("f"), suite.start("f")
    suite.claim("f")
    suite.complete(done, "a", 1)
    suite.fail(failed, "a")
    before, events = suite.snapshot(), suite.events()

    for run in (started, done, failed, uuid.uuid4()):
        suite.do("select pgflow.maybe_complete_run(run_id => %s)", run)

    assert suite.snapshot() == before and suite.events() == events


def test_a_run_without_remaining_steps_completes(suite):
    suite.flow("f", "a", "b: a")
    run = suite.start("f")
    suite.do(
        "update pgflow.step_states set status = 'completed', remaining_tasks = 0,"
        " initial_tasks = 1, completed_at = now(), output = to_jsonb(step_slug)"
    )
    suite.do("update pgflow.runs set remaining_steps = 0")

    suite.do("select pgflow.maybe_complete_run(%s)", run)

    assert suite.run(run)["status"] == "completed"
    assert suite.run(run)["output"] == {"b": "b"}
