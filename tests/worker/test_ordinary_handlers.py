"""Ordinary code of handlers, and that the next task on a warm runner is not affected by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.covers import covers
from support.worker import RunningWorker, failure, is_gone, one_step

from pgflowd.testing.until import until

ASYNC = """
    import asyncio, os, time
    from pgflowd import Fail, Flow

    flow = Flow("flow", max_attempts=3, base_delay=0, timeout={timeout})

    @flow.step
    async def work(run, ctx):
        {body}
"""


def said_by(worker: RunningWorker, event: str) -> list[str]:
    return [record["text"] for record in worker.records(event)]


@covers("row 39")
@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("await inner()", 13),
        ("async with asyncio.TaskGroup() as group: group.create_task(inner())", 9),
        ("await asyncio.to_thread(time.sleep, 600)", 9),
        ("time.sleep(600)", 9),
    ],
)
def test_an_async_handler_that_hangs_is_reported_with_the_line_it_waits_at(
    start_worker, body, line
):
    inner = "\n\n    async def inner():\n        await asyncio.sleep(600)\n"
    module = ASYNC.format(timeout=1, body=body).replace("attempts=3", "attempts=1") + inner
    worker = start_worker(module)

    outcome, text = failure(worker, worker.start_run())

    assert outcome == "timed_out"
    assert text.startswith("timed out after 1 s; it was at ")
    assert f".py:{line} in " in text and text.endswith((" in work", " in inner"))
    assert said_by(worker, "task.output") == []


def test_a_plain_handler_may_use_the_threads_event_loop_after_an_async_one(start_worker):
    module = """
        import asyncio, os
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=1)
        asyncio.set_event_loop_policy(None)  # another test may have used it in our ancestor

        @flow.step
        async def first(run):
            await asyncio.sleep(0)
            return os.getpid()

        @flow.step
        def work(first):
            asyncio.get_event_loop().run_until_complete(asyncio.sleep(0))
            return first == os.getpid()
    """
    worker = start_worker(module, max_concurrency=1)

    assert worker.output(worker.start_run()) == {"work": True}


def test_a_handler_that_reads_its_input_finds_the_end_of_it(start_worker):
    worker = start_worker(one_step("return [sys.stdin.read(), input()]"))

    assert failure(worker, worker.start_run()) == ("failed", "EOFError: EOF when reading a line")


def test_a_fail_in_a_task_group_is_not_retried(start_worker):
    body = """async def fails(): raise Fail("no such customer")
        async with asyncio.TaskGroup() as group: group.create_task(fails())
    """
    worker = start_worker(ASYNC.format(timeout=5, body=body))

    run = worker.start_run()
    outcome, text = failure(worker, run)

    assert worker.outcomes(run) == [outcome] == ["failed"]
    assert text == "ExceptionGroup: unhandled errors in a TaskGroup: no such customer"


def test_what_a_forked_child_logs_is_output_of_its_task(start_worker):
    body = """
        import logging, multiprocessing
        fork = multiprocessing.get_context("fork")
        child = fork.Process(target=logging.getLogger("part").warning, args=("3 of %d", 4))
        child.start(); child.join()
    """
    worker = start_worker(one_step(body))

    run = worker.start_run()
    worker.completed(run)

    logged = [(one["text"], one["run"]) for one in worker.records("task.output")]
    assert logged == [("WARNING part: 3 of 4", run)]


@pytest.mark.parametrize(
    ("ends", "code", "message"),
    [
        ("raise ValueError('no such page')", 1, "ValueError: no such page"),
        ("sys.exit(3)", 3, None),
        ("sys.exit('no such page')", 1, "no such page"),
        ("sys.exit()", 0, None),
    ],
)
def test_a_forked_copy_ends_as_any_process_of_python(start_worker, ends, code, message):
    body = f"""
        pid = os.fork()
        if not pid: {ends}
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    """
    worker = start_worker(one_step(body))

    assert worker.output(worker.start_run()) == {"after": code}
    assert said_by(worker, "task.output")[-1:] == ([message] if message else [])


def test_a_task_that_configures_logging_leaves_the_logs_of_the_next_ones_alone(start_worker):
    body = """
        import logging.config
        ctx.log.info("before")
        if run:
            logging.config.dictConfig({"version": 1, "root": {"handlers": [], "level": "INFO"}})
            ctx.log.info("nobody has asked for this any more")
        logging.info("after")
    """
    worker = start_worker(one_step(body), max_concurrency=1)

    for configures in (True, False):
        assert worker.completed(worker.start_run(configures))

    assert said_by(worker, "task.log") == ["before", "before", "after"]


def test_threads_of_a_module_may_log_between_tasks(start_worker):
    module = """
        import logging, os, threading, time
        from pgflowd import Flow

        def refresh():
            while True:
                logging.getLogger("refresh").warning("again")
                time.sleep(0.002)

        threading.Thread(target=refresh, daemon=True).start()
        flow = Flow("flow", max_attempts=1)

        @flow.step
        def work(run): return os.getpid()
    """
    worker = start_worker(module, max_concurrency=1, runner_idle_s=60.0)

    first = worker.output(worker.start_run())
    message = len(worker.records("task.log"))
    until(lambda: len(worker.records("task.log")) > message + 10)

    assert worker.output(worker.start_run()) == first
    assert not [one for one in worker.records() if "E903" in str(one)]


def test_an_alarm_that_a_task_forgot_does_not_ring_in_the_next_one(start_worker):
    body = """
        if run:
            signal.setitimer(signal.ITIMER_REAL, 1)
        else:
            time.sleep(1.2)
    """
    worker = start_worker(one_step(body), max_concurrency=1)

    for sets in (True, False):
        assert worker.completed(worker.start_run(sets))


def test_an_alarm_that_raises_in_a_question_does_not_spoil_the_next(start_worker):
    body = """
        def rings(number, frame):
            raise TimeoutError
        signal.signal(signal.SIGALRM, rings)
        for _ in range(20):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0003)
                ctx.flow_input()
                time.sleep(1)
            except TimeoutError: pass
        return ctx.flow_input()
    """
    worker = start_worker(one_step(body))

    assert worker.output(worker.start_run({"n": 1})) == {"after": {"n": 1}}


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_the_helpers_of_multiprocessing_end_in_order(start_worker, tmp_path, monkeypatch, method):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    body = f"""
        import multiprocessing
        from multiprocessing import shared_memory
        with multiprocessing.get_context({method!r}).Pool(1) as pool:
            found = pool.map(abs, [-4])
        pool.join()
        forgotten = shared_memory.SharedMemory(create=True, size=10)
        return [found, forgotten.name, os.getpid()]
    """
    worker = start_worker(one_step(body, timeout=20), max_concurrency=1, runner_idle_s=60.0)

    found, name, pid = worker.output(worker.start_run(), 20)["after"]

    assert found == [4]
    assert not Path("/dev/shm", name).exists()
    assert list(temporary.iterdir()) == []
    assert worker.records("worker.error") == []
    assert not is_gone(pid)  # for the next task


def test_what_a_task_wrote_is_undone_if_its_output_cannot_be_stored(start_worker):
    body = """
        ctx.conn().execute("create table if not exists written (attempt int)")
        ctx.conn().execute("insert into written values (%s)", (ctx.attempt,))
        return "x" * (17 << 20 if ctx.attempt == 1 else 1)
    """
    worker = start_worker(one_step(body, attempts=2))

    assert worker.completed(worker.start_run())

    assert worker.conn.execute("select attempt from written").fetchall() == [(2,)]


@covers("newcomer 15")
def test_an_output_that_is_not_json_fails_the_task_in_its_first_attempt(start_worker):
    worker = start_worker(one_step("return {1, 2}", attempts=3))

    run = worker.start_run()

    assert worker.failed(run)
    [(_, outcome, text)] = worker.attempts(run)
    assert (outcome, text[:4]) == ("failed", "E403")


@covers("newcomer 14")
def test_a_client_without_a_url_uses_the_daemons_database(start_worker, monkeypatch):
    monkeypatch.setenv("PGHOST", "/nowhere")
    body = """
        from pgflowd import Client
        with Client() as client:
            return client.get_run(ctx.run_id).status
    """
    worker = start_worker(one_step(body))

    assert worker.output(worker.start_run()) == {"after": "started"}


@covers("newcomer 14")
def test_an_async_client_without_a_url_uses_the_daemons_database(start_worker):
    module = """
        from pgflowd import AsyncClient, Flow
        client = AsyncClient()
        flow = Flow("flow")

        @flow.step
        async def work(ctx):
            return (await client.get_run(ctx.run_id)).status
    """
    worker = start_worker(module, max_concurrency=1)

    first, second = worker.start_run(), worker.start_run()

    assert worker.output(first) == worker.output(second) == {"work": "started"}


@pytest.mark.parametrize(
    "rude",
    [
        "import io; sys.stdout = io.StringIO()",
        "sys.stdout.close()",
        "here.set('customer 7')",
    ],
)
def test_the_next_task_meets_no_other_stream_or_context(start_worker, rude):
    body = f"""
        if run:
            {rude}
        else:
            print("printed", here.get())
    """
    variable = "import contextvars; here = contextvars.ContextVar('here', default='nowhere')"
    module = one_step(body).replace("flow = ", f"{variable}\n    flow = ")
    worker = start_worker(module, max_concurrency=1)

    for is_rude in (True, False):
        assert worker.completed(worker.start_run(is_rude))

    assert said_by(worker, "task.output") == ["printed nowhere"]


def test_runners_do_not_share_the_random_numbers_of_numpy(start_worker):
    module = """
        import os, sys, types
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=1)

        numpy = types.ModuleType("numpy.random")  # it is no dependency of ours
        numpy.seed = lambda: setattr(numpy, "seeded_by", os.getpid())
        numpy.seed()
        sys.modules["numpy.random"] = numpy

        @flow.step
        def work(run): return numpy.seeded_by == os.getpid()
    """
    worker = start_worker(module)

    assert worker.output(worker.start_run()) == {"work": True}


def test_a_very_deep_recursion_is_reported_as_fast_as_any_error(start_worker):
    body = """
        sys.setrecursionlimit(100_000)
        def deeper(n): return deeper(n + 1)
        deeper(0)
    """
    worker = start_worker(one_step(body))

    assert failure(worker, worker.start_run())[1].startswith("RecursionError: maximum recursion")
    message = worker.value("select traceback from pgflowd.attempts")
    assert "[Previous line repeated 997 more times]" in message
