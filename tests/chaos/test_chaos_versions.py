"""The checks of the chaos find each kind of error of runs in versions of a flow that changes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import chaos  # noqa: F401  (which knows where the other houses are)
import chaos_versions
import pytest
from chaos_changing import NAME, changing

from pgflowd.db import flows

CLAIM = "select run_id, step_slug, task_index, token, input from pgflowd.claim(%s, %s, 10)"
COMPLETE = "select pgflowd.complete(%s, %s, %s, %s, %s)"


@pytest.fixture
def conn(database) -> Any:
    """A version with `first` and `c`, one with `first` and the map `a`; each has an ended run."""
    conn, worker = database.connect(), uuid4()
    conn.execute("insert into pgflow.workers values (%s, 'changing', 'test')", (worker,))
    for state in (1, 5):
        slug = flows.deploy(conn, NAME, changing(state).shape(), may_change=True).flow_slug
        conn.execute("select pgflow.start_flow(%s, '{}')", (slug,))
        while claimed := conn.execute(CLAIM, (slug, worker)).fetchall():
            for *key, given in claimed:
                got = sorted(given) if isinstance(given, dict) else ["element", given]
                conn.execute(COMPLETE, (*key, json.dumps([key[1], *got])))
    return conn


def found(conn: Any, *tuned: int) -> list[str]:
    """The names of what is wrong."""
    environment: Any = SimpleNamespace(conn=lambda: conn, tuned=[0, *tuned])
    return [trouble.split(":")[0] for trouble in chaos_versions.troubles(environment)]


def test_where_all_is_well_nothing_is_found(conn):
    assert conn.execute(
        "select count(*) from pgflow.runs where status = 'completed'"
    ).fetchone() == (2,)
    assert found(conn) == []


@pytest.mark.parametrize(
    ("wrong", "trouble"),
    [
        ("update pgflow.step_tasks set output = '[\"c\"]' where step_slug = 'c'",
         "a step gets what the shape of its version says"),
        ("update pgflow.step_tasks set output = '[\"a\", \"first\"]' where step_slug = 'a'",
         "a step gets what the shape of its version says"),
        ("update pgflow.runs set output = '{\"a\": 1}' where flow_slug = 'changing'",
         "a run ends with the steps and outputs of its version"),
        ("update pgflowd.attempts set outcome = 'failed' where step_slug = 'c'",
         "no task is executed by code that does not know it"),
        ("select pgflow.add_step('changing', 'more')", "the shape of a version stays"),
        ("update pgflowd.versions set is_current = false", "one version is current"),
        ("update pgflow.flows set opt_max_attempts = 7 where flow_slug = 'changing'",
         "an option that nobody tuned is the one last deployed"),
        ("select pgflowd.set_option('changing_2', 'first', 'maxAttempts', '8')",
         "what was tuned stays"),
    ],
)  # fmt: skip
def test_each_error_is_found(conn, wrong, trouble):
    conn.execute(wrong)

    assert trouble in found(conn)


def test_what_was_tuned_may_be_any_of_those_in_doubt(conn):
    conn.execute("select pgflowd.set_option('changing', 'first', 'maxAttempts', '1002')")

    assert found(conn, 1001, 1002) == []
    assert found(conn, 1001) == ["what was tuned stays"]
