"""A run, its step states and its first tasks."""

import uuid

import psycopg
import pytest
from psycopg.types.json import Jsonb


def test_a_run_is_returned_as_it_is_now(suite):
    suite.flow("f", "a", "b: a")

    (row,) = suite.rows("select * from pgflow.start_flow('f', '{\"x\": 1}')")

    assert row["flow_slug"] == "f" and row["status"] == "started"
    assert row["input"] == {"x": 1} and row["output"] is None
    assert row["remaining_steps"] == 2
    assert row["started_at"] == suite.value("select now()")
    assert row["completed_at"] is None and row["failed_at"] is None
    assert suite.rows("select * from pgflow.runs") == [row]


def test_parameters_are_given_by_name_and_by_position(suite):
    suite.flow("f", "a")
    one, two = uuid.uuid4(), uuid.uuid4()

    suite.do("select pgflow.start_flow(flow_slug => 'f', input => '{}', run_id => %s)", one)
    suite.do("select pgflow.start_flow('f', '{}', %s)", two)

    assert set(suite.column("select run_id from pgflow.runs")) == {one, two}


@pytest.mark.parametrize("given", [{}, [], [1], "text", 0, 1.5, True, False, None, {"a": None}])
def test_any_json_value_is_an_input(suite, given):
    suite.flow("f", "a")

    row = suite.row("select * from pgflow.start_flow('f', %s)", Jsonb(given))

    assert row["input"] == given
    assert suite.claim("f")[0]["flow_input"] == given


def test_every_step_has_its_state(suite):
    suite.flow("f", "a", "b: a", "m*: a", "c: a b")

    run = suite.start("f")

    states = {
        row["step_slug"]: row
        for row in suite.rows("select * from pgflow.step_states where run_id = %s", run)
    }
    assert {slug: row["status"] for slug, row in states.items()} == {
        "a": "started", "b": "created", "m": "created", "c": "created",
    }  # fmt: skip
    assert {slug: row["remaining_deps"] for slug, row in states.items()} == {
        "a": 0, "b": 1, "m": 1, "c": 2,
    }  # fmt: skip
    assert {slug: row["initial_tasks"] for slug, row in states.items()} == {
        "a": 1, "b": 1, "m": None, "c": 1,
    }  # fmt: skip
    assert {slug: row["remaining_tasks"] for slug, row in states.items()} == {
        "a": 1, "b": None, "m": None, "c": None,
    }  # fmt: skip
    now = suite.value("select now()")
    assert states["a"]["started_at"] == now and states["b"]["started_at"] is None
    assert {row["created_at"] for row in states.values()} == {now}
    assert {row["flow_slug"] for row in states.values()} == {"f"}


def test_only_root_steps_get_tasks_and_messages(suite):
    suite.flow("f", "a", "b", "c: a")

    run = suite.start("f")

    tasks = suite.tasks(run)
    assert [task["step_slug"] for task in tasks] == ["a", "b"]
    assert {task["status"] for task in tasks} == {"queued"}
    assert {task["attempts_count"] for task in tasks} == {0}
    assert {task["task_index"] for task in tasks} == {0}
    assert {task["queued_at"] for task in tasks} == {suite.value("select now()")}
    assert [task["started_at"] for task in tasks] == [None, None]
    assert sorted(task["message_id"] for task in tasks) == suite.active("f")


def test_a_message_has_exactly_four_keys(suite):
    suite.flow("f", "a")

    run = suite.start("f")

    (message,) = suite.queue("f")
    assert message["message"] == {
        "flow_slug": "f",
        "run_id": str(run),
        "step_slug": "a",
        "task_index": 0,
    }


def test_messages_are_visible_at_once_or_after_the_start_delay(suite):
    suite.flow("f", "a", ("b", {"start_delay": 300}), ("c", {"start_delay": 0}))

    run = suite.start("f")

    assert suite.delay("f", suite.task(run, "a")["message_id"]) <= 0
    assert suite.delay("f", suite.task(run, "c")["message_id"]) <= 0
    assert 299 < suite.delay("f", suite.task(run, "b")["message_id"]) <= 300


def test_a_root_map_has_a_task_for_each_element_in_order(suite):
    suite.flow("f", "m*")

    run = suite.start("f", ["x", "y", "z"])

    state = suite.state(run, "m")
    assert (state["status"], state["initial_tasks"], state["remaining_tasks"]) == ("started", 3, 3)
    tasks = suite.tasks(run)
    assert [task["task_index"] for task in tasks] == [0, 1, 2]
    assert [task["message_id"] for task in tasks] == suite.active("f")
    assert [row["message"]["task_index"] for row in suite.queue("f")] == [0, 1, 2]


def test_all_messages_of_a_map_have_the_start_delay(suite):
    suite.flow("f", ("m*", {"start_delay": 60}))

    suite.start("f", [1, 2, 3])

    assert all(59 < suite.delay("f", msg_id) <= 60 for msg_id in suite.active("f"))


@pytest.mark.parametrize(
    ("given", "word"),
    [({}, "object"), ("x", "string"), (1, "number"), (True, "boolean"), (None, "null")],
)
def test_a_root_map_refuses_an_input_that_is_not_an_array(suite, given, word):
    suite.flow("f", "a", "m*")

    error = suite.error("select pgflow.start_flow('f', %s)", Jsonb(given))

    assert isinstance(error, psycopg.errors.RaiseException)
    assert error.diag.message_primary == (
        f"Flow f has root map steps but input is not an array (got {word})"
    )
    assert suite.value("select count(*) from pgflow.runs") == 0


def test_a_root_map_refuses_sql_null(suite):
    suite.flow("f", "m*")

    error = suite.error("select pgflow.start_flow('f', null)")

    assert isinstance(error, psycopg.errors.RaiseException)
    assert error.diag.message_primary == "Flow f has root map steps but input is NULL"


def test_a_dependent_map_does_not_mind_the_input(suite):
    suite.flow("f", "a", "m*: a")

    assert suite.run(suite.start("f", {"no": "array"}))["status"] == "started"


def test_an_unknown_flow_violates_the_foreign_key(suite):
    error = suite.error("select pgflow.start_flow('nobody', '{}')")

    assert isinstance(error, psycopg.errors.ForeignKeyViolation)
    assert error.diag.constraint_name == "runs_flow_slug_fkey"


def test_a_known_run_id_violates_the_key(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    before = suite.snapshot()

    error = suite.error("select pgflow.start_flow('f', '{}', %s)", run)

    assert isinstance(error, psycopg.errors.UniqueViolation)
    assert error.diag.constraint_name == "runs_pkey"
    assert suite.snapshot() == before


def test_a_null_input_is_a_not_null_violation(suite):
    suite.flow("f", "a")

    error = suite.error("select pgflow.start_flow('f', null)")

    assert isinstance(error, psycopg.errors.NotNullViolation)
    assert error.diag.column_name == "input"


def test_a_flow_without_steps_completes_at_once_without_output(suite):
    suite.flow("f")

    (row,) = suite.rows("select * from pgflow.start_flow('f', '{}')")

    assert (row["status"], row["remaining_steps"], row["output"]) == ("completed", 0, None)
    assert row["completed_at"] == row["started_at"]
    assert suite.events() == ["run:started", "run:completed"]


def test_an_empty_root_map_completes_at_once(suite):
    suite.flow("f", "m*")

    (row,) = suite.rows("select * from pgflow.start_flow('f', '[]')")

    assert (row["status"], row["output"]) == ("completed", {"m": []})
    state = suite.state(row["run_id"], "m")
    assert state["status"] == "completed" and state["output"] == []
    assert state["initial_tasks"] == state["remaining_tasks"] == 0
    assert state["started_at"] == state["completed_at"] == suite.value("select now()")
    assert suite.queue("f") == [] and suite.tasks(row["run_id"]) == []
    assert suite.events() == ["run:started", "step:m:completed", "run:completed"]


def test_a_condition_that_fails_the_run_does_not_raise(suite):
    suite.flow("f", "a", ("b", {"required_input_pattern": {"x": 1}, "when_unmet": "fail"}))

    (row,) = suite.rows("select * from pgflow.start_flow('f', '{}')")

    assert row["status"] == "failed" and row["failed_at"] == suite.value("select now()")
    assert suite.statuses(row["run_id"]) == {"a": "created", "b": "failed"}
    assert suite.queue("f") == [] and suite.tasks(row["run_id"]) == []


def test_runs_of_one_flow_do_not_mix(suite):
    suite.flow("f", "a", "b: a")
    one, two = suite.start("f"), suite.start("f")
    suite.claim("f")

    suite.complete(one, "a", 1)

    assert suite.statuses(one) == {"a": "completed", "b": "started"}
    assert suite.statuses(two) == {"a": "started", "b": "created"}


def test_options_of_the_flow_are_not_copied_into_the_run(suite):
    suite.flow("f", "a", max_attempts=1)
    run = suite.start("f")
    suite.do("update pgflow.flows set opt_max_attempts = 2")
    suite.claim("f")

    suite.fail(run, "a")

    assert suite.task(run, "a")["status"] == "queued"


def test_a_run_of_a_flow_with_capitals_runs_to_its_end(suite):
    suite.flow("MyFlow", "First", "m*: First", "last: m")
    run = suite.start("MyFlow")

    suite.finish("MyFlow", {"First": [1, 2], "last": "done"})

    assert suite.run(run)["output"] == {"last": "done"}
    assert suite.active("MyFlow") == []
    assert len(suite.archive("MyFlow")) == 4
