"""
Flows without work sleep, and wake when there is work (docs/background/supervision.md, rules 54,
55).

Where `notify_fallback` is ten minutes, whatever is done was found without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal

import pytest
from support.covers import covers
from support.daemon import is_completed, is_gone, start_run, terminate_all

from pgflowd.host.process_tree import descendants
from pgflowd.testing.until import until

QUICK = {"sleep_after": "100ms", "notify_fallback": "10m"}
RACES = 12
LATER = """
from pgflowd import Flow
flow = Flow("later", max_attempts=2, base_delay=3)

@flow.step
def work(run, ctx):
    if ctx.attempt == 1:
        raise ValueError("again, later")
    return 1
"""


def is_asleep(daemon, slug="alpha"):
    return daemon.state_of(slug) == "asleep"


def asleep(daemon, slug="alpha"):
    until(lambda: is_asleep(daemon, slug), 20)


def flow_of(daemon, slug="alpha"):
    return next(flow for flow in daemon.ask()["flows"] if flow["slug"] == slug)


def done(database, run_id):
    return until(lambda: is_completed(database, run_id), 20)


def causes(daemon):
    return [record["reason"] for record in daemon.events("child.woken")]


def mute(database, queue="alpha"):
    """No insert notifies any more."""
    database.connect().execute(f"alter table pgmq.q_{queue} disable trigger pgflowd_notify")


def stopped(database):
    query = "select count(*) from pgflow.workers where stopped_at is not null"
    return database.connect().execute(query).fetchone()[0]


@covers("rule 54")
def test_a_flow_without_work_sleeps_and_nothing_is_left_of_its_worker(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(worker={**QUICK, "sleep_after": "3s"})
    below = descendants(daemon.pid_of("alpha"))
    done(database, start_run(database, "alpha"))

    asleep(daemon)

    assert below and all(is_gone(seen) for seen in below)
    assert len(daemon.family()) == 2  # listener and sweeper
    assert daemon.ask()["state"] == "healthy"
    flow = flow_of(daemon)
    assert (flow["pid"], flow["restarts"], flow["exits"], flow["queued"]) == (None, 0, [], 0)
    assert stopped(database) == 1
    assert [each["reason"] for each in daemon.events("child.exited")][-1] == "asleep"
    assert daemon.events("child.restarted") == []


@covers("rule 55")
def test_a_notification_wakes_it_and_so_does_a_command(setup, database):
    setup.flow("alpha")
    setup.flow("beta")
    daemon = setup.serve(worker=QUICK)
    asleep(daemon, "beta")
    asleep(daemon)

    done(database, start_run(database, "alpha"))
    woken = daemon.command("wake", "beta", "--json")
    until(lambda: daemon.events("child.ready", flow="beta")[1:])
    unknown = daemon.command("wake", "gamma")
    wrong = daemon.command("wake")

    assert causes(daemon) == ["notification", "command"]
    document = json.loads(woken.stdout)
    assert {key: document[key] for key in ("flow", "was_asleep")} == {
        "flow": "beta", "was_asleep": True,
    }  # fmt: skip
    assert document["state"] == "starting"
    assert unknown.returncode == 4
    assert "E415" in unknown.stderr
    assert wrong.returncode == 2


@covers("rule 55")
def test_it_wakes_when_its_next_message_is_due(setup, database):
    setup.module("later", LATER)
    daemon = setup.serve(worker=QUICK)
    run_id = start_run(database, "later")
    asleep(daemon, "later")
    until(lambda: flow_of(daemon, "later")["next_due_in_s"])

    done(database, run_id)

    assert causes(daemon)[-1] == "due"


@covers("rule 55")
@pytest.mark.parametrize(
    "worker",
    [
        {"sleep_after": "100ms", "notify_fallback": "1s"},
        {**QUICK, "signal_strategy": "polling", "poll_max": "1s"},
    ],
    ids=["notify_fallback", "polling"],
)
def test_without_notifications_the_sweeper_finds_the_message(setup, database, worker):
    setup.flow("alpha")
    daemon = setup.serve(worker=worker)
    mute(database)
    asleep(daemon)

    done(database, start_run(database, "alpha"))

    assert causes(daemon) == ["found"]


@covers("rule 55")
def test_messages_that_came_while_nobody_listened_or_swept_are_found_at_once(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(worker=QUICK)
    asleep(daemon)

    terminate_all(database, like="t: listener")
    done(database, start_run(database, "alpha"))
    asleep(daemon)
    mute(database)
    os.kill(daemon.pid_of("sweeper"), signal.SIGSTOP)
    run_id = start_run(database, "alpha")
    daemon.kill("sweeper")
    done(database, run_id)

    assert causes(daemon)[-1] == "found"


@covers("rule 55")
@pytest.mark.parametrize("moment", ["its row is stopped", "it has ended", "it has just worked"])
def test_no_start_that_races_the_falling_asleep_waits_for_a_fallback(setup, database, moment):
    setup.flow("alpha")
    daemon = setup.serve(worker=QUICK)
    for count in range(1, RACES + 1):
        if moment == "its row is stopped":
            until(lambda: stopped(database), 20)
        elif moment == "it has ended":
            daemon.until("child.exited", count, reason="asleep")
        done(database, start_run(database, "alpha"))

    assert daemon.events("child.restarted") == []
    rows = "select count(*) from pgflow.workers"
    assert database.connect().execute(rows).fetchone() == (1,)


@contextlib.contextmanager
def falling_asleep(daemon, database, directory):
    """A worker is frozen while it signs off, which a lock of its row delays; yields its pid."""
    gate, conn, watching = directory / "gate", database.connect(), database.connect()
    run_id = start_run(database, "alpha", gate=str(gate))
    until(lambda: flow_of(daemon)["running"], 20)
    pid = daemon.pid_of("alpha")
    conn.execute("begin")
    conn.execute("select from pgflow.workers for no key update")
    gate.touch()
    query = """
        select count(*) from pg_stat_activity
         where wait_event_type = 'Lock' and query like '%update pgflow.workers%stopped_at%'
    """
    until(lambda: watching.execute(query).fetchone()[0], 20)
    os.kill(pid, signal.SIGSTOP)
    mute(database)
    yield pid
    conn.execute("rollback")
    with contextlib.suppress(ProcessLookupError):  # the test has killed it
        os.kill(pid, signal.SIGCONT)
    done(database, run_id)


SLOW = {"worker": {**QUICK, "heartbeat_interval": "10s"}, "recovery": {"lease": "60s"}}


@covers("rule 54", "rule 55")
def test_a_message_that_nobody_announced_while_it_fell_asleep_wakes_it(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(**SLOW)

    with falling_asleep(daemon, database, setup.directory):
        run_id = start_run(database, "alpha")
    done(database, run_id)

    assert causes(daemon)[-1] == "found"


@covers("rule 54")
def test_a_worker_that_is_killed_while_it_falls_asleep_is_restarted_and_sleeps_later(
    setup, database
):
    setup.flow("alpha")
    daemon = setup.serve(**SLOW)

    with falling_asleep(daemon, database, setup.directory) as pid:
        os.kill(pid, signal.SIGKILL)
        daemon.until("child.restarted", flow="alpha")
    asleep(daemon)

    assert flow_of(daemon)["restarts"] == 1
    assert len(daemon.events("child.restarted")) == 1


@covers("rule 55", "rule 43")
def test_a_reload_wakes_what_changed_and_lets_the_others_sleep(setup, database):
    for slug in ("alpha", "beta", "gone"):
        setup.flow(slug)
    daemon = setup.serve(worker=QUICK)
    for slug in ("alpha", "beta", "gone"):
        asleep(daemon, slug)
    changed = (setup.directory / "flow_alpha.py").read_text() + "\n# changed\n"
    setup.module("flow_alpha", changed)
    setup.entries.remove("flow_gone")
    setup.config(worker=QUICK)

    answer = daemon.ask("reload", timeout_s=30)

    results = {flow["flow"]: flow["result"] for flow in answer["flows"]}
    assert results == {"alpha": "restarted", "beta": "unchanged", "gone": "removed"}
    assert is_asleep(daemon, "beta")
    assert causes(daemon) == []
    asleep(daemon)
    (setup.directory / "flow_beta.py").write_text("raise ValueError('no pandas')")
    daemon.ask("reload", timeout_s=30)
    assert daemon.state_of("beta") == "failed"


def test_people_and_programs_see_who_sleeps(setup, database):
    setup.module("later", LATER.replace("base_delay=3", "base_delay=1000"))
    setup.flow("alpha")
    daemon = setup.serve(worker=QUICK)
    start_run(database, "later")
    asleep(daemon, "later")
    asleep(daemon)
    sleepers = "select count(*) from pgflowd.worker_status where is_asleep"
    until(lambda: database.connect().execute(sleepers).fetchone() == (2,))

    status, tree = daemon.command("status"), daemon.command("tree")
    listed, doctor = daemon.command("flows", "list", "--json"), daemon.command("doctor")
    metrics = daemon.command("status", "--metrics").stdout

    assert status.returncode == tree.returncode == 0
    assert "asleep" in status.stdout and "asleep" in tree.stdout
    assert "next task in " in tree.stdout
    assert "pgflowd_asleep_workers 2" in metrics
    assert 'pgflowd_queued_tasks{flow="alpha"} 0' in metrics
    flows = {flow["flow"]: flow for flow in json.loads(listed.stdout)["flows"]}
    assert all(flow["asleep"] and flow["import_s"] > 0 for flow in flows.values())
    assert (flows["later"]["active_runs"], flows["later"]["workers"]) == (1, 0)
    assert "asleep" in daemon.command("flows", "list").stdout
    assert "no worker serves it" not in doctor.stdout
    assert daemon.command("status", "--check").returncode == 0


@pytest.mark.parametrize("command", ["drain", "stop"])
def test_a_stop_ends_a_daemon_whose_flows_sleep(setup, database, command):
    setup.flow("alpha")
    daemon = setup.serve(worker=QUICK)
    asleep(daemon)

    ended = daemon.command(command, "--wait")

    assert ended.returncode == 0
    assert daemon.ended() == 0
    assert causes(daemon) == []
