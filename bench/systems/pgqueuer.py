"""
PgQueuer: a queue of jobs with payloads, no DAG, no results; what is done is deleted and logged.

As its documentation recommends: asyncpg, asynchronous entrypoints, and uvloop, as its command
`pgq run` does. Its batches are 10 by default; with 100 it is several times faster at this. A
chain is what users write: a job enqueues the next. So is a join: the elements count down a row,
and the last one enqueues it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from systems.effects import mark
from systems.system import AT_ONCE, System, main

BATCH = 100
LEFT = "update bench_join set unfinished = unfinished - 1 where first = $1 returning *"


async def factory() -> PgQueuer:
    pool = await asyncpg.create_pool(os.environ["BENCH_DSN"], min_size=2, max_size=10)
    pgq = PgQueuer.from_asyncpg_pool(pool)
    queries = pgq.queries

    @pgq.entrypoint("single")
    async def single(job: Job) -> None:
        mark(int(job.payload))

    @pgq.entrypoint("waits")
    async def waits(job: Job) -> None:
        await asyncio.sleep(1)
        mark(int(job.payload))

    @pgq.entrypoint("chain")
    async def chain(job: Job) -> None:
        slot, part = json.loads(job.payload)
        mark(slot + part)
        if part < 2:
            await queries.enqueue("chain", json.dumps([slot, part + 1]).encode())

    @pgq.entrypoint("spread")
    async def spread(job: Job) -> None:
        first, count = json.loads(job.payload)
        payloads = [json.dumps([slot, first]).encode() for slot in range(first, first + count)]
        await queries.enqueue(["element"] * count, payloads, [0] * count)

    @pgq.entrypoint("element")
    async def element(job: Job) -> None:
        slot, first = json.loads(job.payload)
        mark(slot)
        row = await pool.fetchrow(LEFT, first)
        if row["unfinished"] == 0:
            await queries.enqueue("single", str(row["slot"]).encode())

    return pgq


class PgQueuerSystem(System):
    setup = f"`PgQueuer.run(batch_size={BATCH})` with asyncpg's pool and uvloop"
    unfinished = "select count(*) from pgqueuer"
    completed = "select count(*) from pgqueuer_log where status = 'successful'"
    kinds = ("single", "chain", "map", "waits")
    rows = {"single": 1, "chain": 3, "waits": 1}
    map_rows = (2, 1)

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.loop = asyncio.new_event_loop()
        self.pool: Any = None

    def run(self, work: Any) -> Any:
        async def opened() -> Any:
            self.pool = self.pool or await asyncpg.create_pool(self.dsn, min_size=1, max_size=1)
            return await work(PgQueuer.from_asyncpg_pool(self.pool).queries)

        return self.loop.run_until_complete(opened())

    def install(self) -> None:
        async def install(queries: Queries) -> None:
            await queries.install()
            columns = "first int primary key, slot int, unfinished int"
            await self.pool.execute(f"create table bench_join ({columns})")

        self.run(install)

    def serve(self) -> None:
        async def work() -> None:
            pgq = await factory()
            at_once = os.environ.get(AT_ONCE)
            await pgq.run(batch_size=BATCH, max_concurrent_tasks=at_once and int(at_once))

        uvloop.run(work())  # as its command does

    @staticmethod
    def payload(kind: str, slot: int) -> bytes:
        return str(slot).encode() if kind in ("single", "waits") else json.dumps([slot, 0]).encode()

    def start_statement(self) -> str:
        """Its own, with our values in place of its parameters."""
        values = ["array[0]", "array['single']", "array['1'::bytea]", "array['0 s']", "array[null]"]

        async def read(queries: Queries) -> str:
            statement = str(queries.qbq.build_enqueue_query())
            for number, value in enumerate([*values, "array['{}']"], 1):
                statement = statement.replace(f"${number}::", f"{value}::")
            return re.sub("--.*", "", statement).strip()

        return str(self.run(read))

    def start_each(self, kind: str, slots: list[int]) -> None:
        async def each(queries: Queries) -> None:
            for slot in slots:
                await queries.enqueue(kind, self.payload(kind, slot))

        self.run(each)

    def start_many(self, kind: str, slots: list[int]) -> None:
        async def many(queries: Queries) -> None:
            payloads = [self.payload(kind, slot) for slot in slots]
            await queries.enqueue([kind] * len(slots), payloads, [0] * len(slots))

        self.run(many)

    def start_map(self, first: int, elements: int) -> None:
        async def start(queries: Queries) -> None:
            row = (first, first + elements, elements)
            await self.pool.execute("insert into bench_join values ($1, $2, $3)", *row)
            await queries.enqueue("spread", json.dumps([first, elements]).encode())

        self.run(start)


if __name__ == "__main__":
    main(PgQueuerSystem)
