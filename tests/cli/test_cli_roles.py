"""The commands that each role of `pgflowd db sql roles` may use, and the errors of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from support.covers import covers
from support.shop import Shop

from pgflowd.db import schema

LOOKING = [
    "runs list", "runs show @last --attempts --checkpoints", "runs follow @last --timeout 1ms",
    "tasks list", "signals list",
    "flows list", "flows show send_email", "flows graph analyze_website --run @last",
    "flows diff send_email", "stalled list", "doctor", "check",
    "daemons list",
]  # fmt: skip
WORKER = UUID(int=7)
CHANGING = [
    "runs cancel @last", "stalled requeue --all", "stalled fail --all", f"daemons restart {WORKER}",
]  # fmt: skip
DEFINING = ["flows deploy new_flow", "flows delete store_items --yes"]


@contextmanager
def user(shop: Shop, role: str) -> Iterator[str]:
    """The URL of a new user in this role."""
    shop.conn.execute(schema.roles_sql().encode())
    name = sql.Identifier(f"h_{role}_{uuid4().hex[:8]}")
    shop.conn.execute(sql.SQL("create role {} login in role {}").format(name, sql.Identifier(role)))
    try:
        yield make_conninfo(shop.database.dsn, user=name.as_string().strip('"'))
    finally:
        shop.conn.execute(sql.SQL("drop owned by {0}; drop role {0}").format(name))


@pytest.fixture
def codes(pgflowd, project, shop):
    """The exit codes of commands, as a user of a role."""
    with (project / "shop_flows.py").open("a") as module:
        module.write('\nnew = Flow("new_flow")\n@new.step\ndef a(run): ...\n')
    shop.worker_id = WORKER
    shop.start()
    shop.claim_all()
    shop.stall()

    def run(role: str, commands: list[str]) -> dict[str, int]:
        with user(shop, role) as url:
            ended = {
                command: pgflowd(*command.split(), "--database-url", url) for command in commands
            }
        assert not any("E901" in each.err for each in ended.values()), ended
        assert all("E305" in each.err for each in ended.values() if each.code == 77)
        return {command: each.code for command, each in ended.items()}

    return run


def test_a_viewer_sees_everything(codes):
    found = codes("pgflow_viewer", LOOKING)

    assert found.pop("runs follow @last --timeout 1ms") == 5
    assert found.pop("check") == 0
    assert set(found.values()) == {0}, found


def test_a_viewer_changes_nothing(codes):
    assert set(codes("pgflow_viewer", CHANGING + DEFINING).values()) == {77}


def test_a_worker_sees_changes_and_defines_nothing(codes):
    seen = codes("pgflow_worker", LOOKING)
    changed = codes("pgflow_worker", CHANGING)
    defined = codes("pgflow_worker", DEFINING)

    assert set(seen.values()) == {0, 5}, seen
    assert set(changed.values()) == {0}, changed
    assert set(defined.values()) == {77}, defined


def test_an_operator_sees_and_changes_everything_and_defines_nothing(codes):
    more = ["flows pause send_email", "flows resume send_email", "runs start send_email"]
    seen = codes("pgflow_operator", LOOKING)
    changed = codes("pgflow_operator", [*CHANGING, "runs retry @last --even-if-cancelled", *more])
    defined = codes("pgflow_operator", DEFINING)

    assert set(seen.values()) == {0, 5}, seen
    assert set(changed.values()) == {0}, changed
    assert set(defined.values()) == {77}, defined


def test_an_owner_does_it_all(codes):
    found = codes("pgflow_owner", [*LOOKING, *DEFINING, *CHANGING])

    assert found.pop("runs follow @last --timeout 1ms") == 5
    assert set(found.values()) == {0}, found


def test_a_starter_may_start_and_follow_and_sees_which_right_it_lacks(codes):
    found = codes("pgflow_starter", ["runs start send_email", *LOOKING[:2], *CHANGING, *DEFINING])

    assert found.pop("runs start send_email") == 0
    assert set(found.values()) == {77}, found


@covers("newcomer 5")
def test_a_starter_cancels_what_it_started(shop, pgflowd, project):
    with user(shop, "pgflow_starter") as url:
        started = pgflowd("runs", "start", "send_email", "--json", "--database-url", url)
        cancelled = pgflowd("runs", "cancel", started.json["run_id"], "--database-url", url)

    assert (started.code, cancelled.code) == (0, 0), cancelled.err
    assert shop.conn.execute("select status from pgflow.runs").fetchall() == [("failed",)]
