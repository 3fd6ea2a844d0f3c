"""A module that changes on disk while it is served. Failures, 63."""

from __future__ import annotations

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
