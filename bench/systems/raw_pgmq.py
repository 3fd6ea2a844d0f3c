"""
Raw pgmq: the limit. Messages are sent, read in batches and archived, and nothing else is known.

No engine on pgmq can be faster: there are no steps, no outputs, no retries, and the "handler"
is a call in the loop that reads.
"""

from __future__ import annotations

import importlib.resources
import time
from typing import Any

import psycopg

from systems.effects import mark
from systems.system import System, main

BATCH = 100
NAP_S = 0.005  # when the queue is empty


class RawPgmq(System):
    setup = f"one process; batches of {BATCH}; reading the next batch archives the last one"
    kinds = ("single",)
    unfinished = "select count(*) from pgmq.q_raw"
    completed = "select count(*) from pgmq.a_raw"
    rows = {"single": 1}

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.conn: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)

    def install(self) -> None:
        pgmq = importlib.resources.files("pgmq").joinpath("sql/pgmq.sql").read_text()
        self.conn.execute("create schema if not exists pgmq")
        self.conn.execute(pgmq.encode())
        self.conn.execute("select pgmq.create('raw')")

    def start_statement(self) -> str:
        return "select pgmq.send('raw', '1')"

    def start_each(self, kind: str, slots: list[int]) -> None:
        for slot in slots:
            self.conn.execute("select pgmq.send('raw', to_jsonb(%s::int))", (slot,))

    def start_many(self, kind: str, slots: list[int]) -> None:
        query = "select count(*) from pgmq.send_batch('raw', (select array_agg(to_jsonb(n))"
        self.conn.execute(f"{query} from unnest(%s::int[]) as n))", (slots,))

    def serve(self) -> None:
        done: list[int] = []
        while True:
            with self.conn.pipeline():
                if done:
                    self.conn.execute("select pgmq.archive('raw', %s::bigint[])", (done,))
                query = "select msg_id, message from pgmq.read('raw', 30, %s)"
                read = self.conn.execute(query, (BATCH,))
            messages = read.fetchall()
            if not messages:
                time.sleep(NAP_S)
            for _, slot in messages:
                mark(slot)
            done = [msg_id for msg_id, _ in messages]


if __name__ == "__main__":
    main(RawPgmq)
