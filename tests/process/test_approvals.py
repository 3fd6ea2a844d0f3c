"""Approvals and signals with a daemon, as people use them: the commands, the client, plain SQL."""

from __future__ import annotations

import json

import pytest
from support.daemon import is_completed

from pgflowd.testing.until import until

FLOW = """
from pgflowd import Flow

flow = Flow("trips", base_delay=0)

@flow.step
def plan(run):
    return f"to {run['place']}"

flow.approval("approve", after="plan", timeout=run_timeout)
flow.wait_for("paid", after="approve", timeout="7d", default=None)

@flow.step
def book(plan, approve, paid=None):
    return [plan, approve["by"], approve["note"], paid]
"""


@pytest.fixture
def daemon(setup):
    setup.module("flow_trips", FLOW.replace("run_timeout", "'2d'"))
    return setup.serve()


def json_of(daemon, *args):
    ended = daemon.command(*args, "--json")
    assert ended.returncode == 0, ended
    return json.loads(ended.stdout)


def start(daemon) -> str:
    return str(json_of(daemon, "runs", "start", "trips", '{"place": "Rome"}')["run_id"])


def waits_for(daemon, run: str, name: str) -> bool:
    tasks = json_of(daemon, "tasks", "list", "--run", run)["tasks"]
    return [task["name"] for task in tasks if task["status"] == "waiting"] == [name]


def test_a_run_waits_is_approved_and_paid_and_completes(daemon, database):
    run = start(daemon)
    until(lambda: waits_for(daemon, run, "approve"), within_s=20)
    assert database.client.get_run(run).status == "waiting"
    (task,) = json_of(daemon, "tasks", "list", "--status", "waiting")["tasks"]
    assert (task["step"], task["why"], task["attempts"]) == ("approve", "approval", 0)

    given = json_of(daemon, "runs", "approve", run, "approve", "--note", "have fun")
    assert (given["step"], given["task"]) == ("approve", 0)
    until(lambda: waits_for(daemon, run, "paid"), within_s=20)
    database.client.signal(run, "paid", {"amount": 12}, actor="bank")

    until(lambda: is_completed(database, run), within_s=20)
    output = database.client.get_run(run).output
    assert output == {"book": ["to Rome", given["sent_by"], "have fun", {"amount": 12}]}
    shown = json_of(daemon, "runs", "show", run, "--attempts", "--checkpoints")
    assert [each["outcome"] for each in shown["attempts"] if each["step"] == "approve"] == [
        "suspended", "completed",
    ]  # fmt: skip
    assert {each["name"] for each in shown["checkpoints"]} == {"signal approve 1", "signal paid 1"}


def test_answers_that_come_before_anybody_asks_are_kept(daemon, database):
    query = "select run_id from pgflow.start_flow('trips', '{\"place\": \"Oslo\"}')"
    with database.connect() as conn, conn.transaction():  # all of it in one transaction
        run = conn.execute(query).fetchone()[0]
        conn.execute("select pgflowd.signal(%s, 'paid', '7')", [run])
        conn.execute("select pgflowd.signal(%s, 'approve', '\"nonsense\"')", [run])
        database.client.approve(run, "approve", actor="ann", conn=conn)

    until(lambda: is_completed(database, run), within_s=20)
    assert database.client.get_run(run).output == {"book": ["to Oslo", "ann", "", 7]}


def test_a_rejection_fails_the_run_and_says_who_and_why(daemon, database):
    run = start(daemon)

    database.client.reject(run, "approve", note="too far", actor="ann")
    ended = database.client.wait(run, timeout=20)

    assert ended.status == "failed"
    query = "select count(*) from pgflowd.attempts where outcome = 'failed' and run_id = %s"
    assert database.connect().execute(query, [run]).fetchone() == (1,)  # it is not tried again
    assert "rejected by ann: too far" in daemon.command("runs", "show", run).stdout


def test_a_waiting_task_is_woken_and_its_approval_counts_as_late(daemon, database):
    run = start(daemon)
    until(lambda: waits_for(daemon, run, "approve"), within_s=20)

    woken = daemon.command("tasks", "wake", f"{run}/approve#0", "--reason", "nobody is there")
    ended = database.client.wait(run, timeout=20)

    assert (woken.returncode, woken.stdout) == (0, f"{run[-8:]}/approve#0  queued\n")
    assert ended.status == "failed"
    assert "E427" in daemon.command("runs", "show", run).stdout


def test_status_counts_the_tasks_that_wait(daemon, database):
    run = start(daemon)

    def waiting() -> list[int]:
        return [flow["waiting"] for flow in json_of(daemon, "status")["flows"]]

    until(lambda: waiting() == [1], within_s=20)
    assert "WAITING" in daemon.command("status").stdout
    database.client.cancel(run)
    until(lambda: waiting() == [0], within_s=20)
    assert "WAITING" not in daemon.command("status").stdout
