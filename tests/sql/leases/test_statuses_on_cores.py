"""Statuses and lists of what waits are the same on every core."""

from __future__ import annotations

from support.leases import LeaseDatabase


def test_a_run_that_waits_is_called_so_and_its_task_is_listed(own: LeaseDatabase):
    flow = own.flow("a", "b:a")
    waiting, ready = own.start(flow), own.start(flow)
    worker = own.worker(flow)
    task, other = sorted(own.claim(flow, worker), key=lambda each: each.run_id != waiting)
    own.suspend(task, {"kind": "signal", "name": "go", "checkpoint": "signal go 1"})
    own.release(other)

    statuses = own.rows("select run_id, status from pgflowd.run_status")
    assert {row.run_id: row.status for row in statuses} == {waiting: "waiting", ready: "started"}
    (listed,) = own.rows("select * from pgflowd.list_runs(statuses => '{waiting}')")
    assert (listed.run_id, listed.status) == (waiting, "waiting")
    tasks = "select run_id, step_slug, status, name from pgflowd.list_tasks()"
    assert {tuple(row) for row in own.rows(tasks)} == {
        (waiting, "a", "waiting", "go"), (ready, "a", "ready", None),
    }  # fmt: skip
    of_run = "select status from pgflowd.list_tasks(run_id => %s)"
    assert own.column(of_run, ready) == ["ready"]
    seen = "select status, name from pgflowd.task_status where run_id = %s"
    assert [tuple(row) for row in own.rows(seen, waiting)] == [("waiting", "go")]
    step = own.rows("select * from pgflowd.run_steps(%s)", waiting)[0]
    assert (step.waiting, step.queued, step.running) == (1, 0, 0)
    (known,) = own.rows("select * from pgflowd.list_flows()")
    assert (known.waiting, known.queued, known.active_runs) == (1, 1, 2)
    assert own.value("select pgflowd.active_runs(%s)", flow) == 2
    assert own.value("select waiting from pgflowd.flow_status") == 1

    own.do("select pgflowd.signal(%s, 'go', '7', 'ann')", waiting)
    own.do("select pgflowd.process_due()")

    (signal,) = own.rows("select * from pgflowd.list_signals(%s)", waiting)
    assert (signal.payload, signal.sent_by, signal.step_slug) == (7, "ann", "a")
    (saved,) = own.rows("select * from pgflowd.list_checkpoints(%s)", waiting)
    assert (saved.step_slug, saved.name, saved.data) == ("a", "signal go 1", {"got": 7})
    assert set(own.column("select status from pgflowd.run_status")) == {"started"}


def test_a_cancelled_run_waits_no_longer(own: LeaseDatabase):
    flow = own.flow("a")
    run = own.start(flow)
    own.suspend(own.claim_one(flow, own.worker(flow)))
    own.cancel(run)

    (seen,) = own.rows("select * from pgflowd.run_status")

    assert (seen.status, seen.cancelled_by is not None) == ("cancelled", True)
    assert own.rows("select * from pgflowd.list_tasks()") == []
    assert own.rows("select * from pgflowd.list_runs(statuses => '{waiting}')") == []
