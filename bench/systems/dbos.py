"""
DBOS: durable workflows of steps, whose outputs are stored; a queue that workers poll.

As its documentation recommends: a registered queue, `DBOSClient.enqueue` from other processes,
workflows and steps as decorated functions. A map enqueues a workflow for each element and waits
for their results. Many are started one by one in a transaction; since that is slow, its long
queue is shorter than that of the others.
"""

from __future__ import annotations

import os
import signal

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

from systems.effects import mark
from systems.system import System, main

QUEUE = "bench"
POLLING_S = 0.1  # its default is 1 s, with which an idle worker answers after half a second
VERSION = "bench"
ROWS = "from dbos.workflow_status where status"


def url(dsn: str) -> str:
    return dsn.replace("postgresql://", "postgresql+psycopg://", 1)


@DBOS.step()
def note(slot: int) -> int:
    mark(slot)
    return slot


@DBOS.workflow()
def single(slot: int) -> int:
    return note(slot)


@DBOS.workflow()
def chain(slot: int) -> int:
    for part in range(3):
        note(slot + part)
    return slot


@DBOS.workflow()
def spread(first: int, elements: int) -> int:
    slots = range(first, first + elements)
    handles = [DBOS.enqueue_workflow(QUEUE, single, slot) for slot in slots]
    results = [handle.get_result() for handle in handles]
    return note(first + len(results))


class Dbos(System):
    setup = f"one queue without limits, polled every {POLLING_S} s; workflows are plain functions"
    longest_queue = 20_000
    unfinished = f"select count(*) {ROWS} in ('ENQUEUED', 'PENDING', 'DELAYED')"
    completed = f"select count(*) {ROWS} = 'SUCCESS'"
    rows = {"single": 1, "chain": 1}
    map_rows = (1, 1)

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self._client: DBOSClient | None = None

    @property
    def client(self) -> DBOSClient:
        self._client = self._client or DBOSClient(system_database_url=url(self.dsn))
        return self._client

    def launch(self) -> None:
        config: DBOSConfig = {
            "name": "bench",
            "system_database_url": url(self.dsn),
            "application_version": VERSION,
            "log_level": "WARNING",
        }
        DBOS(config=config)
        DBOS.launch()

    def install(self) -> None:
        self.launch()
        DBOS.register_queue(QUEUE, polling_interval_sec=POLLING_S)
        DBOS.destroy()

    def start_each(self, kind: str, slots: list[int]) -> None:
        for slot in slots:
            self.client.enqueue(EnqueueOptions(queue_name=QUEUE, workflow_name=kind), slot)

    def start_many(self, kind: str, slots: list[int]) -> None:
        engine = sa.create_engine(url(self.dsn))
        with engine.begin() as conn:
            for slot in slots:
                options = EnqueueOptions(queue_name=QUEUE, workflow_name=kind)
                self.client.enqueue_in_transaction(conn, options, slot)
        engine.dispose()

    def start_map(self, first: int, elements: int) -> None:
        options = EnqueueOptions(queue_name=QUEUE, workflow_name="spread")
        self.client.enqueue(options, first, elements)

    def serve(self) -> None:
        self.launch()
        signal.sigwait({signal.SIGTERM})
        os._exit(0)  # nothing is left to lose


if __name__ == "__main__":
    main(Dbos)
