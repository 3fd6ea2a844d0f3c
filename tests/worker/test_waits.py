"""Handlers that sleep and wait for signals: they end, spend no attempt, and begin again."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from support.covers import covers
from support.worker import failure, in_handler

from pgflowd.core.messages import Wake
from pgflowd.testing.until import until

ONE = """
    import asyncio, contextlib, datetime, os, threading, time
    from concurrent.futures import ThreadPoolExecutor
    from pgflowd import Flow, RetryAfter, RunError

    flow = Flow("flow", max_attempts=2, base_delay=0, timeout=20)

    @flow.step{options}
    {keyword}def work(run, ctx):
        {body}
"""


def waiting(body: str, *, options: str = "", keyword: str = "") -> str:
    return ONE.format(body=in_handler(body), options=options, keyword=keyword)


def send(worker: Any, run: str, name: str, payload: Any) -> None:
    worker.do("select pgflowd.signal(%s, %s, %s::jsonb)", run, name, json.dumps(payload))


def suspended(worker: Any, run: str, times: int = 1) -> bool:
    """Wait until the run's task has been suspended so often, and waits."""
    query = "select count(*) from pgflowd.waits where run_id = %s"
    until(lambda: worker.outcomes(run).count("suspended") == times, 10)
    return bool(worker.value(query, run))


def let_go(worker: Any) -> None:
    """What the sweeper does, and the wake that follows."""
    worker.do("select pgflowd.process_due()")
    worker.send(Wake())


def make_due(worker: Any, run: str) -> None:
    """Let the time of a wait be over."""
    worker.do("update pgflowd.waits set due_at = now() where run_id = %s", run)
    let_go(worker)


def output(worker: Any, run: str, within_s: float = 10.0) -> Any:
    until(lambda: let_go(worker) or worker.status(run) != "started", within_s)
    return worker.output(run)


def test_a_sleep_ends_the_attempt_unspent_and_the_handler_begins_again(start_worker):
    worker = start_worker(
        waiting("""
        begun = ctx.memo("begun", time.time)
        ctx.sleep(0.3)
        ctx.sleep(until=datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=0.2))
        return [ctx.attempt, time.time() - begun]
    """)
    )

    run = worker.start_run({})

    attempt, took_s = output(worker, run)["work"]
    assert attempt == 1 and took_s >= 0.5
    assert worker.outcomes(run) == ["suspended", "suspended", "completed"]
    assert worker.value("select count(*) from pgflowd.waits") == 0
    records = worker.records("task.suspended")
    assert [(each["level"], each["wait"]) for each in records] == [
        ("debug", "sleep 1"), ("debug", "sleep 2"),
    ]  # fmt: skip
    assert not worker.records("task.failed")


@covers("G13")
def test_a_sleeping_task_has_no_runner_lease_or_message(start_worker):
    worker = start_worker(waiting("ctx.sleep('2h'); return 1"), runner_idle_s=0.1)
    run = worker.start_run({})

    assert suspended(worker, run)
    until(lambda: not worker.runners)
    task = worker.task(run, "work")
    assert (task.status, task.attempts_count) == ("queued", 0)
    assert worker.value("select count(*) from pgmq.q_flow") == 0
    assert worker.value("select count(*) from pgflowd.attempts where ended_at is null") == 0

    worker.do("select pgflowd.cancel(%s, 'enough', 'me')", run)
    assert worker.status(run) == "failed"
    assert worker.value("select count(*) from pgflowd.waits") == 0


def test_a_sleep_goes_on_whoever_is_killed_meanwhile(start_worker):
    module = waiting("""
        ctx.sleep("1h")
        if ctx.attempt == 1: os.kill(os.getpid(), 9)
        ctx.sleep("1h", name="second")
        return ctx.attempt
    """)
    first = start_worker(module)
    run = first.start_run({})
    assert suspended(first, run)
    os.kill(first.pid, signal.SIGKILL)
    until(first.child.has_ended)

    second = start_worker(module)
    make_due(second, run)
    assert suspended(second, run, 2)
    assert second.outcomes(run) == ["suspended", "crashed", "suspended"]
    make_due(second, run)

    assert output(second, run) == {"work": 2}


def test_a_signal_is_received_once_whether_it_comes_before_or_after(start_worker):
    worker = start_worker(
        waiting("""
        first = ctx.wait_signal("go")
        second = ctx.wait_signal("go")
        if ctx.attempt == 1: raise ValueError("once more")
        return [first, second, ctx.wait_signal("stop", timeout="1h", default="no")]
    """)
    )
    run = worker.start_run({})
    assert suspended(worker, run)

    send(worker, run, "stop", None)
    send(worker, run, "go", {"number": 1})
    send(worker, run, "go", {"number": 2})

    assert output(worker, run) == {"work": [{"number": 1}, {"number": 2}, None]}
    assert worker.outcomes(run).count("failed") == 1
    assert worker.value("select count(*) from pgflowd.signals where consumed_at is null") == 0


def test_a_signal_that_does_not_come_is_the_default(start_worker):
    worker = start_worker(
        waiting("""
        return [ctx.wait_signal("a", timeout=0.1, default=None), ctx.attempt]
    """)
    )

    assert output(worker, worker.start_run({})) == {"work": [None, 1]}


@covers("E427")
@pytest.mark.parametrize(
    ("mode", "status"), [("fail", "failed"), ("skip", "completed"), ("skip-cascade", "completed")]
)
def test_e427_without_default_it_is_a_failure_that_no_retry_mends(
    start_worker, mode: str, status: str
):
    options = f"(when_exhausted='{mode}')"
    worker = start_worker(waiting("ctx.wait_signal('a', timeout='50ms')", options=options))

    run = worker.start_run({})

    until(lambda: let_go(worker) or worker.status(run) == status, 10)
    [first, second] = worker.attempts(run)
    assert (first.outcome, second.outcome) == ("suspended", "failed")
    assert "E427" in second.error_message and "'a'" in second.error_message


@pytest.mark.parametrize(
    "body",
    [
        """
        try: ctx.sleep("1h")
        except Exception: return "caught"
        """,
        """
        with contextlib.suppress(Exception), ThreadPoolExecutor() as pool:
            pool.submit(ctx.sleep, "1h").result()
        return "caught"
        """,
    ],
)
def test_code_that_catches_exceptions_lets_a_suspension_pass(start_worker, body: str):
    worker = start_worker(waiting(body))

    run = worker.start_run({})

    assert suspended(worker, run)


@covers("E426")
@pytest.mark.parametrize(
    "body",
    [
        """
        try: ctx.sleep("1h")
        except: return "caught"
        """,
        """
        with contextlib.suppress(BaseException): ctx.wait_signal("go")
        return "caught"
        """,
        """
        thread = threading.Thread(target=ctx.sleep, args=(60,))
        thread.start(); thread.join()
        return "not seen"
        """,
    ],
)
def test_e426_a_handler_that_swallows_its_suspension_has_failed(start_worker, body: str):
    worker = start_worker(waiting(body))

    run = worker.start_run({})

    outcome, text = failure(worker, run)
    assert (outcome, text[:4]) == ("failed", "E426")
    assert len(worker.outcomes(run)) == 1


def test_a_handler_that_fails_while_it_is_suspended_has_failed(start_worker):
    worker = start_worker(
        waiting("""
        try: ctx.sleep("1h")
        finally: raise ValueError("while leaving")
    """)
    )

    run = worker.start_run({})

    outcome, text = failure(worker, run)
    assert (outcome, text) == ("failed", "ValueError: while leaving")


@pytest.mark.parametrize("shared", [1, 10])
def test_async_handlers_wait_in_groups_one_wait_after_the_other(start_worker, shared: int):
    body = """
        async def reply(name): return ctx.wait_signal(name)
        async with asyncio.TaskGroup() as group:
            replies = [group.create_task(reply(name)) for name in ("a", "b")]
        return [each.result() for each in replies]
    """
    worker = start_worker(waiting(body, keyword="async "), tasks_per_runner=shared)
    runs = [worker.start_run({}) for _ in range(6)]
    for run in runs:
        assert suspended(worker, run)

    for run in runs:
        send(worker, run, "b", 2)
        send(worker, run, "a", 1)

    for run in runs:
        assert output(worker, run) == {"work": [1, 2]}
        assert worker.outcomes(run)[-1] == "completed" and "failed" not in worker.outcomes(run)


def test_tasks_that_share_a_runner_sleep_while_the_others_work(start_worker):
    body = """
        if run["sleeps"]: ctx.sleep("1h")
        await asyncio.sleep(0.05)
        return "awake"
    """
    worker = start_worker(waiting(body, keyword="async "), tasks_per_runner=20, max_concurrency=20)

    runs = [worker.start_run({"sleeps": number % 2 == 0}) for number in range(20)]

    for run in runs[1::2]:
        assert worker.output(run) == {"work": "awake"}
    for run in runs[::2]:
        assert suspended(worker, run)
        make_due(worker, run)
        assert output(worker, run) == {"work": "awake"}


def test_a_process_that_a_handler_forks_cannot_suspend_its_task(start_worker):
    worker = start_worker(
        waiting("""
        ctx.load("x")  # so that the copy need not ask for what was saved
        reading, writing = os.pipe()
        if not (child := os.fork()):
            try: ctx.sleep("1h")
            except RunError as error: os.write(writing, error.code.encode())
            os._exit(0)
        os.waitpid(child, 0)
        return os.read(reading, 99).decode()
    """)
    )

    assert worker.output(worker.start_run({})) == {"work": "E402"}


def test_what_a_handler_wrote_before_it_waits_is_undone_unless_a_memo_kept_it(start_worker):
    worker = start_worker(
        waiting("""
        write = lambda number: ctx.conn().execute("insert into made values (%s)", (number,)) and 1
        ctx.memo("first", write, 1)
        write(2)
        ctx.sleep(0)
        return "awake"
    """)
    )
    worker.do("create table made (number int)")

    run = worker.start_run({})

    assert suspended(worker, run)
    assert worker.column("select number from made") == [1]
    assert output(worker, run) == {"work": "awake"}
    assert worker.column("select number from made order by number") == [1, 2]


@covers("G3")
def test_a_task_whose_run_is_cancelled_while_it_is_suspended_here_is_late(start_worker, tmp_path):
    gate = tmp_path / "gate"
    worker = start_worker(waiting(f"""
        while not os.path.exists({str(gate)!r}): time.sleep(0.005)
        ctx.sleep("1h")
    """), heartbeat_interval_s=30.0)  # fmt: skip
    run = worker.start_run({})
    until(lambda: worker.processes("#"))

    worker.do("select pgflowd.cancel(%s, 'enough', 'me')", run)
    gate.touch()

    until(lambda: worker.outcomes(run) == ["late"])
    assert worker.value("select count(*) from pgflowd.waits") == 0
