"""A database that was restored from a dump, as docs/operate/recover.md describes it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from support.covers import covers
from support.daemon import attempts, is_completed_soon, start_marked, start_run
from support.invariants import broken
from support.pages import blocks_of

from pgflowd.embedded import wheel_binaries
from pgflowd.testing.until import until

(SEQUENCES,) = blocks_of("docs/operate/recover.md", "sql")
NEWEST_TOKEN = "select max(token) from pgflowd.attempts"


def dump(dsn: str, file: Path) -> None:
    subprocess.run([wheel_binaries() / "pg_dump", "-f", file, dsn], check=True, timeout=60)


def restore(dsn: str, file: Path) -> None:
    command = [wheel_binaries() / "psql", "-qX1", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null"]
    subprocess.run([*command, "-f", file, dsn], check=True, timeout=60)


@covers("G4")
def test_after_a_restore_what_ran_at_the_backup_runs_again_with_a_larger_token(
    setup: Any, database: Any, empty_database: Any, tmp_path: Path
) -> None:
    setup.breaks_invariants = True  # the ledger of the handlers is of two databases here
    setup.flow("alpha")
    daemon = setup.serve()
    gate = tmp_path / "gate"
    run_id = start_marked(setup, database, gate=str(gate))

    dump(database.dsn, tmp_path / "dump.sql")
    later = start_run(database, "alpha")
    gate.touch()
    assert is_completed_soon(database, run_id)
    assert is_completed_soon(database, later)
    given_out = database.connect().execute(NEWEST_TOKEN).fetchone()[0]
    assert daemon.command("stop", "--wait").returncode == 0

    restore(empty_database.dsn, tmp_path / "dump.sql")
    conn = empty_database.connect()
    conn.execute(SEQUENCES)
    setup.dsn = empty_database.dsn
    after = setup.serve("after")
    until(lambda: is_completed_soon(empty_database, run_id))

    assert conn.execute(NEWEST_TOKEN).fetchone()[0] > given_out
    assert attempts(empty_database, run_id) == [1]
    assert conn.execute("select run_id from pgflow.runs").fetchall() == [(run_id,)]
    assert after.command("doctor").returncode == 0
    assert broken(conn) == broken(database.connect()) == []
