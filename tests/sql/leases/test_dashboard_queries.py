"""What the dashboard reads of a run, of a flow and of everything: strips, values, grids, counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from support.leases import LeaseDatabase

from pgflowd.core.documents import encoded
from pgflowd.core.documents.flows import OverviewCounts
from pgflowd.core.documents.run_tasks import StripCell, ValuePart
from pgflowd.core.statuses import TaskStatus
from pgflowd.db.flows import flow_grid, overview_counts
from pgflowd.db.query import execute
from pgflowd.db.run_details import step_strip
from pgflowd.db.runs import failed_attempts, value_part

APPROVAL = {"kind": "signal", "name": "a", "why": "approval", "checkpoint": "signal a 1"}


def test_a_strip_counts_the_tasks_of_each_cell(own: LeaseDatabase) -> None:
    flow = own.flow("m*", "b:m", max_attempts=1)
    run = own.start(flow, list(range(7)))
    tasks = own.claim(flow, own.worker(flow), max_tasks=5)
    by_index = {task.task_index: task for task in tasks}
    own.complete(by_index[0])
    own.complete(by_index[1])
    own.suspend(by_index[3])

    def strip(step: str, cells: int = 200) -> Sequence[StripCell]:
        return execute(own.conn, step_strip(run, step, cells))

    cells = strip("m", 3)

    assert [(cell.first, cell.last) for cell in cells] == [(0, 2), (3, 5), (6, 6)]
    assert [dict(cell.counts) for cell in cells] == [
        {"started": 1, "completed": 2},
        {"queued": 1, "waiting": 1, "started": 1},
        {"queued": 1},
    ]
    own.fail(by_index[2], "boom", retry=False)
    (cell,) = strip("m", 1)
    assert (cell.first, cell.last, cell.counts[TaskStatus.FAILED]) == (0, 6, 1)
    assert (len(strip("m")), strip("b"), strip("unknown")) == (7, [], [])


def test_parts_of_large_values_are_read_alone(own: LeaseDatabase) -> None:
    flow = own.flow("a", "m*:a", max_attempts=1)
    given = {"long": "é" * 70_000, "none": None, "list": [[n] * 100 for n in range(1000)]}
    run = own.start(flow, given)
    worker = own.worker(flow)
    own.complete(own.claim_one(flow, worker), [{"x": 2**70}, "b" * 300])

    def part(
        step: str | None = None,
        task: int | None = None,
        what: Literal["input", "output"] = "input",
        **more: Any,
    ) -> ValuePart:
        found = execute(own.conn, value_part(run, step, task, what, **more))
        assert found
        json.dumps(encoded(found))
        return found

    def members(found: ValuePart) -> list[tuple[Any, ...]]:
        return [(one.name, one.type, one.length, one.is_whole) for one in found.members]

    whole = part()
    assert (whole.type, whole.length, whole.is_whole, whole.value) == ("object", 3, False, None)
    assert members(whole) == [
        ("list", "array", 1000, False),
        ("long", "string", 70_000, False),
        ("none", "null", None, True),
    ]
    assert whole.members[1].value == "é" * 200
    assert part("a", what="input").members == whole.members
    listed = part(path=["list"])
    assert (len(listed.members), listed.members[0].value, listed.next) == (200, [0] * 100, 200)
    assert sum(len(json.dumps(one.value)) for one in listed.members) <= 64 * 1024
    last = part(path=["list"], start=999)
    assert ([one.name for one in last.members], last.next) == (["999"], None)
    assert part(path=["list"], start=5000).members == []
    assert [one.name for one in part(start=1, most=1).members] == ["long"]
    text = part(path=["long"])
    assert (text.type, text.length, len(text.value), text.next) == (
        "string",
        70_000,
        65_536,
        65_536,
    )
    assert part(path=["long"], start=65_536).value == "é" * (70_000 - 65_536)
    assert (part(path=["none"]).type, part(path=["none"]).value) == ("null", None)

    assert part("a", what="output").members[0].value == {"x": 2**70}
    assert part("m", 1).value == "b" * 300
    assert part("m", 0, path=["x"]).value == 2**70
    (first, second) = sorted(own.claim(flow, worker, max_tasks=2), key=lambda one: one.task_index)
    own.complete(first, [0])
    own.complete(second, False)
    assert part("m", 1, what="output").value is False
    assert part("m", what="output").length == 2
    assert part(what="output").length == 1
    for found in (
        value_part(run, "m", 7, "output"),
        value_part(run, "unknown", None, "input"),
        value_part(run, None, None, "input", ["none", "x"]),
        value_part(UUID(int=1), None, None, "output"),
    ):
        assert execute(own.conn, found) is None


def test_a_grid_has_the_newest_runs_of_a_flow_and_their_steps(own: LeaseDatabase) -> None:
    flow = own.flow("a", "m*:a", "b:m", max_attempts=1)
    worker = own.worker(flow)
    first = own.start(flow)
    own.complete(own.claim_one(flow, worker), [1, 2])
    own.fail(own.claim(flow, worker, max_tasks=1)[0], "boom", retry=False)
    second = own.start(flow)
    own.start(own.flow())

    grid = execute(own.conn, flow_grid(flow))

    assert (grid.steps, [run.run_id for run in grid.runs]) == (["a", "m", "b"], [second, first])
    assert [(run.status, run.steps) for run in grid.runs] == [
        ("started", {"a": "started", "m": "created", "b": "created"}),
        ("failed", {"a": "completed", "m": "failed", "b": "created"}),
    ]
    assert [run.run_id for run in execute(own.conn, flow_grid(flow, 1)).runs] == [second]
    assert execute(own.conn, flow_grid("unknown")).runs == []


def test_what_needs_attention_is_counted(own: LeaseDatabase) -> None:
    flow = own.flow(max_attempts=1)
    worker = own.worker(flow)
    runs = [own.start(flow) for _ in range(6)]
    asked, needing, slept, held, failed, cancelled = own.claim(flow, worker, max_tasks=6)
    nothing = execute(own.conn, overview_counts())

    own.suspend(asked, APPROVAL)
    own.suspend(needing, {"kind": "need", "needs": ["human.review", "big"]})
    own.suspend(slept)
    own.fail(failed, "boom", retry=False)
    own.cancel(cancelled.run_id)
    found = execute(own.conn, overview_counts())
    own.lapse(held)
    own.do("update pgflowd.waits set kind = 'quarantined', name = null where kind = 'signal'")
    own.do("update pgflow.runs set started_at = started_at - interval '2 days'")
    later = execute(own.conn, overview_counts())

    assert len(runs) == 6
    assert nothing == OverviewCounts(0, 0, 0, 0, 0)
    assert found == OverviewCounts(failed=1, people=2, quarantined=0, stalled=0, dead=1)
    assert later == OverviewCounts(failed=0, people=1, quarantined=1, stalled=1, dead=1)


def test_failed_attempts_are_read_from_the_newest_on(own: LeaseDatabase) -> None:
    flow = own.flow("m*", max_attempts=1)
    run = own.start(flow, [1, 2, 3])
    for task in own.claim(flow, own.worker(flow), max_tasks=3):
        own.release(task)
    own.do("update pgflowd.attempts set ended_at = now()")  # all at once
    everything = execute(own.conn, failed_attempts(run))

    newest = execute(own.conn, failed_attempts(run, most=2))
    end = (run, newest[0].ended_at, newest[0].token)
    older = "select token from pgflowd.run_troubles(%s, null, 2, %s, %s)"
    before = own.conn.execute(older.encode(), end).fetchall()

    assert len(everything) == 3
    assert newest == everything[1:]
    assert before == [(everything[0].token,)]
