"""
The chaos of undos: runs of random flows that fail, are cancelled or taken back, while runners,
workers, sweepers, whole daemons and the server are killed.

    python tests/chaos/undos.py --runs 1000 --seed 7      make undos RUNS=1000 SEED=7

Half of the runs are races: their branches return at about the moment at which one of them fails,
or at which the run is cancelled or its daemon stops. What handlers wrote down right before they
returned is undone exactly once, unless a process of theirs was killed before its result was taken.

In the end each run that was to be undone is `undone` or `undo_failed` by itself. What the handlers
wrote down is compared with the tables: undone is what completed, and nothing else; in order; and
nothing of a run is executed once its undo has begun.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # for tests/support

import psycopg
import undo_flows
from mortals import MortalDaemons, place
from support.daemon import DaemonSetup

from pgflowd.testing.until import until

DAEMONS = 2
RUNS_AT_ONCE = 10
SETTLED_S = 180.0
KILLED = ("worker", "worker", "runner", "zygote", "sweeper", "sweeper", "listener", "supervisor")
CONFIG: dict[str, dict[str, Any]] = {
    "worker": {
        "max_concurrency": 8,
        "max_restarts": 100_000,
        "backoff_max": "500ms",
        "kill_grace": "20s",  # no handler takes as long: none is killed but by chance
    },
    "supervisor": {"max_restarts": 100_000, "backoff_min": "10ms", "backoff_max": "500ms"},
    "logging": {"level": "info"},
    "flows.saga_async": {"max_concurrency": 16, "tasks_per_runner": 8},
}
OPEN = """
select (select count(*) from pgflow.runs where status = 'started')
       + (select count(*) from pgflowd.runs where undo_state in ('wanted', 'undoing'))
"""
LEDGER = """
create temp table ledger (event text, run_id uuid, step_slug text, task_index int, token bigint,
                          at float8, wall float8, pids jsonb)
"""
KILLED_TABLE = "create temp table killed (pid int, at float8)"
# `is_excused`: a process was killed between what a handler wrote down and the end of its attempt,
# or so short before that its children had not noticed
RETURNED = """
create temp table returned as
select line.*, attempt.outcome, exists (
         select from killed
          where line.pids @> to_jsonb(killed.pid) and killed.at >= line.wall - 1
            and (attempt.ended_at is null
                 or killed.at <= extract(epoch from attempt.ended_at) + 0.2)) as is_excused
  from ledger as line left join pgflowd.attempts as attempt using (token)
 where line.event in ('did', 'undid')
"""
TO_UNDO = """
create temp table to_undo as
select run.run_id, run.flow_slug, task.step_slug, task.task_index, option.undo, ours.undo_state,
       task.status = 'completed' as has_completed,
       exists (select from pgflowd.attempts as one
                where (one.run_id, one.step_slug, one.task_index)
                      = (task.run_id, task.step_slug, task.task_index)
                  and one.output is not null) as was_late,
       task.attempts_count > 0
         or exists (select from pgflowd.attempts as one
                     where (one.run_id, one.step_slug, one.task_index)
                           = (task.run_id, task.step_slug, task.task_index)) as was_tried,
       (select count(*) from ledger as line
         where line.event = 'undid'
           and (line.run_id, line.step_slug, line.task_index)
               = (task.run_id, task.step_slug, task.task_index)) as undone
  from pgflow.runs as run
  join pgflowd.runs as ours on ours.run_id = run.run_id and ours.undo_state is not null
  join pgflow.step_tasks as task on task.run_id = run.run_id
  left join pgflowd.step_options as option
    on option.flow_slug = run.flow_slug and option.step_slug = task.step_slug
"""
FIGURES = """
select count(*) filter (where undo is not null and (has_completed or was_late)) as to_undo,
       count(*) filter (where undo is not null and was_late and not has_completed) as late,
       count(*) filter (where undone > 0) as undone, count(*) filter (where undone > 1) as again
  from to_undo
"""
WRONG = {
    "an undo does not end": """
        select run_id, undo_state from pgflowd.runs where undo_state in ('wanted', 'undoing')""",
    "a run that failed or was cancelled is not undone": """
        select run.run_id, run.error_message from pgflow.runs as run
         where run.status = 'failed' and starts_with(run.flow_slug, 'saga')
           and not exists (select from pgflowd.runs as ours
                            where ours.run_id = run.run_id and ours.undo_state is not null)""",
    "told as undone, and is not": """
        select * from to_undo
         where undo_state = 'undone' and undo is not null and undone = 0
           and (has_completed or was_late or undo = 'attempted' and was_tried)""",
    "undone without need": """
        select * from to_undo
         where undone > 0 and not (undo is not null and (has_completed or was_late)
                                   or undo = 'attempted' and was_tried)""",
    "returned, told as undone, and is not": """
        select done.* from returned as done
          join pgflow.runs as run using (run_id)
          join pgflowd.runs as ours on ours.run_id = run.run_id and ours.undo_state = 'undone'
          join pgflowd.step_options as option
            on option.flow_slug = run.flow_slug and option.step_slug = done.step_slug
         where done.event = 'did' and not done.is_excused and option.undo is not null
           and not exists (select from ledger as undid
                            where undid.event = 'undid'
                              and (undid.run_id, undid.step_slug, undid.task_index)
                                  = (done.run_id, done.step_slug, done.task_index))""",
    "undone though it never returned": """
        select undid.* from ledger as undid
          join pgflow.runs as run using (run_id)
          join pgflowd.step_options as option
            on option.flow_slug = run.flow_slug and option.step_slug = undid.step_slug
         where undid.event = 'undid' and option.undo <> 'attempted'
           and not exists (select from ledger as done
                            where done.event = 'did'
                              and (done.run_id, done.step_slug, done.task_index)
                                  = (undid.run_id, undid.step_slug, undid.task_index))""",
    "undone twice": """
        select run_id, step_slug, task_index, array_agg(outcome) from returned
         where event = 'undid' group by 1, 2, 3
        having count(*) filter (where outcome = 'completed') > 1
            or count(*) > 1 and array_agg(outcome) <@ array['completed']""",
    "executed though its undo had begun": """
        select done.* from ledger as done
         where done.event in ('start', 'did')
           and done.at > (select min(undo.at) from ledger as undo
                           where undo.run_id = done.run_id and undo.event = 'undo')""",
    "undone before what came after it": """
        with recursive below as (
          select dep.flow_slug, dep.dep_slug as step_slug, dep.step_slug as later
            from pgflow.deps as dep where starts_with(dep.flow_slug, 'saga')
          union
          select below.flow_slug, below.step_slug, dep.step_slug
            from below join pgflow.deps as dep
              on dep.flow_slug = below.flow_slug and dep.dep_slug = below.later)
        select early.run_id, early.step_slug, late.step_slug
          from (select run_id, step_slug, min(at) as began from ledger
                 where event = 'undo' group by 1, 2) as early
          join pgflow.runs as run using (run_id)
          join below on below.flow_slug = run.flow_slug and below.step_slug = early.step_slug
          join (select run_id, step_slug, max(at) as ended from ledger
                 where event = 'undid' group by 1, 2) as late
            on late.run_id = early.run_id and late.step_slug = below.later
         where late.ended > early.began
           and (select undo_generation from pgflowd.runs as ours
                 where ours.run_id = run.run_id) = 1""",
    "violations": "select * from pgflowd.violations()",
}


class Undos:
    """Daemons, runs, and what is done to them."""

    def __init__(
        self, seed: int, daemons: int, setup: DaemonSetup, dsn: str, *, is_calm: bool
    ) -> None:
        self.setup, self.dsn = setup, dsn
        self.is_calm = is_calm  # nothing is killed; daemons drain
        self.chance = random.Random(seed)
        self.daemons = MortalDaemons(setup, daemons, self.chance, CONFIG)
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.ledger = setup.directory / "ledger"
        self.ledger.touch()
        setup.environ |= {"UNDO_SEED": str(seed), "UNDO_LEDGER": str(self.ledger)}
        setup.config(**CONFIG)
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.rows("select pgflowd.set_setting('crash_limit', '1000', 'chaos')")

    def rows(self, query: str, *params: Any) -> list[Any]:
        """Ask, again if the server has been killed meanwhile."""

        def ask() -> list[Any] | None:
            try:
                cursor = self.conn.execute(query.encode(), params)
                return [*cursor.fetchall()] if cursor.description else []
            except psycopg.OperationalError:
                self.conn.close()
                with suppress(psycopg.OperationalError):
                    self.conn = psycopg.connect(self.dsn, autocommit=True)
                return None

        found: list[list[Any]] = []
        until(lambda: (answer := ask()) is not None and found.append(answer) is None, 60)
        return found[0]

    def start_runs(self, wanted: int) -> None:
        ((opened,),) = self.rows(OPEN)
        for _ in range(min(RUNS_AT_ONCE - opened, wanted - self.seen["runs"])):
            ordinary = f"saga_{self.chance.randrange(undo_flows.FLOWS)}"
            flow = self.chance.choice([ordinary, ordinary, *undo_flows.RACES])
            found = self.rows("select step_slug from pgflow.steps where flow_slug = %s", flow)
            steps = [step for (step,) in found]
            if flow in undo_flows.RACES:
                steps = ["breaks", "tears"]
            fails = self.chance.choice([*steps, *steps, ""])
            # of this step the first undo fails
            refuses = self.chance.choice([*steps, *[""] * 20])
            given = {"fails": fails, "refuses": refuses, "n": self.chance.choice([0, 1, 2, 5])}
            query = "select run_id from pgflow.start_flow(%s, %s::jsonb)"
            self.rows(query, flow, json.dumps(given))
            self.seen["runs"] += 1

    def do_something(self) -> None:
        acts = (self.kill, self.kill_the_server, self.cancel, self.undo, self.again, self.drain)
        weights = (0, 0, 3, 2, 1, 1) if self.is_calm else (9, 0.4, 2, 2, 1, 0)
        (act,) = self.chance.choices(acts, weights)
        if act():
            self.seen[act.__name__] += 1

    def kill(self) -> bool:
        return self.daemons.kill(self.chance.choice(KILLED))

    def drain(self) -> bool:
        return self.daemons.drain()

    def kill_the_server(self) -> bool:
        """A backend that is killed takes all others with it, and the server begins anew."""
        query = "select pid from pg_stat_activity where backend_type = 'client backend'"
        pids = [pid for (pid,) in self.rows(query)]
        with suppress(ProcessLookupError):
            os.kill(self.chance.choice(pids), signal.SIGKILL)
        return True

    def cancel(self) -> bool:
        return self.ask("pgflowd.cancel(%s, 'chaos', 'chaos', true)", "started")

    def undo(self) -> bool:
        return self.ask("pgflowd.undo(%s, 'chaos', 'chaos')", "completed")

    def again(self) -> bool:
        return self.ask("pgflowd.undo(%s, 'chaos', 'chaos', true)", "undo_failed")

    def ask(self, call: str, status: str) -> bool:
        query = """
            select run_id from pgflowd.run_status
             where status = %s and undo_of is null order by random() limit 1
        """
        for run in self.rows(query, status):
            try:
                self.rows(f"select {call}", *run)
            except psycopg.Error as error:
                if error.sqlstate not in ("PF003", "PF005", "PF022"):
                    raise
                return False
            return True
        return False

    def settle(self) -> None:
        """No more is killed: all that was begun ends."""

        def has_ended() -> bool:
            self.daemons.look_after()
            return self.rows(OPEN) == [(0,)]

        with suppress(AssertionError):
            until(has_ended, SETTLED_S)

    def judge(self) -> None:
        """Compare what handlers wrote down with the tables."""
        self.rows(LEDGER)
        with self.conn.cursor().copy("copy ledger from stdin") as copy, self.ledger.open() as lines:
            for line in lines:
                copy.write_row(json.loads(line))
        self.rows(KILLED_TABLE)
        with self.conn.cursor().copy("copy killed from stdin") as copy:
            for killed in self.daemons.killed:
                copy.write_row(killed)
        self.rows(RETURNED)
        self.rows(TO_UNDO)
        for what, query in WRONG.items():
            if found := self.rows(query):
                self.wrong.append(f"{len(found)} times: {what}: {found[:3]}")
        ((tasks, late, undone, again),) = self.rows(FIGURES)
        self.seen |= {"tasks to undo": tasks, "late": late, "undone": undone, "twice": again}
        ((self.seen["excused"],),) = self.rows("select count(*) from returned where is_excused")
        query = "select status, count(*) from pgflowd.run_status where undo_of is null group by 1"
        self.seen |= {f"runs {status}": number for status, number in self.rows(query)}


def survive(seed: int, runs: int, daemons: int = DAEMONS, *, is_calm: bool = False) -> Undos:
    """Let so many runs be undone while all is killed; what was seen, and what was wrong."""
    with place(Path(undo_flows.__file__).read_text()) as (setup, dsn):
        one = Undos(seed, daemons, setup, dsn, is_calm=is_calm)
        one.daemons.start()
        while one.seen["runs"] < runs:
            one.start_runs(runs)
            one.do_something()
            one.daemons.look_after()
            time.sleep(one.chance.uniform(0.05, 0.3))
        one.settle()
        while one.again():  # all that has failed
            one.seen["again"] += 1
        one.settle()
        one.judge()
        return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--calm", action="store_true", help="daemons drain, and nothing is killed")
    given = parser.parse_args()
    began = time.monotonic()
    one = survive(given.seed, given.runs, is_calm=given.calm)
    seen = {"seed": given.seed, "seconds": round(time.monotonic() - began), **one.seen}
    sys.stdout.write("".join(f"{name}: {value}\n" for name, value in seen.items()))
    if one.wrong:
        sys.exit("\n".join(["WRONG:", *one.wrong[:40]]))


if __name__ == "__main__":
    main()
