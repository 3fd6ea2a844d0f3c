"""
The log of a daemon has everything about a run at level debug, and failures only at info.
"""

from __future__ import annotations

import signal

from support.covers import covers

from pgflowd.testing.until import until

SOURCE = """
import os, time
from pgflowd import Fail, Flow

good = Flow("good", base_delay=0, timeout=60)

@good.step
def begin(run): return [1, 2]

@good.map(over=begin)
def each(item, ctx):
    if item == 2 and ctx.attempt == 1:
        raise ValueError("not yet")
    return item

@good.step(when_exhausted="skip", max_attempts=1, timeout=1)
def slow(begin): time.sleep(60)

@good.step
def end(each, slow=None): return sum(each)

bad = Flow("bad", max_attempts=1, timeout=60)

@bad.step
def crash(run): os._exit(3)

typed = Flow("typed", timeout=60)

@typed.step
def number(run): return 1

@typed.map(over=number)
def never(item): return item

picky = Flow("picky", timeout=60)

@picky.step
def first(run): return {"size": 1}

@picky.step(if_={"first": {"size": 2}}, when_unmet="fail")
def second(first): return 1

long = Flow("long", timeout=60)

@long.step
def wait(run): time.sleep(60)
"""


def serve(setup, **sections):
    setup.module("flows", SOURCE)
    return setup.serve(**sections)


def records_of(daemon, run_id):
    """Level, event and name of each record about a run, as they came; tasks left out."""
    records = [record for record in daemon.events() if record.get("run") == str(run_id)]
    return [
        (record["level"], record["event"], record.get("step"))
        for record in records
        if record["event"].startswith(("run.", "step."))
    ]


def start_long(database):
    run = database.client.start_flow("long", {})
    begun = "select from pgflow.step_tasks where run_id = %s and status = 'started'"
    until(lambda: database.connect().execute(begun, (run.run_id,)).fetchone() is not None, 8)
    return run


def ended(database, flow):
    return database.client.start_flow_sync(flow, {}, timeout=15)


@covers("E401")
def test_at_level_debug_a_run_is_logged_from_its_start_to_its_end(setup, database):
    daemon = serve(setup)

    run = ended(database, "good")
    daemon.until("run.completed", run=str(run.run_id))

    records = records_of(daemon, run.run_id)
    assert records[:5] == [
        ("debug", "run.started", None),
        ("debug", "step.started", "begin"),
        ("debug", "step.completed", "begin"),
        ("debug", "step.started", "each"),
        ("debug", "step.started", "slow"),
    ]
    assert ("info", "step.skipped", "slow") in records
    assert records[-2:] == [("debug", "step.completed", "end"), ("debug", "run.completed", None)]
    [record] = daemon.events("run.completed")
    assert record["flow"] == "good" and record["took_s"] >= 1
    assert [r["task"] for r in daemon.events("task.retried")] == ["each#1"]
    assert [r["verdict"] for r in daemon.events("task.failed")] == ["queued"]
    assert len(daemon.events("task.started")) == 5
    [late] = daemon.events("task.timed_out")
    assert late["code"] == "E401" and late["took_s"] >= 1


@covers("E416")
def test_at_level_info_only_failures_are_logged(setup, database):
    daemon = serve(setup, logging={"level": "info"})

    good, bad, typed, picky = (ended(database, flow) for flow in ("good", "bad", "typed", "picky"))
    until(lambda: len(daemon.events("run.failed")) == 3, 5)

    assert records_of(daemon, good.run_id) == [("info", "step.skipped", "slow")]
    assert records_of(daemon, bad.run_id) == [
        ("warning", "step.failed", "crash"),
        ("warning", "run.failed", None),
    ]
    assert "exited with code 3" in daemon.events("run.failed", flow="bad")[0]["error"]
    assert records_of(daemon, typed.run_id) == [("warning", "run.failed", None)]
    assert daemon.events("task.failed", flow="typed")[0]["code"] == "E416"
    assert records_of(daemon, picky.run_id) == [
        ("warning", "step.failed", "second"),
        ("warning", "run.failed", None),
    ]
    assert daemon.events(level="debug") == []


@covers("promise 4")
def test_a_worker_with_a_name_of_its_own_has_it_in_its_records(setup, database):
    daemon = serve(setup, worker={"worker_name": "press-7"})

    run = ended(database, "bad")

    [failed] = daemon.until("task.crashed", run=str(run.run_id))
    assert failed["worker_name"] == "press-7"
    assert {r["worker_name"] for r in daemon.events("worker.started")} == {"press-7"}
    query = "select distinct function_name from pgflow.workers"
    assert database.connect().execute(query).fetchall() == [("press-7",)]


def test_a_cancelled_run_is_reported_with_its_author_and_reason(setup, database):
    daemon = serve(setup, logging={"level": "info"})
    run = start_long(database)

    database.client.cancel(run.run_id, reason="enough")
    [record] = daemon.until("run.cancelled", run=str(run.run_id))

    assert record["level"] == "info"
    assert record["error"].endswith(": enough")


def test_a_daemon_logs_its_life_from_start_to_end(setup, database):
    daemon = serve(setup, logging={"level": "info"})
    run = start_long(database)

    daemon.send(signal.SIGTERM)
    daemon.until("supervisor.draining")
    daemon.send(signal.SIGTERM)
    assert daemon.ended() == 0

    story = [
        "supervisor.started",
        "worker.started",
        "supervisor.ready",
        "supervisor.draining",
        "task.released",
        "worker.stopped",
        "child.exited",
        "supervisor.stopped",
    ]
    events = [record["event"] for record in daemon.events()]
    last = {event: at for at, event in enumerate(events)}
    assert sorted(story, key=last.__getitem__) == story
    assert [record["run"] for record in daemon.events("task.released")] == [str(run.run_id)]


def test_payloads_are_logged_on_request_and_secrets_never(setup, database):
    daemon = serve(setup, logging={"payloads": True, "redact": ["password"]})

    database.client.start_flow_sync("good", {"to": "me", "password": "canary"}, timeout=15)

    [begun] = daemon.events("task.started", step="begin")
    assert begun["input"]["run"]["to"] == "me"
    assert [r["output"] for r in daemon.until("task.completed", step="begin")] == [[1, 2]]
    assert sorted(r["input"] for r in daemon.events("task.completed", step="each")) == [1, 2]
    assert "canary" not in daemon.log.read_text()
