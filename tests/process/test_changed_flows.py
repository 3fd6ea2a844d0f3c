"""Flows whose shape changes while runs are open, on one daemon and on two of different code."""

from __future__ import annotations

import signal
import subprocess

from support.daemon import PGFLOWD, Daemon, DaemonSetup
from support.proxy import ProxyProcess

from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

OLD = ("slug", "old_version_of", "open_runs")
FIRST = """
from pgflowd import Flow
flow = Flow("orders")

@flow.step
def validate(run, ctx):
    return ctx.wait_signal("go")

@flow.step
def fraud(validate):
    return "old"

@flow.step
def charge(validate, fraud):
    return [validate, fraud]
"""
SECOND = """
from pgflowd import Flow
flow = Flow("orders")

@flow.step
def validate(run, ctx):
    return ctx.wait_signal("go")

@flow.step
def charge(validate, score=None):
    return [validate, score]

@flow.step
def score(validate):
    return "new"

@flow.step
def ship(charge):
    return "shipped"
"""
RETIRED = """
@flow.retired(since=2)
def fraud(validate):
    return "retired"
"""


def orders(setup: DaemonSetup, source: str) -> None:
    setup.module("orders", source)


def started(daemon: Daemon, database: ScratchDatabase) -> str:
    run = database.client.start_flow("orders", {})
    until(lambda: database.client.get_run(run.run_id).status == "waiting", 15)
    return str(run.run_id)


def ended(database: ScratchDatabase, run: str) -> object:
    database.client.signal(run, "go", 1)
    found = until(lambda: (r := database.client.get_run(run)).has_ended and r, 20)
    assert found.status == "completed", found.error
    return found.output


def deployed(daemon: Daemon, *args: str) -> None:
    done = daemon.command("flows", "deploy", "orders", "--yes", *args)
    assert done.returncode == 0, done.stderr


def test_open_runs_end_in_their_version_with_the_new_code(setup, database):
    orders(setup, FIRST)
    daemon = setup.serve()
    old = started(daemon, database)
    orders(setup, SECOND + RETIRED)

    deployed(daemon)
    reloaded = daemon.command("reload")
    assert reloaded.returncode == 0, reloaded.stderr + daemon.log.read_text()[-3000:]
    new = started(daemon, database)
    versions = [[flow[key] for key in OLD] for flow in daemon.ask()["flows"]]

    assert versions == [["orders", "orders", 1], ["orders_2", None, None]]
    assert "orders: old version of orders, 1 open run\n" in daemon.command("status").stdout
    assert ended(database, new) == {"ship": "shipped"}
    assert ended(database, old) == {"charge": [1, None]}
    until(lambda: [flow["slug"] for flow in daemon.ask()["flows"]] == ["orders_2"], 10)


def test_a_shape_that_is_not_deployed_leaves_the_old_code_in_service(setup, database):
    orders(setup, FIRST)
    daemon = setup.serve()
    old = started(daemon, database)
    orders(setup, SECOND)

    refused = daemon.command("reload")
    new = started(daemon, database)

    assert refused.returncode == 1
    assert "E306" in refused.stdout + refused.stderr
    assert ended(database, old) == ended(database, new) == {"charge": [1, "old"]}


def test_a_changed_shape_waits_for_a_database_that_can_be_asked(tmp_path, database):
    proxy = ProxyProcess(database.dsn)
    setup = DaemonSetup(tmp_path, proxy.dsn)
    try:
        orders(setup, FIRST)
        daemon = setup.serve()
        orders(setup, SECOND)
        proxy.do("refuse")
        refused = daemon.command("reload")
    finally:
        setup.close()
        proxy.close()

    assert refused.returncode == 1
    assert "E301  orders: the database could not be asked: " in refused.stdout + refused.stderr
    assert "Traceback" not in daemon.log.read_text()


def test_a_reload_keeps_the_old_code_for_a_version_that_the_new_one_cannot_serve(setup, database):
    orders(setup, FIRST)
    daemon = setup.serve()
    old = [started(daemon, database) for _ in range(2)]
    orders(setup, SECOND)
    deployed(daemon)

    reloaded = daemon.command("reload")
    assert reloaded.returncode == 1
    assert "orders: kept the old code" in reloaded.stdout
    assert "step fraud of version 1 with 2 open runs" in reloaded.stdout + reloaded.stderr
    assert ended(database, old[0]) == {"charge": [1, "old"]}
    assert ended(database, started(daemon, database)) == {"ship": "shipped"}
    orders(setup, SECOND + RETIRED)
    assert daemon.command("reload").returncode == 0
    assert ended(database, old[1]) == {"charge": [1, None]}
    assert daemon.events("child.parked", flow="orders") == []


def test_daemons_of_old_and_new_code_serve_what_each_knows(setup, database):
    setup.module("orders_old", FIRST)
    setup.module("orders_new", SECOND)
    first = setup.serve("first", pgflowd={"flows": ["orders_old"]})
    old = started(first, database)
    sections = {"pgflowd": {"flows": ["orders_new"]}}
    deploy = [*PGFLOWD, "-c", str(setup.config("second", **sections)), "flows", "deploy", "--yes"]
    subprocess.run(deploy, cwd=setup.directory, env=setup.environ, check=True)
    second = setup.serve("second", **sections)  # which else would end, having nothing to serve
    new = started(second, database)

    assert ended(database, new) == {"ship": "shipped"}
    assert ended(database, old) == {"charge": [1, "old"]}
    for daemon, text in (
        (second, "step fraud of version 1 has no handler"),
        (first, "step score of version 2 has no handler"),
    ):
        (said,) = daemon.until("child.parked", code="W322")
        assert text in said["error"]
    first.send(signal.SIGTERM)
    first.ended()


UNDOING = """
from pgflowd import Fail, Flow
flow = Flow("orders", max_attempts=1)

@flow.step
def validate(run, ctx):
    return ctx.wait_signal("go")

@flow.undo(validate)
def forget(validate):
    return validate

{more}

@flow.step(after="{last}")
def fail():
    raise Fail("no")
"""
HOLD = """
@flow.{hold}
def hold(validate):
    return "held"

@flow.undo(hold)
def give(hold):
    return [hold, "{code}"]
"""
CHARGE = """
@flow.step
def charge(validate):
    return 2

@flow.undo(charge)
def refund(charge):
    return charge
"""


def test_runs_of_each_version_are_undone_by_the_flow_that_undoes_its_steps(setup, database):
    hold = HOLD.format(hold="step", code="old")
    orders(setup, UNDOING.format(more=hold, last="hold"))
    daemon = setup.serve()
    old = started(daemon, database)
    retired = HOLD.format(hold="retired(since=2)", code="new")
    orders(setup, UNDOING.format(more=CHARGE + retired, last="charge"))
    deployed(daemon)
    assert daemon.command("reload").returncode == 0
    new = started(daemon, database)

    for run in (old, new):
        database.client.signal(run, "go", 1)
    for run in (old, new):
        until(lambda run=run: database.client.get_run(run).status == "undone", 30)

    conn = database.connect()
    undone = conn.execute(
        "select undo_of, flow_slug from pgflowd.runs where undo_of is not null"
    ).fetchall()
    assert {str(of): flow for of, flow in undone} == {old: "undo_orders", new: "undo_orders_2"}
    held = "select output from pgflow.step_tasks where step_slug = 'undo_hold'"
    assert conn.execute(held).fetchall() == [(["held", "new"],)]
