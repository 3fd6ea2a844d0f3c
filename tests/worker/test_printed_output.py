"""What is kept of the output of attempts, however they end."""

from __future__ import annotations

import pytest
from support.worker import one_step

from pgflowd.core.kept_output import read
from pgflowd.core.messages import Wake
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
