"""A module that changes on disk while it is served. Failures, 63."""

from __future__ import annotations

import importlib.util
import os
import py_compile
from pathlib import Path

from support.covers import covers
from support.daemon import is_completed

from pgflowd.testing.until import until

MODULE = """
from pgflowd import Flow
flow = Flow("alpha")

@flow.map
def work(item): return "{code}"
"""
ITEMS = 8


def codes(database):
    """Which code ran: what the tasks of a new run return."""
    run_id = database.client.start_flow("alpha", list(range(ITEMS))).run_id
    until(lambda: is_completed(database, run_id), 10)
    return set(database.client.get_run(run_id).output["work"])


@covers("row 63")
def test_old_code_runs_until_the_reload_and_then_new_code_everywhere(setup, database):
    setup.module("alpha", MODULE.format(code="old"))
    daemon = setup.serve(worker={"max_tasks_per_runner": 1, "max_concurrency": 3})
    assert codes(database) == {"old"}

    setup.module("alpha", MODULE.format(code="newer"))
    assert codes(database) == {"old"}  # by runners that are forked after the change

    daemon.command("reload")
    daemon.until("child.ready", child="worker alpha", count=2)
    assert codes(database) == {"newer"}


@covers("row 63")
def test_a_worker_that_is_restarted_has_the_new_code(setup, database):
    setup.module("alpha", MODULE.format(code="old"))
    daemon = setup.serve(worker={"max_concurrency": 3})
    assert codes(database) == {"old"}
    setup.module("alpha", MODULE.format(code="newer"))

    daemon.kill("alpha")
    daemon.until("child.ready", child="worker alpha", count=2)

    assert codes(database) == {"newer"}


TIMED = """
from pgflowd import Flow
from helped import ANSWER
flow = Flow("alpha", timeout={timeout})

@flow.step
def work(run): return ["{code}", ANSWER]
"""


def save(setup, timeout: int, code: str) -> None:
    """Save both modules, in the same second as ever, and of the same size."""
    setup.module("alpha", TIMED.format(timeout=timeout, code=code))
    (setup.directory / "helped.py").write_text(f'ANSWER = "{code}"\n')
    for name in ("alpha.py", "helped.py"):
        os.utime(setup.directory / name, (1_700_000_000, 1_700_000_000))


def done(database):
    run_id = database.client.start_flow("alpha", {}).run_id
    until(lambda: is_completed(database, run_id), 10)
    return database.client.get_run(run_id).output["work"]


@covers("row 63", "outside 18", "use 10")
def test_a_reload_never_starts_old_bytecode(setup, database):
    del setup.environ["PYTHONDONTWRITEBYTECODE"]
    save(setup, 20, "old")
    for name in ("alpha.py", "helped.py"):  # as Python and others leave it there
        py_compile.compile(str(setup.directory / name), doraise=True)
    daemon = setup.serve()
    assert done(database) == ["old", "old"]

    for timeout, code in ((25, "new"), (30, "now")):
        save(setup, timeout, code)
        reloaded = daemon.command("reload")

        assert reloaded.returncode == 0, reloaded.stderr
        assert done(database) == [code, code]
        with database.connect() as conn:
            (stored,) = conn.execute("select opt_timeout from pgflow.flows").fetchone()
        assert stored == timeout


def test_bytecode_is_made_once_for_one_source(setup, database):
    del setup.environ["PYTHONDONTWRITEBYTECODE"]
    save(setup, 20, "old")
    place = Path(importlib.util.cache_from_source(str(setup.directory / "helped.py")))
    daemon = setup.serve()
    assert done(database) == ["old", "old"]
    first = place.stat()

    daemon.kill("alpha")
    daemon.until("child.ready", child="worker alpha", count=2)

    assert done(database) == ["old", "old"]
    assert (place.stat().st_ino, place.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    assert int.from_bytes(place.read_bytes()[4:8], "little") == 0b11  # it is checked by its hash
