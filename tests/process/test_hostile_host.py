"""The daemon on a host that takes things away: streams, directories, signals, processes, files."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.daemon import is_completed_soon, start_run

from pgflowd.testing.until import until


@covers("outside 8")
@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_a_daemon_whose_standard_streams_are_closed_executes_runs(setup, database, closed):
    setup.flow("alpha")
    setup.inside = ["sh", "-c", f'exec "$@" {closed}', "sh"]

    daemon = setup.start()

    until(lambda: daemon.control.exists() and daemon.ask()["state"] == "healthy")
    assert is_completed_soon(database, start_run(database, "alpha"))
    assert daemon.command("stop", "--wait").returncode == 0


IGNORES_SIGCHLD = """
import os, signal
from pgflowd import Flow
signal.signal(signal.SIGCHLD, {handler})
flow = Flow("alpha", max_attempts=1)

@flow.step
def work(run): os._exit(7)
"""


@covers("outside 14", "trap 14")
@pytest.mark.parametrize(
    "handler", ["signal.SIG_IGN", "lambda *_: os.waitpid(-1, 0)"], ids=["ignores", "reaps"]
)
def test_a_module_that_takes_sigchld_loses_no_exit_code(setup, database, handler):
    setup.module("alpha", IGNORES_SIGCHLD.format(handler=handler))
    setup.serve()

    run = database.client.start_flow_sync("alpha", {}, timeout=10)

    query = "select exit_code, error_message from pgflowd.attempts where run_id = %s"
    [(code, text)] = database.connect().execute(query, (run.run_id,)).fetchall()
    assert (run.status.value, code) == ("failed", 7)
    assert "exit code 7" in text or "code 7" in text, text
