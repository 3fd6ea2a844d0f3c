"""
Lists of 160,000 strings: every place that builds JSON does so in time that grows with their bytes.

An aggregate of jsonb would take ten seconds for each, in which nothing can interrupt it. The
server's own limit on statements is the judge; the data are made on the server, outside of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.contract import ContractSession
from support.covers import covers

LINES = "to_jsonb(array_fill(repeat('x', 95), array[160000]))"
pytestmark = covers("database 2")


@contextmanager
def limited(session: ContractSession) -> Iterator[None]:
    """Let the server end each statement that takes 5 s."""
    session.do("set local statement_timeout = '5s'")
    yield
    session.do("set local statement_timeout = 0")


def complete_with_lines(session: ContractSession, run: Any, step: str, index: int = 0) -> None:
    query = f"select from pgflow.complete_task(%s, %s, %s, {LINES})"
    session.do(query, run, step, index)


def joined(session: ContractSession, *steps: tuple[str, dict[str, Any]] | str) -> Any:
    """A run in which `lines` has the strings, `nothing` is SQL null, and `gone` was skipped."""
    gone = ("gone", {"required_input_pattern": {"never": True}})
    session.flow("f", "lines", "nothing", gone, *steps)
    run = session.start("f")
    session.claim("f")
    session.complete(run, "nothing", sql_null=True)
    return run


def test_the_input_of_a_step_that_joins(suite: ContractSession) -> None:
    run = joined(suite, "n: lines nothing gone")
    with limited(suite):
        complete_with_lines(suite, run, "lines")
        suite.claim("f", 0)
        ids = suite.read("f")
        query = f"""
            select input = jsonb_build_object('nothing', null, 'lines', {LINES})
              from pgflow.start_tasks('f', %s, %s)
        """

        assert suite.column(query, ids, suite.worker("f")) == [True]


def test_the_input_of_a_step_with_one_dep(suite: ContractSession) -> None:
    suite.flow("f", "lines", "n: lines")
    run = suite.start("f")
    suite.claim("f")
    with limited(suite):
        complete_with_lines(suite, run, "lines")
        query = (
            f"select input = jsonb_build_object('lines', {LINES}) from pgflowd.claim('f', %s, 9)"
        )

        assert suite.column(query, suite.worker("f")) == [True]


@pytest.mark.parametrize(("count", "status"), [(95, "started"), (94, "skipped")])
def test_the_input_of_a_condition(suite: ContractSession, count: int, status: str) -> None:
    pattern = {"lines": ["x" * count], "nothing": None}
    run = joined(suite, ("n: lines nothing gone", {"required_input_pattern": pattern}))
    with limited(suite):
        complete_with_lines(suite, run, "lines")

    assert suite.statuses(run)["n"] == status


def test_the_output_of_a_run(suite: ContractSession) -> None:
    run = joined(suite)
    with limited(suite):
        complete_with_lines(suite, run, "lines")
        query = f"""
            select output = jsonb_build_object('nothing', null, 'lines', {LINES})
              from pgflow.runs where run_id = %s and status = 'completed'
        """

        assert suite.column(query, run) == [True]


def test_the_output_of_a_map_whose_elements_are_lists(suite: ContractSession) -> None:
    suite.flow("f", "m*")
    run = suite.start("f", [1, 2, 3])
    suite.claim("f")
    suite.complete(run, "m", sql_null=True, index=2)
    suite.complete(run, "m", {"a": [None, 1.50, "ä"]}, index=1)
    with limited(suite):
        complete_with_lines(suite, run, "m")
        query = f"""
            select output = jsonb_build_array({LINES}, '{{"a": [null, 1.50, "ä"]}}'::jsonb, null)
              from pgflow.step_states where run_id = %s and status = 'completed'
        """

        assert suite.column(query, run) == [True]
        assert suite.column("select * from pgflowd.violations()") == []


def test_a_run_with_its_states(suite: ContractSession) -> None:
    suite.flow("f", "lines", "n: lines")
    run = suite.start("f")
    suite.claim("f")
    with limited(suite):
        complete_with_lines(suite, run, "lines")
        query = f"""
            select array_agg(step ->> 'status' order by step ->> 'step_slug')
                   || array_agg((step -> 'output' = {LINES})::text order by step ->> 'step_slug')
              from jsonb_array_elements(pgflow.get_run_with_states(%s) -> 'steps') as step
        """

        assert suite.value(query, run) == ["completed", "started", "true", "false"]


@pytest.mark.parametrize("platform", ["suite", "plain"])
def test_the_events_of_a_run_and_its_steps(platform: str, request: pytest.FixtureRequest) -> None:
    session: ContractSession = request.getfixturevalue(platform)
    session.flow("f", "lines")
    with limited(session):
        query = f"select run_id from pgflow.start_flow('f', {LINES})"
        run = session.value(query)
        session.claim("f")
        complete_with_lines(session, run, "lines")

    assert session.status(run) == "completed"
