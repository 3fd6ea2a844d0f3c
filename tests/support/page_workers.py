"""Stands in for the daemon where a page is one program: executes tasks in this process."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from typing import Any
from uuid import uuid4

from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

from pgflowd import Flow
from pgflowd.core.definition.spec import arguments_for
from pgflowd.core.json import SQL_NULL
from pgflowd.testing import fake_context
from pgflowd.testing.engine import ClaimedRecord


class Workers:
    """Stands in for the daemon: executes every task until it is stopped."""

    def __init__(self, connection: Any, flows: list[Flow]) -> None:
        self.connection, self.flows = connection, {flow.slug: flow for flow in flows}
        self.worker, self.stop = uuid4(), threading.Event()
        connection.execute(
            "insert into pgflow.workers values (%s, 'readme', 'test')", (self.worker,)
        )
        for flow in flows:
            connection.execute(
                "select pgflow._create_flow_from_shape(%s, %s)", (flow.slug, Jsonb(flow.shape()))
            )

    def __enter__(self) -> None:
        self.stop.clear()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()

    def work(self) -> None:
        while not self.stop.wait(0.01):
            for slug in self.flows:
                self.work_on(slug)

    def work_on(self, slug: str) -> None:
        claimed = self.connection.execute(
            "select run_id, step_slug, task_index, input, flow_input from pgflow.start_tasks(%s,"
            " (select array_agg(message_id) from pgflow.step_tasks"
            "   where flow_slug = %s and status = 'queued'), %s)",
            (slug, slug, self.worker),
        ).fetchall()
        for run_id, step_slug, index, given, flow_input in claimed:
            flow_input = SQL_NULL if flow_input is None else flow_input
            record = ClaimedRecord(str(run_id), step_slug, index, given, flow_input, 1, 3, 60)
            output = self.perform(slug, record)
            self.connection.execute(
                "select pgflow.complete_task(%s, %s, %s, %s::jsonb)",
                (run_id, step_slug, index, json.dumps(output)),
            )

    def perform(self, slug: str, record: ClaimedRecord) -> Any:
        step = self.flows[slug].steps[record.step_slug]
        fetch = "select pgflow.get_flow_input(%s)"

        def run_input() -> Any:
            return self.connection.execute(fetch, (record.run_id,)).fetchone()[0]

        output = step.handler(**arguments_for(step, record, run_input, fake_context()))
        return asyncio.run(output) if inspect.isawaitable(output) else output


def libpq_variables(dsn: str) -> dict[str, str]:
    """A database as the environment of libpq names it."""
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}
    return {names[key]: str(value) for key, value in conninfo_to_dict(dsn).items() if key in names}
