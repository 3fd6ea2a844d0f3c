"""Later releases, and the setting for older workers: one installation serves 0.8 to 0.17."""

import uuid

import pytest
from psycopg.types.json import Jsonb


@pytest.fixture
def claimable(suite):
    suite.flow("MyFlow", "a", "b: a")
    run = suite.start("MyFlow", {"x": 1})
    return run, suite.active("MyFlow"), suite.worker("MyFlow")


def test_the_claim_with_a_queue_name(suite, claimable):
    run, ids, worker = claimable

    (record,) = suite.rows(
        "select * from pgflow.start_tasks(%s, %s, %s, %s)", "MyFlow", ids, worker, "myflow"
    )

    assert (record["run_id"], record["step_slug"], record["input"]) == (run, "a", {})
    assert suite.task(run, "a")["attempts_count"] == 1


def test_the_claim_with_a_queue_name_and_no_step(suite, claimable):
    _run, ids, worker = claimable

    records = suite.rows(
        "select * from pgflow.start_tasks(flow_slug => %s, msg_ids => %s, worker_id => %s,"
        " queue_name => %s, step_slug => null)",
        "MyFlow",
        ids,
        worker,
        "myflow",
    )

    assert len(records) == 1


def test_a_step_is_refused_where_the_flow_has_one_queue(suite, claimable):
    _run, ids, worker = claimable

    suite.error(
        "select * from pgflow.start_tasks(%s, %s, %s, %s, %s)", "MyFlow", ids, worker, "myflow", "a"
    )


def test_the_claim_with_three_untyped_arguments(suite, claimable):
    _run, ids, worker = claimable

    records = suite.rows(f"select * from pgflow.start_tasks('MyFlow', '{{{ids[0]}}}', '{worker}')")

    assert len(records) == 1


def test_the_claim_with_ids_that_are_plain_integers(suite, claimable):
    _run, ids, worker = claimable

    records = suite.rows(
        f"select * from pgflow.start_tasks('MyFlow', array[{ids[0]}, 99], '{worker}'::uuid)"
    )

    assert len(records) == 1


def test_the_claim_with_four_untyped_arguments(suite, claimable):
    _run, ids, worker = claimable

    records = suite.rows(
        f"select * from pgflow.start_tasks('MyFlow', '{{{ids[0]}}}', '{worker}', 'myflow')"
    )

    assert len(records) == 1


def test_an_unknown_flow_gives_no_rows(suite, claimable):
    _run, ids, worker = claimable

    assert (
        suite.rows("select * from pgflow.start_tasks('nobody', %s, %s, 'nobody')", ids, worker)
        == []
    )


def test_steps_and_tasks_know_their_queue(suite, claimable):
    assert suite.column("select distinct queue_name from pgflow.steps") == ["myflow"]
    assert suite.column("select distinct queue_name from pgflow.step_tasks") == ["myflow"]


def test_a_worker_function_is_tracked_with_and_without_a_start_mode(suite):
    suite.do("select pgflow.track_worker_function('one')")
    suite.do("select pgflow.track_worker_function(function_name => 'two')")
    suite.do("select pgflow.track_worker_function('three', 'process')")
    suite.do("select pgflow.track_worker_function(function_name => 'four', start_mode => 'http')")

    modes = suite.rows("select function_name, start_mode from pgflow.worker_functions")
    assert {row["function_name"]: row["start_mode"] for row in modes} == {
        "one": "http", "two": "http", "three": "process", "four": "http",
    }  # fmt: skip


def test_an_unknown_start_mode_violates_its_check(suite):
    error = suite.error("select pgflow.track_worker_function('f', 'magic')")

    assert error.diag.constraint_name == "worker_functions_start_mode_check"


# -- pgflow.run_in_input ------------------------------------------------------------------------


def inputs(suite):
    return {
        (record["step_slug"], record["task_index"]): (record["input"], record["flow_input"])
        for record in suite.claim("f")
    }


def test_older_workers_find_the_run_s_input_under_run(suite):
    suite.do("set local pgflow.run_in_input = on")
    suite.flow("f", "a", "b: a", "m*: b", "c: m a")
    run = suite.start("f", {"x": 1})

    assert inputs(suite)["a", 0][0] == {"run": {"x": 1}}
    suite.complete(run, "a", "A")
    assert inputs(suite)["b", 0][0] == {"run": {"x": 1}, "a": "A"}
    suite.complete(run, "b", [7])
    assert inputs(suite)["m", 0][0] == 7
    suite.complete(run, "m", 8)
    assert inputs(suite)["c", 0][0] == {"run": {"x": 1}, "a": "A", "m": [8]}


@pytest.mark.parametrize("word", ["on", "ON", "true", "yes", "1"])
def test_it_is_switched_on_like_any_setting(suite, word):
    suite.do("select set_config('pgflow.run_in_input', %s, true)", word)
    suite.flow("f", "a")
    suite.start("f", {"x": 1})

    assert inputs(suite)["a", 0] == ({"run": {"x": 1}}, {"x": 1})


@pytest.mark.parametrize("word", ["off", "false", ""])
def test_switched_off_it_is_as_today(suite, word):
    suite.do("select set_config('pgflow.run_in_input', %s, true)", word)
    suite.flow("f", "a", "b: a")
    run = suite.start("f", {"x": 1})

    assert inputs(suite)["a", 0] == ({}, {"x": 1})
    suite.complete(run, "a", "A")
    assert inputs(suite)["b", 0] == ({"a": "A"}, None)


@pytest.mark.parametrize("given", [[1], "text", None, 3])
def test_any_input_stands_under_run(suite, given):
    suite.do("set local pgflow.run_in_input = on")
    suite.flow("f", "a")
    suite.do("select pgflow.start_flow('f', %s)", Jsonb(given))

    assert inputs(suite)["a", 0][0] == {"run": given}


def test_it_may_be_set_for_a_role_or_a_database(shared):
    shared.flow("f", "a")
    shared.start("f", {"x": 1})
    name = shared.value("select current_database()::text")
    shared.do(f"alter database {name} set pgflow.run_in_input = on")

    other = shared.session(autocommit=True)

    assert other.claim("f")[0]["input"] == {"run": {"x": 1}}


def test_workers_of_both_generations_share_one_flow(shared):
    shared.flow("f", "a")
    old, new = shared.session(autocommit=True), shared.session(autocommit=True)
    old.do("set pgflow.run_in_input = on")
    shared.worker("f", uuid.uuid4())
    shared.start("f", {"x": 1})
    shared.start("f", {"x": 2})

    assert old.start_tasks("f", old.read("f", qty=1))[0]["input"] == {"run": {"x": 1}}
    assert new.start_tasks("f", new.read("f", qty=1))[0]["input"] == {}
