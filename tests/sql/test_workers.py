"""Workers, their functions, and whether this is a local database."""

import uuid

import pytest

LOCAL_SECRET = "super-secret-jwt-token-with-at-least-32-characters-long"


def function(suite, name="one"):
    return suite.row("select * from pgflow.worker_functions where function_name = %s", name)


def test_a_worker_inserts_itself_with_three_columns(suite):
    worker = suite.worker("f", uuid.uuid4())

    row = suite.row("select * from pgflow.workers")
    assert row["worker_id"] == worker
    assert row["started_at"] == row["last_heartbeat_at"] == suite.value("select now()")
    assert row["deprecated_at"] is None and row["stopped_at"] is None


def test_a_heartbeat_returns_whether_the_worker_is_deprecated(suite):
    worker = suite.worker("f")

    beat = (
        "update pgflow.workers set last_heartbeat_at = clock_timestamp() where worker_id = %s"
        " returning deprecated_at is not null"
    )
    assert suite.value(beat, worker) is False
    suite.do("update pgflow.workers set deprecated_at = now()")
    assert suite.value(beat, worker) is True


def test_mark_worker_stopped_uses_the_clock(suite):
    worker, other = suite.worker("f"), suite.worker("g")

    suite.do("select pgflow.mark_worker_stopped(worker_id => %s)", worker)

    assert suite.value("select stopped_at > now() from pgflow.workers where worker_id = %s", worker)
    assert suite.value("select stopped_at is null from pgflow.workers where worker_id = %s", other)


def test_mark_worker_stopped_does_not_mind_an_unknown_worker(suite):
    suite.do("select pgflow.mark_worker_stopped(%s)", uuid.uuid4())


def test_a_function_is_tracked_with_its_defaults(suite):
    suite.do("select pgflow.track_worker_function(function_name => 'one')")

    row = function(suite)
    assert row["enabled"] is True and row["debounce"].total_seconds() == 6
    assert row["last_invoked_at"] is None
    assert row["updated_at"] >= suite.value("select now()")


def test_tracking_again_touches_updated_at_only(suite):
    suite.do("select pgflow.track_worker_function('one')")
    suite.do(
        "update pgflow.worker_functions set enabled = false, debounce = interval '1 minute',"
        " last_invoked_at = now() - interval '1 day', updated_at = now() - interval '1 day',"
        " created_at = now() - interval '2 days'"
    )
    before = function(suite)

    suite.do("select pgflow.track_worker_function('one')")

    after = function(suite)
    assert after.pop("updated_at") > suite.value("select now()")
    before.pop("updated_at")
    assert after == before


def test_tracking_again_without_a_start_mode_keeps_the_one_known(suite):
    suite.do("select pgflow.track_worker_function('one', 'process')")

    suite.do("select pgflow.track_worker_function('one', 'process')")

    assert function(suite)["start_mode"] == "process"


def test_a_debounce_below_a_second_is_refused(suite):
    suite.do("select pgflow.track_worker_function('one')")

    error = suite.error("update pgflow.worker_functions set debounce = '999 milliseconds'")

    assert error.diag.constraint_name == "worker_functions_debounce_check"


@pytest.mark.parametrize(
    ("secret", "local"),
    [(LOCAL_SECRET, True), ("another", False), ("", False), (LOCAL_SECRET + " ", False)],
)
def test_a_local_database_is_known_by_its_secret(suite, secret, local):
    suite.do("select set_config('app.settings.jwt_secret', %s, true)", secret)

    assert suite.value("select pgflow.is_local()") is local


def test_unset_the_database_is_not_local(plain):
    assert plain.value("select pgflow.is_local()") is False
