"""
Needs: who lacks what a step needs gets none of its tasks, and who has it gets them, once each.
"""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.database import Row
from support.leases import LeaseDatabase, element

from pgflowd.db import workers

GPU, BOTH = ["gpu"], ["80gb", "gpu"]


def define(db: LeaseDatabase, slug: str, **needs: list[str] | None) -> dict[str, Any]:
    """Define a flow of steps without deps, each with what it needs; the answer."""
    steps = [
        {
            "slug": step,
            "stepType": "single",
            "dependencies": [],
            "whenUnmet": "skip",
            "whenExhausted": "fail",
            "requiredInputPattern": {"defined": False},
            "forbiddenInputPattern": {"defined": False},
            "options": {"needs": wanted} if wanted else {},
        }
        for step, wanted in needs.items()
    ]
    shape = json.dumps({"steps": steps, "options": {}})
    answer = db.value("select pgflowd.define(%s, %s::jsonb)", slug, shape)
    db.rows("select pgflowd.watch_queue(%s)", slug)
    return dict(answer)


def gated(db: LeaseDatabase, **needs: list[str] | None) -> str:
    slug = f"flow_{uuid.uuid4().hex[:8]}"
    define(db, slug, **(needs or {"a": GPU}))
    return slug


def steps_of(tasks: list[Row]) -> list[str]:
    return sorted(task.step_slug for task in tasks)


def waits(db: LeaseDatabase) -> list[tuple[str, str, str]]:
    query = "select step_slug, kind, name from pgflowd.waits order by nr"
    return [tuple(row) for row in db.rows(query)]


def violated(db: LeaseDatabase) -> list[Row]:
    return db.rows("select * from pgflowd.violations()")


def test_who_lacks_what_a_step_needs_gets_the_other_tasks_only(own: LeaseDatabase) -> None:
    flow = gated(own, a=GPU, b=None, c=BOTH)
    own.start(flow)
    plain = own.worker(flow)

    assert steps_of(own.claim(flow, plain)) == ["b"]

    assert waits(own) == [("a", "need", "gpu"), ("c", "need", "80gb,gpu")]
    assert violated(own) == []
    assert own.claim(flow, plain) == []
    assert own.claim(flow, plain, caps=["80gb", "cpu"]) == []
    assert steps_of(own.claim(flow, own.worker(flow), caps=["gpu", "more"])) == ["a"]
    assert steps_of(own.claim(flow, own.worker(flow), caps=["x", *BOTH])) == ["c"]
    assert waits(own) == []
    assert violated(own) == []


def test_who_has_what_a_step_needs_gets_its_tasks_at_once(own: LeaseDatabase) -> None:
    flow = gated(own)
    run = own.start(flow)

    (task,) = own.claim(flow, own.worker(flow), caps=GPU)

    assert own.complete(task) == "completed"
    assert own.status(run) == "completed"


def test_a_worker_of_another_runtime_gets_no_task_of_a_step_with_needs(own: LeaseDatabase) -> None:
    flow = gated(own, a=GPU, b=None)
    own.start(flow)

    assert steps_of(own.upstream_claim(flow, own.worker(flow))) == ["b"]
    assert violated(own) == []


def test_tasks_that_nobody_may_take_are_put_aside_once_and_found_once(own: LeaseDatabase) -> None:
    flow = gated(own, a=GPU, b=None)
    only_gpu = gated(own)
    own.do("select pgflow.start_flow(%s, '{}') from generate_series(1, 350)", only_gpu)
    last = own.start(flow)
    plain, able = own.worker(only_gpu), own.worker(only_gpu)

    assert own.claim(only_gpu, plain, 5) == []
    assert len(own.queue(only_gpu)) == 0
    assert len(waits(own)) == 350
    first = own.claim(only_gpu, able, 5, caps=GPU)
    nrs = own.column("select min(nr) from pgflowd.waits")
    assert (len(first), nrs) == (5, [6])
    assert len(own.claim(only_gpu, able, 400, caps=GPU)) == 345
    assert steps_of(own.claim(flow, own.worker(flow), caps=GPU)) == ["a", "b"]
    assert own.status(last) == "started"


def test_a_claim_takes_no_more_than_it_asked_for(own: LeaseDatabase) -> None:
    flow = gated(own, a=GPU)
    able = gated(own, b=BOTH)
    other = gated(own, a=GPU, b=None)
    own.do("select pgflow.start_flow(%s, '{}') from generate_series(1, 20)", other)
    plain = own.worker(other)

    taken = own.claim(other, plain, 3)

    assert steps_of(taken) == ["b"] * 3
    left = [message.visible for message in own.queue(other).values()]
    assert (left.count(True), left.count(False)) == (17, 3)
    assert len(own.claim(other, plain, 40)) == 17
    assert own.claim(flow, plain) == own.claim(able, plain) == []


@pytest.mark.parametrize("also_gated", [True, False])
def test_a_task_handed_on_is_for_the_next_claim_of_who_has_that(
    own: LeaseDatabase, also_gated: bool
) -> None:
    flow = gated(own) if also_gated else own.flow(max_attempts=1)
    run, able = own.start(flow), own.worker(flow)
    task = own.claim_one(flow, able, caps=GPU)
    wait = {"kind": "need", "needs": ["gpu", "80gb", "gpu"], "why": "out of memory"}
    own.report(element(task, "suspended", wait=wait))

    assert waits(own) == [("a", "need", "80gb,gpu")]
    assert own.claim(flow, able, caps=GPU) == own.claim(flow, able) == []
    (listed,) = own.rows("select * from pgflowd.list_tasks(needs => '{80gb}')")
    assert (listed.status, listed.why, listed.is_unserved) == ("waiting", "out of memory", True)
    assert own.rows("select * from pgflowd.list_tasks(needs => '{tpu}')") == []
    again = own.claim_one(flow, able, caps=BOTH)
    assert again.attempt == 1
    assert own.complete(again) == "completed"
    assert own.outcomes(run) == ["suspended", "completed"]


def test_a_task_handed_on_works_on_every_core(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.start(flow)
    worker = own.worker(flow)
    task = own.claim_one(flow, worker)
    own.suspend(task, {"kind": "need", "needs": GPU})

    assert own.claim(flow, worker) == []
    assert own.complete(own.claim_one(flow, worker, caps=GPU)) == "completed"


@pytest.mark.parametrize("needs", [None, [], "gpu", [""], ["a b"], ["a,b"], [1], ["x"] * 33])
def test_a_report_cannot_hand_on_for_what_is_no_need(own: LeaseDatabase, needs: Any) -> None:
    flow = own.flow()
    own.start(flow)
    task = own.claim_one(flow, own.worker(flow))

    answer = own.suspend(task, {"kind": "need", "needs": needs})

    assert (answer.verdict, answer.sqlstate) == ("error", "22023")
    assert own.complete(task) == "completed"


def test_concurrent_claims_never_share_a_task(own: LeaseDatabase) -> None:
    flow = gated(own)
    own.do("select pgflow.start_flow(%s, '{}') from generate_series(1, 200)", flow)
    assert own.claim(flow, own.worker(flow)) == []
    workers = [own.worker(flow) for _ in range(4)]
    connections = [own.connect() for _ in workers]

    def take(place: int) -> list[Row]:
        taken: list[Row] = []
        while some := own.claim(flow, workers[place], 3, conn=connections[place], caps=GPU):
            taken += some
        return taken

    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(take, range(4)))

    runs = [task.run_id for part in parts for task in part]
    runs += [task.run_id for task in own.claim(flow, workers[0], 200, caps=GPU)]
    assert len(runs) == len(set(runs)) == 200
    assert violated(own) == []


def test_what_a_locked_task_waits_for_is_not_taken(own: LeaseDatabase) -> None:
    flow = gated(own)
    run = own.start(flow)
    assert own.claim(flow, own.worker(flow)) == []
    other = own.connect()
    with other.transaction():
        other.execute("select from pgflow.step_tasks where run_id = %s for update", [run])

        assert own.claim(flow, own.worker(flow), caps=GPU) == []

    assert len(own.claim(flow, own.worker(flow), caps=GPU)) == 1


@pytest.mark.parametrize("how", ["cancel", "delete"])
def test_a_claim_of_what_has_waited_does_not_wait_for_who_locks_its_run(
    own: LeaseDatabase, how: str
) -> None:
    """It changes the task twice, which checks foreign keys; if that waited, it would deadlock."""
    flow = gated(own)
    run = own.start(flow)
    own.claim(flow, own.worker(flow))
    worker, holder, claimer = own.worker(flow), own.connect(), own.connect()
    claimer.execute("set statement_timeout = '5s'")
    between, query, argument = {
        "cancel": (
            "select from pgflow.step_states for no key update",
            "select pgflowd.cancel(%s, 'x', 'jane')",
            run,
        ),
        "delete": (
            "lock table pgflowd.signals in share mode",
            "select pgflow.delete_flow_and_data(%s)",
            flow,
        ),
    }[how]

    with holder.transaction():
        holder.execute(between.encode())
        other = own.meanwhile(lambda conn: own.rows(query, argument, conn=conn))
        assert len(own.claim(flow, worker, caps=GPU, conn=claimer)) == 1
    other.result()


def test_a_lapsed_lease_is_no_way_around_the_gate(own: LeaseDatabase) -> None:
    flow = gated(own)
    run = own.start(flow)
    task = own.claim_one(flow, own.worker(flow), caps=GPU)
    own.lapse(task)

    assert own.claim(flow, own.worker(flow)) == []

    assert own.outcomes(run) == ["stalled"]
    assert waits(own) == [("a", "need", "gpu")]
    assert violated(own) == []


def test_a_cancelled_run_waits_for_nobody(own: LeaseDatabase) -> None:
    flow = gated(own)
    run = own.start(flow)
    assert own.claim(flow, own.worker(flow)) == []

    own.cancel(run)

    assert waits(own) == []
    assert own.claim(flow, own.worker(flow), caps=GPU) == []
    assert own.retry(run, cancelled=True) == 1
    assert own.claim(flow, own.worker(flow)) == []
    assert waits(own) == [("a", "need", "gpu")]


@pytest.mark.parametrize("later", [BOTH, None])
def test_what_steps_need_follows_the_code(own: LeaseDatabase, later: list[str] | None) -> None:
    flow = gated(own)
    own.start(flow)
    worker = own.worker(flow)
    assert own.claim(flow, worker) == []

    assert define(own, flow, a=later)["status"] == "verified"

    shape = own.value("select pgflowd.flow_shape(%s)", flow)
    assert shape["steps"][0]["options"].get("needs") == later
    own.rows("select * from pgflowd.process_due()")
    if later:
        assert own.claim(flow, worker, caps=GPU) == []
    assert len(own.claim(flow, worker, caps=later)) == 1


def test_a_definition_meets_all_that_claims_put_aside(own: LeaseDatabase) -> None:
    flow = gated(own)
    own.start(flow)
    worker, other = own.worker(flow), own.connect()
    with other.transaction():
        assert own.claim(flow, worker, conn=other) == []
        defining = own.meanwhile(
            lambda conn: conn.execute(
                "select pgflowd.define(%s, jsonb_set(pgflowd.flow_shape(%s),"
                " '{steps,0,options,needs}', 'null'))",
                [flow, flow],
            )
        )
    defining.result()

    own.rows("select * from pgflowd.process_due()")

    assert len(own.claim(flow, worker)) == 1


def test_while_a_flow_is_being_defined_nothing_is_put_aside(own: LeaseDatabase) -> None:
    flow = gated(own)
    own.start(flow)
    other = own.connect()
    with other.transaction():
        other.execute("select pgflowd._lock_definition(%s)", [flow])

        assert own.claim(flow, own.worker(flow)) == []

    assert waits(own) == []
    assert len(own.queue(flow)) == 1
    assert violated(own) == []


def test_a_sleeping_worker_hears_of_what_only_it_can_do(own: LeaseDatabase) -> None:
    flow = gated(own)
    own.start(flow)
    able = own.worker(flow)
    own.do("insert into pgflowd.worker_caps values (%s, %s)", able, GPU)
    assert own.claim(flow, own.worker(flow)) == []

    (looked,) = own.rows("select * from pgflowd.look_at_queues(%s)", [flow])

    assert looked.due_in_s == 0
    (listed,) = own.rows("select * from pgflowd.list_tasks()")
    assert listed.is_unserved is False
    own.do("update pgflowd.worker_caps set caps = '{tpu}'")
    assert own.rows("select * from pgflowd.look_at_queues(%s)", [flow]) == []
    (listed,) = own.rows("select * from pgflowd.list_tasks()")
    assert listed.is_unserved is True


def test_a_worker_that_has_nothing_more_after_a_reload_is_not_woken_for_it(
    own: LeaseDatabase,
) -> None:
    define(own, "images", train=GPU)
    worker = uuid.uuid4()
    workers.insert_row(own.conn, worker, "images", "d0", GPU)
    own.start("images")
    own.claim("images", own.worker("images"), 1)  # it waits for who has one
    query = "select queue_name from pgflowd.look_at_queues('{images}')"
    assert own.column(query) == ["images"]

    workers.insert_row(own.conn, worker, "images", "d0")

    assert own.column(query) == []
