"""A flow and its queue."""

import psycopg
import pytest


def test_a_flow_is_returned_with_3_attempts_5_seconds_and_a_timeout_of_60(suite):
    row = suite.row("select * from pgflow.create_flow('f')")

    assert (row["opt_max_attempts"], row["opt_base_delay"], row["opt_timeout"]) == (3, 5, 60)
    assert row["flow_slug"] == "f"
    assert row["created_at"] == suite.value("select now()")
    assert suite.value("select count(*) from pgflow.flows") == 1


def test_nulls_mean_the_defaults(suite):
    row = suite.row("select * from pgflow.create_flow('f', null, null, null)")

    assert (row["opt_max_attempts"], row["opt_base_delay"], row["opt_timeout"]) == (3, 5, 60)


def test_the_column_defaults_differ_from_the_functions(suite):
    row = suite.row("insert into pgflow.flows (flow_slug) values ('f') returning *")

    assert (row["opt_max_attempts"], row["opt_base_delay"], row["opt_timeout"]) == (3, 1, 60)


def test_options_are_given_by_position_and_by_name(suite):
    by_position = suite.row("select * from pgflow.create_flow('f', 7, 8, 9)")
    by_name = suite.row(
        "select * from pgflow.create_flow(flow_slug => 'g', timeout => 9, base_delay => 8,"
        " max_attempts => 7)"
    )

    for row in (by_position, by_name):
        assert (row["opt_max_attempts"], row["opt_base_delay"], row["opt_timeout"]) == (7, 8, 9)


def test_zero_attempts_and_no_delay_are_allowed(suite):
    row = suite.row("select * from pgflow.create_flow('f', 0, 0, 1)")

    assert (row["opt_max_attempts"], row["opt_base_delay"], row["opt_timeout"]) == (0, 0, 1)


def test_a_second_call_returns_the_flow_unchanged(suite):
    first = suite.row("select * from pgflow.create_flow('f', 7, 8, 9)")

    second = suite.row("select * from pgflow.create_flow('f', 1, 1, 1)")

    assert second == first
    assert suite.row("select * from pgflow.flows") == first


def test_the_queue_is_named_as_the_flow(suite):
    suite.do("select pgflow.create_flow('orders')")

    assert suite.column("select queue_name::text from pgmq.list_queues()") == ["orders"]
    assert suite.queue("orders") == [] and suite.archive("orders") == []


def test_a_second_call_keeps_the_messages_of_the_queue(suite):
    suite.do("select pgflow.create_flow('f')")
    suite.do("select pgmq.send('f', '{}')")

    suite.do("select pgflow.create_flow('f')")

    assert len(suite.queue("f")) == 1


def test_a_queue_that_was_there_before_is_used(suite):
    suite.do("select pgmq.create('f')")

    suite.do("select pgflow.create_flow('f')")

    assert suite.column("select queue_name::text from pgmq.list_queues()") == ["f"]


def test_a_lost_queue_is_made_again(suite):
    suite.do("select pgflow.create_flow('f')")
    suite.do("select pgmq.drop_queue('f')")

    suite.do("select pgflow.create_flow('f')")

    assert suite.queue("f") == []


@pytest.mark.parametrize("slug", ["", "1a", "run", "a-b", "a b", "a" * 129, 'x"; drop table x; --'])
def test_an_illegal_slug_violates_slug_is_valid(suite, slug):
    error = suite.error("select pgflow.create_flow(%s)", slug)

    assert isinstance(error, psycopg.errors.CheckViolation)
    assert (
        error.diag.message_primary
        == 'new row for relation "flows" violates check constraint "slug_is_valid"'
    )
    assert suite.column("select queue_name from pgmq.list_queues()") == []


def test_a_null_slug_is_refused(suite):
    assert isinstance(suite.error("select pgflow.create_flow(null)"), psycopg.errors.IntegrityError)


@pytest.mark.parametrize(
    ("options", "constraint"),
    [
        ("max_attempts => -1", "opt_max_attempts_is_nonnegative"),
        ("base_delay => -1", "opt_base_delay_is_nonnegative"),
        ("timeout => 0", "opt_timeout_is_positive"),
        ("timeout => -1", "opt_timeout_is_positive"),
    ],
)
def test_bad_options_violate_their_constraints(suite, options, constraint):
    error = suite.error(f"select pgflow.create_flow('f', {options})")

    assert isinstance(error, psycopg.errors.CheckViolation)
    assert error.diag.constraint_name == constraint


def test_47_characters_make_a_queue_and_48_are_refused_clearly(suite):
    suite.do("select pgflow.create_flow(%s)", "a" * 47)
    assert suite.queue("a" * 47) == []

    error = suite.error("select pgflow.create_flow(%s)", "b" * 48)

    assert "47" in error.diag.message_primary


def test_capitals_make_a_queue_in_lower_case(suite):
    row = suite.row("select * from pgflow.create_flow('MyFlow')")

    assert row["flow_slug"] == "MyFlow"
    assert suite.value("select to_regclass('pgmq.q_myflow') is not null")
    assert len(suite.column("select queue_name from pgmq.list_queues()")) == 1
    assert suite.row("select * from pgflow.create_flow('MyFlow')") == row


def test_two_flows_equal_but_for_case_are_refused(suite):
    suite.do("select pgflow.create_flow('MyFlow')")

    error = suite.error("select pgflow.create_flow('myflow')")

    assert "MyFlow" in str(error)
    assert suite.column("select flow_slug from pgflow.flows") == ["MyFlow"]


def test_the_same_flow_may_be_created_twice_at_once(shared):
    one, two = shared.session(), shared.session(autocommit=True)
    one.do("select pgflow.create_flow('f')")
    two.do("set lock_timeout = '200ms'")

    with pytest.raises(psycopg.errors.LockNotAvailable):
        two.do("select pgflow.create_flow('f')")
    one.conn.commit()

    assert two.row("select * from pgflow.create_flow('f', 9)")["opt_max_attempts"] == 3
