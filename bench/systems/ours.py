"""
Ours: the whole daemon, `pgflowd serve`, with its defaults; handlers run in its runners.

Starts are the client's: `start_flow`, and `start_flows` with at most 1,000 inputs at once. A kind
of work is a flow; `single` and `single_0` are the same, and there are sixteen of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg

from pgflowd import Client
from systems.ours_flows import FLOWS
from systems.system import CONCURRENCY, WAITING, System, main

RUNNERS = "BENCH_RUNNERS"  # the variable that says how many, where it is not the default
AT_ONCE = 1_000  # inputs of one call
SHARED = {"waits": (WAITING, 200), "quick": (200, 100)}  # kinds: tasks at once, and in one runner


def flow_of(kind: str) -> str:
    return {"single": "single_0", "map": "spread"}.get(kind, kind)


class Ours(System):
    setup = f"`pgflowd serve` with its defaults: {CONCURRENCY} runners, claims of at most 100"
    unfinished = "select count(*) from pgflow.runs where status = 'started'"
    completed = "select count(*) from pgflow.runs where status = 'completed'"
    rows = {"single": 1, "chain": 1, "chain_with_run": 1, "waits": 1, "quick": 1}
    map_rows = (1, 0)

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.client = Client(dsn)

    def config(self, kinds: list[str]) -> str:
        """Write a config that serves these flows; return where."""
        directory = Path(tempfile.mkdtemp(prefix="ours-", dir=os.environ["BENCH_DIRECTORY"]))
        flows = [f"systems.ours_flows:{flow_of(kind)}" for kind in kinds]
        text = f"""
            pgflowd.flows = {flows}
            pgflowd.python_path = ["{Path(__file__).parents[1]}"]
            database.url = "{self.dsn}"
            worker.max_concurrency = {os.environ.get(RUNNERS, CONCURRENCY)}
            supervisor.control = "{directory}/control"
        """
        for kind in SHARED.keys() & set(kinds):
            at_once, in_a_runner = SHARED[kind]
            text += f"""
            flows.{kind}.max_concurrency = {at_once}
            flows.{kind}.tasks_per_runner = {in_a_runner}
            """
        (directory / "pgflowd.toml").write_text(text)
        return str(directory / "pgflowd.toml")

    def install(self) -> None:
        chains = ["chain", "chain_with_run", "map"]
        everything = [*(f"single_{n}" for n in range(FLOWS)), *chains, *SHARED]
        config = ["-c", self.config(everything)]
        for command in (["db", "migrate"], ["flows", "deploy"]):
            subprocess.run([sys.executable, "-m", "pgflowd", *command, *config], check=True)

    def worker(self, kinds: list[str]) -> list[str]:
        return [sys.executable, "-m", "pgflowd", "serve", "-c", self.config(kinds)]

    def start_statement(self) -> str:
        return (
            "select started.run::text from pgflowd.start_runs("
            "'single_0', array['1']::jsonb[], array[gen_random_uuid()]) as started (run)"
        )

    def start_each(self, kind: str, slots: list[int]) -> None:
        for slot in slots:
            self.client.start_flow(flow_of(kind), slot)

    def start_many(self, kind: str, slots: list[int]) -> None:
        for at in range(0, len(slots), AT_ONCE):
            self.client.start_flows(flow_of(kind), slots[at : at + AT_ONCE])

    def start_map(self, first: int, elements: int) -> None:
        self.client.start_flow("spread", list(range(first, first + elements)))

    def start_later(self, kinds: dict[str, list[int]]) -> None:
        """Start all of these in a transaction that `now` commits."""
        self._conn = psycopg.connect(self.dsn)
        for kind, slots in kinds.items():
            for at in range(0, len(slots), AT_ONCE):
                part = slots[at : at + AT_ONCE]
                self.client.start_flows(flow_of(kind), part, conn=self._conn)

    def now(self) -> None:
        self._conn.commit()


if __name__ == "__main__":
    main(Ours)
