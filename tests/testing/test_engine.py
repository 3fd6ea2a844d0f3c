"""The model of the SQL state machine, rule by rule of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from pgflowd.core.json import SQL_NULL
from pgflowd.errors import MapInput, RunError
from pgflowd.testing.engine import Engine, retry_delay_s


def step(slug: str, *deps: str, kind: str = "single", **more: Any) -> dict[str, Any]:
    return {"slug": slug, "stepType": kind, "dependencies": list(deps), **more}


def pattern(value: dict[str, Any]) -> dict[str, Any]:
    return {"defined": True, "value": value}


def engine(*steps: dict[str, Any], **options: int) -> Engine:
    return Engine({"steps": list(steps), "options": options})


def statuses(engine: Engine) -> dict[str, str]:
    return {slug: str(state.status) for slug, state in engine.states.items()}


def claim_one(machine: Engine, slug: str) -> Any:
    (record,) = machine.start_tasks([t for t in machine.claimable() if t.step_slug == slug])
    return record


def test_a_diamond_runs_from_top_to_bottom_and_keeps_the_leaf_output():
    machine = engine(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))
    run = machine.start({"x": 1})

    (record,) = machine.claim()
    assert (record.input, record.flow_input) == ({}, {"x": 1})
    machine.complete(record.key, 0)
    left, right = machine.claim()
    assert left.input == right.input == {"a": 0}
    assert left.flow_input is SQL_NULL
    machine.complete(right.key, "")
    machine.complete(left.key, None)
    (last,) = machine.claim()
    assert last.input == {"b": None, "c": ""}
    machine.complete(last.key, False)

    assert run.status == "completed"
    assert run.output == {"d": False}


def test_a_map_makes_one_task_per_element_and_gathers_outputs_in_order():
    machine = engine(step("m", kind="map"), step("sum", "m"))
    run = machine.start([10, 20, 30])

    records = machine.claim()
    for record in reversed(records):
        machine.complete(record.key, record.input + 1)
    (total,) = machine.claim()

    assert total.input == {"m": [11, 21, 31]}
    assert run.states["m"].output == [11, 21, 31]


def test_an_empty_map_completes_without_starting_and_takes_a_chain_of_maps_along():
    machine = engine(step("m", kind="map"), step("n", "m", kind="map"), step("after", "n"))
    run = machine.start([])

    assert statuses(machine) == {"m": "completed", "n": "completed", "after": "started"}
    assert [event.type for event in run.events] == [
        "run:started",
        "step:completed",
        "step:completed",
        "step:started",
    ]


@pytest.mark.parametrize(("levels", "fits"), [(49, True), (50, False)])
def test_a_chain_of_empty_maps_has_a_greatest_depth(levels: int, fits: bool):
    chain = [step("m0", kind="map")]
    chain += [step(f"m{n}", f"m{n - 1}", kind="map") for n in range(1, levels)]
    machine = engine(*chain)

    if fits:
        assert machine.start([]).status == "completed"
    else:
        with pytest.raises(RunError, match="Cascade loop exceeded safety limit of 50 iterations"):
            machine.start([])


@pytest.mark.parametrize(("input", "word"), [({}, "object"), (None, "null"), ("x", "string")])
def test_a_root_map_wants_an_array(input: Any, word: str):
    with pytest.raises(MapInput, match=f"input is not an array \\(got {word}\\)"):
        engine(step("m", kind="map")).start(input)


def test_a_failed_attempt_waits_longer_each_time_and_the_last_one_fails_the_run():
    machine = engine(step("a"), maxAttempts=3, baseDelay=5)
    run = machine.start({})

    waits = []
    while record := next(iter(machine.claim()), None):
        before = machine.now
        machine.fail(record.key, "no")
        machine.advance_to_next()
        waits.append(machine.now - before)

    assert waits == [10, 20, 0]
    assert (run.status, run.states["a"].error) == ("failed", "no")
    assert [event.type for event in run.events][-2:] == ["step:failed", "run:failed"]


def test_zero_attempts_act_as_one():
    machine = engine(step("a"), maxAttempts=0)
    run = machine.start({})

    machine.fail(machine.claim()[0].key, "no")

    assert run.status == "failed"


def test_a_retry_delay_is_capped_where_the_database_would_overflow():
    assert retry_delay_s(5, 1) == 10
    assert retry_delay_s(5, 500) == 2**31 - 1


def test_an_exhausted_step_may_be_skipped_and_its_dependents_continue_without_it():
    machine = engine(
        step("a", whenExhausted="skip"), step("m", "a", kind="map"), step("b", "a"), maxAttempts=1
    )
    run = machine.start({})

    machine.fail(machine.claim()[0].key, "no")
    (record,) = machine.claim()

    assert statuses(machine) == {"a": "skipped", "m": "completed", "b": "started"}
    assert record.input == {}
    assert run.states["a"].skip_reason == "handler_failed"


def test_an_exhausted_step_may_take_everything_downstream_along():
    machine = engine(
        step("a", whenExhausted="skip-cascade"), step("other"), step("b", "a", "other"),
        step("c", "b"), maxAttempts=1,
    )  # fmt: skip
    run = machine.start({})

    machine.fail(claim_one(machine, "a").key, "no")
    machine.complete(claim_one(machine, "other").key, 1)

    assert (run.status, run.output) == ("completed", SQL_NULL)
    assert run.states["c"].skip_reason == "dependency_skipped"


def test_siblings_of_a_map_task_that_skipped_its_step_are_skipped_once():
    machine = engine(step("m", kind="map", whenExhausted="skip"), maxAttempts=1)
    run = machine.start([1, 2, 3])
    first, second, _ = machine.claim()

    machine.fail(first.key, "no")
    machine.fail(second.key, "late")

    assert [task.status for task in run.states["m"].tasks] == ["failed", "skipped", "skipped"]
    assert run.remaining_steps == 0


def test_a_failed_run_leaves_its_siblings_as_they_are_and_archives_their_messages():
    machine = engine(step("m", kind="map"), maxAttempts=1)
    run = machine.start([1, 2, 3])
    first, second = machine.start_tasks(machine.claimable()[:2])

    machine.fail(first.key, "no")
    machine.complete(second.key, "late")

    tasks = run.states["m"].tasks
    assert [task.status for task in tasks] == ["failed", "started", "queued"]
    assert all(task.is_archived for task in tasks)
    assert machine.claim() == []


def test_no_array_before_a_map_fails_the_run_whatever_attempts_are_left():
    machine = engine(step("a", whenExhausted="skip"), step("m", "a", kind="map"))
    run = machine.start({})

    machine.complete(machine.claim()[0].key, {"not": "a list"})

    assert run.states["a"].error == (
        "[TYPE_VIOLATION] Map step m expects array input but dependency a produced object"
    )
    assert [event.type for event in run.events][-2:] == ["run:failed", "step:failed"]


def test_reports_on_queued_or_repeated_tasks_change_nothing():
    machine = engine(step("a"), step("b", "a"))
    run = machine.start({})
    machine.complete(("run-1", "a", 0), 1)
    machine.fail(("run-1", "a", 0), "no")
    assert (statuses(machine)["a"], run.states["a"].tasks[0].status) == ("started", "queued")

    (record,) = machine.claim()
    machine.complete(record.key, 1)
    machine.complete(record.key, 2)

    assert run.states["a"].output == 1
    assert machine.complete(("run-1", "a", 7), 2) is None


def test_the_first_unmet_condition_that_fails_wins_over_those_that_skip():
    machine = engine(
        step("a", requiredInputPattern=pattern({"x": 1})),
        step("b", requiredInputPattern=pattern({"x": 1}), whenUnmet="fail"),
    )
    run = machine.start({"x": 2})

    assert (run.status, run.states["b"].error) == ("failed", "Condition not met")
    assert statuses(machine) == {"a": "created", "b": "failed"}


def test_a_condition_looks_at_the_outputs_of_completed_deps():
    machine = engine(
        step("a"),
        step("b", "a", requiredInputPattern=pattern({"a": {"ok": True}})),
        step("c", "a", forbiddenInputPattern=pattern({"a": {"ok": True}})),
        step("d", "b", "c"),
    )
    run = machine.start({})

    machine.complete(machine.claim()[0].key, {"ok": True, "more": 1})
    assert statuses(machine)["c"] == "skipped"
    machine.complete(machine.claim()[0].key, "b")
    (record,) = machine.claim()

    assert record.input == {"b": "b"}
    assert run.states["c"].skip_reason == "condition_unmet"


def test_a_condition_behind_an_empty_map_is_tested_too():
    machine = engine(
        step("m", kind="map"),
        step("a", "m", requiredInputPattern=pattern({"m": [1]})),
        step("n", "m", kind="map", requiredInputPattern=pattern({"m": [1]}), whenUnmet="skip"),
    )
    machine.start([])

    assert statuses(machine) == {"m": "completed", "a": "skipped", "n": "skipped"}


def test_a_start_delay_hides_the_message_and_retries_ignore_it():
    machine = engine(step("a", options={"startDelay": 30}), baseDelay=1)
    machine.start({})
    assert machine.claim() == []

    machine.advance_to_next()
    (record,) = machine.claim()
    machine.fail(record.key, "no")
    machine.advance_to_next()

    assert machine.now == 32


def test_wishes_of_a_failure_no_retry_or_a_delay_of_its_own():
    machine = engine(step("a"), step("b"), baseDelay=1)
    run = machine.start({})
    first, second = machine.claim()

    machine.fail(second.key, "later", delay_s=100)
    machine.advance_to_next()
    assert machine.now == 100
    machine.fail(first.key, "never", retry=False)

    assert run.status == "failed"


def test_a_flow_without_steps_completes_at_once():
    run = engine().start(None)

    assert (run.status, run.output) == ("completed", SQL_NULL)
