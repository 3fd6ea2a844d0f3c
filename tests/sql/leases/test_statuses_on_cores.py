"""Statuses and lists of what waits are the same on every core."""

from __future__ import annotations

from support.leases import LeaseDatabase


def test_a_run_that_waits_is_called_so_and_its_task_is_listed(any_core: LeaseDatabase):
    flow = any_core.flow("a", "b:a")
    waiting, ready = any_core.start(flow), any_core.start(flow)
    worker = any_core.worker(flow)
    task, other = sorted(any_core.claim(flow, worker), key=lambda each: each.run_id != waiting)
    any_core.suspend(task, {"kind": "signal", "name": "go", "checkpoint": "signal go 1"})
    any_core.release(other)

    statuses = any_core.rows("select run_id, status from pgflowd.run_status")
    assert {row.run_id: row.status for row in statuses} == {waiting: "waiting", ready: "started"}
    (listed,) = any_core.rows("select * from pgflowd.list_runs(statuses => '{waiting}')")
    assert (listed.run_id, listed.status) == (waiting, "waiting")
    tasks = "select run_id, step_slug, status, name from pgflowd.list_tasks()"
    assert {tuple(row) for row in any_core.rows(tasks)} == {
        (waiting, "a", "waiting", "go"), (ready, "a", "ready", None),
    }  # fmt: skip
    of_run = "select status from pgflowd.list_tasks(run_id => %s)"
    assert any_core.column(of_run, ready) == ["ready"]
    seen = "select status, name from pgflowd.task_status where run_id = %s"
    assert [tuple(row) for row in any_core.rows(seen, waiting)] == [("waiting", "go")]
    step = any_core.rows("select * from pgflowd.run_steps(%s)", waiting)[0]
    assert (step.waiting, step.queued, step.running) == (1, 0, 0)
    (known,) = any_core.rows("select * from pgflowd.list_flows()")
    assert (known.waiting, known.queued, known.active_runs) == (1, 1, 2)
    assert any_core.value("select pgflowd.active_runs(%s)", flow) == 2
    assert any_core.value("select waiting from pgflowd.flow_status") == 1

    any_core.do("select pgflowd.signal(%s, 'go', '7', 'ann')", waiting)
    any_core.do("select pgflowd.process_due()")

    (signal,) = any_core.rows("select * from pgflowd.list_signals(%s)", waiting)
    assert (signal.payload, signal.sent_by, signal.step_slug) == (7, "ann", "a")
    (saved,) = any_core.rows("select * from pgflowd.list_checkpoints(%s)", waiting)
    assert (saved.step_slug, saved.name, saved.data) == ("a", "signal go 1", {"got": 7})
    assert set(any_core.column("select status from pgflowd.run_status")) == {"started"}


def test_a_cancelled_run_waits_no_longer(any_core: LeaseDatabase):
    flow = any_core.flow("a")
    run = any_core.start(flow)
    any_core.suspend(any_core.claim_one(flow, any_core.worker(flow)))
    any_core.cancel(run)

    (seen,) = any_core.rows("select * from pgflowd.run_status")

    assert (seen.status, seen.cancelled_by is not None) == ("cancelled", True)
    assert any_core.rows("select * from pgflowd.list_tasks()") == []
    assert any_core.rows("select * from pgflowd.list_runs(statuses => '{waiting}')") == []
