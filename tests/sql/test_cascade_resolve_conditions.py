"""Conditions, and what an unmet one does."""

import uuid

import pytest
from psycopg.types.json import Jsonb
from support.covers import covers


def needs(pattern, mode="skip", **more):
    return {"required_input_pattern": pattern, "when_unmet": mode, **more}


def forbids(pattern, mode="skip", **more):
    return {"forbidden_input_pattern": pattern, "when_unmet": mode, **more}


def resolve(suite, run):
    return suite.value("select pgflow.cascade_resolve_conditions(run_id => %s)", run)


# -- what is tested, and when ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "pattern", "met"),
    [
        ({"x": 1, "y": 2}, {"x": 1}, True),
        ({"x": 2}, {"x": 1}, False),
        ({}, {"x": 1}, False),
        ({"x": 1}, {}, True),
        ({"x": {"y": [1, 2, 3]}}, {"x": {"y": [2]}}, True),
        ({"x": {"y": [1]}}, {"x": {"y": [2]}}, False),
        ({"x": None}, {"x": None}, True),
        ([1], {"x": 1}, False),
        ("x", {}, False),
        (None, {}, False),
    ],
)
def test_a_root_step_runs_when_the_input_contains_the_required_object(suite, given, pattern, met):
    suite.flow("f", "other", ("a", needs(pattern)))

    row = suite.row("select * from pgflow.start_flow('f', %s)", Jsonb(given))

    assert suite.statuses(row["run_id"])["a"] == ("started" if met else "skipped")


@pytest.mark.parametrize(
    ("given", "met"), [({"x": 1}, False), ({"x": 2}, True), ({}, True), ({"x": 1, "y": 1}, False)]
)
def test_a_root_step_runs_when_the_input_does_not_contain_the_forbidden_object(suite, given, met):
    suite.flow("f", "other", ("a", forbids({"x": 1})))

    run = suite.start("f", given)

    assert suite.statuses(run)["a"] == ("started" if met else "skipped")


@pytest.mark.parametrize(
    ("given", "met"),
    [
        ({"plan": "pro"}, True),
        ({"plan": "pro", "blocked": True}, False),
        ({"blocked": True}, False),
        ({}, False),
    ],
)
def test_both_patterns_must_agree(suite, given, met):
    options = {**needs({"plan": "pro"}), **forbids({"blocked": True})}
    suite.flow("f", "other", ("a", options))

    run = suite.start("f", given)

    assert suite.statuses(run)["a"] == ("started" if met else "skipped")


@pytest.mark.parametrize(
    ("output", "met"), [({"ok": True}, True), ({"ok": False}, False), (1, False)]
)
def test_a_dependent_step_looks_at_the_outputs_of_its_dependencies(suite, output, met):
    suite.flow("f", "a", ("b: a", needs({"a": {"ok": True}})))
    run = suite.start("f", {"a": {"ok": True}})
    suite.claim("f")

    suite.complete(run, "a", output)

    assert suite.statuses(run)["b"] == ("started" if met else "skipped")


def test_a_forbidden_pattern_of_a_dependent_step(suite):
    suite.flow("f", "a", ("b: a", forbids({"a": {"stop": True}})), ("c: a", forbids({"a": 1})))
    run = suite.start("f")
    suite.claim("f")

    suite.complete(run, "a", {"stop": True})

    assert suite.statuses(run) == {"a": "completed", "b": "skipped", "c": "started"}


def test_the_input_of_the_run_is_not_seen_by_a_dependent_step(suite):
    suite.flow("f", "a", ("b: a", needs({"run": {}})), ("c: a", needs({"x": 1})))
    run = suite.start("f", {"x": 1, "run": {}})
    suite.claim("f")

    suite.complete(run, "a", {})

    assert suite.statuses(run) == {"a": "completed", "b": "skipped", "c": "skipped"}


def test_skipped_dependencies_are_left_out_of_the_subject(suite):
    suite.flow(
        "f",
        "a",
        ("s", needs({"never": 1})),
        ("b: a s", forbids({"s": {}})),
        ("c: s", needs({})),
        ("d: s", forbids({})),
    )
    run = suite.start("f")

    assert suite.statuses(run)["c"] == "started", "with no completed dependency it is {}"
    assert suite.statuses(run)["d"] == "skipped"
    suite.claim("f")
    suite.complete(run, "a", 1)
    assert suite.statuses(run)["b"] == "started"


def test_all_completed_dependencies_are_in_the_subject(suite):
    suite.flow("f", "a", "b", ("c: a b", needs({"a": {"x": 1}, "b": [2]})))
    run = suite.start("f")
    suite.claim("f")

    suite.complete(run, "a", {"x": 1, "y": 1})
    suite.complete(run, "b", [1, 2])

    assert suite.statuses(run)["c"] == "started"


def test_a_condition_is_tested_once_all_dependencies_are_done(suite):
    suite.flow("f", "a", "b", ("c: a b", needs({"a": 1})))
    run = suite.start("f")
    suite.claim("f")

    suite.complete(run, "a", 2)
    assert suite.statuses(run)["c"] == "created"

    suite.complete(run, "b", 2)
    assert suite.statuses(run)["c"] == "skipped"


def test_a_map_s_condition_looks_at_the_whole_array(suite):
    suite.flow("f", "a", ("m*: a", needs({"a": [{"ok": True}]})))
    one, two = suite.start("f"), suite.start("f")
    suite.claim("f")

    suite.complete(one, "a", [{"ok": False}, {"ok": True}])
    suite.complete(two, "a", [{"ok": False}])

    assert suite.statuses(one)["m"] == "started"
    assert suite.statuses(two)["m"] == "skipped"


def test_a_root_map_with_a_condition_never_contains_an_object(suite):
    suite.flow("f", "a", ("m*", needs({"x": 1})))

    run = suite.start("f", [{"x": 1}])

    assert suite.statuses(run) == {"a": "started", "m": "skipped"}


def test_an_empty_map_with_an_unmet_condition_is_skipped_and_not_completed(suite):
    suite.flow("f", "a", ("m*: a", needs({"a": [1]})))
    run = suite.start("f")
    suite.claim("f")

    suite.complete(run, "a", [])

    assert suite.statuses(run)["m"] == "skipped"


def test_a_step_made_ready_by_an_empty_map_is_tested_too(suite):
    suite.flow("f", "m*", ("b: m", needs({"m": [1]})), ("c: m", needs({"m": []})))

    run = suite.start("f", [])

    assert suite.statuses(run) == {"m": "completed", "b": "skipped", "c": "started"}


def test_a_failing_condition_behind_an_empty_map_fails_the_run(suite):
    suite.flow("f", "m*", ("b: m", needs({"m": [1]}, "fail")))

    run = suite.start("f", [])

    assert suite.run(run)["status"] == "failed"
    assert suite.statuses(run) == {"m": "completed", "b": "failed"}


@pytest.mark.parametrize("depth", [1, 3])
def test_an_empty_map_behind_empty_maps_is_tested_before_it_completes(suite, depth):
    chain = [f"m{n}*: m{n - 1}" for n in range(1, depth)]
    last = f"m{depth - 1}"
    suite.flow(
        "f", "m0*", *chain, (f"n*: {last}", needs({last: [1]})), "z: n", ("o*: n", needs({}))
    )

    run = suite.start("f", [])

    assert suite.statuses(run)["n"] == "skipped"
    assert suite.state(run, "n")["skip_reason"] == "condition_unmet"
    assert suite.statuses(run)["z"] == "started" and suite.statuses(run)["o"] == "completed"


def test_emptiness_and_skips_alternate_until_nothing_changes(suite):
    suite.flow(
        "f",
        "m*",
        ("s: m", needs({"m": [1]})),
        "n*: s",
        ("t: n", needs({"n": [1]})),
        "o*: t",
        "z: o",
    )

    run = suite.start("f", [])

    assert suite.statuses(run) == {
        "m": "completed", "s": "skipped", "n": "completed", "t": "skipped", "o": "completed",
        "z": "started",
    }  # fmt: skip


# -- fail --------------------------------------------------------------------------------------


def test_an_unmet_condition_with_fail_fails_step_and_run(suite):
    suite.flow("f", ("a", needs({"x": 1}, "fail")), "b: a")

    run = suite.start("f")

    state = suite.state(run, "a")
    assert (state["status"], state["error_message"]) == ("failed", "Condition not met")
    assert state["failed_at"] == suite.value("select now()")
    assert state["skip_reason"] is None and state["remaining_tasks"] is None
    assert suite.run(run)["status"] == "failed"
    assert suite.statuses(run)["b"] == "created"
    assert suite.events(run) == ["run:started", "step:a:failed", "run:failed"]
    assert suite.payload(run, "step:a:failed")["error_message"] == "Condition not met"
    assert suite.payload(run, "run:failed")["error_message"] == "Condition not met"


def test_the_lowest_index_fails_and_other_unmet_steps_stay(suite):
    suite.flow(
        "f",
        ("z", needs({"x": 1})),
        ("y", needs({"x": 1}, "fail")),
        ("a", needs({"x": 1}, "fail")),
        ("c", needs({"x": 1}, "skip-cascade")),
    )

    run = suite.start("f")

    assert suite.statuses(run) == {"z": "created", "y": "failed", "a": "created", "c": "created"}


def test_a_failing_condition_downstream_archives_what_is_active(suite):
    suite.flow("f", "a", "other", ("b: a", needs({"a": 1}, "fail")))
    run = suite.start("f")
    suite.claim("f")

    (row,) = suite.complete(run, "a", 2)

    assert row["status"] == "completed"
    assert suite.run(run)["status"] == "failed"
    assert suite.statuses(run) == {"a": "completed", "other": "started", "b": "failed"}
    assert suite.active("f") == [] and len(suite.archive("f")) == 2
    assert suite.task(run, "other")["status"] == "started"
    assert suite.events(run) == [
        "run:started", "step:a:started", "step:other:started", "step:a:completed",
        "step:b:failed", "run:failed",
    ]  # fmt: skip


def test_a_skip_that_makes_a_failing_step_ready_fails_the_run(suite):
    suite.flow("f", ("a", needs({"x": 1})), ("b: a", needs({"a": 1}, "fail")))

    run = suite.start("f")

    assert suite.statuses(run) == {"a": "skipped", "b": "failed"}
    assert suite.run(run)["status"] == "failed"
    assert suite.events(run) == ["run:started", "step:a:skipped", "step:b:failed", "run:failed"]


# -- skip --------------------------------------------------------------------------------------


def test_a_skipped_step_has_a_reason_and_counts_down(suite):
    suite.flow("f", ("a", needs({"x": 1})), "b: a", "c")

    run = suite.start("f")

    state = suite.state(run, "a")
    assert (state["status"], state["skip_reason"]) == ("skipped", "condition_unmet")
    assert state["skipped_at"] == suite.value("select now()")
    assert state["started_at"] is None and state["remaining_tasks"] is None
    assert state["error_message"] is None
    assert suite.run(run)["remaining_steps"] == 2
    assert suite.statuses(run) == {"a": "skipped", "b": "started", "c": "started"}
    assert suite.state(run, "b")["remaining_deps"] == 0
    payload = suite.payload(run, "step:a:skipped")
    assert payload["skip_reason"] == "condition_unmet" and payload["flow_slug"] == "f"


def test_several_parents_skipped_at_once_count_down_together(suite):
    unmet = needs({"x": 1})
    suite.flow("f", ("a", unmet), ("b", unmet), ("c", unmet), "d: a b c", "e: a b")

    run = suite.start("f")

    assert suite.state(run, "d")["remaining_deps"] == 0
    assert suite.statuses(run)["d"] == "started" and suite.statuses(run)["e"] == "started"
    assert suite.run(run)["remaining_steps"] == 2


def test_a_step_waits_for_the_dependencies_that_were_not_skipped(suite):
    suite.flow("f", ("a", needs({"x": 1})), "b", "c: a b")

    run = suite.start("f")

    assert suite.state(run, "c")["remaining_deps"] == 1
    assert suite.statuses(run)["c"] == "created"
    (task,) = suite.claim("f")
    suite.complete(run, "b", 7)
    (task,) = suite.claim("f")
    assert task["input"] == {"b": 7}


def test_a_map_after_a_skipped_step_is_empty(suite):
    suite.flow("f", ("a", needs({"x": 1})), "m*: a", "z: m")

    run = suite.start("f")

    state = suite.state(run, "m")
    assert (state["status"], state["initial_tasks"], state["output"]) == ("completed", 0, [])
    (task,) = suite.claim("f")
    assert task["input"] == {"m": []}


def test_chains_of_unmet_steps_are_skipped_in_one_call(suite):
    unmet = needs({"x": 1})
    suite.flow("f", ("a", unmet), ("b: a", needs({"a": 1})), ("c: b", needs({"b": 1})), "d: c")

    run = suite.start("f")

    assert suite.statuses(run) == {"a": "skipped", "b": "skipped", "c": "skipped", "d": "started"}
    reasons = suite.column(
        "select distinct skip_reason from pgflow.step_states where skipped_at is not null"
    )
    assert reasons == ["condition_unmet"]


def test_when_everything_is_skipped_the_run_completes_without_output(suite):
    suite.flow("f", ("a", needs({"x": 1})), ("b: a", needs({"a": 1})))

    (row,) = suite.rows("select * from pgflow.start_flow('f', '{}')")

    assert (row["status"], row["remaining_steps"], row["output"]) == ("completed", 0, None)
    assert suite.events(row["run_id"]) == [
        "run:started", "step:a:skipped", "step:b:skipped", "run:completed",
    ]  # fmt: skip


def test_when_only_the_last_step_is_skipped_the_run_completes(suite):
    suite.flow("f", "a", ("b: a", needs({"a": 1})))
    run = suite.start("f")
    suite.claim("f")

    suite.complete(run, "a", 2)

    assert suite.run(run)["status"] == "completed"
    assert suite.run(run)["output"] is None


# -- skip-cascade ------------------------------------------------------------------------------


def test_a_cascade_takes_everything_downstream(suite):
    suite.flow(
        "f", ("a", needs({"x": 1}, "skip-cascade")), "other", "b: a", "c: b other", "d: other"
    )

    run = suite.start("f")

    assert suite.statuses(run) == {
        "a": "skipped", "b": "skipped", "c": "skipped", "other": "started", "d": "created",
    }  # fmt: skip
    assert suite.state(run, "a")["skip_reason"] == "condition_unmet"
    assert suite.state(run, "b")["skip_reason"] == "dependency_skipped"
    assert suite.state(run, "c")["skip_reason"] == "dependency_skipped"
    assert suite.run(run)["remaining_steps"] == 2
    assert suite.events(run) == [
        "run:started", "step:a:skipped", "step:b:skipped", "step:c:skipped", "step:other:started",
    ]  # fmt: skip


def test_plain_skips_come_before_cascades(suite):
    suite.flow(
        "f", ("a", needs({"x": 1}, "skip-cascade")), ("b", needs({"x": 1})), "c: a b", "d: b"
    )

    run = suite.start("f")

    assert suite.statuses(run) == {"a": "skipped", "b": "skipped", "c": "skipped", "d": "started"}
    assert suite.state(run, "c")["skip_reason"] == "dependency_skipped"
    assert suite.events(run)[1:4] == ["step:b:skipped", "step:a:skipped", "step:c:skipped"]


def test_two_cascades_meet_without_counting_twice(suite):
    cascade = needs({"x": 1}, "skip-cascade")
    suite.flow("f", ("a", cascade), ("b", cascade), "c: a b", "d")

    run = suite.start("f")

    assert suite.run(run)["remaining_steps"] == 1
    assert suite.events(run).count("step:c:skipped") == 1


# -- the function itself -----------------------------------------------------------------------


def test_it_returns_true_when_there_is_nothing_to_do(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    before = suite.snapshot()

    assert resolve(suite, run) is True
    assert suite.snapshot() == before


def test_it_returns_true_for_a_completed_run_and_false_for_a_failed_one(suite):
    suite.flow("f", "a", max_attempts=1)
    done, failed = suite.start("f"), suite.start("f")
    suite.claim("f")
    suite.complete(done, "a")
    suite.fail(failed, "a")
    before = suite.snapshot()

    assert resolve(suite, done) is True
    assert resolve(suite, failed) is False
    assert suite.snapshot() == before


def test_it_returns_false_when_it_fails_the_run(suite):
    suite.flow("f", "a", ("b: a", needs({"a": 1}, "fail")))
    run = suite.start("f")
    suite.do(
        "update pgflow.step_states set status = 'completed', remaining_tasks = 0,"
        " completed_at = now(), output = '2' where step_slug = 'a'"
    )
    suite.do("update pgflow.step_states set remaining_deps = 0 where step_slug = 'b'")

    assert resolve(suite, run) is False
    assert suite.run(run)["status"] == "failed"


def test_a_started_step_is_not_tested_again(suite):
    suite.flow("f", ("a", needs({"x": 1})))
    run = suite.start("f", {"x": 1})
    suite.do("update pgflow.runs set input = '{}'")

    assert resolve(suite, run) is True
    assert suite.statuses(run) == {"a": "started"}


def test_an_unknown_run_changes_nothing(suite):
    suite.value("select pgflow.cascade_resolve_conditions(%s)", uuid.uuid4())


def chain(first, count):
    steps = [(first, needs({"x": 1}))]
    return steps + [(f"s{n}: s{n - 1}", needs({f"s{n - 1}": 1})) for n in range(1, count)]


@covers("database 27")
def test_sixty_unmet_conditions_in_a_chain_are_skipped_by_a_start(suite):
    suite.flow("f", *chain("s0", 60))

    run = suite.start("f")

    assert set(suite.statuses(run).values()) == {"skipped"}
    assert suite.run(run)["status"] == "completed"


@covers("database 27")
def test_sixty_unmet_conditions_in_a_chain_are_skipped_by_a_report(suite):
    suite.flow("f", "a", *chain("s0: a", 60))
    run = suite.start("f")
    suite.claim("f")

    suite.complete(run, "a", 1)

    assert suite.statuses(run).pop("s59") == "skipped"
    assert suite.run(run)["status"] == "completed"


@covers("database 2")
def test_a_condition_whose_input_no_jsonb_holds_fails_its_step(suite):
    suite.flow("f", "a", "b", "c", ("d: a b c", needs({"a": 1})))
    run = suite.start("f")
    suite.claim("f")
    suite.complete(run, "a")
    suite.complete(run, "b")
    suite.do("create temp table large as select to_jsonb(repeat('x', 140000000)) as value")
    suite.do(
        "update pgflow.step_states set output = (select value from large)"
        " where step_slug in ('a', 'b')"
    )

    suite.complete(run, "c")

    text = suite.state(run, "d")["error_message"]
    assert text.startswith("Condition not met: the input of step d would be larger than 256 MB")
    assert suite.run(run)["status"] == "failed"
    assert suite.task(run, "c")["status"] == "completed"
