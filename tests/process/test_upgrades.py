"""Daemons beside a schema of another release, as docs/operate/upgrade.md describes them."""

from __future__ import annotations

import signal
from typing import Any

from support.covers import covers
from support.daemon import is_completed_soon, start_run

NEWER = """
insert into pgflowd.schema_history (version, name, checksum, release)
values (99, 'pgflow_future', 'x', '9.9')
"""


@covers("E303")
def test_after_a_migrate_workers_go_on_and_a_new_one_is_parked_until_the_restart(
    setup: Any, database: Any
) -> None:
    for slug in ("alpha", "beta"):
        setup.flow(slug)
    daemon = setup.serve()
    with database.connect() as conn:
        conn.execute(NEWER)

    assert is_completed_soon(database, start_run(database, "alpha"))
    daemon.kill("beta")
    daemon.until("child.parked", child="worker beta")
    waits = start_run(database, "beta")

    (error,) = [each["error"] for each in daemon.ask()["flows"] if each["slug"] == "beta"]
    assert error["code"] == "E303"
    assert daemon.command("runs", "list").returncode == 78
    assert is_completed_soon(database, start_run(database, "alpha"))
    daemon.send(signal.SIGTERM)
    assert daemon.ended() == 0
    with database.connect() as conn:
        conn.execute("delete from pgflowd.schema_history where version = 99")
    setup.serve("restarted")
    assert is_completed_soon(database, waits)


@covers("E302")
def test_a_daemon_before_its_migrate_ends_for_good(setup: Any, empty_database: Any) -> None:
    setup.breaks_invariants = True  # there are no tables to look at
    setup.dsn = empty_database.dsn
    setup.flow("alpha")

    daemon = setup.start()

    assert daemon.ended() == 78
    (parked,) = daemon.events("child.parked", child="worker alpha")
    assert "pgflowd db migrate" in daemon.log.read_text(), parked
