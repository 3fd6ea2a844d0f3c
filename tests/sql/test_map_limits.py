"""
What a map may have: a number of elements, and 256 MB of outputs. So may a run of outputs.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.contract import ContractSession
from support.covers import covers

ELEMENTS = "to_jsonb(array_fill(0, array[%s]))"


def limit(session: ContractSession, most: int) -> None:
    session.do("select pgflowd.set_setting('max_map_elements', %s::text::jsonb, 'test')", most)


def claimed(session: ContractSession, *steps: tuple[str, dict[str, Any]] | str) -> Any:
    """A run of these steps, the first of which are claimed."""
    session.flow("f", *steps)
    run = session.start("f")
    session.claim("f")
    return run


def make_large(session: ContractSession, run: Any, table: str) -> None:
    """Let each completed output there have 140 MB."""
    session.do("create temp table large as select to_jsonb(repeat('x', 140000000)) as value")
    session.do(
        f"update pgflow.{table} set output = (select large.value from large)"
        " where run_id = %s and status = 'completed'",
        run,
    )


@covers("outside 2")
def test_a_start_with_more_elements_than_allowed_writes_nothing(suite: ContractSession) -> None:
    limit(suite, 1500)
    suite.flow("f", "m*", "n: m")
    before = suite.snapshot()

    error = suite.error(f"select pgflow.start_flow('f', {ELEMENTS})", 1501)

    assert (error.sqlstate, str(error).splitlines()[0]) == (
        "54000",
        "the input of flow f has 1501 elements, and a map may have 1500",
    )
    assert "max_map_elements" in (error.diag.message_hint or "")
    assert suite.snapshot() == before
    suite.do(f"select pgflow.start_flow('f', {ELEMENTS})", 1500)
    assert len(suite.queue("f")) == 1500


@covers("outside 2")
def test_a_step_before_a_map_that_returns_more_is_refused(suite: ContractSession) -> None:
    limit(suite, 1500)
    run = claimed(suite, "a", "m*: a")
    before = suite.snapshot()
    query = f"select pgflow.complete_task(%s, 'a', 0, {ELEMENTS})"

    error = suite.error(query, run, 1501)

    assert (error.sqlstate, str(error).splitlines()[0]) == (
        "54000",
        "the output of step a has 1501 elements, and a map may have 1500",
    )
    assert suite.snapshot() == before
    suite.do(query, run, 1500)
    assert len(suite.queue("f")) == 1500


@covers("outside 2")
def test_millions_of_elements_are_refused_by_default(suite: ContractSession) -> None:
    run = claimed(suite, "a", "m*: a")

    suite.do("set local statement_timeout = '5s'")
    error = suite.error(f"select pgflow.complete_task(%s, 'a', 0, {ELEMENTS})", run, 3_000_000)

    assert "has 3000000 elements, and a map may have 200000" in str(error)


@covers("outside 2")
def test_an_output_that_no_map_waits_for_may_have_any_number(suite: ContractSession) -> None:
    limit(suite, 1000)
    run = claimed(suite, "a", "b: a")

    suite.do(f"select pgflow.complete_task(%s, 'a', 0, {ELEMENTS})", run, 5000)

    assert suite.statuses(run) == {"a": "completed", "b": "started"}


@covers("outside 2")
def test_up_to_a_thousand_elements_cost_no_look_at_the_setting(suite: ContractSession) -> None:
    suite.do("drop function pgflow._check_map_length(int, text)")
    suite.flow("f", "m*")
    suite.flow("g", "a", "m*: a")
    suite.do(f"select pgflow.start_flow('f', {ELEMENTS})", 1000)
    run = suite.start("g")
    suite.claim("g")

    suite.do(f"select pgflow.complete_task(%s, 'a', 0, {ELEMENTS})", run, 1000)

    assert len(suite.queue("f")) == len(suite.queue("g")) == 1000


@covers("database 2")
def test_a_map_whose_outputs_no_jsonb_holds_names_its_step(suite: ContractSession) -> None:
    suite.flow("f", "m*")
    run = suite.start("f", [1, 2, 3])
    suite.claim("f")
    for index in (0, 1):
        suite.complete(run, "m", index=index)
    make_large(suite, run, "step_tasks")

    error = suite.error("select pgflow.complete_task(%s, 'm', 2, '1')", run)

    assert error.sqlstate == "54000"
    assert "the outputs of map step m together are larger than 256 MB" in str(error)


@covers("database 2")
@pytest.mark.parametrize("exhausted", ["fail", "skip"])
def test_a_run_whose_output_no_jsonb_holds_fails(suite: ContractSession, exhausted: str) -> None:
    """Whether its last step completes or is skipped."""
    run = claimed(suite, "a", "b", ("c", {"when_exhausted": exhausted, "max_attempts": 1}))
    suite.complete(run, "a")
    suite.complete(run, "b")
    make_large(suite, run, "step_states")

    if exhausted == "skip":
        suite.fail(run, "c")
    else:
        suite.complete(run, "c")

    ended = suite.run(run)
    assert (ended["status"], ended["output"], ended["remaining_steps"]) == ("failed", None, 0)
    assert ended["error_message"].startswith("the output of the run would be larger than 256 MB")
    assert suite.events(run)[-1] == "run:failed"


@covers("database 1")
def test_a_run_is_shown_without_the_outputs_that_no_jsonb_holds(suite: ContractSession) -> None:
    """Its steps', and its own when that does not fit beside the input."""
    run = claimed(suite, "a", "b", "c")
    suite.complete(run, "a")
    suite.complete(run, "b")
    make_large(suite, run, "step_states")
    suite.fail(run, "c")

    document = suite.value("select pgflow.get_run_with_states(%s)", run)

    assert "truncated" not in document["run"]
    assert {
        step["step_slug"]: (step["status"], step["output"], step.get("truncated"))
        for step in document["steps"]
    } == {
        "a": ("completed", None, True),
        "b": ("completed", None, True),
        "c": ("started", None, None),
    }
    suite.do("update pgflow.runs set (input, output) = (select value, value from large)")
    query = "select (doc -> 'run') - 'input' from pgflow.get_run_with_states(%s) as doc"
    shown = suite.value(query, run)
    assert (shown["output"], shown["truncated"]) == (None, True)
