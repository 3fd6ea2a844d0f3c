"""What is paused in a daemon: nothing begins, whoever is killed, until the resume."""

from __future__ import annotations

import pytest
from support.daemon import attempts, is_completed

from pgflowd.testing.until import until

START = "select run_id from pgflow.start_flow('alpha', '{}')"
CALLS = {
    "flow": ("select pgflowd.pause_flow('alpha')", "select pgflowd.resume_flow('alpha')"),
    "run": ("select pgflowd.pause(run_id) from pgflow.runs",
            "select pgflowd.resume(run_id) from pgflow.runs"),
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
def test_what_is_paused_begins_at_the_resume_and_not_before(setup, database, what):
    pause, resume = CALLS[what]
    setup.flow("alpha")
    daemon = setup.serve(worker={"sleep_after": "3s", "notify_fallback": "10m"})
    with database.connect(autocommit=False) as conn:
        (run,) = conn.execute(START).fetchone()
        conn.execute(pause)
    daemon.kill("alpha")
    daemon.until("child.restarted", child="worker alpha")
    until(lambda: daemon.state_of("alpha") == "asleep", 30)
    begun = attempts(database, run)

    database.connect().execute(resume)

    until(lambda: is_completed(database, run), 15)
    assert (begun, attempts(database, run)) == ([0], [1])
