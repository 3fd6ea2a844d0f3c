"""
Starters of runs and sweepers, in sessions that are killed; a test adds who works and who watches.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import Any

import psycopg

from support.actors import Actor, act_together
from support.leases import LeaseDatabase

STARTERS, STARTS = 3, 45  # starts of each starter
KILL_ONE = """
    select pg_terminate_backend(pid) from pg_stat_activity
     where application_name = 'victim' and datname = current_database() order by random() limit 1
"""


class StartRace:
    """The actors, and what they share. Subclasses say how a run is started, and who else acts."""

    def __init__(self, db: LeaseDatabase) -> None:
        self.db = db
        self.flow = db.flow(max_attempts=1)
        self.starting = STARTERS
        self.kills = 0
        self.is_over = False
        self.errors: list[BaseException] = []
        self.ends_at = time.monotonic() + 120

    def go(self, seed: int, *others: Actor) -> None:
        actors = [*[self.start] * STARTERS, *[self.sweep] * 2, *others]
        act_together(actors, seed, self.errors)

    @property
    def must_end(self) -> bool:
        return self.is_over or bool(self.errors) or time.monotonic() > self.ends_at

    def start(self, chance: random.Random) -> None:
        left = STARTS
        while left and not self.must_end:
            with suppress(psycopg.OperationalError), self._victim() as conn:
                while left and not self.must_end:
                    left -= 1
                    self.start_one(chance, conn)
        self.starting -= 1

    def start_one(self, chance: random.Random, conn: psycopg.Connection[Any]) -> None:
        raise NotImplementedError

    def sweep(self, chance: random.Random) -> None:
        while not self.must_end:
            with suppress(psycopg.OperationalError), self._victim() as conn:
                while not self.must_end:
                    conn.execute("select pgflowd.process_due(%s)", [chance.randint(1, 20)])

    def kill_one(self, conn: psycopg.Connection[Any] | None = None) -> None:
        self.kills += len(self.db.rows(KILL_ONE, conn=conn))

    def _victim(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.db.dsn, autocommit=True, application_name="victim")
