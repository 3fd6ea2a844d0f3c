"""
The soak of schedules: several daemons, killed at random, and schedules of one second.

    python tests/chaos/ticks.py --minutes 10 --seed 7      make ticks MINUTES=10 SEED=7

In the end each second from the first tick of a schedule to its pause has exactly one run, which was
planned for this second and did not begin before it; and each run has completed.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # for tests/support

import psycopg
import soak
from mortals import MortalDaemons, place
from support.daemon import DaemonSetup

from pgflowd.testing.until import until

DAEMONS = 3
SCHEDULES = 5
KILLED = ("sweeper", "sweeper", "sweeper", "worker", "listener", "supervisor", "connections")
SETTLED_S = 60.0
FLOW = """
from pgflowd import Flow, Schedule
flow = Flow("ticking", max_attempts=100, base_delay=0, schedules=[
    Schedule("@every 1s", {{"n": n}}, name=f"s{{n}}", overlap="allow", catchup="all")
    for n in range({count})
])

@flow.step
async def tells(run, ctx):
    return ctx.scheduled_for.isoformat()
"""
OUTCOME = """
with started as (
  select ours.labels ->> 'schedule' as name, ours.start_at, run.started_at, run.status, run.output
    from pgflowd.runs as ours left join pgflow.runs as run using (run_id)
), span as (
  select name, min(start_at) as first, max(start_at) as last, count(*) as runs
    from started group by name
)
select (select sum(runs) from span) as runs,
       (select sum(extract(epoch from last - first)::int + 1) from span) as ticks,
       (select count(*) from started where started_at < start_at) as early,
       (select count(*) from started where status is distinct from 'completed') as open,
       (select count(*) from started
         where (output ->> 'tells')::timestamptz is distinct from start_at) as other_ticks,
       (select count(*) from (select from started group by name, start_at having count(*) > 1) as d)
         as doubled,
       (select count(*) from span
         cross join lateral generate_series(span.first, span.last, '1 second') as tick
         where not exists (select from started
                            where started.name = span.name and started.start_at = tick)) as lost,
       (select round(1000 * percentile_cont(0.5) within group (
          order by extract(epoch from started_at - start_at)))::int from started) as late_ms,
       (select round(1000 * max(extract(epoch from started_at - start_at)))::int from started)
         as latest_ms
"""
TERMINATE = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
 where datname = current_database() and application_name like '%sweeper%'
"""


class Ticks:
    """Daemons, and what is done to them."""

    def __init__(
        self, seed: int, daemons: int, setup: DaemonSetup, conn: psycopg.Connection[Any]
    ) -> None:
        self.conn = conn
        self.chance = random.Random(seed)
        self.daemons = MortalDaemons(setup, daemons, self.chance, soak.CONFIG)
        self.seen: Counter[str] = Counter()

    def value(self, query: str) -> Any:
        row = self.conn.execute(query.encode()).fetchone()
        return row and row[0]

    def kill(self) -> None:
        """One process; or the connections of all sweepers."""
        kind = self.chance.choice(KILLED)
        if kind == "connections":
            self.value(TERMINATE)
        elif not self.daemons.kill(kind):
            return
        self.seen[f"killed {kind}"] += 1

    def outcome(self) -> dict[str, Any]:
        """What the tables have, when no more ticks come and all runs have ended."""
        self.value("select count(pgflowd.pause_schedule(name)) from pgflowd.schedules")

        def has_ended() -> bool:
            self.daemons.look_after()
            return not self.value("select count(*) from pgflow.runs where status = 'started'")

        until(has_ended, SETTLED_S)
        cursor = self.conn.cursor(row_factory=psycopg.rows.dict_row)
        found = cursor.execute(OUTCOME).fetchone()
        assert found is not None
        violations = self.value("select count(*) from pgflowd.violations()")
        return {**dict(self.seen), **found, "violations": violations}


def survive(seed: int, seconds: float, daemons: int = DAEMONS) -> dict[str, Any]:
    """Let it go on for so long; what was seen."""
    flow = FLOW.format(count=SCHEDULES)
    with place(flow) as (setup, dsn), psycopg.connect(dsn, autocommit=True) as conn:
        one = Ticks(seed, daemons, setup, conn)
        one.daemons.start()
        until(lambda: one.value("select count(*) from pgflow.runs"), 60)
        until_at = time.monotonic() + seconds
        while time.monotonic() < until_at:
            one.kill()
            time.sleep(one.chance.uniform(0.1, 1.5))
        return one.outcome()


def wrong(outcome: dict[str, Any]) -> list[str]:
    """What must not be."""
    none = ("early", "open", "other_ticks", "doubled", "lost", "violations")
    found = [f"{outcome[name]} {name}" for name in none if outcome[name]]
    return found + ["runs are not as many as ticks"] * (outcome["runs"] != outcome["ticks"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    given = parser.parse_args()
    outcome = survive(given.seed, given.minutes * 60)
    shown = {"seed": given.seed, "minutes": given.minutes, **outcome}
    sys.stdout.write("".join(f"{name}: {value}\n" for name, value in shown.items()))
    if wrong(outcome):
        sys.exit(f"WRONG: {', '.join(wrong(outcome))}")


if __name__ == "__main__":
    main()
