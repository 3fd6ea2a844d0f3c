"""
Procrastinate: tasks with arguments and states, no DAG and no results.

As its documentation recommends: asynchronous tasks, `PsycopgConnector`, a worker with a
concurrency. A chain is what users write: a task defers the next.
So is a join: the elements count down a row, and the last one defers it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import procrastinate
import psycopg

from systems.effects import mark
from systems.system import AT_ONCE, CONCURRENCY, System, main

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_DSN"], max_size=10),
    import_paths=["systems.procrastinate"],
)
LEFT = "update bench_join set unfinished = unfinished - 1 where first = %(first)s returning *"


@app.task(name="single", queue="bench")
async def single(slot: int) -> None:
    mark(slot)


@app.task(name="waits", queue="bench")
async def waits(slot: int) -> None:
    await asyncio.sleep(1)
    mark(slot)


@app.task(name="chain", queue="bench")
async def chain(slot: int, part: int = 0) -> None:
    mark(slot + part)
    if part < 2:
        await chain.defer_async(slot=slot, part=part + 1)


@app.task(name="spread", queue="bench")
async def spread(first: int, elements: int) -> None:
    await element.batch_defer_async(
        *({"slot": slot, "first": first} for slot in range(first, first + elements))
    )


@app.task(name="element", queue="bench")
async def element(slot: int, first: int) -> None:
    mark(slot)
    row = await app.connector.execute_query_one_async(LEFT, first=first)
    if row["unfinished"] == 0:
        await single.defer_async(slot=row["slot"])


class Procrastinate(System):
    setup = (
        f"`app.run_worker_async(concurrency={CONCURRENCY})`, asynchronous tasks, warnings logged"
    )
    unfinished = "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"
    completed = "select count(*) from procrastinate_jobs where status = 'succeeded'"
    kinds = ("single", "chain", "map", "waits")
    rows = {"single": 1, "chain": 3, "waits": 1}
    map_rows = (2, 1)

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.loop = asyncio.new_event_loop()

    def run(self, work: Any) -> Any:
        async def opened() -> Any:
            await app.open_async()  # does nothing if it is open
            return await work

        return self.loop.run_until_complete(opened())

    def install(self) -> None:
        with psycopg.connect(self.dsn) as conn:
            conn.execute(
                "create table bench_join (first int primary key, slot int, unfinished int)"
            )
        self.run(app.schema_manager.apply_schema_async())

    def serve(self) -> None:
        logging.basicConfig(level=logging.WARNING)  # the command tells of each task, twice
        self.run(app.run_worker_async(concurrency=int(os.environ.get(AT_ONCE, CONCURRENCY))))

    def start_statement(self) -> str:
        job = """row('bench', 'single', 0, null, null, '{"slot": 1}', null)"""
        jobs = f"array[{job}]::procrastinate_job_to_defer_v1[]"
        return f"select unnest(procrastinate_defer_jobs_v1({jobs})) as id"

    def start_each(self, kind: str, slots: list[int]) -> None:
        async def each() -> None:
            for slot in slots:
                await app.configure_task(kind, queue="bench").defer_async(slot=slot)

        self.run(each())

    def start_many(self, kind: str, slots: list[int]) -> None:
        task = app.configure_task(kind, queue="bench")
        self.run(task.batch_defer_async(*({"slot": slot} for slot in slots)))

    def start_map(self, first: int, elements: int) -> None:
        with psycopg.connect(self.dsn) as conn:
            row = (first, first + elements, elements)
            conn.execute("insert into bench_join values (%s, %s, %s)", row)
        self.run(spread.defer_async(first=first, elements=elements))


if __name__ == "__main__":
    main(Procrastinate)
