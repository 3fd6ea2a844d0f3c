"""
Events are notified while somebody follows the run; who follows from some moment on misses nothing.

A change of a run is a transaction: it locks the run, changes it, looks for followers, commits. A
follower commits its row and then reads the run. Each test puts the follower at another moment.
"""

from __future__ import annotations

import json
import uuid

import pytest
from psycopg import IsolationLevel
from support.covers import covers
from support.rows_read import rows_by_relation, rows_read

LEVELS = list(IsolationLevel)
ENDED = "select status from pgflow.runs where run_id = %s"


@pytest.fixture
def listener(shared):
    """A session that hears of any run; returns the events of one, once they are there."""
    session = shared.session(autocommit=True)

    def listen(run, level=IsolationLevel.READ_COMMITTED):
        session.do(f"set default_transaction_isolation = '{name(level)}'")
        session.do(f'listen "pgflow:run:{run}"')
        return session

    return listen


def name(level):
    return level.name.lower().replace("_", " ")


def heard(session, count=1):
    """The events that were sent before now, of which there are so many at least."""
    session.do("listen mark")
    session.do("select pg_notify('mark', 'end')")
    found = []
    for notice in session.conn.notifies(timeout=5):
        if notice.channel == "mark":
            break
        found.append(json.loads(notice.payload)["event_type"])
    assert len(found) >= count
    return found


def follow(session, run, *, with_output=False):
    return session.value("select pgflowd.follow(%s, %s)", [run], with_output)


def begun(shared, level):
    """A transaction at this level, whose snapshot exists."""
    other = shared.session()
    other.do(f"set transaction isolation level {name(level)}")
    other.do("select count(*) from pgflow.runs")
    return other


def a_claimed_run(shared):
    shared.flow("f", "a")
    run = shared.start("f")
    shared.claim("f")
    return run


@covers("database 4")
def test_while_nobody_follows_no_event_is_sent(shared, listener):
    shared.flow("f", "a")
    run = uuid.uuid4()
    session = listener(run)

    shared.start("f", {}, run)
    shared.claim("f")
    shared.complete(run, "a", 1)

    assert shared.run(run)["status"] == "completed"
    assert heard(session, 0) == []


@pytest.mark.parametrize("level", LEVELS)
def test_a_follower_hears_of_a_run_that_a_transaction_of_any_level_ends(shared, listener, level):
    run = a_claimed_run(shared)
    session = listener(run)
    other = begun(shared, level)  # its snapshot is older than the follower's row

    assert follow(session, run)
    other.complete(run, "a", 1)
    other.conn.commit()

    assert heard(session) == ["step:completed", "run:completed"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("of_follower", LEVELS)
def test_who_follows_while_a_change_is_under_way_is_told_to_read_again(
    shared, listener, level, of_follower
):
    run = a_claimed_run(shared)
    session = listener(run, of_follower)
    other = begun(shared, level)
    other.complete(run, "a", 1)  # has looked for followers

    assert not follow(session, run)
    assert session.value(ENDED, run) == "started"
    other.conn.commit()

    assert follow(session, run)
    assert session.value(ENDED, run) == "completed"


@pytest.mark.parametrize("level", LEVELS)
def test_a_change_under_way_that_is_rolled_back_is_followed_the_next_time(shared, listener, level):
    run = a_claimed_run(shared)
    session = listener(run, level)
    other = shared.session()
    other.complete(run, "a", 1)
    assert not follow(session, run)
    other.conn.rollback()

    assert follow(session, run)
    shared.complete(run, "a", 1)

    assert heard(session)[-1] == "run:completed"


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_a_follower_whose_snapshot_is_older_than_a_change_reads_again(shared, listener, level):
    run = a_claimed_run(shared)
    session = listener(run, level)
    with session.conn.transaction():
        assert session.value(ENDED, run) == "started"
        shared.complete(run, "a", 1)

        assert not follow(session, run)

    assert session.value(ENDED, run) == "completed"


def test_a_savepoint_of_a_change_makes_no_difference(shared, listener):
    run = a_claimed_run(shared)
    session = listener(run)
    other = shared.session()
    other.do("savepoint x")
    other.complete(run, "a", 1)
    other.do("rollback to savepoint x")  # the lock is gone with it
    assert follow(session, run)

    other.complete(run, "a", 2)
    other.conn.commit()

    assert heard(session) == ["step:completed", "run:completed"]


def test_a_follower_waits_for_no_one_and_no_one_for_it(shared, listener):
    run = a_claimed_run(shared)
    first, second, other = shared.session(), shared.session(), shared.session()
    for session in (first, second):
        session.do("set local lock_timeout = '1ms'")
        assert follow(session, run)  # both hold their transactions open
    other.do("set local lock_timeout = '2s'")
    first.conn.commit()
    second.conn.commit()

    other.complete(run, "a", 1)
    other.conn.commit()


def test_a_run_that_is_followed_before_its_start_is_heard_of_from_its_start(shared, listener):
    shared.flow("f", "a")
    run = uuid.uuid4()
    session = listener(run)

    assert not follow(session, run), "a start under way may have looked already"
    shared.start("f", {}, run)

    assert heard(session) == ["run:started", "step:started"]


def test_only_events_of_followed_runs_are_sent_of_a_batch(shared, listener):
    shared.flow("f", "a", "b: a")
    followed, other = uuid.uuid4(), uuid.uuid4()
    session = listener(followed)
    session.do(f'listen "pgflow:run:{other}"')
    follow(session, followed)

    shared.do("select pgflow.start_flows('f', array['{}', '{}']::jsonb[], %s)", [other, followed])

    assert heard(session) == ["run:started", "step:started"]


def test_an_expired_follower_hears_nothing_and_its_row_is_deleted_by_the_sweep(shared, listener):
    run = a_claimed_run(shared)
    session = listener(run)
    follow(session, run)
    shared.do("update pgflowd.followers set expires_at = now() - interval '1 s'")

    shared.complete(run, "a", 1)

    assert heard(session, 0) == []
    assert shared.value("select count(*) from pgflowd.followers") == 1
    shared.do("select pgflowd.sweep()")
    assert shared.value("select count(*) from pgflowd.followers") == 0


def test_a_row_is_added_in_time_and_not_by_each_call(shared):
    count = "select count(*) from pgflowd.followers"
    run = a_claimed_run(shared)
    for _ in range(3):
        follow(shared, run)
    assert shared.value(count) == 1

    follow(shared, run, with_output=True)
    assert shared.value(count) == 2
    shared.do("update pgflowd.followers set expires_at = now() + interval '40 s'")
    follow(shared, run)

    assert shared.value(count) == 3


def test_a_follower_deletes_the_expired_rows_of_others(shared):
    shared.do(
        "insert into pgflowd.followers"
        " select gen_random_uuid(), false, now() - interval '1 s' from generate_series(1, 5)"
    )

    follow(shared, uuid.uuid4())

    assert shared.value("select count(*) from pgflowd.followers") == 1


def test_rows_that_others_are_deleting_are_skipped(shared):
    shared.do("insert into pgflowd.followers values (gen_random_uuid(), false, '-infinity')")
    other = shared.session()
    other.do("select pgflowd.sweep()")

    shared.do("set lock_timeout = '1ms'")
    follow(shared, uuid.uuid4())
    shared.do("select pgflowd.sweep()")

    assert shared.value("select count(*) from pgflowd.followers") == 2
    other.conn.commit()


def test_with_the_setting_always_all_events_are_sent(shared, listener):
    run = a_claimed_run(shared)
    session = listener(run)
    assert shared.value("""select pgflowd.set_setting('events', '"always"', 'me')""") == "followed"

    shared.complete(run, "a", 1)

    assert heard(session) == ["step:completed", "run:completed"]
    for wrong in ('"sometimes"', "true", "null"):
        error = shared.error("select pgflowd.set_setting('events', %s, 'me')", wrong)
        assert error.sqlstate == "PF020"


def test_a_cancel_is_notified_to_followers_only(shared, listener):
    run, other = a_claimed_run(shared), shared.start("f")
    session = listener(run)
    session.do(f'listen "pgflow:run:{other}"')
    follow(session, run)

    shared.do("select pgflowd.cancel(%s, 'x', 'me'), pgflowd.cancel(%s, 'x', 'me')", run, other)

    assert heard(session) == ["step:failed", "run:failed"]


def test_workers_read_which_output_is_wanted(shared):
    run, other = a_claimed_run(shared), shared.start("f")
    shared.do("listen pgflowd")

    follow(shared, run, with_output=True)
    follow(shared, other)

    assert shared.value("select pgflowd.wanted_output(10)") == [run]
    assert shared.value("select pgflowd.wanted_output(0)") == []
    (notice,) = shared.conn.notifies(timeout=5, stop_after=1)
    assert notice.payload == f"follow {run}"


def test_a_start_of_many_runs_looks_for_followers_once(shared):
    shared.flow("f", "a")
    start = "select from pgflow.start_flows('f', array_fill('{}'::jsonb, array[100]))"
    rows_read(shared.conn, start)
    query = "select seq_scan + idx_scan from pg_stat_xact_user_tables where relname = 'followers'"

    with shared.conn.transaction():
        read = rows_by_relation(shared.conn, start)
        looks = shared.value(query)

    assert looks <= 2
    assert not {name for name in read if "follower" in name}


def test_a_thousand_followers_of_others_cost_a_start_nothing(shared):
    shared.flow("f", "a")
    start = "select from pgflow.start_flow('f', '{}')"
    for _ in range(2):
        before = rows_read(shared.conn, start)
    shared.do(
        "insert into pgflowd.followers"
        " select gen_random_uuid(), false, now() + interval '1 h' from generate_series(1, 1000)"
    )

    assert rows_read(shared.conn, start) <= before + 2


def test_the_table_is_empty_after_a_crash_and_nothing_depends_on_it(shared):
    persistence = "select relpersistence from pg_class where oid = 'pgflowd.followers'::regclass"
    assert shared.value(persistence) == "u"
    run = a_claimed_run(shared)
    follow(shared, run)
    shared.do("truncate pgflowd.followers")  # as a crash does

    shared.complete(run, "a", 1)

    assert shared.run(run)["status"] == "completed"


def test_who_follows_no_run_misses_nothing(shared):
    assert shared.value("select pgflowd.follow('{}')") is True
