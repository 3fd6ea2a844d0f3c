"""What handlers tell of their progress, from their runners to the database."""

from __future__ import annotations

import pytest
from support.worker import one_step

from pgflowd.testing.until import until

STORED = "select progress - 'at' from pgflowd.attempts where run_id = %s order by token"


def test_it_is_seen_while_the_task_runs_and_its_last_value_stays(start_worker, tmp_path):
    gate = tmp_path / "gate"
    worker = start_worker(one_step("""
        ctx.progress(12, 30, "pages", url=run["url"])
        while not os.path.exists(run["gate"]): time.sleep(0.01)
        for done in range(13, 5000): ctx.progress(done, 30)
        if run.get("fails"): raise ValueError("no")
    """))  # fmt: skip
    runs = [
        worker.start_run({"gate": str(gate), "url": "x"}),
        worker.start_run({"gate": str(gate), "url": "x", "fails": 1}),
    ]
    first = {"done": 12, "total": 30, "text": "pages", "detail": {"url": "x"}}
    until(lambda: all(worker.column(STORED, run) == [first] for run in runs), within_s=10)

    gate.touch()
    assert worker.completed(runs[0]) and worker.failed(runs[1])
    last = {"done": 4999, "total": 30}
    assert [worker.column(STORED, run)[0] for run in runs] == [last, last]


def test_a_task_that_is_completed_by_its_runner_keeps_its_last_value(start_worker):
    worker = start_worker(one_step("""
        ctx.conn().execute("create table if not exists shop (n int)")
        ctx.progress(1, 2)
    """))  # fmt: skip

    run = worker.start_run()

    assert worker.completed(run)
    until(lambda: worker.column(STORED, run)[0] == {"done": 1, "total": 2}, within_s=5)


def test_tasks_that_share_a_runner_tell_of_their_own(start_worker):
    worker = start_worker(
        """
        import asyncio
        from pgflowd import Flow

        flow = Flow("flow", max_attempts=1)

        @flow.map
        async def work(item, ctx):
            for done in range(100):
                ctx.progress(done, 100, item)
                await asyncio.sleep(0)
            await asyncio.to_thread(ctx.progress, 100, 100, item)
        """,
        max_concurrency=20,
        tasks_per_runner=20,
    )
    items = [f"item {n}" for n in range(20)]

    run = worker.start_run(items)

    assert worker.completed(run)
    stored = worker.column(f"{STORED}, task_index", run)
    assert sorted(one["text"] for one in stored) == sorted(items)
    assert {(one["done"], one["total"]) for one in stored} == {(100, 100)}


@pytest.mark.own_session
def test_what_no_runner_would_send_ends_the_runner(start_worker):
    worker = start_worker(one_step("""
        import socket
        from pgflowd.host.channel import pack
        for number in os.listdir("/proc/self/fd"):
            try: end = socket.socket(fileno=os.dup(int(number)))
            except OSError: continue
            end.send(pack({"say": "progress", "token": ctx.token}, b'{"done": NaN}'))
        time.sleep(5)
    """))  # fmt: skip

    run = worker.start_run()

    assert worker.failed(run)
    assert "E903 an unknown progress" in worker.attempts(run)[0][2]
