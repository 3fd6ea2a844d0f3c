"""
Starters, workers and sweepers race for three singleton keys, and sessions of starters and sweepers
are killed meanwhile: never two runs of a key at once, all begin, in their order.
"""

from __future__ import annotations

import os
import random
from typing import Any

import psycopg
from support.covers import covers
from support.leases import LeaseDatabase
from support.start_race import STARTS, StartRace

KILLS = 20
WRITE_DOWN = """
create table begun (nr bigint generated always as identity, run_id uuid);
create table committed (run_id uuid, at timestamptz default clock_timestamp());
create function note() returns trigger language plpgsql as
  $$ begin insert into public.begun (run_id) values (new.run_id); return new; end $$;
create trigger note after insert on pgflow.runs for each row execute function note();
"""
START = """
    select run_id from pgflowd.start(%s, '{}', singleton_key => %s, on_conflict => %s)
"""
TWO_AT_ONCE = """
    select ours.singleton_key from pgflowd.runs as ours
      left join pgflow.runs as run on run.run_id = ours.run_id and run.status = 'started'
      left join pgflowd.attempts as attempt
        on attempt.run_id = ours.run_id and attempt.ended_at is null
     where ours.singleton_key is not null
       and (run.run_id is not null or attempt.run_id is not null)
     group by ours.singleton_key having count(distinct ours.run_id) > 1
"""
OVERTAKEN = """
    with life as (
      select ours.singleton_key, ours.run_id, ours.created_at, run.started_at, begun.nr,
             (select min(at) from committed where committed.run_id = ours.run_id) as committed_at
        from pgflowd.runs as ours join pgflow.runs as run using (run_id) join begun using (run_id))
    select early.nr, late.nr as later from life as early
      join life as late using (singleton_key)
     where early.created_at < late.created_at and early.committed_at < late.started_at
       and early.nr > late.nr
"""
OPEN = """
    select count(*) from pgflowd.run_status
     where status in ('blocked', 'scheduled', 'started') or blocked_by is not null
"""


class Race(StartRace):
    """A third of the starts is in a transaction that lasts, some of which are rolled back."""

    def __init__(self, db: LeaseDatabase) -> None:
        super().__init__(db)
        db.do(WRITE_DOWN)

    def start_one(self, chance: random.Random, conn: psycopg.Connection[Any]) -> None:
        on_conflict = "wait" if chance.random() < 0.9 else chance.choice(["existing", "reject"])
        wishes = [self.flow, f"key {chance.randrange(3)}", on_conflict]
        lasts = chance.random() < 0.3
        is_undone = lasts and chance.random() < 0.2
        try:
            with conn.transaction(force_rollback=is_undone):
                found = conn.execute(START, wishes).fetchone()
                if lasts:
                    conn.execute("select pg_sleep(%s)", [chance.random() / 100])
        except psycopg.DatabaseError as error:
            if error.sqlstate != "PF006":
                raise
        if not is_undone and on_conflict == "wait":
            conn.execute("insert into committed (run_id) values (%s)", found)

    def work(self, chance: random.Random) -> None:
        conn, worker = self.db.connect(), self.db.worker(self.flow)
        while not self.must_end:
            for task in self.db.claim(self.flow, worker, conn=conn):
                if chance.random() < 0.1:
                    self.db.cancel(task.run_id, conn)
                if chance.random() < 0.2:
                    self.db.fail(task, "no", conn)
                else:
                    self.db.complete(task, conn=conn)

    def kill(self, chance: random.Random) -> None:
        conn = self.db.connect()
        while not self.must_end:
            if self.kills < KILLS:
                self.kill_one(conn)

    def watch(self, _: random.Random) -> None:
        conn = self.db.connect()
        while not self.must_end:
            assert self.db.rows(TWO_AT_ONCE, conn=conn) == []
            if not self.starting and self.db.value(OPEN, conn=conn) == 0:
                self.is_over = True


@covers("G17")
def test_no_two_of_a_key_run_at_once_and_all_begin_in_order(own: LeaseDatabase) -> None:
    seed = int(os.environ.get("PGFLOWD_STRESS_SEED") or random.SystemRandom().getrandbits(32))
    print(f"seed {seed}")  # noqa: T201
    race = Race(own)

    race.go(seed, race.work, race.work, race.kill, race.watch)

    assert race.is_over, own.rows(OPEN)
    assert race.kills > 5
    assert own.rows(OVERTAKEN) == []
    assert own.value("select count(*) from committed") > STARTS
    lost = "select run_id from committed where run_id not in (select run_id from begun)"
    assert own.rows(lost) == []
    assert own.rows("select * from pgflowd.violations('1 day')") == []
