"""Errors of commands without a database, or with one that does not fit."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

LOOKING = [
    "runs list",
    "tasks list",
    "signals list",
    "flows list",
    "stalled list",
    "runs show @last",
]


@pytest.fixture
def fresh(elsewhere: Path, monkeypatch: pytest.MonkeyPatch, pgflowd) -> Path:
    """A project as `new` makes it, and no server that libpq would find."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PGPORT", "1")
    assert pgflowd("new", "shop").code == 0
    monkeypatch.chdir(elsewhere / "shop")
    return elsewhere / "shop"


def test_dev_outside_of_a_project_starts_no_server(elsewhere: Path, pgflowd):
    ended = pgflowd("dev")

    assert ended.code == 78
    assert "E111  no flows are configured" in ended.err and "`pgflowd new NAME`" in ended.err
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("words", LOOKING)
def test_the_error_in_a_fresh_project_names_the_development_server(fresh, pgflowd, words):
    ended = pgflowd(*words.split())

    assert ended.code == 69
    assert ended.err.startswith("E301  the database at the libpq default cannot be reached: ")
    assert "start one with `pgflowd dev`" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        "runs show zz",
        "runs wait @last x",
        "runs cancel g1",
        "runs follow ''",
        "flows graph a --run zz",
        "stalled fail 12",
        "stalled requeue x/y#0",
        "stalled fail @last/a#b",
    ],
)
def test_a_malformed_word_is_refused_before_connecting(fresh, pgflowd, words):
    ended = pgflowd(*shlex.split(words))

    assert ended.code == 2
    assert " is not a " in ended.err and "E301" not in ended.err


def test_the_error_names_a_configured_server(fresh, pgflowd, monkeypatch):
    monkeypatch.setenv("PGHOST", "127.0.0.1")

    ended = pgflowd("runs", "list")

    assert (ended.code, "pgflowd dev" in ended.err) == (69, False)
    assert "check that it runs" in ended.err


def test_without_its_queues_a_database_is_refused_as_such_everywhere(here, project, shop):
    shop.conn.execute("drop schema pgmq cascade")

    checked, examined = here("check", "--json"), here("doctor")
    status, deployed = here("db", "status"), here("flows", "deploy")

    assert [problem["code"] for problem in checked.json["problems"]] == ["E304"]
    assert "E304  schema pgmq is gone   → run `pgflowd db migrate`" in examined.out
    assert "E304  schema pgmq is gone" in status.err
    assert "E304  schema" in deployed.err and "run `pgflowd db migrate`" in deployed.err
    assert (checked.code, examined.code, status.code, deployed.code) == (1, 1, 1, 78)


def test_without_permission_to_install_queues_the_error_names_what_is_missing(
    pgflowd, empty_database
):
    with empty_database.connect() as admin:
        role = f"weak_{empty_database.name}"
        admin.execute(f"create role {role} login")
        url = make_conninfo(empty_database.dsn, user=role)

        ended = pgflowd("db", "migrate", "--database-url", url)

        admin.execute(f"drop role {role}")
    assert ended.code == 77
    assert ended.err.startswith("E305  permission denied for database")
    assert f"grant create on database {empty_database.name} to {role}" in ended.err


def test_a_problem_of_all_flows_is_printed_once_at_deploy(fresh, pgflowd, empty_database):
    (fresh / "flows" / "two.py").write_text(
        "from pgflowd import job\n\n\n@job('two')\ndef two(run):\n    return 1\n"
    )
    config = fresh / "pgflowd.toml"
    config.write_text(
        config.read_text().replace('["flows.analyze"]', '["flows.analyze", "flows.two"]')
    )

    ended = pgflowd("flows", "deploy", "--database-url", empty_database.dsn)

    assert ended.code == 78
    assert ended.err.count("E302") == 1
