"""A task reported completed."""

import uuid

import psycopg
import pytest


@pytest.fixture
def diamond(suite):
    suite.flow("f", "a", "b: a", "c: a", "d: b c")
    return suite.start("f", {"x": 1})


def test_it_returns_the_task_as_it_is_afterwards(suite, diamond):
    suite.claim("f")

    (row,) = suite.complete(diamond, "a", {"y": 1})

    assert row == suite.task(diamond, "a")
    assert (row["status"], row["output"]) == ("completed", {"y": 1})
    assert row["completed_at"] == suite.value("select now()")
    assert row["failed_at"] is None and row["attempts_count"] == 1


def test_parameters_are_given_by_position(suite, diamond):
    suite.claim("f")

    (row,) = suite.rows("select * from pgflow.complete_task(%s, 'a', 0, '5')", diamond)

    assert row["output"] == 5


def test_the_step_completes_with_its_task(suite, diamond):
    suite.claim("f")

    suite.complete(diamond, "a", {"y": 1})

    state = suite.state(diamond, "a")
    assert (state["status"], state["remaining_tasks"], state["output"]) == (
        "completed",
        0,
        {"y": 1},
    )
    assert state["completed_at"] == suite.value("select now()")
    assert suite.run(diamond)["remaining_steps"] == 3


def test_dependents_count_down_and_start(suite, diamond):
    suite.claim("f")

    suite.complete(diamond, "a", 1)

    assert suite.statuses(diamond) == {
        "a": "completed", "b": "started", "c": "started", "d": "created",
    }  # fmt: skip
    assert suite.state(diamond, "b")["remaining_deps"] == 0
    assert suite.state(diamond, "d")["remaining_deps"] == 2


def test_the_message_is_archived_and_never_deleted(suite, diamond):
    (record,) = suite.claim("f")

    suite.complete(diamond, "a", 1)

    assert suite.archive("f") == [record["msg_id"]]
    assert record["msg_id"] not in suite.active("f")


def test_a_run_goes_to_its_end(suite, diamond):
    outputs = {"a": 1, "b": 2, "c": 3, "d": 4}
    suite.finish("f", outputs)

    row = suite.run(diamond)
    assert (row["status"], row["remaining_steps"], row["output"]) == ("completed", 0, {"d": 4})
    assert set(suite.statuses(diamond).values()) == {"completed"}
    assert suite.active("f") == [] and len(suite.archive("f")) == 4


def test_each_transition_has_one_event_in_order(suite, diamond):
    suite.claim("f")
    suite.complete(diamond, "a", 1)
    suite.claim("f")
    suite.complete(diamond, "c", 1)
    suite.complete(diamond, "b", 1)
    suite.claim("f")
    suite.complete(diamond, "d", 1)

    assert suite.events(diamond) == [
        "run:started", "step:a:started", "step:a:completed", "step:b:started", "step:c:started",
        "step:c:completed", "step:b:completed", "step:d:started", "step:d:completed",
        "run:completed",
    ]  # fmt: skip


def test_no_such_task_gives_no_row(suite, diamond):
    before = suite.snapshot()

    assert suite.complete(diamond, "nobody") == []
    assert suite.complete(diamond, "a", index=7) == []
    assert suite.complete(diamond, "b") == []
    assert suite.complete(uuid.uuid4(), "a") == []
    assert suite.snapshot() == before


def test_a_second_report_changes_nothing(suite, diamond):
    suite.claim("f")
    (first,) = suite.complete(diamond, "a", 1)
    before, events = suite.snapshot(), suite.events()

    (second,) = suite.complete(diamond, "a", 2)

    assert second == first
    assert suite.snapshot() == before and suite.events() == events


def test_a_second_report_of_a_task_of_a_started_map_changes_nothing(suite):
    suite.flow("f", "m*")
    run = suite.start("f", [1, 2])
    suite.claim("f")
    suite.complete(run, "m", "first", 0)
    before = suite.snapshot()

    (row,) = suite.complete(run, "m", "second", 0)

    assert row["output"] == "first"
    assert suite.snapshot() == before
    assert suite.state(run, "m")["remaining_tasks"] == 1


def test_a_queued_task_is_returned_unchanged_and_its_message_stays(suite, diamond):
    before = suite.snapshot()

    (row,) = suite.complete(diamond, "a", 1)

    assert row["status"] == "queued"
    assert suite.snapshot() == before


@pytest.mark.parametrize("value", [1, 0, "", "x", None, [], {}, False, True, 1.5, {"a": [None]}])
def test_any_json_value_is_an_output(suite, value):
    suite.flow("f", "a", "b: a")
    run = suite.start("f")
    suite.claim("f")

    suite.complete(run, "a", value)

    assert suite.value("select output is not null from pgflow.step_states where step_slug = 'a'")
    assert suite.state(run, "a")["output"] == value
    assert suite.claim("f")[0]["input"] == {"a": value}


def test_sql_null_completes_a_step_that_no_map_waits_for(suite):
    suite.flow("f", "a", "b: a")
    run = suite.start("f")
    suite.claim("f")

    (row,) = suite.complete(run, "a", sql_null=True)

    assert row["status"] == "completed"
    assert suite.value("select output is null from pgflow.step_states where step_slug = 'a'")
    assert suite.statuses(run) == {"a": "completed", "b": "started"}


# -- maps --------------------------------------------------------------------------------------


def test_a_map_counts_down_and_completes_with_its_last_task(suite):
    suite.flow("f", "m*", "z: m")
    run = suite.start("f", ["a", "b", "c"])
    suite.claim("f")

    for left, index in ((2, 2), (1, 0)):
        suite.complete(run, "m", index, index)
        state = suite.state(run, "m")
        assert (state["status"], state["remaining_tasks"]) == ("started", left)
        assert state["output"] is None
    suite.complete(run, "m", 1, 1)

    state = suite.state(run, "m")
    assert (state["status"], state["remaining_tasks"], state["output"]) == (
        "completed",
        0,
        [0, 1, 2],
    )
    assert suite.statuses(run)["z"] == "started"


def test_outputs_stand_by_index_whatever_order_they_arrived_in(suite):
    suite.flow("f", "m*")
    run = suite.start("f", list(range(12)))
    suite.claim("f")

    for index in (11, 3, 0, 10, 2, 1, 9, 4, 8, 5, 7, 6):
        suite.complete(run, "m", f"out {index}", index)

    assert suite.state(run, "m")["output"] == [f"out {index}" for index in range(12)]


def test_sql_null_outputs_of_a_map_are_null_in_the_array(suite):
    suite.flow("f", "m*", "z: m")
    run = suite.start("f", [1, 2, 3])
    suite.claim("f")
    suite.complete(run, "m", 1, 0)
    suite.complete(run, "m", index=1, sql_null=True)
    suite.complete(run, "m", None, 2)

    assert suite.state(run, "m")["output"] == [1, None, None]
    assert suite.claim("f")[0]["input"] == {"m": [1, None, None]}


def test_a_completed_map_has_one_event(suite):
    suite.flow("f", "m*")
    run = suite.start("f", [1, 2])
    suite.finish("f")

    assert suite.events(run) == [
        "run:started", "step:m:started", "step:m:completed", "run:completed",
    ]  # fmt: skip


def test_messages_of_a_map_are_archived_one_by_one(suite):
    suite.flow("f", "m*")
    run = suite.start("f", [1, 2, 3])
    suite.claim("f")

    suite.complete(run, "m", 1, 1)

    assert suite.archive("f") == [suite.task(run, "m", 1)["message_id"]]
    assert len(suite.active("f")) == 2


# -- late reports ------------------------------------------------------------------------------


def test_in_a_failed_run_nothing_changes(suite):
    suite.flow("f", "a", "b", max_attempts=1)
    run = suite.start("f")
    suite.claim("f")
    suite.fail(run, "a")
    before, events = suite.snapshot(), suite.events()

    (row,) = suite.complete(run, "b", 1)

    assert row["status"] == "started" and row["output"] is None
    assert suite.snapshot() == before and suite.events() == events


def test_on_a_skipped_step_the_message_is_archived_and_nothing_else_changes(suite):
    suite.flow("f", "a", "b: a", "other")
    run = suite.start("f")
    suite.claim("f")
    suite.do(
        "update pgflow.step_states set status = 'skipped', skipped_at = now(),"
        " skip_reason = 'free text', remaining_tasks = null where step_slug = 'a'"
    )
    message = suite.task(run, "a")["message_id"]
    states = suite.rows("select * from pgflow.step_states order by step_slug")
    before = suite.task(run, "a")

    (row,) = suite.complete(run, "a", 1)

    assert row == before and row["status"] == "started"
    assert suite.archive("f") == [message]
    assert suite.rows("select * from pgflow.step_states order by step_slug") == states


def test_on_a_step_that_is_not_started_a_queued_task_s_message_is_archived_too(suite):
    suite.flow("f", "a", "other")
    run = suite.start("f")
    suite.do(
        "update pgflow.step_states set status = 'skipped', skipped_at = now(),"
        " skip_reason = 'free text', remaining_tasks = null where step_slug = 'a'"
    )

    suite.complete(run, "a", 1)

    assert suite.archive("f") == [suite.task(run, "a")["message_id"]]


def test_a_lost_message_does_no_harm(suite, diamond):
    suite.claim("f")
    suite.do("delete from pgmq.q_f")

    (row,) = suite.complete(diamond, "a", 1)

    assert row["status"] == "completed"


def test_a_task_without_a_message_does_no_harm(suite, diamond):
    suite.claim("f")
    suite.do("update pgflow.step_tasks set message_id = null")

    (row,) = suite.complete(diamond, "a", 1)

    assert row["status"] == "completed" and suite.statuses(diamond)["b"] == "started"


def test_a_message_archived_before_does_no_harm(suite, diamond):
    (record,) = suite.claim("f")
    suite.do("select pgmq.archive('f', %s::bigint)", record["msg_id"])

    suite.complete(diamond, "a", 1)

    assert suite.archive("f") == [record["msg_id"]]


# -- at once -----------------------------------------------------------------------------------


def test_two_reports_of_one_task_at_once_count_once(shared):
    shared.flow("f", "a", "b: a")
    run = shared.start("f")
    shared.claim("f")
    one, two = shared.session(), shared.session(autocommit=True)
    one.complete(run, "a", 1)
    two.do("set lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        two.complete(run, "a", 2)
    one.conn.commit()

    (row,) = two.complete(run, "a", 2)

    assert row["output"] == 1
    assert shared.run(run)["remaining_steps"] == 1
    assert len(shared.active("f")) == 1


def test_runs_do_not_wait_for_each_other(shared):
    shared.flow("f", "a", "b: a")
    first, second = shared.start("f"), shared.start("f")
    shared.claim("f")
    one, two = shared.session(), shared.session()
    one.complete(first, "a", 1)
    two.do("set local lock_timeout = '500ms'")

    two.complete(second, "a", 2)

    two.conn.commit()
    one.conn.commit()
    assert shared.statuses(first)["b"] == shared.statuses(second)["b"] == "started"


def test_a_single_step_with_more_tasks_than_one_ends_with_its_last(suite):
    suite.flow("f", "a", "b: a")
    run = suite.start("f")
    suite.do(
        "update pgflow.step_states set initial_tasks = 2, remaining_tasks = 2 where step_slug = 'a'"
    )
    suite.do(
        "insert into pgflow.step_tasks"
        " (flow_slug, run_id, step_slug, task_index, status, started_at)"
        " values ('f', %s, 'a', 1, 'started', now())",
        run,
    )
    suite.claim("f")

    suite.complete(run, "a", "first")
    assert (suite.state(run, "a")["status"], suite.state(run, "a")["remaining_tasks"]) == (
        "started",
        1,
    )
    assert suite.state(run, "b")["remaining_deps"] == 1

    suite.complete(run, "a", "second", 1)
    assert (suite.state(run, "a")["status"], suite.state(run, "a")["output"]) == (
        "completed",
        "second",
    )
    assert suite.state(run, "b")["status"] == "started"
