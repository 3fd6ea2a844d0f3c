"""A worker of the TypeScript edition beside a daemon, on one flow whose handlers wait here."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.invariants import broken
from support.peer import Peer

from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

FLOW = """
from pgflowd import Flow
flow = Flow("shared")

@flow.step
def go(run, ctx):
    ctx.memo("begun", lambda: ctx.attempt)
    return ctx.wait_signal("go")

@flow.step
def after(go):
    return [go, "ours"]
"""
RUNS = 10  # that wait before the peer comes, and as many beside it
WAITING = "select count(*) from pgflowd.waits"
WORK = """
select run.run_id::text, go.output #>> '{}', after.output #>> '{1}'
  from pgflow.runs as run
  join pgflow.step_states as go on go.run_id = run.run_id and go.step_slug = 'go'
  join pgflow.step_states as after on after.run_id = run.run_id and after.step_slug = 'after'
 where run.status = 'completed'
"""


@pytest.fixture
def peer(database: ScratchDatabase) -> Iterator[Peer]:
    peer = Peer(database.dsn)
    yield peer
    peer.close()


def test_a_worker_of_another_runtime_passes_over_what_waits_and_shares_the_rest(
    setup, database, peer
):
    setup.breaks_invariants = True  # those of leases, which the peer has not
    setup.module("shared_flow", FLOW)
    setup.serve()
    client, conn = database.client, database.connect()
    early = [str(client.start_flow("shared", {}).run_id) for _ in range(RUNS)]
    until(lambda: conn.execute(WAITING).fetchone() == (RUNS,), within_s=20)
    worker = "00000000-0000-0000-0000-0000000000bb"
    row = "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, %s, %s)"
    conn.execute(row, (worker, "shared", "edge-worker"))
    late = [str(client.start_flow("shared", {}).run_id) for _ in range(RUNS)]

    with ThreadPoolExecutor(1) as threads:
        theirs = threads.submit(peer.ask, "work", "shared", worker, [*early, *late])
        until(lambda: is_quiet(conn), within_s=20)
        before = {run for run, _, _ in conn.execute(WORK).fetchall()}
        conn.execute(
            "select pgflowd.signal(run_id, 'go', '\"signalled\"') from pgflow.runs"
            " where status = 'started'"
        )
        theirs.result(timeout=60)

    assert before.isdisjoint(early)  # their tasks waited, and the peer got none of them
    work = conn.execute(WORK).fetchall()
    assert {run for run, _, _ in work} == {*early, *late}
    assert {output for run, output, _ in work if run in before} <= {"at once"}
    assert {output for _, output, _ in work} <= {"at once", "signalled"}
    assert {whose for _, _, whose in work} <= {"ours", "theirs"}
    assert conn.execute(WAITING).fetchone() == (0,)
    assert conn.execute("select distinct attempts_count from pgflow.step_tasks").fetchall() == [
        (1,)
    ]
    assert broken(conn, has_leases=False) == []


def is_quiet(conn):
    """Whether each open run waits: no task has a message, and none is at work."""
    query = """
    select (select count(*) from pgflow.runs where status = 'started'),
           (select count(*) from pgflowd.waits), (select count(*) from pgmq.q_shared)
    """
    started, waiting, messages = conn.execute(query).fetchone()
    return started == waiting and messages == 0
