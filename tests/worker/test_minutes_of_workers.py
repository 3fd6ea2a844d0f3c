"""What a worker did is in the statistics when it has ended, as the tables have it."""

from __future__ import annotations

from support.worker import one_step


def test_the_statistics_are_what_happened(start_worker):
    worker = start_worker(one_step("""
        if run == ctx.attempt: raise ValueError("no")
        if run == 7: os._exit(1)
    """, attempts=2))  # fmt: skip
    runs = [worker.start_run(given) for given in (0, 1, 0, 7)]
    assert all(worker.completed(run) for run in runs[:3]) and worker.failed(runs[3])

    worker.drain()

    found = {
        row.step_slug: (row.completed, row.failed, row.crashed)
        for row in worker.rows("select * from pgflowd.flow_stats()")
    }
    assert found == {"": (3, 1, 0), "work": (3, 1, 2), "after": (3, 0, 0)}
    counted = "select sum(n) from pgflowd.minutes, unnest(ran) as n where step_slug = 'work'"
    assert worker.value(counted) >= 4
