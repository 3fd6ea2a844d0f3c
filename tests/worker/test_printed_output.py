"""What is kept of the output of attempts, however they end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.covers import covers
from support.worker import one_step

from pgflowd.core.messages import Wake
from pgflowd.core.output_stream import read
from pgflowd.processes.worker.runner_records import AT_ONCE, PAUSE_S, PER_S
from pgflowd.testing.until import until

PRINTED = (
    "select printed from pgflowd.attempts where run_id = %s and step_slug = 'work' order by token"
)


def kept(worker, run: str) -> list[list[str] | None]:
    """The texts of the lines that are kept of each attempt."""
    return [
        None if text is None else [line.text for line in read(text)[0]]
        for text in worker.column(PRINTED, run)
    ]


ENDS = {
    "failed": "raise ValueError('no')",
    "timed out": "time.sleep(60)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "exited": "os._exit(7)",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_attempt_that_fails_keeps_its_lines(start_worker, end):
    worker = start_worker(one_step(f"""
        print("one", flush=True)
        print("password=hunter2", file=sys.stderr, flush=True)
        ctx.log.warning("mind the gap")
        import logging; logging.getLogger("named after a file \\udcff").error("strange")
        sys.stdout.write("no end of line"); sys.stdout.flush()
        {end}
    """, timeout=1))  # fmt: skip

    run = worker.start_run()

    assert worker.failed(run)
    ((text,),) = worker.rows("select printed from pgflowd.attempts where run_id = %s", run)
    lines = {(line.stream, line.level, line.text) for line in read(text)[0]}
    assert lines == {
        ("stdout", "info", "one"),
        ("stderr", "info", "password=***"),
        ("log", "warning", "mind the gap"),
        ("log", "error", "strange"),
        ("stdout", "info", "no end of line"),
    }


@pytest.mark.parametrize(
    ("keep", "expected"),
    [("failures", [["1"], None]), ("all", [["1"], ["2"]]), ("off", [None, None])],
)
def test_which_attempts_keep_theirs_is_a_setting(start_worker, keep, expected):
    worker = start_worker(one_step("""
        print(ctx.attempt)
        if run["conn"]: ctx.conn().execute("create table if not exists shop (n int)")
        if ctx.attempt == 1: raise ValueError("no")
    """, attempts=2), keep_output=keep)  # fmt: skip

    runs = [worker.start_run({"conn": False}), worker.start_run({"conn": True})]

    assert all(worker.completed(run) for run in runs)
    assert kept(worker, runs[0]) == expected
    if keep == "all":  # the worker tells after the runner's commit
        until(lambda: kept(worker, runs[1]) == expected, within_s=5)
    assert kept(worker, runs[1]) == expected


@pytest.mark.own_session
def test_a_worker_that_starts_knows_who_follows(start_worker, database):
    run_id = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c13"
    with database.connect() as conn:
        follow = "insert into pgflowd.followers values (%s, true, now() + interval '1 min')"
        conn.execute(follow, (run_id,))
        (channel,) = conn.execute("select pgflowd.output_channel(%s)", (run_id,)).fetchone()
        conn.execute(f'listen "{channel}"')
        worker = start_worker(one_step("print('the first line')"), heartbeat_interval_s=60.0)

        worker.start("flow", run_id=run_id)
        worker.send(Wake())

        (told,) = [notice.payload for notice in conn.notifies(timeout=20, stop_after=1)]
    assert "the first line" in told


@pytest.mark.own_session
@pytest.mark.parametrize("shared", [False, True])
def test_a_flood_keeps_its_last_lines_and_delays_nobody(start_worker, shared):
    worker = start_worker(
        """
        import asyncio, sys
        from pgflowd import Flow

        flow = Flow("flow", max_attempts=1, timeout=60)

        @flow.map
        async def work(item, ctx):
            if item == "flood":
                print("the first line")
                line = "x" * 99
                for number in range(100_000):
                    print(line)
                    if number % 1000 == 0: await asyncio.sleep(0)
                print("the last words")
                raise ValueError("no")
            return item
        """,
        max_concurrency=4,
        **({"tasks_per_runner": 4} if shared else {}),
    )

    run = worker.start_run(["flood", 1, 2, 3])

    assert worker.failed(run, within_s=60)
    (text,) = [text for text in worker.column(PRINTED, run) if text is not None]
    lines, is_cut = read(text)
    assert is_cut
    assert lines[-1].text == "the last words"
    assert len(lines) > 500
    assert len(text) <= 64 * 1024 + 40
    others = "select output from pgflow.step_tasks where run_id = %s and status = 'completed'"
    assert worker.column(others, run) == [1, 2, 3]


FLOODS = 4
NEIGHBOUR = """
    import os, time
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=1, timeout=60)

    @flow.map
    def work(item, ctx):
        if item == "neighbour":
            time.sleep(5)
            return ctx.attempt
        while True: {flood}
"""


def reads_of(pid: int) -> int:
    """How many reads a process has made."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("syscr:")).split()[1])


@covers("row 49", "outside 17", "use 2")
@pytest.mark.own_session
@pytest.mark.parametrize(
    "flood",
    ['print("a line")', r'os.write(1, b"\n" * 5000)', 'ctx.log.info("a line")'],
    ids=["lines", "blocks", "records"],
)
def test_floods_cost_their_worker_little_and_their_neighbour_no_lease(start_worker, flood):
    worker = start_worker(NEIGHBOUR.format(flood=flood), max_concurrency=FLOODS + 1)
    reads, begun = reads_of(worker.pid), time.monotonic()
    run = worker.start_run([*["flood"] * FLOODS, "neighbour"])

    of_neighbour = "select output from pgflow.step_tasks where run_id = %s and task_index = %s"
    until(lambda: worker.column(of_neighbour, run, FLOODS) != [None], within_s=40)

    reads, took_s = reads_of(worker.pid) - reads, time.monotonic() - begun
    assert worker.column(of_neighbour, run, FLOODS) == [1]
    outcomes = "select distinct outcome from pgflowd.attempts where run_id = %s and task_index < %s"
    assert worker.column(outcomes, run, FLOODS) == [None]  # each flood is in its first attempt
    assert len(worker.records("task.")) <= AT_ONCE + PER_S * took_s + 100
    assert reads <= FLOODS * took_s / PAUSE_S + 5000


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
def test_of_lines_that_come_too_fast_the_rest_is_counted(start_worker, shared):
    module = """
        from asyncio import sleep
        from pgflowd import Flow
        flow = Flow("flow", timeout=60)

        @flow.map
        def work(item, ctx):
            for number in range(4500):
                print(f"line {number:04}")
                ctx.log.info(f"line {number:04}")
                # shared: if number % 100 == 0: await sleep(0)
    """
    if shared:
        module = module.replace("def work", "async def work").replace("# shared: ", "")
    sharing = {"tasks_per_runner": 4} if shared else {}
    worker = start_worker(module, max_concurrency=4, **sharing)

    assert worker.completed(worker.start_run([1, 2, 3, 4]), within_s=30)

    def accounted() -> int:
        """The bytes of lines that were logged or counted, without the ends of lines."""
        texts = [record["text"] for record in worker.records("task.")[::-1] if "text" in record]
        lines = [text for text in texts if text.startswith("line ")]
        counted = [int(text.split()[0]) for text in texts if text.endswith("more, not logged")]
        return len(lines) * len("line 0000") + sum(counted)

    everything = 4 * 9000 * len("line 0000")
    until(lambda: accounted() >= everything, within_s=30)
    assert accounted() <= everything + 4 * 4500  # with the ends of those that were printed
