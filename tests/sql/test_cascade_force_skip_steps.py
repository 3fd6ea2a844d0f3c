"""A step and everything downstream of it is skipped."""

import uuid

import pytest


@pytest.fixture
def run(suite):
    suite.flow("f", "a", "b: a", "c: b", "other", "d: c other")
    return suite.start("f")


def skip(suite, run, step, reason="condition_unmet"):
    return suite.value(
        "select pgflow._cascade_force_skip_steps(run_id => %s, step_slug => %s, skip_reason => %s)",
        run,
        step,
        reason,
    )


def test_it_returns_how_many_changed(suite, run):
    assert skip(suite, run, "b") == 3
    assert suite.statuses(run) == {
        "a": "started", "b": "skipped", "c": "skipped", "d": "skipped", "other": "started",
    }  # fmt: skip


def test_the_reason_is_the_given_one_and_downstream_dependency_skipped(suite, run):
    skip(suite, run, "b", "because")

    assert suite.state(run, "b")["skip_reason"] == "because"
    assert suite.state(run, "c")["skip_reason"] == "dependency_skipped"
    assert suite.state(run, "d")["skip_reason"] == "dependency_skipped"
    assert suite.state(run, "d")["skipped_at"] == suite.value("select now()")


def test_remaining_steps_go_down_by_the_number_changed(suite, run):
    skip(suite, run, "b")

    assert suite.run(run)["remaining_steps"] == 2


def test_a_second_call_returns_0_and_sends_nothing(suite, run):
    skip(suite, run, "b")
    before, events = suite.snapshot(), suite.events(run)

    assert skip(suite, run, "b") == 0
    assert suite.snapshot() == before and suite.events(run) == events


def test_an_event_per_step_in_order_of_index(suite, run):
    skip(suite, run, "a")

    skipped = [event for event in suite.events(run) if event.endswith(":skipped")]
    assert skipped == ["step:a:skipped", "step:b:skipped", "step:c:skipped", "step:d:skipped"]
    payload = suite.payload(run, "step:c:skipped")
    assert payload["skip_reason"] == "dependency_skipped"
    assert payload["flow_slug"] == "f"


def test_order_is_that_of_the_index_and_not_of_the_slug(suite):
    suite.flow("g", "z", "y: z", "x: y", "w: z")
    run = suite.start("g")

    skip(suite, run, "z")

    assert [event for event in suite.events(run) if event.endswith(":skipped")] == [
        "step:z:skipped", "step:y:skipped", "step:x:skipped", "step:w:skipped",
    ]  # fmt: skip


def test_a_started_step_loses_its_messages_and_its_count(suite, run):
    suite.claim("f")

    skip(suite, run, "a")

    state = suite.state(run, "a")
    assert state["remaining_tasks"] is None and state["skipped_at"] is not None
    message = suite.task(run, "a")["message_id"]
    assert suite.archive("f") == [message]
    assert suite.active("f") == [suite.task(run, "other")["message_id"]]


def test_queued_messages_of_a_started_map_are_archived(suite):
    suite.flow("g", "m*", "n: m")
    run = suite.start("g", [1, 2, 3])
    first, *_rest = suite.start_tasks("g", suite.read("g", qty=1))
    suite.complete(run, "m", 1, first["task_index"])

    assert skip(suite, run, "m") == 2

    assert suite.active("g") == [] and len(suite.archive("g")) == 3


def test_completed_and_failed_steps_stay(suite, run):
    suite.claim("f")
    suite.complete(run, "a", 1)

    assert skip(suite, run, "a") == 3
    assert suite.statuses(run) == {
        "a": "completed", "b": "skipped", "c": "skipped", "d": "skipped", "other": "started",
    }  # fmt: skip


def test_a_trigger_that_is_skipped_already_takes_only_the_rest(suite, run):
    suite.do(
        "update pgflow.step_states set status = 'skipped', skipped_at = now(),"
        " skip_reason = 'handler_failed', remaining_tasks = null where step_slug = 'a'"
    )

    assert skip(suite, run, "a", "handler_failed") == 3
    assert suite.state(run, "b")["skip_reason"] == "dependency_skipped"


def test_messages_of_a_step_skipped_earlier_stay(suite, run):
    suite.do(
        "update pgflow.step_states set status = 'skipped', skipped_at = now(),"
        " skip_reason = 'handler_failed', remaining_tasks = null where step_slug = 'a'"
    )
    message = suite.task(run, "a")["message_id"]

    skip(suite, run, "a", "handler_failed")

    assert message in suite.active("f")


def test_an_unknown_run_raises(suite):
    unknown = uuid.uuid4()

    error = suite.error("select pgflow._cascade_force_skip_steps(%s, 'a', 'x')", unknown)

    assert error.diag.message_primary == f"Run not found: {unknown}"


def test_a_diamond_is_counted_once(suite):
    suite.flow("g", "a", "b: a", "c: a", "d: b c")
    run = suite.start("g")

    assert skip(suite, run, "a") == 4
    assert suite.run(run)["remaining_steps"] == 0
    assert suite.events(run).count("step:d:skipped") == 1


def test_other_runs_are_left_alone(suite, run):
    other = suite.start("f")

    skip(suite, run, "a")

    assert "skipped" not in suite.statuses(other).values()
    assert suite.run(other)["remaining_steps"] == 5


def test_a_leaf_takes_itself_alone(suite, run):
    assert skip(suite, run, "d") == 1
