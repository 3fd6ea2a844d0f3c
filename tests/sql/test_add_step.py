"""Steps and deps."""

import psycopg
import pytest
from psycopg.types.json import Jsonb


@pytest.fixture
def flow(suite):
    return suite.flow("f")


def test_a_step_has_the_published_defaults(suite, flow):
    row = suite.row("select * from pgflow.add_step('f', 'a')")

    assert row["created_at"] == suite.value("select now()")
    wanted = {
        "flow_slug": "f", "step_slug": "a", "step_type": "single", "step_index": 0,
        "deps_count": 0, "opt_max_attempts": None, "opt_base_delay": None, "opt_timeout": None,
        "opt_start_delay": None, "required_input_pattern": None, "forbidden_input_pattern": None,
        "when_unmet": "skip", "when_exhausted": "fail",
    }  # fmt: skip
    assert {key: row[key] for key in wanted} == wanted
    assert suite.row("select * from pgflow.steps") == row


def test_all_options_are_given_by_position_as_untyped_literals(suite, flow):
    suite.step(flow, "a")

    row = suite.row(
        """select * from pgflow.add_step('f', 'b', '{a}', 1, 2, 3, 4, 'map',
             '{"a": [1]}', '{"b": 2}', 'fail', 'skip-cascade')"""
    )

    assert row["deps_count"] == 1 and row["step_index"] == 1 and row["step_type"] == "map"
    assert [row[f"opt_{name}"] for name in ("max_attempts", "base_delay", "timeout")] == [1, 2, 3]
    assert row["opt_start_delay"] == 4
    assert row["required_input_pattern"] == {"a": [1]}
    assert row["forbidden_input_pattern"] == {"b": 2}
    assert (row["when_unmet"], row["when_exhausted"]) == ("fail", "skip-cascade")


def test_all_options_are_given_by_name(suite, flow):
    row = suite.row(
        """select * from pgflow.add_step(flow_slug => 'f', step_slug => 'a',
             deps_slugs => '{}', max_attempts => 1, base_delay => 2, timeout => 3,
             start_delay => 4, step_type => 'map', required_input_pattern => '{"a": 1}',
             forbidden_input_pattern => '{"b": 2}', when_unmet => 'skip-cascade',
             when_exhausted => 'skip')"""
    )

    assert row["step_type"] == "map" and row["opt_start_delay"] == 4
    assert (row["when_unmet"], row["when_exhausted"]) == ("skip-cascade", "skip")


def test_deps_given_as_an_untyped_array(suite, flow):
    suite.do("select pgflow.add_step('f', 'a')")
    suite.do("select pgflow.add_step('f', 'b', ARRAY['a'])")
    suite.do("select pgflow.add_step('f', 'c', ARRAY['a', 'b'], timeout => 9)")

    assert suite.rows(
        "select flow_slug, dep_slug, step_slug from pgflow.deps order by step_slug, dep_slug"
    ) == [
        {"flow_slug": "f", "dep_slug": "a", "step_slug": "b"},
        {"flow_slug": "f", "dep_slug": "a", "step_slug": "c"},
        {"flow_slug": "f", "dep_slug": "b", "step_slug": "c"},
    ]
    assert suite.column("select deps_count from pgflow.steps order by step_index") == [0, 1, 2]


def test_the_index_counts_up_per_flow(suite, flow):
    suite.flow("g")
    for slug in ("f", "f", "g", "f"):
        suite.step(slug, f"s{suite.value('select count(*) from pgflow.steps')}")

    assert suite.column("select step_index from pgflow.steps where flow_slug = 'f' order by 1") == [
        0,
        1,
        2,
    ]
    assert suite.column("select step_index from pgflow.steps where flow_slug = 'g'") == [0]


def test_the_index_is_one_more_than_the_greatest(suite, flow):
    suite.do("insert into pgflow.steps (flow_slug, step_slug, step_index) values ('f', 'a', 7)")

    assert suite.step(flow, "b")["step_index"] == 8


def test_null_step_type_means_single_and_null_deps_mean_none(suite, flow):
    row = suite.row("select * from pgflow.add_step('f', 'a', null, step_type => null)")

    assert (row["step_type"], row["deps_count"]) == ("single", 0)


def test_a_second_call_changes_nothing_and_returns_the_first_step(suite, flow):
    first = suite.step(flow, "a", max_attempts=2, when_unmet="fail", start_delay=3)

    second = suite.step(
        flow, "a", max_attempts=5, when_unmet="skip", start_delay=9, step_type="map"
    )

    assert second == first
    assert suite.rows("select * from pgflow.steps") == [first]


def test_a_second_call_with_the_same_deps_changes_nothing(suite, flow):
    suite.step(flow, "a")
    first = suite.step(flow, "b: a")

    assert suite.step(flow, "b: a") == first
    assert suite.value("select count(*) from pgflow.deps") == 1


def test_a_map_with_two_dependencies_is_refused(suite, flow):
    suite.step(flow, "a")
    suite.step(flow, "b")

    error = suite.error("select pgflow.add_step('f', 'm', '{a,b}', step_type => 'map')")

    assert isinstance(error, psycopg.errors.RaiseException)
    assert error.diag.message_primary == (
        'Map step "m" can have at most one dependency, but 2 were provided: a, b'
    )
    assert suite.value("select count(*) from pgflow.steps") == 2


def test_the_refusal_of_a_map_names_all_dependencies_as_given(suite, flow):
    error = suite.error("select pgflow.add_step('f', 'm', '{c,a,b}', step_type => 'map')")

    assert error.diag.message_primary == (
        'Map step "m" can have at most one dependency, but 3 were provided: c, a, b'
    )


def test_a_map_may_have_one_dependency_or_none(suite, flow):
    assert suite.step(flow, "a*")["deps_count"] == 0
    assert suite.step(flow, "b*: a")["deps_count"] == 1


def test_an_unknown_dependency_violates_the_foreign_key(suite, flow):
    error = suite.error("select pgflow.add_step('f', 'a', '{nobody}')")

    assert isinstance(error, psycopg.errors.ForeignKeyViolation)
    assert error.diag.message_primary == (
        'insert or update on table "deps" violates foreign key constraint'
        ' "deps_flow_slug_dep_slug_fkey"'
    )
    assert suite.value("select count(*) from pgflow.steps") == 0


def test_an_unknown_flow_violates_the_foreign_key(suite):
    error = suite.error("select pgflow.add_step('nobody', 'a')")

    assert isinstance(error, psycopg.errors.ForeignKeyViolation)
    assert error.diag.message_primary == (
        'insert or update on table "steps" violates foreign key constraint "steps_flow_slug_fkey"'
    )


def test_a_step_cannot_depend_on_itself(suite, flow):
    error = suite.error("select pgflow.add_step('f', 'a', '{a}')")

    assert isinstance(error, psycopg.errors.CheckViolation)
    assert error.diag.message_primary == (
        'new row for relation "deps" violates check constraint "deps_check"'
    )


@pytest.mark.parametrize("slug", ["", "1a", "run", "a-b", "a b", "ä", "x'; drop", "a" * 129])
def test_an_illegal_slug_violates_its_check(suite, flow, slug):
    error = suite.error("select pgflow.add_step('f', %s)", slug)

    assert isinstance(error, psycopg.errors.CheckViolation)
    assert error.diag.message_primary == (
        'new row for relation "steps" violates check constraint "steps_step_slug_check"'
    )


def test_a_step_slug_may_have_128_characters(suite, flow):
    assert suite.step(flow, "s" * 128)["step_slug"] == "s" * 128


@pytest.mark.parametrize(
    ("option", "value", "constraint"),
    [
        ("step_type", "'loop'", "steps_step_type_check"),
        ("when_unmet", "'never'", "when_unmet_is_valid"),
        ("when_exhausted", "'never'", "when_exhausted_is_valid"),
        ("required_input_pattern", "'[]'", "required_input_pattern_is_object"),
        ("required_input_pattern", "'\"x\"'", "required_input_pattern_is_object"),
        ("required_input_pattern", "'null'", "required_input_pattern_is_object"),
        ("forbidden_input_pattern", "'1'", "forbidden_input_pattern_is_object"),
        ("start_delay", "-1", "opt_start_delay_is_nonnegative"),
        ("max_attempts", "-1", "opt_max_attempts_is_nonnegative"),
        ("base_delay", "-1", "opt_base_delay_is_nonnegative"),
        ("timeout", "0", "opt_timeout_is_positive"),
    ],
)
def test_bad_options_violate_their_constraints(suite, flow, option, value, constraint):
    error = suite.error(f"select pgflow.add_step('f', 'a', {option} => {value})")

    assert isinstance(error, psycopg.errors.CheckViolation)
    assert error.diag.message_primary == (
        f'new row for relation "steps" violates check constraint "{constraint}"'
    )


def test_the_same_index_twice_violates_its_key(suite, flow):
    suite.step(flow, "a")

    error = suite.error(
        "insert into pgflow.steps (flow_slug, step_slug, step_index) values ('f', 'b', 0)"
    )

    assert isinstance(error, psycopg.errors.UniqueViolation)
    assert error.diag.message_primary == (
        'duplicate key value violates unique constraint "steps_flow_slug_step_index_key"'
    )


def test_a_repeated_dependency_counts_once(suite, flow):
    suite.step(flow, "a")

    row = suite.row("select * from pgflow.add_step('f', 'b', '{a,a}')")

    assert row["deps_count"] == 1
    assert suite.value("select count(*) from pgflow.deps") == 1


def test_a_later_call_with_other_dependencies_does_not_start_the_step_too_early(suite, flow):
    for text in ("a", "b", "c: a"):
        suite.step(flow, text)

    error = None
    try:
        with suite.conn.transaction():
            suite.step(flow, "c: a b")
    except psycopg.Error as raised:
        error = raised

    assert error is not None, "a change of an existing step's deps is refused"
    counted = suite.value("select deps_count from pgflow.steps where step_slug = 'c'")
    assert counted == suite.value("select count(*) from pgflow.deps where step_slug = 'c'")


def test_patterns_are_stored_as_given(suite, flow):
    pattern = {"plan": {"name": "pro", "seats": [1, 2]}}
    row = suite.row(
        "select * from pgflow.add_step('f', 'a', required_input_pattern => %s)", Jsonb(pattern)
    )

    assert row["required_input_pattern"] == pattern


def test_two_steps_added_at_once_get_two_indexes(shared):
    shared.flow("f")
    one, two = shared.session(), shared.session()
    one.step("f", "a")

    added = shared.session()
    two.do("set local lock_timeout = '300ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        two.step("f", "b")
    two.conn.rollback()
    one.conn.commit()

    assert added.step("f", "b")["step_index"] == 1


def test_one_slug_may_be_a_step_of_two_flows(suite, flow):
    suite.flow("g", "a", "b: a")
    suite.step(flow, "a")

    assert suite.value("select count(*) from pgflow.steps where step_slug = 'a'") == 2
