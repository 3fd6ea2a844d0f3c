"""
The soak: 1,000 keys with random limits, while processes are killed, and runs and flows are paused.

    python tests/chaos/soak.py --minutes 10 --seed 7      make soak MINUTES=10 SEED=7

At each look, which is one snapshot of the database, no key has more live leases than its limit.
Looks count by the inputs of the tasks that are at work, not by what the limits wrote down. In the
end each run is completed or cancelled, and nothing is left over.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # for tests/support

import psycopg
import soak_flows
from mortals import MortalDaemons, place
from support.daemon import DaemonSetup

from pgflowd.testing.until import until

DAEMONS = 3
RUNS_AT_ONCE = 25
MOST_TASKS = 40  # of a run
LONGEST_S = 0.2  # of a task
LOOK_S = 0.03  # between two looks
LOOKS_A_MINUTE = 1000  # at least; where they take longer, it goes on for longer
SETTLED_S = 120.0
KILLED = ("worker", "worker", "runner", "zygote", "sweeper", "listener", "supervisor")
CONFIG: dict[str, dict[str, Any]] = {
    "worker": {
        "max_concurrency": 16,
        "tasks_per_runner": 8,
        "max_restarts": 100_000,
        "backoff_max": "500ms",
        "sleep_after": "0s",
    },
    "supervisor": {"max_restarts": 100_000, "backoff_min": "10ms", "backoff_max": "500ms"},
    "logging": {"level": "info"},
}
AT_WORK = """
select task.flow_slug, run.input -> task.task_index ->> 'key' as key, count(*) as leases
  from pgflowd._started_tasks(null) as started
  join pgflow.step_tasks as task using (run_id, step_slug, task_index)
  join pgflow.runs as run on run.run_id = task.run_id and run.status = 'started'
 where exists (select from pgflowd.attempts as attempt
                where attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
                  and attempt.task_index = task.task_index and attempt.ended_at is null
                  and attempt.attempt = task.attempts_count)
 group by 1, 2
"""
TAKE = """
select run_id, step_slug, task_index, token
  from pgflowd.task_claim(%s, null, interval '3 s', 'jane')
"""
NOBODY_HAS = """
select run_id, step_slug, task_index from pgflow.step_tasks
 where status = 'queued' order by random() limit 1
"""
TAKEN = """
select counted.limit_key, counted.taken
  from pgflowd._count_slots(array(select distinct slot.limit_key from pgflowd.slots as slot))
       as counted
 where counted.taken > 0
"""
LEFT = {
    "runs that are neither completed nor cancelled": """
        select run.run_id, run.status from pgflow.runs as run
         where run.status <> 'completed' and not exists (
           select from pgflowd.runs as ours
            where ours.run_id = run.run_id and ours.cancelled_at is not null)""",
    "waits": "select run_id, kind, name from pgflowd.waits",
    "violations": "select * from pgflowd.violations()",
}


class Soak:
    """Daemons, runs, and what is done to them."""

    def __init__(
        self, seed: int, daemons: int, setup: DaemonSetup, conn: psycopg.Connection[Any]
    ) -> None:
        self.setup, self.conn = setup, conn
        self.chance = random.Random(seed)
        self.slots = {f"soak_{n}": soak_flows.slots(seed, n) for n in range(soak_flows.FLOWS)}
        self.daemons = MortalDaemons(setup, daemons, self.chance, CONFIG)
        self.seen: Counter[str] = Counter()  # what happened, and how often
        self.keys: set[tuple[str, str]] = set()  # which were at work
        self.wrong: list[str] = []
        setup.environ["SOAK_SEED"] = str(seed)
        setup.config(**CONFIG)

    def rows(self, query: str, *params: Any) -> list[Any]:
        return self.conn.execute(query.encode(), params).fetchall()

    def look(self, stop: Event) -> None:
        """Look, again and again, whether a key is above its limit."""
        with psycopg.connect(self.setup.dsn, autocommit=True) as conn:
            while not stop.wait(LOOK_S):
                self.look_once(conn)

    def look_once(self, conn: psycopg.Connection[Any]) -> None:
        self.seen["looks"] += 1
        for flow, key, leases in conn.execute(AT_WORK).fetchall():
            self.keys.add((flow, key))
            self.seen["leases seen"] += leases
            if leases == self.slots[flow]:
                self.seen["keys seen at their limit"] += 1
            if leases > self.slots[flow]:
                self.wrong.append(f"{flow}:{key} has {leases} leases, and {self.slots[flow]} slots")

    def start_runs(self) -> None:
        (opened,) = self.rows("select count(*) from pgflow.runs where status = 'started'")[0]
        for _ in range(RUNS_AT_ONCE - opened):
            flow = self.chance.choice(list(self.slots))
            some = self.chance.sample(range(soak_flows.KEYS), self.chance.choice((1, 5, 40)))
            items = [
                {"key": f"k{self.chance.choice(some)}", "s": self.chance.random() * LONGEST_S}
                for _ in range(self.chance.randrange(1, MOST_TASKS))
            ]
            self.rows(
                "select run_id from pgflow.start_flow(%s, %s::jsonb)", flow, json.dumps(items)
            )
            self.seen["runs"] += 1

    def do_something(self) -> None:
        """Kill a process, pause, resume or cancel, or let a person do a task."""
        acts = (
            self.kill, self.kill, self.pause, self.pause, self.pause_flow, self.cancel,
            self.claim, self.claim, self.complete,
        )  # fmt: skip
        act = self.chance.choice(acts)
        if act():
            self.seen[act.__name__] += 1

    def kill(self) -> bool:
        return self.daemons.kill(self.chance.choice(KILLED))

    def pause(self) -> bool:
        """Resume all runs that are paused, and pause others."""
        self.resume()
        return (
            sum(self.try_it("pgflowd.pause(%s, 'soak', 'soak')", *run) for run in self.open(4)) > 0
        )

    def resume(self) -> None:
        for run in self.rows("select run_id from pgflowd.runs where paused_at is not null"):
            self.try_it("pgflowd.resume(%s)", *run)

    def pause_flow(self) -> bool:
        """Resume the flow that is paused, and pause another one, or none."""
        self.resume_flow()
        flow = self.chance.choice([*self.slots, ""])
        return flow != "" and self.try_it("pgflowd.pause_flow(%s)", flow)

    def resume_flow(self) -> None:
        self.rows("select pgflowd.resume_flow(flow_slug) from pgflowd.paused_flows")

    def cancel(self) -> bool:
        return (
            sum(self.try_it("pgflowd.cancel(%s, 'soak', 'soak')", *run) for run in self.open(1)) > 0
        )

    def claim(self) -> bool:
        """A person takes a task for three seconds, and forgets some of them."""
        flow = self.chance.choice(list(self.slots))
        complete = "pgflowd.task_complete(%s, %s, %s, 'null', 'jane', %s)"
        found = self.rows(TAKE, flow)
        for task in found:
            if self.chance.random() < 0.5:
                self.try_it(complete, *task)
        return bool(found)

    def complete(self) -> bool:
        """A person completes a task that nobody has, whatever it waits for."""
        complete = "pgflowd.task_complete(%s, %s, %s, 'null', 'joe')"
        return sum(self.try_it(complete, *task) for task in self.rows(NOBODY_HAS)) > 0

    def open(self, most: int) -> list[Any]:
        """Some runs that have not ended."""
        query = "select run_id from pgflow.runs where status = 'started' order by random() limit %s"
        return self.rows(query, most)

    def try_it(self, call: str, *params: Any) -> bool:
        """Call a function; false if the run has ended meanwhile, or somebody has the task."""
        try:
            self.rows(f"select {call}", *params)
        except psycopg.Error as error:
            if error.sqlstate not in ("PF003", "PF008"):
                raise
            return False
        return True

    def settle(self) -> None:
        """All that was begun comes to its end."""
        self.resume()
        self.resume_flow()

        def has_ended() -> bool:
            self.daemons.look_after()
            return not self.rows("select 1 from pgflow.runs where status = 'started' limit 1")

        try:
            until(has_ended, SETTLED_S)
        except AssertionError:
            self.wrong.append("runs go on for ever")
        try:
            until(lambda: not self.rows(TAKEN), SETTLED_S)  # leases of cancelled runs lapse
        except AssertionError:
            self.wrong.append(f"places are taken for ever: {self.rows(TAKEN)[:5]}")
        for what, query in LEFT.items():
            if left := self.rows(query):
                self.wrong.append(f"{len(left)} {what} are left over: {left[:5]}")


def soak(seed: int, seconds: float, looks: int = 0, daemons: int = DAEMONS) -> Soak:
    """Let it go on for so long, and for so many looks; what was seen, and what was wrong."""
    with (
        place(Path(soak_flows.__file__).read_text()) as (setup, dsn),
        psycopg.connect(dsn, autocommit=True) as conn,
        ThreadPoolExecutor(1) as pool,
    ):
        one, stop = Soak(seed, daemons, setup, conn), Event()
        one.daemons.start()
        looking = pool.submit(one.look, stop)
        try:
            began = time.monotonic()
            while time.monotonic() < began + seconds or one.seen["looks"] < looks:
                one.start_runs()
                one.do_something()
                one.daemons.look_after()
                time.sleep(one.chance.uniform(0.1, 0.8))
            one.settle()
        finally:
            stop.set()
        looking.result()
        return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    given = parser.parse_args()
    one = soak(given.seed, given.minutes * 60, looks=int(given.minutes * LOOKS_A_MINUTE))
    seen = {"seed": given.seed, **one.seen, "keys": len(one.keys)}
    sys.stdout.write("".join(f"{name}: {value}\n" for name, value in seen.items()))
    if one.wrong:
        sys.exit("\n".join(["WRONG:", *one.wrong[:40]]))


if __name__ == "__main__":
    main()
