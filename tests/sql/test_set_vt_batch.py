"""Many visibilities at once."""

import psycopg
import pytest


@pytest.fixture
def ids(suite):
    suite.flow("f")
    return suite.column("select * from pgmq.send_batch('f', array['{}', '{}', '{}']::jsonb[])")


def test_each_message_gets_its_own(suite, ids):
    rows = suite.rows(
        "select * from pgflow.set_vt_batch(queue_name => 'f', msg_ids => %s, vt_offsets => %s)",
        ids,
        [10, 100, 0],
    )

    assert sorted(row["msg_id"] for row in rows) == ids
    assert [round(suite.delay("f", msg_id)) for msg_id in ids] == [10, 100, 0]
    assert {row["msg_id"]: row["vt"] for row in rows} == {
        row["msg_id"]: row["vt"] for row in suite.queue("f")
    }


def test_the_columns_are_these(suite, ids):
    (row, *_rest) = suite.rows("select * from pgflow.set_vt_batch('f', %s, %s)", ids, [1, 1, 1])

    assert list(row) == ["msg_id", "read_ct", "enqueued_at", "vt", "message", "headers"]
    assert (row["read_ct"], row["message"], row["headers"]) == (0, {}, None)


def test_unknown_messages_are_passed_over(suite, ids):
    rows = suite.rows("select * from pgflow.set_vt_batch('f', %s, %s)", [ids[1], 999], [5, 5])

    assert [row["msg_id"] for row in rows] == [ids[1]]


def test_a_negative_offset_is_the_past(suite, ids):
    suite.rows("select * from pgflow.set_vt_batch('f', %s, %s)", ids[:1], [-5])

    assert suite.delay("f", ids[0]) < -4


@pytest.mark.parametrize(
    "arguments", ["null, '{1}', '{1}'", "'f', null, '{1}'", "'f', '{1}', null", "'f', '{}', '{}'"]
)
def test_null_or_empty_returns_nothing(suite, ids, arguments):
    assert suite.rows(f"select * from pgflow.set_vt_batch({arguments})") == []


def test_different_lengths_raise(suite, ids):
    error = suite.error("select * from pgflow.set_vt_batch('f', '{1,2}', '{1}')")

    assert error.diag.message_primary == "msg_ids length (2) must equal vt_offsets length (1)"


def test_an_unknown_queue_is_an_unknown_relation(suite):
    error = suite.error("select * from pgflow.set_vt_batch('nobody', '{1}', '{1}')")

    assert isinstance(error, psycopg.errors.UndefinedTable)
    assert error.diag.message_primary == 'relation "pgmq.q_nobody" does not exist'


def test_hostile_names_stay_names(suite, ids):
    for name in ('f"; drop table pgflow.runs; --', "f' or true", 'a"b'):
        error = suite.error("select * from pgflow.set_vt_batch(%s, '{1}', '{1}')", name)
        assert isinstance(error, psycopg.Error)
    assert suite.value("select count(*) from pgflow.runs") == 0


def test_capitals_reach_the_queue_in_lower_case(suite):
    suite.flow("MyFlow", "a")
    suite.start("MyFlow")

    rows = suite.rows("select * from pgflow.set_vt_batch('MyFlow', %s, '{50}')", [1])

    assert len(rows) == 1


def test_read_count_stays(suite, ids):
    suite.read("f")

    suite.rows("select * from pgflow.set_vt_batch('f', %s, %s)", ids, [0, 0, 0])

    assert [row["read_ct"] for row in suite.queue("f")] == [1, 1, 1]
