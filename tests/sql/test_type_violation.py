"""A single step before a map must return an array."""

import pytest


@pytest.fixture
def run(suite):
    suite.flow("f", "a", "m*: a", "other", "z: m")
    run = suite.start("f")
    suite.claim("f")
    return run


@pytest.mark.parametrize(
    ("output", "word"),
    [({"x": 1}, "object"), ("x", "string"), (1, "number"), (True, "boolean"), (None, "null")],
)
def test_an_output_that_is_not_an_array_fails_task_step_and_run(suite, run, output, word):
    (row,) = suite.complete(run, "a", output)

    assert row == suite.task(run, "a")
    assert row["status"] == "failed" and row["output"] == output
    assert row["error_message"] == f"[TYPE_VIOLATION] Produced {word} instead of array"
    assert row["failed_at"] == suite.value("select now()") and row["completed_at"] is None
    state = suite.state(run, "a")
    assert state["status"] == "failed" and state["output"] is None
    assert state["error_message"] == (
        f"[TYPE_VIOLATION] Map step m expects array input but dependency a produced {word}"
    )
    assert state["failed_at"] == suite.value("select now()")
    assert suite.run(run)["status"] == "failed"
    assert suite.run(run)["failed_at"] == suite.value("select now()")


def test_sql_null_is_a_null(suite, run):
    (row,) = suite.complete(run, "a", sql_null=True)

    assert row["status"] == "failed"
    assert row["error_message"] == "[TYPE_VIOLATION] Produced null instead of array"
    assert suite.state(run, "a")["error_message"] == (
        "[TYPE_VIOLATION] Map step m expects array input but dependency a produced null"
    )


def test_the_run_fails_before_the_step_and_sends_no_further_event(suite, run):
    suite.complete(run, "a", {})

    assert suite.events(run)[-2:] == ["run:failed", "step:a:failed"]
    payload = suite.payload(run, "step:a:failed")
    assert payload["error_message"] == suite.state(run, "a")["error_message"]
    assert payload["status"] == "failed"


def test_all_active_messages_of_the_run_are_archived(suite, run):
    suite.complete(run, "a", {})

    assert suite.active("f") == []
    assert len(suite.archive("f")) == 2
    assert suite.task(run, "other")["status"] == "started"


def test_the_other_steps_stay(suite, run):
    suite.complete(run, "a", {})

    assert suite.statuses(run) == {
        "a": "failed",
        "m": "created",
        "other": "started",
        "z": "created",
    }
    assert suite.state(run, "m")["initial_tasks"] is None
    assert suite.tasks(run, "m") == []


@pytest.mark.parametrize("mode", ["fail", "skip", "skip-cascade"])
def test_attempts_left_and_modes_do_not_matter(suite, mode):
    suite.flow("g", ("a", {"when_exhausted": mode, "max_attempts": 9}), "m*: a")
    run = suite.start("g")
    suite.claim("g")

    suite.complete(run, "a", "text")

    assert suite.run(run)["status"] == "failed"
    assert suite.statuses(run) == {"a": "failed", "m": "created"}


def test_an_array_is_fine_even_when_empty(suite, run):
    (row,) = suite.complete(run, "a", [])

    assert row["status"] == "completed"
    assert suite.statuses(run)["m"] == "completed"


def test_without_a_dependent_map_anything_goes(suite):
    suite.flow("g", "a", "b: a")
    run = suite.start("g")
    suite.claim("g")

    (row,) = suite.complete(run, "a", {"x": 1})

    assert row["status"] == "completed"


def test_a_map_before_a_map_may_return_anything(suite):
    suite.flow("g", "m*", "n*: m")
    run = suite.start("g", [1])
    suite.claim("g")

    (row,) = suite.complete(run, "m", {"x": 1})

    assert row["status"] == "completed"
    assert suite.claim("g")[0]["input"] == {"x": 1}


def test_the_type_is_judged_before_the_status_of_the_task(suite):
    suite.flow("g", "a", "m*: a")
    run = suite.start("g")

    (row,) = suite.complete(run, "a", {})

    assert row["status"] == "failed" and row["output"] == {}
    assert suite.run(run)["status"] == "failed"
    assert suite.active("g") == [] and len(suite.archive("g")) == 1


def test_an_array_from_a_task_that_is_not_started_changes_nothing(suite):
    suite.flow("g", "a", "m*: a")
    run = suite.start("g")
    before = suite.snapshot()

    suite.complete(run, "a", [])

    assert suite.snapshot() == before


def test_a_late_report_in_the_failed_run_changes_nothing(suite, run):
    suite.complete(run, "a", {})
    before = suite.snapshot()

    (row,) = suite.complete(run, "a", [])

    assert row["status"] == "failed"
    assert suite.snapshot() == before


def test_a_type_violation_behind_other_steps(suite):
    suite.flow("g", "r", "a: r", "m*: a")
    run = suite.start("g")
    suite.claim("g")
    suite.complete(run, "r", 1)
    suite.claim("g")

    suite.complete(run, "a", 1)

    assert suite.statuses(run) == {"r": "completed", "a": "failed", "m": "created"}


def test_with_two_dependent_maps_one_of_them_is_named(suite):
    suite.flow("g", "a", "m*: a", "n*: a")
    run = suite.start("g")
    suite.claim("g")

    suite.complete(run, "a", {})

    assert suite.state(run, "a")["error_message"] in {
        f"[TYPE_VIOLATION] Map step {slug} expects array input but dependency a produced object"
        for slug in ("m", "n")
    }
    assert suite.events(run).count("run:failed") == 1
