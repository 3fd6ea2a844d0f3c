"""
A claim brings the run's input to later steps that the worker names, once for each run.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from support.leases import LeaseDatabase

from pgflowd.db import tasks
from pgflowd.db.query import execute

CLAIM = "select * from pgflowd.claim(%s, %s, 10, '30 s', %s)"


def with_later_steps(db: LeaseDatabase, given: Any, runs: int = 1) -> tuple[str, uuid.UUID]:
    """A flow whose steps b, c and d wait for a claim, after a."""
    flow = db.flow("a", "b:a", "c:a", "d:a")
    worker = db.worker(flow)
    for _ in range(runs):
        db.start(flow, given)
    for task in db.claim(flow, worker):
        db.complete(task, "output")
    return flow, worker


def test_the_input_comes_once_for_each_run_and_only_to_the_steps_that_are_named(
    own: LeaseDatabase,
) -> None:
    flow, worker = with_later_steps(own, {"x": 1}, runs=2)

    found = own.rows(CLAIM, flow, worker, ["b", "c"])

    brought = [task for task in found if task.flow_input is not None]
    assert len(found) == 6
    assert len({task.run_id for task in brought}) == len(brought) == 2
    assert {json.dumps(task.flow_input) for task in brought} == {'{"x": 1}'}
    assert {task.step_slug for task in brought} <= {"b", "c"}


def test_a_claim_with_four_arguments_brings_it_to_first_steps_only(own: LeaseDatabase) -> None:
    flow, worker = with_later_steps(own, {"x": 1})
    own.start(flow, {"x": 2})

    found = own.rows("select * from pgflowd.claim(%s, %s, 10, '30 s')", flow, worker)

    given = {task.step_slug: task.flow_input for task in found}
    assert given == {"a": {"x": 2}, "b": None, "c": None, "d": None}


def test_a_worker_gives_it_to_each_task_of_the_run(own: LeaseDatabase) -> None:
    flow, worker = with_later_steps(own, {"x": 1}, runs=2)

    found = execute(own.conn, tasks.claim(flow, worker, 10, with_run=["b", "c"]))

    given = {task.step: task.flow_input for task in found}
    assert given == {"b": b'{"x": 1}', "c": b'{"x": 1}', "d": None}


def test_a_large_input_is_left_for_the_handler_to_ask_for(own: LeaseDatabase) -> None:
    large = [uuid.uuid4().hex for _ in range(5_000)]
    flow, worker = with_later_steps(own, large)

    found = execute(own.conn, tasks.claim(flow, worker, 10, with_run=["b", "c"]))

    assert [task.flow_input for task in found] == [None, None, None]


def test_it_comes_too_where_the_task_of_another_run_cannot_be_started(own: LeaseDatabase) -> None:
    flow, worker = with_later_steps(own, {"x": 1}, runs=2)
    poisoned, other = own.column("select run_id from pgflow.runs")
    own.do(
        "create or replace function"
        " pgflow._deps_output(flow_slug text, run_id uuid, step_slug text)"
        " returns jsonb language plpgsql stable as $$ begin"
        f" if run_id = '{poisoned}' then raise exception 'no input'; end if; return '{{}}'; end $$"
    )

    found = own.rows(CLAIM, flow, worker, ["b", "c"])

    assert {task.run_id for task in found} == {other}
    assert {"x": 1} in [task.flow_input for task in found]
