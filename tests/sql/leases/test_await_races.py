"""
Starters of runs that wait for two others each race with the ends of these and with sweeps, in
transactions that last, and sessions are killed: each run begins once, after those before it, or
never.
"""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import psycopg
from support.covers import covers
from support.leases import LeaseDatabase
from support.start_race import STARTS, StartRace

FIRST, KILLS = 40, 15  # runs to wait for; sessions killed
START = """
select run_id from pgflowd.start(%s, '{}', start_at => clock_timestamp() + %s::interval,
                                 after => %s, after_mode => %s)
"""
KNOWN = "select run_id from pgflowd.runs union select run_id from pgflow.runs"
WRITE_DOWN = """
create table wished (run_id uuid, after uuid[], mode text);
create table ended (run_id uuid, has_completed boolean, at timestamptz default clock_timestamp());
create table begun (run_id uuid, at timestamptz default clock_timestamp());
create function note() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    insert into public.begun values (new.run_id);
  elsif new.status <> 'started' and old.status = 'started' then
    insert into public.ended values (new.run_id, new.status = 'completed');
  end if;
  return new;
end $$;
create trigger note after insert or update on pgflow.runs for each row execute function note();
"""
TOO_EARLY = """
select wished.run_id, one.awaited from wished
 cross join lateral unnest(after) as one (awaited)
  join begun on begun.run_id = wished.run_id
  left join ended on ended.run_id = one.awaited
  left join pgflowd.runs as never on never.run_id = one.awaited and never.state = 'ended'
 where (ended.run_id is null and never.run_id is null) or ended.at > begun.at
    or (wished.mode = 'completed' and ended.has_completed is not true)
"""
IN_VAIN = """
select wished.run_id from wished join pgflowd.run_status as status using (run_id)
 where status.started_at is null
   and (wished.mode = 'ended' or not exists (
     select from unnest(after) as one (awaited)
      where not exists (select from ended where ended.run_id = awaited and has_completed)))
"""
OPEN = "select count(*) from pgflowd.run_status where status in ('blocked', 'scheduled', 'started')"


class Race(StartRace):
    """Starts wait for two runs each; some of these are there before."""

    def __init__(self, db: LeaseDatabase) -> None:
        super().__init__(db)
        db.do(WRITE_DOWN)
        for _ in range(FIRST):
            db.start(self.flow)

    def start_one(self, chance: random.Random, conn: psycopg.Connection[Any]) -> None:
        known: list[UUID] = [run for (run,) in conn.execute(KNOWN.encode())]
        after, mode = chance.sample(known, 2), chance.choice(["completed", "ended"])
        begins = chance.choice([None, "0.05 s"])
        is_undone = chance.random() < 0.1
        with conn.transaction(force_rollback=is_undone):
            (run,) = conn.execute(START, [self.flow, begins, after, mode]).fetchone() or ()
            conn.execute("insert into wished values (%s, %s, %s)", [run, after, mode])
            if chance.random() < 0.3:
                conn.execute("select pg_sleep(%s)", [chance.random() / 50])

    def work(self, chance: random.Random) -> None:
        """End runs one by one, some in transactions that last; a third fails or is cancelled."""
        conn, worker = self.db.connect(), self.db.worker(self.flow)
        while not self.must_end:
            for task in self.db.claim(self.flow, worker, 3, conn=conn):
                with conn.transaction():
                    thrown = chance.random()
                    if thrown < 0.1:
                        self.db.cancel(task.run_id, conn=conn)
                    elif thrown < 0.3:
                        self.db.fail(task, "no", conn=conn)
                    else:
                        self.db.complete(task, conn=conn)
                    if chance.random() < 0.2:
                        conn.execute("select pg_sleep(%s)", [chance.random() / 50])

    def kill(self, chance: random.Random) -> None:
        while not self.must_end:
            if self.kills < KILLS and self.db.value("select count(*) from ended") > 8 * self.kills:
                self.kill_one()
            self.is_over = self.starting == 0 and self.db.value(OPEN) == 0


@covers("G18")
def test_each_run_begins_once_after_those_before_it_or_never(own: LeaseDatabase) -> None:
    race = Race(own)

    race.go(11, race.work, race.work, race.kill)

    assert race.errors == []
    assert own.value(OPEN) == 0
    assert own.rows(TOO_EARLY) == []
    assert own.rows(IN_VAIN) == []
    assert own.rows("select run_id from begun group by run_id having count(*) > 1") == []
    assert own.value("select count(*) from wished") > STARTS
    assert own.rows("select * from pgflowd.due_violations()") == []
