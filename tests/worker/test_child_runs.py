"""Handlers that start child runs and wait for them: each is started once, and all ends are seen."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from support.covers import covers
from support.worker import failure
from worker.test_waits import let_go, make_due, output, suspended, waiting

from pgflowd.db import workers
from pgflowd.testing.until import until

CHILDREN = "select run_id from pgflowd.runs where parent_run_id = %s order by created_at"
COLLECT = """
    runs = [ctx.start("one", {"n": n}) for n in range(run["n"])]
    return [[each.status, each.output, each.error] for each in ctx.wait(*runs)]
"""


@pytest.fixture
def start_parent(start_worker, database):
    """A worker of a parent's handler, in a database that has flow `one` with step `a`."""

    def start(body: str, **options: Any) -> Any:
        worker = start_worker(waiting(body), **options)
        worker.do("select pgflow.create_flow('one', 1)")
        worker.do("select pgflow.add_step('one', 'a')")
        return worker

    return start


def children(worker: Any, run: str) -> list[Any]:
    return worker.column(CHILDREN, run)


def end_children(worker: Any, most: int = 100) -> None:
    """Execute tasks of `one`: an odd `n` fails, an even one is doubled."""
    for task in worker.claim("one", worker.worker("one"), most):
        number = task.flow_input["n"]
        if number % 2:
            worker.fail(task, f"{number} is odd", retry=False)
        else:
            worker.complete(task, number * 2)


def test_a_handler_gets_the_ends_of_its_children_in_their_order(start_parent):
    worker = start_parent(COLLECT)
    run = worker.start_run({"n": 3})

    assert suspended(worker, run)
    assert len(children(worker, run)) == 3
    let_go(worker)
    end_children(worker)

    assert output(worker, run)["work"] == [
        ["completed", {"a": 0}, None], ["failed", None, "1 is odd"], ["completed", {"a": 4}, None],
    ]  # fmt: skip
    assert worker.outcomes(run) == ["suspended", "completed"]
    assert worker.value("select count(*) from pgflowd.awaits") == 0
    assert worker.value("select count(*) from pgflow.runs where flow_slug = 'one'") == 3


@pytest.mark.parametrize("ended", ["before", "while", "after"])
def test_children_may_end_before_while_and_after_their_parent_waits(
    start_parent, ended: str, tmp_path
):
    gate = tmp_path / "gate"
    worker = start_parent(f"""
    child = ctx.start("one", {{"n": 2}})
    while not os.path.exists({str(gate)!r}): time.sleep(0.005)
    return ctx.wait(child, child)[1].output
    """)
    run = worker.start_run({})
    until(lambda: children(worker, run))
    if ended == "before":
        end_children(worker)
        gate.touch()
    elif ended == "while":
        other = threading.Thread(target=gate.touch)
        other.start()
        end_children(worker)
        other.join()
    else:
        gate.touch()
        assert suspended(worker, run)
        let_go(worker)
        end_children(worker)

    assert output(worker, run) == {"work": {"a": 4}}
    assert worker.outcomes(run) == ["suspended", "completed"]


@covers("G21")
def test_no_second_child_is_started_whoever_is_killed(start_parent, start_worker):
    body = """
        first = ctx.start("one", {"n": 0}, key="first")
        if ctx.attempt == 1: os.kill(os.getpid(), 9)
        runs = [first, ctx.start("one", {"n": 2}), ctx.start("one", {"n": 4})]
        if run.get("hang") and ctx.attempt == 2: time.sleep(60)
        return [each.output["a"] for each in ctx.wait(*runs)]
    """
    worker = start_parent(body)
    run = worker.start_run({"hang": True})
    until(lambda: len(children(worker, run)) == 3, 10)
    os.kill(worker.pid, signal.SIGKILL)
    until(worker.child.has_ended)

    second = start_worker(waiting(body.replace("ctx.attempt == 2", "False")))
    second.do("select pgflowd.sweep_dead(worker_id, 'killed') from pgflow.workers")
    let_go(second)
    assert suspended(second, run)
    end_children(second)

    assert output(second, run) == {"work": [0, 4, 8]}
    assert len(children(second, run)) == 3
    assert second.value("select count(*) from pgflow.runs where flow_slug = 'one'") == 3


def test_e427_a_wait_for_runs_has_a_timeout_and_a_retry_waits_anew(start_parent):
    worker = start_parent('return ctx.wait(ctx.start("one", {"n": 2}), timeout=0.05)[0].status')
    run = worker.start_run({})

    until(lambda: let_go(worker) or worker.status(run) == "failed", 10)
    assert worker.attempts(run)[-1].error_message.startswith("E427 step work: run ")

    worker.do("select pgflowd.retry(%s, 'me')", run)
    let_go(worker)
    assert suspended(worker, run, 2)
    end_children(worker)
    assert output(worker, run) == {"work": "completed"}


def test_a_child_that_was_retried_is_waited_for_again(start_parent):
    worker = start_parent("""
        (child,) = ctx.wait(ctx.start("one", {"n": 1}))
        if child.status != "completed": raise RuntimeError(child.error)
        return child.output
    """)
    run = worker.start_run({})
    assert suspended(worker, run)
    end_children(worker)
    until(lambda: let_go(worker) or worker.status(run) == "failed", 10)

    (child,) = children(worker, run)
    worker.do("""update pgflow.runs set input = '{"n": 2}' where run_id = %s""", child)
    worker.do("select pgflowd.retry(%s, 'me'), pgflowd.retry(%s, 'me')", child, run)
    let_go(worker)
    until(lambda: worker.value("select count(*) from pgflowd.waits where run_id = %s", run))
    end_children(worker)

    assert output(worker, run) == {"work": {"a": 4}}


def test_what_cannot_be_started_or_waited_for_is_an_error_of_the_handler(start_parent):
    worker = start_parent("""
        found = []
        for call in (
            lambda: ctx.start("nowhere", {}),
            lambda: ctx.start("one", {}, at=datetime.datetime(2030, 1, 1)),
            lambda: ctx.start("one", {1}),
            lambda: ctx.start("one", "x" * 100_000),
            lambda: ctx.start("one", {}, delay="2h", expires="1h"),
            lambda: ctx.start("one", {}, after=[ctx.run_id]),
            lambda: ctx.wait(ctx.run_id),
        ):
            try: call()
            except Exception as error:
                found.append([type(error).__name__, getattr(error, "code", "")])
        try: ctx.wait("00000000-0000-7000-8000-000000000001")
        except RunError as error: return [*found, error.code]
    """, max_output_bytes=50_000)  # fmt: skip
    run = worker.start_run({})

    assert output(worker, run)["work"] == [
        ["UnknownFlow", "E415"], ["RunError", "E430"], ["OutputError", "E403"],
        ["TooLarge", "E424"], ["RunError", "E432"], ["BadDependency", "E422"], ["ValueError", ""],
        "E409",
    ]  # fmt: skip
    assert children(worker, run) == []


def test_outputs_that_are_large_together_are_read_in_parts(start_parent, monkeypatch):
    monkeypatch.setattr(workers, "MAX_READ_BYTES", 20)
    worker = start_parent("""
        runs = [ctx.start("one", {"n": 2 * n}) for n in range(4)]
        return [each.output["a"] for each in ctx.wait(*runs)]
    """)
    run = worker.start_run({})
    assert suspended(worker, run)
    end_children(worker)

    assert output(worker, run) == {"work": [0, 4, 8, 12]}


def test_a_cancel_ends_a_waiting_parent_and_its_children(start_parent):
    worker = start_parent(COLLECT)
    run = worker.start_run({"n": 2})
    assert suspended(worker, run)

    worker.do("select pgflowd.cancel(%s, 'enough', 'me')", run)
    until(lambda: let_go(worker) or not worker.open_runs(), 10)

    query = "select status from pgflowd.run_status where run_id = any (%s)"
    assert worker.column(query, [run, *map(str, children(worker, run))]) == ["cancelled"] * 3


def test_an_async_handler_starts_children_beside_others_in_its_runner(start_worker):
    module = waiting(COLLECT, keyword="async ")
    worker = start_worker(module, tasks_per_runner=10)
    worker.do("select pgflow.create_flow('one')")
    worker.do("select pgflow.add_step('one', 'a')")
    runs = [worker.start_run({"n": 2}) for _ in range(4)]
    for run in runs:
        assert suspended(worker, run)
    worker.do("update pgflow.runs set input = '{\"n\": 2}' where flow_slug = 'one'")
    left = "select count(*) from pgflow.runs where flow_slug = 'one' and status = 'started'"
    until(lambda: end_children(worker) or not worker.value(left))

    for run in runs:
        assert output(worker, run) == {"work": [["completed", {"a": 4}, None]] * 2}


def test_a_woken_parent_sees_that_the_time_is_over(start_parent):
    worker = start_parent('ctx.wait(ctx.start("one", {"n": 2}))')
    run = worker.start_run({})
    assert suspended(worker, run)
    make_due(worker, run)
    outcome, text = failure(worker, run)
    assert outcome == "suspended" and text is None
    assert worker.attempts(run)[-1].error_message[:4] == "E427"
