"""A run that fails in the middle is undone by the daemon as by `run_flow`, in reverse order."""

from __future__ import annotations

import os
import signal
from typing import Any

from support.covers import covers

from pgflowd.testing import run_flow
from pgflowd.testing.until import until

FLOW = """
import asyncio, os, pathlib, time
from pgflowd import Fail, Flow, Limit

flow = Flow("orders", max_attempts=1, base_delay=0, timeout=30)

@flow.step
def reserve(run):
    return {"total": run["total"]}

@flow.step
def charge(reserve):
    return {"payment": reserve["total"]}

@flow.step
def parcels(run):
    return list("abc")

@flow.map(over=parcels)
def ship(item):
    return item.upper()

@flow.step
def notify(run, charge, ship):
    raise Fail("no mail")

@flow.step(if_={"gift": True})
def wrap(run):
    return "wrapped"

def told(ctx):
    undo = ctx.undo
    return [undo.task_index, undo.cause, undo.generation, ctx.flow_input()["total"]]

@flow.undo(reserve)
def release(reserve, run, ctx):
    return [reserve, run["total"], *told(ctx)]

@flow.undo(charge, max_attempts=2, base_delay=0)
def refund(charge, ctx):
    once = ctx.memo("once", lambda: ctx.attempt)
    ctx.sleep(0.01)
    if ctx.attempt == 1:
        raise ConnectionError("the bank hung up")
    return [charge, once, ctx.attempt, *told(ctx)]

@flow.undo(ship, limit=Limit(2))
async def recall(ship, item, ctx):
    await asyncio.sleep(0)
    return [ship, item, *told(ctx)]

@flow.undo(notify, on="attempted")
def apologise(run, notify="never sent"):
    gate = pathlib.Path(run.get("gate", "."))
    gate.with_suffix(".began").touch() if "gate" in run else None
    while not gate.exists():
        time.sleep(0.01)
    return notify

@flow.undo(wrap)
def unwrap(wrap):
    return wrap
"""
STATES = """
select step_slug, jsonb_build_array(status, output) from pgflow.step_states where run_id = %s
"""
SPANS = """
select step_slug, min(started_at), max(ended_at) from pgflowd.attempts where run_id = %s group by 1
"""
UNDO_RUN = "select run_id from pgflowd.runs where undo_of = %s"


def status(database: Any, run: Any) -> str:
    return str(database.client.get_run(run).status)


def test_a_run_is_undone_in_reverse_as_in_run_flow(setup, database):
    setup.module("order_flow", FLOW)
    daemon = setup.serve(worker={"tasks_per_runner": 4})
    module: dict[str, Any] = {"__name__": "order_flow"}
    exec(FLOW, module)

    run = database.client.start_flow("orders", {"total": 7}).run_id
    tested = run_flow(module["flow"], {"total": 7})

    until(lambda: status(database, run) == "undone", within_s=30)
    conn = database.connect()
    (undo_run,) = conn.execute(UNDO_RUN, (run,)).fetchone()
    assert tested.undo is not None and tested.status == "undone"
    assert dict(conn.execute(STATES, (undo_run,)).fetchall()) == {
        slug: [step.status, step.output] for slug, step in tested.undo.steps.items()
    }
    plan = database.client.get_run(undo_run).input["plan"]
    assert plan == tested.undo.input["plan"] == {
        "reserve": [0], "charge": [0], "ship": [0, 1, 2], "notify": [0],
    }  # fmt: skip
    spans = {step: (began, ended) for step, began, ended in conn.execute(SPANS, (undo_run,))}
    for first, then in [
        ("notify", "charge"), ("notify", "ship"), ("charge", "reserve"),
    ]:  # fmt: skip
        assert spans[f"undo_{first}"][1] <= spans[f"undo_{then}"][0]
    shown = daemon.command("runs", "show", str(run))
    assert shown.returncode == 0, shown.stderr
    assert "undone" in shown.stdout
    counted = 'pgflowd_undo_runs_total{flow="orders",result="undone"} 1'
    until(lambda: counted in daemon.command("status", "--metrics").stdout, within_s=10)


def test_an_undo_survives_the_death_of_its_worker_and_of_the_sweeper(setup, database, tmp_path):
    setup.module("order_flow", FLOW)
    daemon = setup.serve(recovery={"recovery_interval": "1s"})
    gate = tmp_path / "gate"
    run = database.client.start_flow("orders", {"total": 7, "gate": str(gate)}).run_id
    until(lambda: gate.with_suffix(".began").exists(), within_s=30)

    os.kill(daemon.pid_of("undo_orders"), signal.SIGKILL)
    daemon.kill("sweeper")
    gate.touch()

    until(lambda: status(database, run) == "undone", within_s=30)


LATE = """
import os, time
from pgflowd import Flow

late = Flow("late", max_attempts=1)

def note(what):
    with open({ledger!r}, "a") as file:
        file.write(what + "\\n")

@late.step
def reserve(run, ctx):
    if not run["fails"]:
        ctx.cancelled.wait(60)
    time.sleep(0.2)
    raise RuntimeError("sold out")

@late.step  # side by side with reserve
def charge(run, ctx):
    if not run["fails"]:
        ctx.cancelled.wait(60)
    time.sleep(0.5)
    note("charged")
    return "payment"

@late.undo(charge)
def refund(charge):
    note("refunded " + charge)
"""


@covers("promise 1")
def test_a_handler_that_returns_after_its_run_has_failed_is_undone(setup, database, tmp_path):
    """S1 of the seeds, with a config that sets nothing."""
    ledger = tmp_path / "ledger"
    setup.module("late_flow", LATE.format(ledger=str(ledger)))
    daemon = setup.serve(worker={"kill_grace": "20s"})
    run = database.client.start_flow("late", {"fails": True}).run_id

    until(lambda: status(database, run) == "undone", within_s=60)

    assert ledger.read_text() == "charged\nrefunded payment\n"
    shown = daemon.command("runs", "show", str(run)).stdout
    assert "undone" in shown, shown


def test_a_result_that_comes_after_a_cancel_is_shown_as_late(setup, database, tmp_path):
    ledger = tmp_path / "ledger"
    setup.module("late_flow", LATE.format(ledger=str(ledger)))
    daemon = setup.serve(worker={"kill_grace": "20s"})
    run = database.client.start_flow("late", {"fails": False}).run_id
    conn = database.connect()
    begun = "select count(*) from pgflowd.attempts where run_id = %s"
    until(lambda: conn.execute(begun, (run,)).fetchone() == (2,), within_s=30)

    assert daemon.command("runs", "cancel", str(run)).returncode == 0

    ended = """
        select outcome, output from pgflowd.activities
         where run_id = %s and step_slug = 'charge' and ended_at is not null
    """
    until(lambda: conn.execute(ended, (run,)).fetchone(), within_s=30)
    assert conn.execute(ended, (run,)).fetchone() == ("late", "payment")
    assert status(database, run) == "cancelled" and ledger.read_text() == "charged\n"
    shown = daemon.command("runs", "show", str(run), "-v").stdout
    assert "last error" in shown and ": late" not in shown, shown
