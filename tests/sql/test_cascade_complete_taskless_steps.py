"""Empty maps, chains of them, and the limit of depth."""

import psycopg
import pytest


def test_emptiness_runs_through_a_chain_of_maps(suite):
    suite.flow("f", "a*", "b*: a", "c*: b", "d: c")

    run = suite.start("f", [])

    assert suite.statuses(run) == {
        "a": "completed", "b": "completed", "c": "completed", "d": "started",
    }  # fmt: skip
    for slug in "abc":
        state = suite.state(run, slug)
        assert (state["initial_tasks"], state["remaining_tasks"], state["output"]) == (0, 0, [])
        assert state["started_at"] == state["completed_at"] == suite.value("select now()")
    assert suite.run(run)["remaining_steps"] == 1
    assert suite.tasks(run, "a") == []


def test_events_come_in_order_of_dependency_without_a_start(suite):
    suite.flow("f", "z*", "b*: z", "a*: b")

    run = suite.start("f", [])

    assert suite.events(run) == [
        "run:started", "step:z:completed", "step:b:completed", "step:a:completed", "run:completed",
    ]  # fmt: skip
    payload = suite.payload(run, "step:b:completed")
    assert payload["output"] == [] and payload["remaining_tasks"] == 0
    assert payload["remaining_deps"] == 0 and "started_at" in payload


def test_it_returns_how_many_were_completed(suite):
    suite.flow("f", "a", "m*: a", "n*: m", "z: n")
    run = suite.start("f")
    suite.do(
        "update pgflow.step_states set initial_tasks = 0, remaining_deps = 0 where step_slug = 'm'"
    )

    assert suite.value("select pgflow.cascade_complete_taskless_steps(run_id => %s)", run) == 2
    assert suite.value("select pgflow.cascade_complete_taskless_steps(%s)", run) == 0
    assert suite.run(run)["remaining_steps"] == 2
    assert suite.state(run, "z")["remaining_deps"] == 0


def test_a_failed_run_gives_0(suite):
    suite.flow("f", "a", "m*: a", max_attempts=1)
    run = suite.start("f")
    suite.claim("f")
    suite.fail(run, "a")

    assert suite.value("select pgflow.cascade_complete_taskless_steps(%s)", run) == 0


def test_a_run_with_nothing_ready_gives_0(suite):
    suite.flow("f", "a", "m*: a")

    run = suite.start("f")

    assert suite.value("select pgflow.cascade_complete_taskless_steps(%s)", run) == 0


def test_two_empty_parents_count_down_together(suite):
    suite.flow("f", "a*", "b*", "c: a b", "d*: b")

    run = suite.start("f", [])

    assert suite.statuses(run)["c"] == "started"
    assert suite.state(run, "c")["remaining_deps"] == 0
    assert suite.statuses(run)["d"] == "completed"


def test_a_single_step_after_an_empty_map_gets_an_empty_array(suite):
    suite.flow("f", "a*", "b: a")
    run = suite.start("f", [])

    (task,) = suite.claim("f")

    assert task["input"] == {"a": []}
    suite.complete(run, "b", "done")
    assert suite.run(run)["output"] == {"b": "done"}


def test_a_map_behind_a_single_step_waits_for_its_output(suite):
    suite.flow("f", "a*", "b: a", "c*: b")

    run = suite.start("f", [])

    assert suite.statuses(run) == {"a": "completed", "b": "started", "c": "created"}
    assert suite.state(run, "c")["initial_tasks"] is None


def test_an_empty_output_of_a_single_step_empties_the_maps_behind_it(suite):
    suite.flow("f", "a", "m*: a", "n*: m")
    run = suite.start("f")
    suite.claim("f")

    suite.complete(run, "a", [])

    assert suite.run(run)["status"] == "completed"
    assert suite.run(run)["output"] == {"n": []}
    assert suite.events(run)[-4:] == [
        "step:a:completed", "step:m:completed", "step:n:completed", "run:completed",
    ]  # fmt: skip


def chain(suite, length):
    suite.flow("f", "s0*", *[f"s{n}*: s{n - 1}" for n in range(1, length)])


def test_49_levels_of_empty_maps_complete(suite):
    chain(suite, 49)

    run = suite.start("f", [])

    assert suite.run(run)["status"] == "completed"
    assert suite.run(run)["output"] == {"s48": []}
    assert suite.events(run)[1:-1] == [f"step:s{n}:completed" for n in range(49)]


@pytest.mark.parametrize("length", [50, 51, 60])
def test_50_levels_exceed_the_limit_and_leave_no_run(suite, length):
    chain(suite, length)

    error = suite.error("select pgflow.start_flow('f', '[]')")

    assert isinstance(error, psycopg.errors.RaiseException)
    assert error.diag.message_primary == "Cascade loop exceeded safety limit of 50 iterations"
    assert suite.value("select count(*) from pgflow.runs") == 0


def test_a_long_chain_that_is_not_empty_has_no_limit(suite):
    chain(suite, 60)

    run = suite.start("f", [1])

    suite.finish("f")
    assert suite.run(run)["status"] == "completed"


def test_49_empty_levels_behind_a_completed_step(suite):
    suite.flow("f", "a", "s0*: a", *[f"s{n}*: s{n - 1}" for n in range(1, 49)])
    run = suite.start("f")
    suite.claim("f")

    suite.complete(run, "a", [])

    assert suite.run(run)["status"] == "completed"


def test_a_wide_fan_of_empty_maps_is_one_round(suite):
    suite.flow("f", "a*", *[f"b{n}*: a" for n in range(80)])

    run = suite.start("f", [])

    assert suite.run(run)["status"] == "completed"
    assert len(suite.run(run)["output"]) == 80


def test_a_map_after_any_step_without_tasks_has_none(suite):
    suite.flow("f", "a", "m*: a", "b: m")
    run = suite.value(
        "insert into pgflow.runs (flow_slug, input, remaining_steps) values ('f', '{}', 3)"
        " returning run_id"
    )
    for step, tasks, deps in [("a", 0, 0), ("m", None, 1), ("b", 1, 1)]:
        suite.do(
            "insert into pgflow.step_states"
            " (flow_slug, run_id, step_slug, initial_tasks, remaining_deps)"
            " values ('f', %s, %s, %s, %s)",
            run,
            step,
            tasks,
            deps,
        )

    assert suite.value("select pgflow.cascade_complete_taskless_steps(%s)", run) == 2

    assert suite.statuses(run) == {"a": "completed", "m": "completed", "b": "created"}
    assert suite.state(run, "m")["output"] == []
    assert suite.run(run)["remaining_steps"] == 1
