"""The events that followers of a run receive, through realtime.send."""

import pytest

COMMON = {"event_type", "run_id", "status"}
KEYS = {
    "run:started": {"flow_slug", "input", "remaining_steps", "started_at"},
    "run:completed": {"flow_slug", "output", "completed_at"},
    "run:failed": {"flow_slug", "failed_at", "error_message"},
    "step:started": {"step_slug", "started_at", "remaining_tasks", "remaining_deps"},
    "step:completed": {"step_slug", "output", "completed_at"},
    "step:failed": {"step_slug", "error_message", "failed_at"},
    "step:skipped": {"step_slug", "skip_reason", "skipped_at"},
}
TASKLESS = {"started_at", "remaining_tasks", "remaining_deps"}


def told(suite, run, event, more=()):
    """The payload of one event, its common keys checked."""
    payload = suite.payload(run, event)
    kind = event.split(":")[0] + ":" + event.split(":")[-1]
    assert set(payload) == COMMON | KEYS[kind] | set(more)
    assert payload["event_type"] == kind
    assert payload["status"] == kind.split(":")[1]
    assert payload["run_id"] == str(run)
    return payload


def moment(suite, text):
    return suite.value("select %s::timestamptz = now()", text)


def test_each_is_sent_on_the_run_s_topic_and_not_privately(suite):
    suite.flow("f", "a")
    run = suite.start("f")

    rows = suite.payloads()

    assert {row["topic"] for row in rows} == {f"pgflow:run:{run}"}
    assert {row["private"] for row in rows} == {False}


def test_run_started(suite):
    suite.flow("f", "a", "b: a")
    run = suite.start("f", {"x": [1]})

    payload = told(suite, run, "run:started")

    assert (payload["flow_slug"], payload["input"], payload["remaining_steps"]) == (
        "f",
        {"x": [1]},
        2,
    )
    assert moment(suite, payload["started_at"])


def test_step_started(suite):
    suite.flow("f", "m*")
    run = suite.start("f", [1, 2, 3])

    payload = told(suite, run, "step:m:started")

    assert (payload["step_slug"], payload["remaining_tasks"], payload["remaining_deps"]) == (
        "m",
        3,
        0,
    )
    assert moment(suite, payload["started_at"])


def test_step_completed(suite):
    suite.flow("f", "a", "b: a")
    run = suite.start("f")
    suite.claim("f")
    suite.complete(run, "a", {"y": [None]})

    payload = told(suite, run, "step:a:completed")

    assert (payload["step_slug"], payload["output"]) == ("a", {"y": [None]})
    assert moment(suite, payload["completed_at"])


def test_the_event_of_a_completed_map_has_all_its_outputs(suite):
    suite.flow("f", "m*")
    run = suite.start("f", [1, 2])
    suite.finish("f")

    assert told(suite, run, "step:m:completed")["output"] == [0, 1]


def test_a_step_completed_without_tasks_also_has_a_start_event(suite):
    suite.flow("f", "m*", "a")
    run = suite.start("f", [])

    payload = told(suite, run, "step:m:completed", TASKLESS)

    assert (payload["output"], payload["remaining_tasks"], payload["remaining_deps"]) == ([], 0, 0)
    assert moment(suite, payload["started_at"]) and moment(suite, payload["completed_at"])


def test_the_event_of_a_step_completed_with_sql_null_has_a_null(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    suite.claim("f")
    suite.complete(run, "a", sql_null=True)

    assert told(suite, run, "step:a:completed")["output"] is None


def test_run_completed(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    suite.finish("f", {"a": 7})

    payload = told(suite, run, "run:completed")

    assert (payload["flow_slug"], payload["output"]) == ("f", {"a": 7})
    assert moment(suite, payload["completed_at"])


def test_the_event_of_a_run_completed_without_output_has_a_null(suite):
    suite.flow("f")

    run = suite.start("f")

    assert told(suite, run, "run:completed")["output"] is None


def test_step_and_run_failed(suite):
    suite.flow("f", "a", max_attempts=1)
    run = suite.start("f")
    suite.claim("f")
    suite.fail(run, "a", "why")

    step, whole = told(suite, run, "step:a:failed"), told(suite, run, "run:failed")

    assert (step["step_slug"], step["error_message"]) == ("a", "why")
    assert (whole["flow_slug"], whole["error_message"]) == ("f", "why")
    assert moment(suite, step["failed_at"]) and moment(suite, whole["failed_at"])


def test_step_and_run_failed_by_a_condition(suite):
    suite.flow("f", ("a", {"required_input_pattern": {"x": 1}, "when_unmet": "fail"}))
    run = suite.start("f")

    assert told(suite, run, "step:a:failed")["error_message"] == "Condition not met"
    assert told(suite, run, "run:failed")["error_message"] == "Condition not met"


def test_step_and_run_failed_by_a_type_violation(suite):
    suite.flow("f", "a", "m*: a")
    run = suite.start("f")
    suite.claim("f")
    suite.complete(run, "a", 1)

    step, whole = told(suite, run, "step:a:failed"), suite.payload(run, "run:failed")

    assert step["error_message"].startswith("[TYPE_VIOLATION] Map step m")
    assert set(whole) - {"error_message"} == COMMON | KEYS["run:failed"] - {"error_message"}
    assert whole.get("error_message", step["error_message"]) is not None


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_step_skipped_by_a_condition(suite, mode):
    suite.flow("f", ("a", {"required_input_pattern": {"x": 1}, "when_unmet": mode}), "z")
    run = suite.start("f")

    payload = told(suite, run, "step:a:skipped", {"flow_slug"})

    assert (payload["skip_reason"], payload["flow_slug"]) == ("condition_unmet", "f")
    assert moment(suite, payload["skipped_at"])


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_step_skipped_by_exhaustion(suite, mode):
    suite.flow("f", ("a", {"when_exhausted": mode}), "b: a", "z", max_attempts=1)
    run = suite.start("f")
    suite.claim("f")
    suite.fail(run, "a", "why")

    payload = suite.payload(run, "step:a:skipped")

    assert set(payload) - {"flow_slug"} == COMMON | KEYS["step:skipped"] | {"error_message"}
    assert (payload["skip_reason"], payload["error_message"]) == ("handler_failed", "why")
    if mode == "skip-cascade":
        assert told(suite, run, "step:b:skipped", {"flow_slug"})["skip_reason"] == (
            "dependency_skipped"
        )


def test_the_events_of_a_whole_run_arrive_once_and_in_order(suite):
    unmet = {"required_input_pattern": {"x": 1}}
    suite.flow(
        "f", "a", ("s", unmet), "t*: s", ("c", {**unmet, "when_unmet": "skip-cascade"}), "d: c",
        "m*: a", "z: m t",
    )  # fmt: skip
    run = suite.start("f")
    suite.finish("f", {"a": [1, 2]})

    assert suite.events(run) == [
        "run:started", "step:s:skipped", "step:c:skipped", "step:d:skipped", "step:t:completed",
        "step:a:started", "step:a:completed", "step:m:started", "step:m:completed",
        "step:z:started", "step:z:completed", "run:completed",
    ]  # fmt: skip


def test_the_event_of_a_completed_step_comes_before_those_of_empty_maps(suite):
    suite.flow("f", "a", "m*: a", "n*: m", "z: n")
    run = suite.start("f")
    suite.claim("f")
    suite.complete(run, "a", [])

    assert suite.events(run)[2:] == [
        "step:a:completed", "step:m:completed", "step:n:completed", "step:z:started",
    ]  # fmt: skip


def test_a_rolled_back_report_sends_no_event(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    suite.claim("f")
    before = suite.events()

    with suite.conn.transaction() as inner:
        suite.complete(run, "a", 1)
        assert len(suite.events()) > len(before)
        suite.do("savepoint x")
        raise_away(inner)

    assert suite.events() == before


def raise_away(transaction):
    import psycopg

    raise psycopg.Rollback(transaction)


def test_statuses_in_payloads_are_those_of_the_rows(suite):
    suite.flow("f", "a", "m*: a", "z: m")
    run = suite.start("f")
    suite.finish("f", {"a": [1, 2, 3]})

    for row in suite.payloads(run):
        assert row["event"].endswith(row["payload"]["status"])
        if row["event"].startswith("step:"):
            assert row["event"].split(":")[1] == row["payload"]["step_slug"]


def test_with_realtime_nothing_goes_out_as_a_notification(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    suite.finish("f")

    assert suite.run(run)["status"] == "completed"
    assert suite.value("select count(*) from realtime.messages") == 4
