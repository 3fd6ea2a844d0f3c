"""Pinging the functions that should be running."""

import pytest

LOCAL_SECRET = "super-secret-jwt-token-with-at-least-32-characters-long"


@pytest.fixture
def local(suite):
    suite.do("select set_config('app.settings.jwt_secret', %s, true)", LOCAL_SECRET)
    return suite


@pytest.fixture
def hosted(suite):
    secrets(suite, supabase_project_id="project", supabase_service_role_key="role-key")
    return suite


def secrets(suite, **named):
    for name, secret in named.items():
        suite.do("delete from vault.secrets where name = %s", name)
        suite.do("insert into vault.secrets values (%s, %s)", name, secret)


def track(suite, name, **columns):
    suite.do("select pgflow.track_worker_function(%s)", name)
    for column, value in columns.items():
        suite.do(
            f"update pgflow.worker_functions set {column} = {value} where function_name = %s", name
        )


def ensure(suite):
    return suite.rows("select * from pgflow.ensure_workers() order by 1")


def posted(suite):
    return suite.rows("select * from net.posted order by url")


def test_locally_all_enabled_functions_are_pinged(local):
    track(local, "one")
    track(local, "two", enabled=False)
    track(local, "three", last_invoked_at="now()")

    rows = ensure(local)

    assert [(row["function_name"], row["invoked"]) for row in rows] == [
        ("one", True),
        ("three", True),
    ]
    found = posted(local)
    assert [row["url"] for row in found] == [
        "http://kong:8000/functions/v1/one",
        "http://kong:8000/functions/v1/three",
    ]
    assert {str(row["headers"]) for row in found} == {"{}"}
    assert {str(row["body"]) for row in found} == {"{}"}
    assert [row["request_id"] for row in rows] == [row["id"] for row in found]


def test_the_time_of_the_ping_is_noted_by_the_clock(local):
    track(local, "one")
    track(local, "off", enabled=False)

    ensure(local)

    assert local.value(
        "select last_invoked_at > now() from pgflow.worker_functions where function_name = 'one'"
    )
    assert local.value(
        "select last_invoked_at is null from pgflow.worker_functions where function_name = 'off'"
    )


def test_a_live_worker_does_not_matter_locally(local):
    track(local, "one")
    local.do(
        "insert into pgflow.workers (queue_name, worker_id, function_name)"
        " values ('f', gen_random_uuid(), 'one')"
    )

    assert len(ensure(local)) == 1


def test_hosted_the_address_and_the_secret_come_from_the_vault(hosted):
    track(hosted, "one")

    assert [row["function_name"] for row in ensure(hosted)] == ["one"]

    (row,) = posted(hosted)
    assert row["url"] == "https://project.supabase.co/functions/v1/one"
    assert row["headers"]["Authorization"] == "Bearer role-key"
    assert row["body"] == {}


def test_the_own_secret_comes_before_the_service_role_s(hosted):
    secrets(hosted, pgflow_auth_secret="own")
    track(hosted, "one")

    ensure(hosted)

    assert posted(hosted)[0]["headers"]["Authorization"] == "Bearer own"


def test_empty_secrets_count_as_absent(hosted):
    secrets(hosted, pgflow_auth_secret="")
    track(hosted, "one")

    ensure(hosted)

    assert posted(hosted)[0]["headers"]["Authorization"] == "Bearer role-key"


@pytest.mark.parametrize(
    "vault",
    [
        {},
        {"supabase_project_id": "project"},
        {"supabase_service_role_key": "key"},
        {"pgflow_auth_secret": "key"},
        {"supabase_project_id": "", "supabase_service_role_key": "key"},
        {"supabase_project_id": "project", "supabase_service_role_key": ""},
    ],
)
def test_without_both_nothing_is_done(suite, vault):
    secrets(suite, **vault)
    track(suite, "one")

    assert ensure(suite) == [] and posted(suite) == []
    assert suite.value("select last_invoked_at is null from pgflow.worker_functions")


@pytest.mark.parametrize(
    ("columns", "pinged"),
    [
        ({}, True),
        ({"enabled": False}, False),
        ({"last_invoked_at": "now()"}, False),
        ({"last_invoked_at": "now() - interval '5 seconds'"}, False),
        ({"last_invoked_at": "now() - interval '7 seconds'"}, True),
        ({"debounce": "interval '1 minute'", "last_invoked_at": "now() - interval '30 s'"}, False),
        ({"debounce": "interval '1 minute'", "last_invoked_at": "now() - interval '70 s'"}, True),
    ],
)
def test_hosted_a_function_is_pinged_after_its_debounce(hosted, columns, pinged):
    track(hosted, "one", **columns)

    assert len(ensure(hosted)) == int(pinged)


@pytest.mark.parametrize(
    ("columns", "pinged"),
    [
        ({}, False),
        ({"last_heartbeat_at": "now() - interval '5 s'"}, False),
        ({"last_heartbeat_at": "now() - interval '7 s'"}, True),
        ({"stopped_at": "now()"}, True),
        ({"deprecated_at": "now()"}, True),
        ({"function_name": "'another'"}, True),
    ],
)
def test_hosted_a_live_worker_is_not_pinged(hosted, columns, pinged):
    track(hosted, "one")
    hosted.do(
        "insert into pgflow.workers (queue_name, worker_id, function_name)"
        " values ('f', gen_random_uuid(), 'one')"
    )
    for column, value in columns.items():
        hosted.do(f"update pgflow.workers set {column} = {value}")

    assert len(ensure(hosted)) == int(pinged)


def test_functions_that_are_processes_are_not_pinged(local):
    track(local, "one", start_mode="'process'")

    assert ensure(local) == []


def test_a_second_call_waits_for_the_debounce(hosted):
    track(hosted, "one")
    assert len(ensure(hosted)) == 1

    assert ensure(hosted) == []


def test_nothing_tracked_gives_no_rows(local):
    assert ensure(local) == []
