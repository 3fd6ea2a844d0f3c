"""Runs that wait for each other in a daemon are told by `status` and `doctor`, until one ends."""

from __future__ import annotations

from support.covers import covers
from support.daemon import Daemon, is_completed

from pgflowd import Client
from pgflowd.testing.until import until

FLOWS = """
from pgflowd import Flow

pairs = Flow("pairs")

@pairs.step
def meet(run, ctx):
    (other,) = ctx.wait(ctx.wait_signal("other"))
    return other.status
"""


def codes(daemon: Daemon) -> list[str]:
    return [problem["code"] for problem in daemon.ask()["problems"]]


@covers("W332")
def test_runs_that_wait_for_each_other_are_told_until_one_is_cancelled(setup, database):
    """No start could refuse it: each learns later for whom it waits."""
    setup.module("flow_pairs", FLOWS)
    daemon = setup.serve(recovery={"recovery_interval": "1s"})

    def told(command: str) -> list[str]:
        printed = daemon.command(command).stdout
        return [line for line in printed.splitlines() if "waits for run" in line]

    with Client(database.dsn) as client:
        first, second = (client.start_flow("pairs", {}).run_id for _ in range(2))
        assert told("doctor") == []
        client.signal(first, "other", str(second))
        client.signal(second, "other", str(first))

        until(lambda: "W332" in codes(daemon), 30)

        ids = [str(first)[-8:], str(second)[-8:]]
        for (line,) in (told("status"), told("doctor")):
            assert [each in line for each in ids] == [True, True], line
            assert "of pairs waits for run" in line
            assert "which waits for it; 2 runs wait so" in line
            assert "pgflowd runs cancel RUN" in line
        client.cancel(second)
        until(lambda: is_completed(database, first), 30)
        assert client.get_run(first).output == {"meet": "cancelled"}
    until(lambda: "W332" not in codes(daemon), 30)
    assert told("doctor") == told("status") == []
