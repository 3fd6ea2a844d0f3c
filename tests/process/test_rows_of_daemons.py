"""The rows of daemons in the database, while daemons start, are killed, drain and are replaced."""

from __future__ import annotations

import signal
from typing import Any

from support.daemon import start_marked

from pgflowd.core.documents.daemons import ListedDaemon
from pgflowd.db.daemons import list_daemons
from pgflowd.db.query import execute
from pgflowd.testing.until import until


def listed(database: Any) -> list[ListedDaemon]:
    with database.connect() as conn:
        return execute(conn, list_daemons())


def healthy(database: Any, count: int = 1) -> list[ListedDaemon]:
    """The daemons, once so many of them are healthy."""
    return until(
        lambda: (
            [each for each in listed(database) if each.state == "healthy"][:count]
            if sum(each.state == "healthy" for each in listed(database)) >= count
            else []
        )
    )


def rows(database: Any) -> int:
    with database.connect() as conn:
        return int(conn.execute("select count(*) from pgflowd.daemons").fetchone()[0])


def age(database: Any, by: str) -> None:
    with database.connect() as conn:
        conn.execute(f"update pgflowd.daemons set alive_until = alive_until - interval '{by}'")
        conn.execute(f"update pgflow.workers set last_heartbeat_at = now() - interval '{by}'")


def test_a_row_follows_its_daemon_through_kills_and_drains(setup: Any, database: Any) -> None:
    setup.flow("alpha")
    first = setup.serve("one")
    setup.serve("two")

    one, two = healthy(database, 2)
    told = first.ask()
    assert (one.name, one.host, two.name) == ("one", told["host"], "two")
    assert (str(one.daemon_id), one.pid) == (told["id"], first.pid)
    assert told.keys() == one.status.keys()
    assert one.status["flows"][0]["worker_id"] == told["flows"][0]["worker_id"]

    first.kill("sweeper")
    restarts = until(lambda: listed(database)[0].restarts[0])
    assert restarts == 1

    run_id = start_marked(setup, database, gate=str(setup.directory / "gate"))
    first.send(signal.SIGTERM)
    one, two = until(lambda: [each for each in listed(database)
                              if listed(database)[0].state == "draining"])  # fmt: skip
    assert one.living_workers == 1
    (setup.directory / "gate").touch()
    assert first.ended() == 0
    assert [each.name for each in listed(database)] == ["two"]
    assert run_id
