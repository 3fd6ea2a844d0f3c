"""A run and its step states as one document."""

import json
import uuid

from psycopg.types.json import Jsonb


def as_json(suite, query, *args):
    return suite.value(f"select coalesce(jsonb_agg(to_jsonb(t)), '[]') from ({query}) t", *args)


def by_slug(states):
    return sorted(states, key=lambda state: state["step_slug"])


def test_it_holds_all_columns_of_both(suite):
    suite.flow("f", "a", "b: a")
    run = suite.start("f", {"x": 1})

    document = suite.value("select pgflow.get_run_with_states(run_id => %s)", run)

    assert set(document) == {"run", "steps"}
    assert [document["run"]] == as_json(suite, "select * from pgflow.runs where run_id = %s", run)
    assert by_slug(document["steps"]) == by_slug(
        as_json(suite, "select * from pgflow.step_states where run_id = %s", run)
    )


def test_only_the_states_of_this_run(suite):
    suite.flow("f", "a")
    run, _other = suite.start("f"), suite.start("f")

    document = suite.value("select pgflow.get_run_with_states(%s)", run)

    assert [state["run_id"] for state in document["steps"]] == [str(run)]


def test_no_steps_give_an_empty_array(suite):
    suite.flow("f")

    document = suite.value("select pgflow.get_run_with_states(%s)", suite.start("f"))

    assert document["steps"] == []


def test_an_unknown_run_gives_sql_null(suite):
    assert suite.value("select pgflow.get_run_with_states(%s)", uuid.uuid4()) is None


def test_a_run_is_started_and_returned_with_its_states(suite):
    suite.flow("f", "a", "b: a")
    run = uuid.uuid4()

    document = suite.value(
        "select pgflow.start_flow_with_states(flow_slug => 'f', input => '{\"x\": 1}',"
        " run_id => %s)",
        run,
    )

    assert document == suite.value("select pgflow.get_run_with_states(%s)", run)
    assert document["run"]["run_id"] == str(run) and document["run"]["input"] == {"x": 1}
    assert {state["step_slug"]: state["status"] for state in document["steps"]} == {
        "a": "started",
        "b": "created",
    }
    assert len(suite.queue("f")) == 1


def test_the_run_id_may_be_left_out(suite):
    suite.flow("f", "a")

    document = suite.value("select pgflow.start_flow_with_states('f', '{}')")

    assert document["run"]["run_id"] == str(suite.value("select run_id from pgflow.runs"))


def test_a_run_that_ends_at_once_is_returned_so(suite):
    suite.flow("f", "m*")

    document = suite.value("select pgflow.start_flow_with_states('f', '[]')")

    assert document["run"]["status"] == "completed"
    assert [state["status"] for state in document["steps"]] == ["completed"]


def test_errors_of_start_flow_pass_through(suite):
    suite.flow("f", "m*")

    error = suite.error("select pgflow.start_flow_with_states('f', %s)", Jsonb({}))

    assert error.diag.message_primary == (
        "Flow f has root map steps but input is not an array (got object)"
    )


def test_the_document_is_plain_json(suite):
    suite.flow("f", "a")
    run = suite.start("f", {"text": 'ä"\\'})

    text = suite.value("select pgflow.get_run_with_states(%s)::text", run)

    assert json.loads(text)["run"]["input"] == {"text": 'ä"\\'}
