"""Bad input gets the contract's error and changes nothing."""

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.covers import covers

HOSTILE = [
    'x"; drop table pgflow.runs; --',
    "x'; drop table pgflow.runs; --",
    "$$; drop table pgflow.runs; $$",
    "q f",
    "pgmq.q_f",
    "a.b",
    "%s",
    "{}",
    "\\",
    "x\ny",
    "run",
    " ",
    "a" * 5000,
    "‮evil",
]
CALLS = [
    "select pgflow.create_flow(%s)",
    "select pgflow.add_step('f', %s)",
    "select pgflow.add_step(%s, 'a')",
    "select pgflow.add_step('f', 'z', array[%s])",
    "select pgflow.start_flow(%s, '{}')",
    "select pgflow.start_flow_with_states(%s, '{}')",
    "select * from pgflow.start_tasks(%s, '{1,2}', gen_random_uuid())",
    "select * from pgflow.set_vt_batch(%s, '{1}', '{1}')",
    "select pgflow.delete_flow_and_data(%s)",
    "select pgflow._get_flow_shape(%s)",
    "select pgflow.complete_task((select run_id from pgflow.runs), %s, 0, '1')",
    "select pgflow.fail_task((select run_id from pgflow.runs), %s, 0, 'x')",
    "select pgflow._cascade_force_skip_steps((select run_id from pgflow.runs), %s, 'x')",
    "select pgflow._archive_task_message((select run_id from pgflow.runs), %s, 0)",
    "select pgflow.get_step_output((select run_id from pgflow.runs), %s)",
    "select pgflow.flow_exists(%s)",
]


@pytest.fixture
def running(suite):
    suite.flow("f", "a", "b: a")
    suite.start("f")
    return suite


@covers("row 107")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_slug_is_a_value_and_nothing_more(running, call, text):
    before = running.snapshot()

    try:
        with running.conn.transaction():
            running.do(call, text)
    except psycopg.Error as error:
        assert error.sqlstate[:2] in ("22", "23", "42", "P0"), error

    assert running.snapshot() == before


@pytest.mark.parametrize("call", CALLS)
def test_a_null_slug_changes_nothing(running, call):
    before = running.snapshot()

    try:
        with running.conn.transaction():
            running.do(call.replace("%s", "null"))
    except psycopg.Error as error:
        assert error.sqlstate[:2] in ("22", "23", "42", "P0"), error

    assert running.snapshot() == before


def test_any_text_is_a_slug_or_refused(suite):
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60))
    def judged(slug):
        try:
            with suite.conn.transaction():
                suite.do("select pgflow.create_flow(%s)", slug)
                suite.start(slug)
                suite.do("select pgflow.delete_flow_and_data(%s)", slug)
        except psycopg.Error as error:
            assert not suite.value("select pgflow.is_valid_slug(%s)", slug) or len(slug) > 47
            assert error.sqlstate[:2] in ("22", "23", "42", "P0")
        assert suite.value("select count(*) from pgflow.flows") == 0
        assert suite.rows("select * from pgmq.list_queues()") == []

    judged()


def test_nul_in_json_is_refused_by_the_type(running):
    before = running.snapshot()

    error = running.error("select pgflow.start_flow('f', '{\"x\": \"\\u0000\"}')")

    assert isinstance(error, psycopg.errors.UntranslatableCharacter)
    assert running.snapshot() == before


@pytest.mark.parametrize("text", ["{", "", "nan", "{'a': 1}", "[1,]"])
def test_text_that_is_not_json_is_refused_by_the_type(running, text):
    error = running.error("select pgflow.start_flow('f', %s::jsonb)", text)

    assert isinstance(error, psycopg.errors.InvalidTextRepresentation)


def test_a_text_is_not_a_uuid(running):
    error = running.error("select pgflow.complete_task('not a uuid', 'a', 0, '1')")

    assert isinstance(error, psycopg.errors.InvalidTextRepresentation)


@pytest.mark.parametrize(
    "arguments", ["null, 'a', 0, '1'", "%s, null, 0, '1'", "%s, 'a', null, '1'", "%s, 'a', -1, '1'"]
)
def test_a_report_with_nulls_finds_nothing(running, arguments):
    run = running.value("select run_id from pgflow.runs")
    before = running.snapshot()
    query = arguments.replace("%s", f"'{run}'")

    assert running.rows(f"select * from pgflow.complete_task({query})") == []
    assert running.rows(f"select * from pgflow.fail_task({query})") == []
    assert running.snapshot() == before


def test_a_failure_without_a_message_is_a_failure(suite):
    suite.flow("f", "a", max_attempts=1)
    run = suite.start("f")
    suite.claim("f")

    (row,) = suite.rows("select * from pgflow.fail_task(%s, 'a', 0, null)", run)

    assert row["status"] == "failed"
    assert suite.run(run)["status"] == "failed"


def test_huge_json_passes_unharmed(suite):
    suite.flow("f", "a", "m*: a")
    given_ = {"text": "ä" * 1_000_000, "list": list(range(50_000))}
    run = suite.start("f", given_)

    (record,) = suite.claim("f")
    assert record["flow_input"] == given_
    suite.complete(run, "a", ["b" * 2_000_000, 1])
    first, _second = suite.claim("f")

    assert len(first["input"]) == 2_000_000


def test_deep_json_passes_unharmed(suite):
    depth = 4_000
    suite.flow("f", "a", "b: a")
    run = suite.row(
        "select run_id from pgflow.start_flow('f', %s::jsonb)", "[" * depth + "]" * depth
    )["run_id"]

    text = suite.value(
        "select flow_input::text from pgflow.start_tasks('f', %s, %s)",
        suite.active("f"),
        suite.worker("f"),
    )
    suite.do("select pgflow.complete_task(%s, 'a', 0, %s::jsonb)", run, "[" * depth + "]" * depth)

    assert text == "[" * depth + "]" * depth
    assert suite.statuses(run)["b"] == "started"


@pytest.mark.parametrize("number", ["1e400", "-0.0", "1" * 60, "0.1000000000000000000001"])
def test_numbers_are_not_rounded(suite, number):
    suite.flow("f", "m*", "a: m")
    run = suite.value("select run_id from pgflow.start_flow('f', %s::jsonb)", f"[{number}]")

    same = suite.value(
        "select input = %s::jsonb from pgflow.start_tasks('f', %s, %s)",
        number,
        suite.active("f"),
        suite.worker("f"),
    )

    assert same and run


@pytest.mark.parametrize("key", ["__proto__", "constructor", "$ref", "run", "", "a b", "\n", "ä"])
def test_odd_keys_are_plain_data(suite, key):
    suite.flow("f", "a", "b: a")
    run = suite.start("f", {key: {key: 1}})
    assert suite.claim("f")[0]["flow_input"] == {key: {key: 1}}

    suite.complete(run, "a", {key: [key]})

    assert suite.claim("f")[0]["input"] == {"a": {key: [key]}}


def test_a_shape_that_is_none_creates_nothing(suite):
    for shape in ("null", "[]", '"x"', '{"steps": {}}', '{"steps": 1}', '{"steps": [1]}'):
        try:
            with suite.conn.transaction():
                suite.do("select pgflow._create_flow_from_shape('f', %s::jsonb)", shape)
                assert suite.value("select count(*) from pgflow.steps") == 0
                raise psycopg.Rollback
        except psycopg.Error as error:
            assert error.sqlstate[:2] in ("22", "23", "42", "P0"), (shape, error)


def test_a_cycle_cannot_be_expressed(suite):
    suite.flow("f", "a")
    before = suite.snapshot()

    assert "deps_check" in str(suite.error("select pgflow.add_step('f', 'b', '{b}')"))
    assert "deps_flow_slug_dep_slug_fkey" in str(
        suite.error("select pgflow.add_step('f', 'b', '{a, c}')")
    )
    assert suite.snapshot() == before


def test_reports_on_another_flow_s_run_touch_only_that(suite):
    for slug in ("f", "g"):
        suite.flow(slug, "a")
    run = suite.start("f")
    other = suite.start("g")
    suite.claim("f")

    suite.complete(run, "a", 1)

    assert suite.run(other)["status"] == "started"
    assert len(suite.active("g")) == 1
