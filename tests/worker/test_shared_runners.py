"""Async tasks that share a runner: what one of them does costs the others nothing but time."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from support.covers import covers
from support.worker import in_handler

from pgflowd.testing.until import until

MAP = """
    import asyncio, logging, os, signal, subprocess, sys, threading, time
    from support.oracle import note
    from pgflowd import Client, Flow

    flow = Flow("flow", max_attempts=3, base_delay=0, timeout=60)
    begun = 0  # in this process

    @flow.map
    async def work(item, ctx):
        global begun
        begun += 1
        note(ctx, "start")
        output = await act(item, ctx)
        note(ctx, "end", output)
        return output

    async def act(item, ctx):
        {body}
"""
# one task of 200 does harm, once, when all are there; the others are a second from their end
POISON = """
    if item:
        await asyncio.sleep(1)
    elif ctx.attempt == 1:
        while begun < 200:
            await asyncio.sleep(0.01)
        {harm}
    return item
"""
ALL = list(range(200))


def shared_map(body: str) -> str:
    return MAP.format(body=in_handler(body))


@pytest.fixture
def start_sharing(start_worker):
    """Start a worker whose tasks share a runner."""

    def start(module: str, **keys: object):
        shared = {"max_concurrency": 200, "tasks_per_runner": 200, "kill_grace_s": 2.0}
        return start_worker(module, **{**shared, **keys})

    return start


def outcomes(worker, run) -> dict[int, list[str]]:
    """The outcomes of each task's attempts."""
    query = """
        select task_index, array_agg(outcome order by token) from pgflowd.attempts
        where run_id = %s group by task_index
    """
    return dict(worker.conn.execute(query, (run,)).fetchall())


def spent(worker, run) -> dict[int, int]:
    """The attempts that each task has spent."""
    query = "select task_index, attempts_count from pgflow.step_tasks where run_id = %s"
    return dict(worker.conn.execute(query, (run,)).fetchall())


@covers("rule 58")
def test_many_tasks_wait_at_once_in_as_few_runners_as_hold_them(start_sharing):
    body = "await asyncio.sleep(0.5); return os.getpid()"
    worker = start_sharing(shared_map(body), tasks_per_runner=100)

    run = worker.start_run(ALL)

    pids = worker.output(run, 30)["work"]
    assert len(set(pids)) == 2
    assert worker.outcomes(run) == ["completed"] * 200


@covers("rule 58")
def test_tasks_that_are_sent_together_begin_together(start_sharing):
    """Nothing else is sent to their runner: the first ping would come a quarter of 60 s later."""
    body = """
        while begun < 100:
            await asyncio.sleep(0.01)
        return item
    """
    worker = start_sharing(shared_map(body), kill_grace_s=60.0)

    run = worker.start_run(ALL[:100])

    assert worker.output(run, 12) == {"work": ALL[:100]}


HARM = {
    "it blocks the loop": ("time.sleep(60)", "timed_out", "blocked the event loop"),
    "it computes and blocks the loop": ("while True: pass", "timed_out", "in act"),
    "it exits": ("os._exit(3)", "crashed", "exited with code 3"),
    "it crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "SIGSEGV"),
    "a task that it made crashes": (
        "await asyncio.gather(asyncio.sleep(0.01), asyncio.to_thread(print), crash())",
        "crashed",
        "SIGABRT",
    ),
}


@covers("rule 59", "G3", "G5")
@pytest.mark.parametrize("harm", HARM)
def test_a_task_that_does_harm_costs_the_others_one_execution_and_no_attempt(start_sharing, harm):
    code, outcome, text = HARM[harm]
    crash = "\n    async def crash(): os.abort()\n"
    worker = start_sharing(shared_map(POISON.format(harm=code)) + crash)

    run = worker.start_run(ALL)

    assert worker.output(run, 60) == {"work": ALL}
    [guilty, *others] = [each for _, each in sorted(outcomes(worker, run).items())]
    assert guilty == [outcome, "completed"]
    assert {tuple(each) for each in others} <= {("completed",), ("released", "completed")}
    assert {times for index, times in spent(worker, run).items() if index} == {1}
    texts = worker.column(
        "select error_message from pgflowd.attempts where outcome = %s and run_id = %s",
        outcome,
        run,
    )
    assert text in texts[0], texts


@covers("rule 59")
def test_a_task_at_its_deadline_is_cancelled_and_the_others_do_not_notice(start_sharing):
    module = shared_map("await asyncio.sleep(1.5); return item") + TIMED
    worker = start_sharing(module.format(ignores="raise"))

    run = worker.start_run(ALL[:50])

    assert worker.output(run, 30)["work"] == ALL[:50]
    ended = worker.rows("select * from pgflowd.attempts where step_slug = 'late'")
    assert [each.outcome for each in ended] == ["timed_out"]
    assert "timed out after 1 s; it was at " in ended[0].error_message
    assert "in deep" in ended[0].error_message
    assert set(worker.outcomes(run)) == {"timed_out", "completed"}


@covers("rule 59", "G5")
def test_a_task_that_ignores_its_cancellation_is_killed_and_the_others_run_again(start_sharing):
    module = shared_map("await asyncio.sleep(6); return item") + TIMED
    worker = start_sharing(module.format(ignores="await deep()"))

    run = worker.start_run(ALL[:50])

    assert worker.output(run, 30)["work"] == ALL[:50]
    ended = worker.rows("select * from pgflowd.attempts where step_slug = 'late'")
    assert ended[-1].outcome == "timed_out"
    assert "in deep" in ended[-1].error_message
    shared = {index: each for index, each in outcomes(worker, run).items() if index}
    assert {tuple(dict.fromkeys(each)) for each in shared.values()} == {("released", "completed")}
    errors = [record["error"] for record in worker.records("worker.error")]
    assert any("late#0 is to blame" in error for error in errors), errors


TIMED = """
    @flow.step(timeout=1, max_attempts=1, when_exhausted="skip")
    async def late(ctx):
        try:
            await deep()
        except asyncio.CancelledError:
            {ignores}

    async def deep():
        await asyncio.sleep(60)
"""


@covers("rule 59")
def test_a_runner_that_is_killed_from_outside_costs_no_attempt(start_sharing):
    worker = start_sharing(shared_map("await asyncio.sleep(1); return item"))
    run = worker.start_run(ALL)
    until(lambda: worker.title().endswith("200/200"), 20)
    (runner,) = worker.processes("/shared")

    os.kill(runner, signal.SIGKILL)

    assert worker.output(run, 30) == {"work": ALL}
    assert set(worker.outcomes(run)) == {"released", "completed"}
    assert set(spent(worker, run).values()) == {1}


@covers("rule 59")
def test_a_task_that_was_disturbed_three_times_is_alone_and_a_hidden_culprit_is_found(
    start_sharing,
):
    """It crashes its runner between the steps of all tasks, so that nobody knows who it was."""
    body = """
        if item == 0 and ctx.attempt == 1:
            threading.Timer(0.5, os._exit, [9]).start()
        await asyncio.sleep(1.5)
        return item
    """
    worker = start_sharing(shared_map(body))

    run = worker.start_run([0, 1, 2])

    assert worker.output(run, 30) == {"work": [0, 1, 2]}
    found = outcomes(worker, run)
    assert found[0] == ["released"] * 3 + ["crashed", "completed"]
    assert set(found[1]) | set(found[2]) == {"released", "completed"}


@covers("rule 58")
def test_floods_forks_and_threads_of_one_task_leave_the_others_alone(start_sharing):
    body = """
        harms = {
            1: lambda: [print("x" * 1000) for _ in range(20_000)],
            2: lambda: subprocess.Popen(["sleep", "100"]),
            3: lambda: threading.Thread(target=time.sleep, args=(5,)).start(),
            4: lambda: os.fork() or time.sleep(100),
            5: lambda: os.fork(),
        }
        harms.get(item, int)()
        await asyncio.sleep(0.5)
        return item
    """
    worker = start_sharing(shared_map(body), kill_grace_s=10.0)

    run = worker.start_run(ALL)

    assert worker.output(run, 40) == {"work": ALL}
    assert worker.outcomes(run) == ["completed"] * 200
    until(lambda: not worker.runners, 5)
    (record,) = [r for r in worker.records("worker.error") if "tasks that shared" in r["error"]]
    assert "sleep" in record["error"] and "It had work#" in record["error"]
    said = worker.records("task.output")
    assert sum(len(r["text"]) for r in said if r.get("task") == "work#1") < 1_100_000
    assert [r["task"] for r in said if "bytes of output more" in r["text"]] == ["work#1"]


@covers("rule 58")
def test_what_a_thousand_tasks_print_and_log_is_never_mixed(start_sharing):
    body = """
        print(item, "first", end="")
        await asyncio.sleep(0.02)
        print(",", item, "then")
        logging.getLogger("app").info("log %s", item)
        await asyncio.gather(*(part(item, n) for n in range(2)))
        await asyncio.to_thread(print, f"thread {item}", file=sys.stderr)
        ctx.log.warning("ctx %s", item)
    """
    part = """
    async def part(item, n):
        await asyncio.sleep(0.01 * n)
        print(f"part {n} of {item}")
    """
    worker = start_sharing(
        shared_map(body) + part, max_concurrency=1000, tasks_per_runner=500, kill_grace_s=20.0
    )

    run = worker.start_run(list(range(1000)))

    assert worker.completed(run, 60)

    def lines() -> list[dict[str, Any]]:
        return [r for r in worker.records("task.") if r["event"] in ("task.output", "task.log")]

    said = until(
        lambda: len(found := lines()) >= 6000 and found, 30
    )  # the log takes 2,000 a second
    found: dict[str, list[str]] = {}
    for record in said:
        found.setdefault(record["task"], []).append(record["text"])
    assert found == {
        f"work#{n}": [
            f"{n} first, {n} then",
            f"log {n}",
            f"part 0 of {n}",
            f"part 1 of {n}",
            f"thread {n}",
            f"ctx {n}",
        ]
        for n in range(1000)
    }


@covers("rule 59")
def test_a_cancelled_run_ends_its_tasks_and_no_other_ones(start_sharing):
    worker = start_sharing(shared_map("await asyncio.sleep(3); return item"))
    cancelled, other = worker.start_run(ALL[:50]), worker.start_run(ALL[:50])
    until(lambda: worker.title().endswith("100/200"), 20)

    worker.conn.execute("select pgflowd.cancel(%s, 'enough', 'me')", (cancelled,))

    until(lambda: worker.title().endswith("50/200"), 10)
    assert worker.output(other, 30) == {"work": ALL[:50]}
    assert worker.outcomes(other) == ["completed"] * 50
    assert set(worker.outcomes(cancelled)) == {"late"}


@covers("G8")
def test_a_drain_lets_shared_tasks_finish_and_a_quick_stop_gives_them_back(start_sharing):
    worker = start_sharing(shared_map("await asyncio.sleep(1); return ctx.stopping.is_set()"))
    run = worker.start_run(ALL)
    until(lambda: worker.title().endswith("200/200"), 20)
    assert worker.drain() == 0
    assert worker.output(run) == {"work": [True] * 200}

    worker = start_sharing(shared_map("await asyncio.sleep(60 / ctx.attempt)"))
    run = worker.start_run(ALL)
    until(lambda: worker.title().endswith("200/200"), 20)
    assert worker.quick_stop() == 0
    assert set(worker.outcomes(run)) == {"released"} and set(spent(worker, run).values()) == {0}


@covers("rule 58")
def test_a_sync_step_has_a_runner_of_its_own_beside_shared_tasks(start_sharing):
    sync = """
    @flow.map(over="work")
    def after(item):
        return [asyncio.run(asyncio.sleep(0.1, item)), os.getpid()]
    """
    worker = start_sharing(shared_map("await asyncio.sleep(item / 20); return item") + sync)

    run = worker.start_run(ALL[:20])

    rows = worker.output(run, 30)["after"]
    assert [row[0] for row in rows] == ALL[:20]
    assert worker.outcomes(run) == ["completed"] * 40


@pytest.mark.own_session
@covers("rule 58")
def test_shared_tasks_ask_for_what_any_handler_may_have(start_sharing):
    body = """
        where = await asyncio.to_thread(ctx.conn)
        with where.cursor() as cursor:
            cursor.execute("select %s::int", (item,))
            (row,) = cursor.fetchone()
        status = await asyncio.to_thread(Client().status, ctx.run_id)
        return [row, len(ctx.flow_input()), status.status, ctx.task_index]
    """
    worker = start_sharing(shared_map(body.replace("Client().status", "Client().get_run")))

    run = worker.start_run(ALL[:20])

    assert worker.output(run, 40) == {"work": [[n, 20, "started", n] for n in range(20)]}


@covers("outside 3")
def test_large_results_wait_in_a_shared_runner_without_holding_up_the_others(start_sharing):
    worker = start_sharing(shared_map("return item if item % 10 else 'x' * 400_000"))

    run = worker.start_run(ALL)

    found = worker.output(run, 60)["work"]
    assert [len(x) if isinstance(x, str) else x for x in found] == [
        n if n % 10 else 400_000 for n in ALL
    ]
    assert worker.outcomes(run) == ["completed"] * 200


def test_a_shared_runner_is_replaced_after_its_tasks(start_sharing):
    body = "await asyncio.sleep(0.01); return os.getpid()"
    worker = start_sharing(shared_map(body), tasks_per_runner=10, max_tasks_per_runner=25)

    run = worker.start_run(ALL)

    pids = worker.output(run, 30)["work"]
    assert max(pids.count(pid) for pid in pids) <= 25
