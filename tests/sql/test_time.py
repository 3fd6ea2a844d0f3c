"""
Times are those of the transaction, and never run backwards between two of them.

A transaction that began earlier may come later: it waited for a lock, or a client kept it open.
Its now() is then before what others have stored meanwhile, and no constraint may break on that.
"""

import pytest


@pytest.fixture
def old(shared):
    """A session whose transaction, and so its now(), is older than all that follows."""
    session = shared.session()
    session.do("select 1")
    return session


def test_an_older_transaction_claims_a_younger_task(shared, old):
    shared.flow("f", "a")
    run = shared.start("f")
    shared.worker("f")

    assert len(old.claim("f")) == 1
    old.conn.commit()

    task = shared.task(run, "a")
    assert task["status"] == "started" and task["started_at"] == task["queued_at"]


def test_an_older_transaction_completes_a_younger_run(shared, old):
    shared.flow("f", "a", "m*: a", "n*: m", "z: n")
    run = shared.start("f")
    shared.claim("f")

    old.complete(run, "a", [])
    old.claim("f")
    old.complete(run, "z", 1)
    old.conn.commit()

    assert shared.run(run)["status"] == "completed"


def test_an_older_transaction_completes_a_younger_map(shared, old):
    shared.flow("f", "m*")
    run = shared.start("f", [1, 2])
    shared.claim("f")

    old.complete(run, "m", 1, 0)
    old.complete(run, "m", 1, 1)
    old.conn.commit()

    assert shared.run(run)["completed_at"] == shared.run(run)["started_at"]


@pytest.mark.parametrize("mode", ["fail", "skip", "skip-cascade"])
def test_an_older_transaction_fails_a_younger_task(shared, old, mode):
    shared.flow("f", ("a", {"when_exhausted": mode}), "b: a", "c", max_attempts=1)
    run = shared.start("f")
    shared.claim("f")

    old.fail(run, "a")
    old.conn.commit()

    assert shared.task(run, "a")["status"] == "failed"
    assert shared.statuses(run)["a"] == ("failed" if mode == "fail" else "skipped")


def test_an_older_transaction_finds_a_violation_in_a_younger_run(shared, old):
    shared.flow("f", "a", "m*: a")
    run = shared.start("f")
    shared.claim("f")

    old.complete(run, "a", {})
    old.conn.commit()

    assert shared.run(run)["status"] == "failed"


def test_an_older_transaction_settles_conditions_of_a_younger_run(shared, old):
    never = {"required_input_pattern": {"a": {"x": 1}}}
    shared.flow("f", "a", ("b: a", never), "c: b", ("d: c", {**never, "when_unmet": "fail"}))
    run = shared.start("f")
    shared.claim("f")

    old.complete(run, "a", 1)
    old.claim("f")
    old.complete(run, "c", 1)
    old.conn.commit()

    assert shared.statuses(run) == {
        "a": "completed",
        "b": "skipped",
        "c": "completed",
        "d": "failed",
    }


def test_an_older_transaction_recovers_nothing_that_is_young(shared, old):
    shared.flow("f", "a")
    shared.start("f")
    shared.claim("f")

    assert old.value("select pgflow.requeue_stalled_tasks()") == 0


def test_a_run_within_one_transaction_has_one_time(suite):
    suite.flow("f", "a", "m*: a")
    run = suite.start("f")
    suite.finish("f", {"a": [1, 2]})

    now = suite.value("select now()")
    moments = suite.rows(
        "select started_at, completed_at from pgflow.runs union all"
        " select started_at, completed_at from pgflow.step_states union all"
        " select started_at, completed_at from pgflow.step_tasks"
    )
    assert run and {value for row in moments for value in row.values()} == {now}
