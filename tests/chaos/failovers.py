"""
Failovers: daemons and clients beside a real Patroni, whose leader is lost in all ways.

    python tests/chaos/failovers.py --rounds 10 --seed 7      part of `make chaos`

Runs are started all the time. Afterwards each run that the database had acknowledged is completed,
no attempt was spent and no restart counted, and all invariants hold. Each round prints when there
was a new leader, and how much later the first run on it was done.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # for tests/support

import psycopg
from support.daemon import Daemon, DaemonSetup
from support.invariants import broken
from support.patroni import PatroniCluster, PatroniMachine
from support.servers import Starter, completed_runs, open_runs

from pgflowd import Client
from pgflowd.db import schema
from pgflowd.db.connection import connect
from pgflowd.errors import PgflowdError
from pgflowd.testing.until import until

FAULTS = ("kill", "freeze", "switch over", "crash")
ENOUGH = 40  # runs acknowledged between two faults
SETTLE_S = 60.0


def fail_over(faults: list[str]) -> None:
    """Let the faults happen, one after another; raise AssertionError if something is wrong."""
    with (
        tempfile.TemporaryDirectory(prefix="pgflowd-failovers-") as directory,
        PatroniCluster() as cluster,
    ):
        with connect(cluster.url) as conn:
            schema.migrate(conn)
        setup = DaemonSetup(Path(directory), cluster.url)
        setup.flow("flow")
        section = {**cluster.database_section(), "reconnect_max": "1s"}
        try:
            daemons = [setup.serve(name, database=section) for name in ("one", "two")]
            _live_through(cluster, setup, daemons, faults)
        finally:
            setup.close()


def _live_through(
    cluster: PatroniCluster, setup: DaemonSetup, daemons: list[Daemon], faults: list[str]
) -> None:
    before = [daemon.pids() for daemon in daemons]
    starter = Starter(cluster.url)
    starter.has_more_than(ENOUGH, SETTLE_S)
    for fault in faults:
        _happen(cluster, fault, starter)
    acknowledged = starter.ended()
    with connect(cluster.url) as conn:
        until(lambda: open_runs(conn) == 0, SETTLE_S)
        assert acknowledged <= completed_runs(conn), acknowledged - completed_runs(conn)
        query = "select count(*) from pgflow.step_tasks where attempts_count > 1"
        assert conn.execute(query).fetchone() == (0,), "an attempt was spent"
        assert broken(conn, setup.oracle, was_frozen=True) == []
    for daemon, pids in zip(daemons, before, strict=True):
        assert daemon.pids() == pids, daemon.events("child.exited")
        assert daemon.ask()["supervisor"]["restarts"] == 0


def _happen(cluster: PatroniCluster, fault: str, starter: Starter) -> None:
    """One fault: wait for the new leader, for work, and until the machine follows again."""
    until(cluster.is_whole, SETTLE_S)
    leader = cluster.leader()
    assert isinstance(leader, PatroniMachine)
    began = time.monotonic()
    if fault == "crash":
        leader.crash()  # Patroni starts it again
        new = leader
    else:
        {"kill": leader.kill, "freeze": leader.freeze, "switch over": cluster.switch_over}[fault]()
        new = cluster.new_leader(leader)
    led_after_s = time.monotonic() - began
    until(lambda: _is_done(cluster.url), SETTLE_S)
    worked_after_s = time.monotonic() - began
    if fault == "kill":
        leader.start()
    elif fault == "freeze":
        leader.thaw()  # a client in the middle of a call to it waited until now
    starter.has_more_than(len(starter.acknowledged) + ENOUGH, SETTLE_S)
    _say(
        f"{fault:<12} {leader.name} -> {new.name}: a leader after {led_after_s:.1f} s, "
        f"a run done {worked_after_s - led_after_s:.1f} s later"
    )


def _is_done(url: str) -> bool:
    """Whether a run can be started, and ends."""
    with Client(url) as client:
        try:
            run = client.start_flow_sync("flow", {"s": 0}, timeout=SETTLE_S)
        except (PgflowdError, psycopg.Error):  # no primary yet
            return False
    return run.status == "completed"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    faults = [chance.choice(FAULTS) for _ in range(chosen.rounds)]
    _say(f"seed {chosen.seed}: {', '.join(faults)}")
    fail_over(faults)
    _say("nothing was lost")


if __name__ == "__main__":
    main()
