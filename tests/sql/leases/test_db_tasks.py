"""
The queries of `db.tasks`, called from Python as a worker does.
"""

from __future__ import annotations

import asyncio
import uuid

import pytest
from support.leases import LeaseDatabase

from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.reporting import MAX_REPORTS
from pgflowd.core.worker.task import Task, TaskReport
from pgflowd.db.connection import connect, connect_async
from pgflowd.db.query import execute, execute_async, execute_together, execute_together_async
from pgflowd.db.tasks import (
    Swept,
    claim,
    heartbeat,
    report,
    sweep,
    sweep_dead,
)
from pgflowd.errors import NotFound


def done(task: Task, output: bytes = b"1") -> TaskReport:
    return TaskReport(task, Outcome.COMPLETED, output, cpu_s=0.5)


def test_inputs_come_as_the_bytes_the_server_wrote(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b:a")
    own.start(flow, {"umlaut": "ä", "quote": '"'})
    conn = connect(own.dsn)

    (task,) = execute(conn, claim(flow, own.worker(flow), 5))

    assert task.flow_input == '{"quote": "\\"", "umlaut": "ä"}'.encode()
    assert (task.input, task.attempt, task.timeout_s) == (b"{}", 1, 60)


@pytest.mark.parametrize(
    "output", [b'{"a": "\xc3\xa4\\n\\\\"}', b"null", b'""', b'"{}"', b'"\\",NULL"', b"[1, 2.50]"]
)
def test_outputs_arrive_unchanged(own: LeaseDatabase, output: bytes) -> None:
    flow = own.flow("a", "b:a")
    own.start(flow)
    conn = connect(own.dsn)
    worker = own.worker(flow)
    tasks = execute(conn, claim(flow, worker, 5))

    answers, (then,) = execute_together(
        conn, [report([done(tasks[0], output)]), claim(flow, worker, 5)]
    )

    assert [answer.verdict for answer in answers] == ["completed"]
    assert then.input == b'{"a": ' + output + b"}"


def test_report_and_claim_are_one_transaction(own: LeaseDatabase) -> None:
    flow = own.flow()
    run_id = own.start(flow)
    conn = connect(own.dsn)
    (task,) = execute(conn, claim(flow, own.worker(flow), 5))

    with pytest.raises(NotFound, match="there is no flow 'nobody_knows'"):
        execute_together(conn, [report([done(task)]), claim("nobody_knows", uuid.uuid4(), 5)])

    assert own.task(run_id).status == "started"
    (answer,) = execute(conn, report([done(task)]))
    assert (answer.verdict, answer.run_status) == ("completed", "completed")


def test_many_reports_go_in_one_trip(own: LeaseDatabase) -> None:
    flow = own.flow("m*")
    own.start(flow, list(range(250)))
    conn = connect(own.dsn)
    worker = own.worker(flow)
    tasks = [done(task) for task in execute(conn, claim(flow, worker, 250))]
    assert len(tasks) == 250

    chunks = [tasks[at : at + MAX_REPORTS] for at in range(0, 250, MAX_REPORTS)]
    answers = execute_together(conn, [report(chunk) for chunk in chunks])

    assert [answer.verdict for chunk in answers for answer in chunk] == ["completed"] * 250
    with pytest.raises(ValueError, match="up to 200 reports, not 250"):
        report(tasks)


def test_every_kind_of_report_is_stored_with_its_facts(own: LeaseDatabase) -> None:
    flow = own.flow("m*", max_attempts=2)
    own.start(flow, [1, 2, 3, 4])
    conn = connect(own.dsn)
    tasks = execute(conn, claim(flow, own.worker(flow), 5, lease_s=2.5))
    reports = [
        TaskReport(tasks[1], Outcome.TIMED_OUT, error_message="slow", delay_s=0.5),
        TaskReport(tasks[2], Outcome.CRASHED, error_message="gone", exit_signal=9, peak_kb=7),
        TaskReport(tasks[3], Outcome.RELEASED, error_message="stop"),
    ]
    last = TaskReport(tasks[0], Outcome.FAILED, error_message="boom", error_type="E", retry=False)

    assert [answer.verdict for answer in execute(conn, report(reports))] == ["queued"] * 3
    assert [answer.verdict for answer in execute(conn, report([last]))] == ["failed"]
    kept = own.rows("select outcome, exit_signal, peak_kb from pgflowd.attempts order by token")
    assert [tuple(row) for row in kept] == [
        ("failed", None, None),
        ("timed_out", None, None),
        ("crashed", 9, 7),
        ("released", None, None),
    ]


def test_heartbeats_and_recoveries(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.start(flow)
    conn = connect(own.dsn)
    worker = own.worker(flow)
    (task,) = execute(conn, claim(flow, worker, 1, lease_s=None))

    beats = execute(conn, heartbeat(worker, [task.token, 4711], 0.5))

    assert beats == [(task.token, "ok"), (4711, "lost")]
    assert execute(conn, sweep(0.0)) == Swept(recovered=0, given_up=0)
    assert execute(conn, sweep_dead(worker, "killed by signal 9")) == Swept(recovered=1, given_up=0)


def test_asynchronous_calls_return_the_same(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b:a")
    own.start(flow)
    worker = own.worker(flow)

    async def work() -> tuple[list[str], list[Task]]:
        conn = await connect_async(own.dsn)
        async with conn:
            (task,) = await execute_async(conn, claim(flow, worker, 5))
            answers, then = await execute_together_async(
                conn, [report([done(task)]), claim(flow, worker, 5)]
            )
            return [answer.verdict for answer in answers], then

    verdicts, then = asyncio.run(work())

    assert verdicts == ["completed"]
    assert [task.input for task in then] == [b'{"a": 1}']
