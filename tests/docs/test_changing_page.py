"""What docs/guides/changing-flows.md tells to do on Monday, with a daemon and open runs."""

from __future__ import annotations

from support.daemon import DaemonSetup
from support.pages import blocks_of

from pgflowd.testing.until import until

PAGE = "docs/guides/changing-flows.md"


def test_a_step_is_added_on_monday_with_runs_open(tmp_path, database) -> None:
    monday, tuesday, _ = blocks_of(PAGE, "python")
    client, setup = database.client, DaemonSetup(tmp_path, database.dsn)
    setup.module("orders", monday)
    try:
        daemon = setup.serve()
        old = client.start_flow("orders", {})
        setup.module("orders", tuesday)
        (_, commands) = blocks_of(PAGE, "console")
        for line in commands.splitlines():
            done = daemon.command(*line.removeprefix("$ pgflowd ").split())
            assert done.returncode == (1 if " diff " in line else 0), done.stderr
        new = client.start_flow("orders", {})
        for run in (old, new):
            until(lambda run=run: client.get_run(run.run_id).status == "waiting", 15)
            client.signal(run.run_id, "paid", 7)
        ended = [client.wait(run.run_id, timeout=20) for run in (old, new)]
    finally:
        setup.close()

    assert [run.flow_slug for run in ended] == ["orders", "orders_2"]
    assert [run.output for run in ended] == [
        {"charge": "charged 7"}, {"ship": "shipped, charged 7"},
    ]  # fmt: skip
