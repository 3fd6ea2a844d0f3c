"""What an undo handler may read of the task that it undoes, and that it is of no other run."""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg
import pytest
from support.leases import LeaseDatabase

ALL = ["output", "run", "item"]


def undo_run(db: LeaseDatabase, original: uuid.UUID, plan: dict[str, list[int]]) -> uuid.UUID:
    """A run with this plan that undoes the original, as the sweep starts one."""
    given = {"run_id": str(original), "generation": 2, "cause": "cancel", "plan": plan}
    flow, new = db.flow("undo_a"), uuid.uuid4()
    entry = "insert into pgflowd.runs (run_id, flow_slug, undo_of, state) values (%s, %s, %s, %s)"
    db.rows(entry, new, flow, original, "started")
    start = "select from pgflow.start_flows(%s, array[%s::jsonb], array[%s]::uuid[])"
    db.rows(start, flow, json.dumps(given), new)
    return new


def read(db: LeaseDatabase, run: uuid.UUID, step: str, nr: int, parts: list[str]) -> list[Any]:
    return db.rows("select * from pgflowd.read_original(%s, %s, %s, %s)", run, step, nr, parts)


def test_a_task_is_read_as_far_as_its_handler_takes_it(own: LeaseDatabase) -> None:
    flow = own.flow("a", "m*:a", "n*:m", "z:a+n")
    run, worker = own.start(flow, {"who": 7}), own.worker(flow)
    own.complete(own.claim_one(flow, worker), [10, None, 12])
    for task in own.claim(flow, worker, 3):
        own.complete(task, [task.input])
    for task in own.claim(flow, worker, 4):
        own.complete(task, None)
    own.complete(own.claim_one(flow, worker), "last")
    undo = undo_run(own, run, {"a": [0], "m": [0, 2], "n": [1], "z": [0]})
    told = {"run_id": str(run), "cause": "cancel", "generation": 2}

    assert read(own, undo, "undo_a", 0, ["output", "run"]) == [
        ({**told, "task_index": 0}, [10, None, 12], {"who": 7}, None)
    ]
    assert read(own, undo, "undo_m", 1, ALL) == [({**told, "task_index": 2}, [12], {"who": 7}, 12)]
    assert read(own, undo, "undo_n", 0, ["item"]) == [
        ({**told, "task_index": 1}, None, None, [None])
    ]
    assert read(own, undo, "undo_z", 0, ["output"]) == [
        ({**told, "task_index": 0}, "last", None, None)
    ]
    for step, nr in [("undo_a", 1), ("undo_m", 2), ("undo_b", 0)]:
        assert read(own, undo, step, nr, ALL) == []


def test_json_null_is_an_output_and_a_task_that_failed_has_none(own: LeaseDatabase) -> None:
    flow = own.flow("m*", max_attempts=1)
    run, worker = own.start(flow, [None, 1]), own.worker(flow)
    first, second = own.claim(flow, worker, 2)
    own.complete(first, None)
    own.fail(second, "no")
    undo = undo_run(own, run, {"m": [0, 1]})

    texts = "select output::text, item::text from pgflowd.read_original(%s, 'undo_m', %s, %s)"
    assert own.rows(texts, undo, 0, ALL) == [("null", "null")]
    assert own.rows(texts, undo, 1, ALL) == [(None, "1")]


def test_a_late_output_is_that_of_its_task(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b", max_attempts=1)
    run, worker = own.start(flow, {}), own.worker(flow)
    first, second = own.claim(flow, worker, 2)
    own.fail(first, "no")
    assert own.complete(second, {"payment": 7}) == "late"
    undo = undo_run(own, run, {"b": [0]})

    ((_, output, *_),) = read(own, undo, "undo_b", 0, ALL)
    assert output == {"payment": 7}


def test_pf002_a_run_that_undoes_no_other_reads_none(own: LeaseDatabase) -> None:
    flow = own.flow("undo_a")
    run = own.start(flow, {})
    forged = own.start(flow, {"run_id": str(run), "plan": {"a": [0]}})

    with pytest.raises(psycopg.Error) as refused:
        read(own, forged, "undo_a", 0, ALL)
    assert refused.value.sqlstate == "PF002"


def test_many_are_read_at_once_and_those_that_are_large_left_out(own: LeaseDatabase) -> None:
    flow = own.flow("m*", "z:m")
    first, second = own.start(flow, [7, 8]), own.start(flow, [9])
    worker = own.worker(flow)
    for task in own.claim(flow, worker, 3):
        large = [n * n for n in range(1000)]
        own.complete(task, large if task.input == 8 else [task.input])
    undo, other = undo_run(own, first, {"m": [0, 1]}), undo_run(own, second, {"m": [0], "z": []})
    keys = [(undo, 1), (other, 0), (undo, 0), (undo, 2), (first, 0)]
    query = (
        "select ord, undo ->> 'task_index', output::text, item::text from pgflowd.read_originals("
        '%s, array_fill(\'undo_m\'::text, array[5]), %s, \'{"undo_m": ["output", "item"]}\', %s)'
        " order by ord"
    )
    runs, indexes = [run for run, _ in keys], [index for _, index in keys]

    assert own.rows(query, runs, indexes, 1000) == [
        (2, "0", "[9]", "9"), (3, "0", "[7]", "7"),
    ]  # fmt: skip
    assert [row[0] for row in own.rows(query, runs, indexes, None)] == [1, 2, 3]
