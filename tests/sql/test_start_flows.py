"""The batch form of start_flow: many runs in one call, by the same rules."""

import uuid

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support.contract import broken_invariants


def start_flows(suite, slug, inputs, run_ids=None):
    return suite.rows(
        "select * from pgflow.start_flows(%s, %s::jsonb[], %s::uuid[])",
        slug,
        [Jsonb(one) for one in inputs],
        run_ids,
    )


def test_each_input_starts_a_run_in_its_order(suite):
    suite.flow("f", "a", "b: a")

    rows = start_flows(suite, "f", [{"n": n} for n in range(5)])

    assert [row["input"] for row in rows] == [{"n": n} for n in range(5)]
    assert {(row["status"], row["remaining_steps"]) for row in rows} == {("started", 2)}
    assert len(suite.active("f")) == 5
    assert broken_invariants(suite) == []


def test_run_ids_are_kept_and_nulls_filled_in(suite):
    suite.flow("f", "a")
    first, third = uuid.uuid4(), uuid.uuid4()

    rows = start_flows(suite, "f", [1, 2, 3], [first, None, third])

    assert [row["run_id"] for row in rows][::2] == [first, third]
    assert [row["input"] for row in rows] == [1, 2, 3]
    assert len({row["run_id"] for row in rows}) == 3


def test_no_inputs_start_nothing(suite):
    suite.flow("f", "a")

    assert start_flows(suite, "f", []) == []
    assert suite.value("select count(*) from pgflow.runs") == 0


def test_runs_of_one_call_go_different_ways(suite):
    suite.flow(
        "f",
        "m*",
        ("s", {"required_input_pattern": {"x": 1}}),
        "z: m",
    )

    rows = start_flows(suite, "f", [[], [1], [1, 2]])

    assert [row["status"] for row in rows] == ["started", "started", "started"]
    ways = [suite.statuses(row["run_id"]) for row in rows]
    assert ways == [
        {"m": "completed", "s": "skipped", "z": "started"},
        {"m": "started", "s": "skipped", "z": "created"},
        {"m": "started", "s": "skipped", "z": "created"},
    ]
    assert broken_invariants(suite) == []


def test_each_run_has_the_events_of_one_started_alone(suite):
    suite.flow("f", "a", "m*: a")
    alone = suite.start("f", {"x": 1})

    rows = start_flows(suite, "f", [{"x": 1}, {"x": 1}])

    for row in rows:
        assert suite.events(row["run_id"]) == suite.events(alone)
        assert suite.statuses(row["run_id"]) == suite.statuses(alone)


def test_one_bad_input_starts_none(suite):
    suite.flow("f", "m*")

    error = suite.error(
        "select pgflow.start_flows('f', %s::jsonb[])", [Jsonb([1]), Jsonb({"no": "array"})]
    )

    assert error.diag.message_primary == (
        "Flow f has root map steps but input is not an array (got object)"
    )
    assert suite.value("select count(*) from pgflow.runs") == 0


@pytest.mark.parametrize("count", [0, 2])
def test_an_unknown_flow_violates_the_foreign_key_or_starts_nothing(suite, count):
    try:
        with suite.conn.transaction():
            assert start_flows(suite, "nobody", [{}] * count) == []
    except psycopg.errors.ForeignKeyViolation as error:
        assert count and error.diag.constraint_name == "runs_flow_slug_fkey"


def test_a_known_run_id_starts_none(suite):
    suite.flow("f", "a")
    run = suite.start("f")

    error = suite.error(
        "select pgflow.start_flows('f', %s::jsonb[], %s::uuid[])",
        [Jsonb({}), Jsonb({})],
        [uuid.uuid4(), run],
    )

    assert error.diag.constraint_name == "runs_pkey"
    assert suite.value("select count(*) from pgflow.runs") == 1
