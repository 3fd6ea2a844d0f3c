"""The rows of daemons in the database, while daemons start, are killed, drain and are replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from support.covers import covers
from support.daemon import is_completed, start_marked, start_run, terminate_all

from pgflowd.core.documents.daemons import ListedDaemon
from pgflowd.core.verbs import RESTART_WORKER
from pgflowd.db.daemons import list_daemons, look_at_daemons
from pgflowd.db.operations import calling
from pgflowd.db.query import execute
from pgflowd.testing.until import until

WITHIN_S = 20.0  # on a busy machine
WAITING = """
select 1 from pg_stat_activity where application_name = 't: sweeper' and wait_event_type = 'Lock'
"""
RENAME = "alter function pgflowd.{}(jsonb) rename to {}"


def listed(database: Any) -> list[ListedDaemon]:
    with database.connect() as conn:
        return execute(conn, list_daemons())


def once(database: Any, is_so: Callable[[list[ListedDaemon]], Any]) -> list[ListedDaemon]:
    """The daemons, once something is so."""
    found: list[ListedDaemon] = []

    def look() -> bool:
        found[:] = listed(database)
        return bool(is_so(found))

    until(look, WITHIN_S)
    return found


def are_healthy(count: int) -> Callable[[list[ListedDaemon]], bool]:
    return lambda found: [each.state for each in found].count("healthy") == count


def age(database: Any, by: str) -> None:
    """Let everything have been told earlier."""
    with database.connect() as conn:
        back = f"- interval '{by}'"
        conn.execute(f"update pgflowd.daemons set alive_until = alive_until {back},"
                     f" heartbeat_at = heartbeat_at {back}")  # fmt: skip
        conn.execute(f"update pgflow.workers set last_heartbeat_at = last_heartbeat_at {back}")


@covers("rule 62")
def test_a_row_follows_its_daemon_through_kills_and_drains(setup: Any, database: Any) -> None:
    setup.flow("alpha")
    first = setup.serve("one")
    setup.serve("two")

    one, two = once(database, are_healthy(2))
    told = first.ask()
    assert (one.name, one.host, two.name) == ("one", told["host"], "two")
    assert (str(one.daemon_id), one.pid) == (told["id"], first.pid)
    assert told.keys() == one.status.keys()
    assert one.flows[0]["worker_id"] == told["flows"][0]["worker_id"]

    first.kill("sweeper")
    one, _ = once(database, lambda found: found[0].restarts[0])
    assert (one.restarts[0], str(one.daemon_id)) == (1, told["id"])

    gate = setup.directory / "gate"
    run_id = start_marked(setup, database, gate=str(gate))
    found = once(database, lambda found: any(each.running for each in found))
    is_first = next(each.name for each in found if each.running) == "one"
    draining, other = (first, "two") if is_first else (setup.daemons[1], "one")
    draining.send(signal.SIGTERM)
    ending = once(database, lambda found: any(each.state == "draining" for each in found))
    assert [(each.living_workers, each.is_silent) for each in ending if each.name != other] == [
        (1, False)
    ]
    gate.touch()
    assert draining.ended() == 0
    assert [each.name for each in listed(database)] == [other]
    assert is_completed(database, run_id)


def test_a_row_is_written_at_once_while_somebody_looks_and_silent_after_a_kill(
    setup: Any, database: Any
) -> None:
    seldom = {"recovery": {"recovery_interval": "1h"}}
    setup.flow("alpha")
    daemon = setup.serve(**seldom)
    (first,) = once(database, lambda found: found)

    with database.connect() as conn:
        execute(conn, look_at_daemons())
        (again,) = once(database, lambda found: found[0].heartbeat_at > first.heartbeat_at)
        terminate_all(database, "t: sweeper")
        worker = again.flows[0]["worker_id"]
        assert (
            execute(conn, calling(RESTART_WORKER, worker, actor="jane", reason="leaks"))
            == "restarting"
        )
        execute(conn, look_at_daemons())
    (again,) = once(database, lambda found: found[0].flows[0]["worker_id"] not in (worker, None))
    assert [each["reason"] for each in daemon.events("child.exited", child="worker alpha")]

    start_marked(setup, database, gate="never")
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.ended()
    age(database, "4 hours")
    (silent,) = listed(database)
    assert (silent.is_silent, silent.held_tasks, silent.living_workers) == (True, 1, 0)

    setup.serve(recovery={"recovery_interval": "500ms"})
    once(database, lambda found: [each.daemon_id for each in found] != [silent.daemon_id])
    (after,) = once(database, lambda found: len(found) == 1 and found[0].state == "healthy")
    assert after.daemon_id != silent.daemon_id


def test_a_daemon_on_a_schema_without_rows_does_its_work(setup: Any, database: Any) -> None:
    setup.flow("alpha")
    with database.connect() as conn:
        conn.execute(RENAME.format("tell_daemon", "tell_nobody"))
    daemon = setup.serve()

    (problem,) = daemon.until("sweeper.problem", code="E302")
    assert problem["error"].startswith("the row of this daemon cannot be written: function pgflowd")
    run_id = start_run(database, "alpha")
    until(lambda: is_completed(database, run_id), WITHIN_S)
    assert daemon.events("child.restarted") == daemon.events("sweeper.lost") == []
    with database.connect() as conn:
        conn.execute(RENAME.format("tell_nobody", "tell_daemon"))


def test_a_sweeper_that_waits_as_the_daemon_ends_says_so_over_another_connection(
    setup: Any, database: Any
) -> None:
    setup.flow("alpha")
    daemon = setup.serve()
    once(database, are_healthy(1))

    with database.connect() as conn, conn.transaction():
        conn.execute("lock table pgflowd.slots")
        with database.connect() as other:
            until(lambda: other.execute(WAITING).fetchone(), WITHIN_S)
            daemon.send(signal.SIGTERM)
            assert daemon.ended() == 0
            assert other.execute("select state from pgflowd.daemons").fetchone() == ("draining",)
    assert listed(database) == []
