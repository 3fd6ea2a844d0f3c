"""No hostile string becomes SQL: property tests of the client and of the SQL."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from support.covers import covers
from support.hostile import ATTACKS, Unharmed, texts, values

from pgflowd.errors import PgflowdError

MANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def shop(database) -> psycopg.Connection:
    connection = database.connect()
    connection.execute("select pgflow.create_flow('send_email', max_attempts => 1)")
    connection.execute("select pgflow.add_step('send_email', 'perform')")
    connection.execute(
        "insert into pgflow.workers values (gen_random_uuid(), 'send_email', 'test')"
    )
    return connection


@covers("row 107")
def test_a_hostile_slug_starts_nothing_and_harms_nothing(shop, database):
    unharmed = Unharmed(shop)

    @MANY
    @given(slug=texts())
    def attack(slug: str) -> None:
        with pytest.raises(PgflowdError):
            database.client.start_flow(slug, {})

    attack()
    assert unharmed.is_it()
    assert shop.execute("select count(*) from pgflow.runs").fetchone() == (0,)


def test_a_hostile_input_is_stored_as_it_is(shop, database):
    unharmed = Unharmed(shop)

    @MANY
    @given(value=values())
    def attack(value: Any) -> None:
        run = database.client.start_flow("send_email", value)
        assert database.client.get_run(run.run_id).input == value

    attack()
    assert unharmed.is_it()


def test_a_hostile_output_and_a_hostile_error_are_stored_as_they_are(shop, database):
    unharmed = Unharmed(shop)

    @MANY
    @given(value=values(), text=texts(min_size=1, max_size=500))
    def attack(value: Any, text: str) -> None:
        done = finish(
            shop, database, "select pgflowd.complete(%s, %s, %s, %s, %s)", json.dumps(value)
        )
        assert database.client.get_run(done).output == {"perform": value}
        failed = finish(
            shop, database, "select pgflowd.fail(%s, %s, %s, %s, %s, %s, %s)", text, text, text
        )
        told = shop.execute(
            "select error_message from pgflow.step_tasks where run_id = %s", (failed,)
        ).fetchone()
        assert told == (text,)

    attack()
    assert unharmed.is_it()


def finish(shop, database, query: str, *given: str) -> Any:
    """Start a run, claim its task and report it by this query."""
    run_id = database.client.start_flow("send_email", {}).run_id
    claim = """
        select run_id, step_slug, task_index, token from pgflowd.claim(
          'send_email', (select worker_id from pgflow.workers), 1)
    """
    key = shop.execute(claim).fetchone()
    assert key is not None and key[0] == run_id
    shop.execute(query.encode(), (*key, *given))
    return run_id


def test_hostile_reasons_and_names_of_people_are_stored_as_they_are(shop, database):
    unharmed = Unharmed(shop)

    @MANY
    @given(reason=texts(max_size=300), actor=texts(max_size=60))
    def attack(reason: str, actor: str) -> None:
        run_id = database.client.start_flow("send_email", {}).run_id
        shop.execute("select pgflowd.cancel(%s, %s, %s)", (run_id, reason, actor))
        query = "select cancel_reason, cancelled_by from pgflowd.runs where run_id = %s"
        assert shop.execute(query, (run_id,)).fetchone() == (reason, actor)

    attack()
    assert unharmed.is_it()


ASKED_WITH_TEXTS = [
    "select * from pgflowd.find_runs(%s)",
    "select * from pgflowd.list_runs(%s)",
    "select * from pgflowd.list_runs(null, array[%s])",
    "select * from pgflowd.search_runs(%s)",
    "select * from pgflowd.search_runs(search => %s)",
    "select * from pgflowd.value_part(gen_random_uuid(), %s)",
    "select * from pgflowd.flow_shape(%s)",
    "select * from pgflowd.active_runs(%s)",
    "select pgflowd.setting(%s)",
    "select pgflowd.set_setting(%s, '1', 'me')",
    "select * from pgflowd.claim(%s, gen_random_uuid(), 1)",
    "select * from pgflowd.report(%s::jsonb, '{}')",
    "select pgflow.create_flow(%s)",
    "select pgflow.add_step('send_email', %s)",
    "select pgflow.add_step(%s, 'x')",
    "select pgflow.start_flow(%s, '{}')",
    "select pgflow.start_flow_with_states(%s, '{}')",
    "select pgflow.delete_flow_and_data(%s)",
    "select pgflow.ensure_flow_compiled(%s, '{}')",
    "select pgflow.is_valid_slug(%s)",
]


@covers("row 107")
@pytest.mark.parametrize("query", ASKED_WITH_TEXTS)
def test_no_function_takes_a_text_for_sql(shop, query):
    """A string that is a valid slug may create a flow, which is rolled back."""
    unharmed = Unharmed(shop)

    for text in ATTACKS:
        try:
            with shop.transaction(force_rollback=True):
                shop.execute(query.encode(), (text,))
                created = (
                    "select flow_slug from pgflow.flows union select step_slug from pgflow.steps"
                )
                slugs = {slug for (slug,) in shop.execute(created)}
                assert slugs <= {"send_email", "perform", text}
        except psycopg.Error as error:
            assert error.sqlstate not in ("42601", "42P01", "42703"), (text, error)

    assert unharmed.is_it()
