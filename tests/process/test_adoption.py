"""A TypeScript worker of pgflow is at work before, during and after its schema is adopted."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.covers import covers
from support.daemon import is_completed_soon, start_run
from support.invariants import broken
from support.peer import Peer
from support.upstream import install_upstream

from pgflowd import Client
from pgflowd.db import schema
from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

WORKER = "00000000-0000-0000-0000-0000000000bb"
RUNS = 150
INPUT = {"name": "Ada", "prices": [1, 2, 3]}
LATER = """
create or replace function pgflow.maybe_complete_run(run_id uuid) returns void language sql as ''
"""
CAUGHT = "structure of query does not match function result type"
DONE = "select count(*) from pgflow.runs where status = 'completed'"


def test_their_worker_goes_on_before_during_and_after_the_adoption(
    empty_database: ScratchDatabase,
) -> None:
    conn = empty_database.connect()
    install_upstream(conn)
    plain = {"pgflow.run_in_input": ""}  # as it is for theirs
    peer, starter = (Peer(empty_database.dsn, **plain) for _ in range(2))
    try:
        peer.ask("compile", "orders")
        conn.execute(
            "insert into pgflow.workers (worker_id, queue_name, function_name)"
            " values (%s, 'orders', 'edge-worker')",
            (WORKER,),
        )
        ids = [str(starter.ask("startFlow", "orders", INPUT)["run_id"]) for _ in range(RUNS)]
        with ThreadPoolExecutor(1) as threads:
            theirs = threads.submit(peer.ask, "work", "orders", WORKER, ids)
            until(lambda: conn.execute(DONE).fetchone()[0] >= 3, within_s=20)
            before = conn.execute(DONE).fetchone()[0]
            schema.migrate(conn, adopt=True)
            after = conn.execute(DONE).fetchone()[0]
            theirs.result(timeout=60)
        assert before <= after < RUNS
        # its library sends the input of a start once more, encoded twice, on a connection that has
        # prepared the statement before a column was added; so whoever starts runs connects anew
        starter.close()
        starter = Peer(empty_database.dsn, **plain)
        late = str(starter.ask("startFlow", "orders", INPUT)["run_id"])
        peer.ask("work", "orders", WORKER, [late])
        with Client(empty_database.dsn) as client:
            ended = [client.wait(run_id, timeout=20) for run_id in [*ids, late]]
    finally:
        peer.close()
        starter.close()

    assert [run.status for run in ended] == ["completed"] * (RUNS + 1)
    assert {run.output["total"]["sum"] for run in ended} == {12}
    assert {run.output["total"]["text"] for run in ended} == {"hello Ada, Ada"}
    # a call of theirs that was at work when the tables got more columns fails, as the page says
    again = "select distinct error_message from pgflow.step_tasks where attempts_count <> 1"
    assert conn.execute(again).fetchall() in ([], [(CAUGHT,)])
    assert broken(conn, has_leases=False) == []


@covers("E307")
def test_functions_that_another_migration_replaces_are_told_within_a_minute_and_workers_park(
    setup: Any, database: ScratchDatabase
) -> None:
    setup.flow("alpha")
    daemon = setup.serve()
    assert is_completed_soon(database, start_run(database, "alpha"))
    with database.connect() as conn:
        conn.execute(LATER)

        daemon.until("sweeper.problem", within_s=60, code="E307")
        waits = start_run(database, "alpha")
        (parked,) = daemon.until("child.parked", child="worker alpha")
        assert (parked["code"], "pgflow.maybe_complete_run" in parked["error"]) == ("E307", True)
        assert "E307" in {each["code"] for each in daemon.ask()["problems"]}
        daemon.send(signal.SIGTERM)
        daemon.ended()

        schema.migrate(conn, adopt=True)
    setup.serve("restarted")
    assert is_completed_soon(database, waits)
