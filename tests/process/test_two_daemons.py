"""Two daemons share the work, and one of them is killed."""

from __future__ import annotations

import contextlib
import os
import signal

from support.daemon import marks

from pgflowd.testing.until import until

QUICK = {
    "worker": {"max_restarts": 1000, "backoff_max": "200ms", "notify_fallback": "2s"},
    "supervisor": {"max_restarts": 1000, "backoff_max": "200ms", "backoff_min": "1ms"},
}
RUNS = 150


def test_two_daemons_share_the_work_and_one_is_killed_halfway(setup, database):
    setup.flow("alpha")
    first, second = setup.serve("one", **QUICK), setup.serve("two", **QUICK)
    path, conn = str(setup.directory / "marks"), database.connect()
    for _ in range(RUNS):
        database.client.start_flow("alpha", {"s": 0.05, "marks": path})
    until(lambda: open_runs(conn) < RUNS * 2 / 3, 20)

    family = first.family()
    for pid in [first.pid, *(seen.pid for seen in family)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    until(lambda: open_runs(conn) == 0, 40)
    assert outcomes(conn) == {"completed": RUNS}
    assert completed_twice(conn) == 0
    assert second.ask()["state"] == "healthy"
    ends = [what for what, _, _ in marks(setup.directory / "marks") if what == "end"]
    assert len(ends) <= RUNS + 10  # those in flight when the first was killed


def open_runs(conn):
    query = "select count(*) from pgflow.runs where status = 'started'"
    return conn.execute(query).fetchone()[0]


def outcomes(conn):
    query = "select status, count(*) from pgflow.runs group by status"
    return dict(conn.execute(query).fetchall())


def completed_twice(conn):
    query = """
    select count(*) from (
      select 1 from pgflowd.attempts where outcome = 'completed'
       group by run_id, step_slug, task_index having count(*) > 1) as twice
    """
    return conn.execute(query).fetchone()[0]
