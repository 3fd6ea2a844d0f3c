"""
Flows whose processes go wrong, and what other flows notice (docs/background/failures.md, A-C).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

from support.covers import covers
from support.daemon import FLOW, is_completed, is_completed_soon, start_run

from pgflowd.host.process_tree import command_line, in_session
from pgflowd.testing.until import until


def outcomes(conn, run_id):
    """The outcomes of a run's attempts, the oldest first."""
    query = "select outcome from pgflowd.attempts where run_id = %s order by token"
    return [row[0] for row in conn.execute(query, (run_id,))]


def zygote_of(worker):
    return next(
        seen.pid for seen in in_session(worker) if "zygote" in (command_line(seen.pid) or "")
    )


@covers("row 9")
def test_a_new_pair_takes_over_from_a_dead_zygote(setup, database):
    setup.flow("alpha")
    setup.flow("beta")
    daemon = setup.serve()
    before = daemon.pids()
    runs = [start_run(database, "alpha", s=1.5) for _ in range(4)]
    until(lambda: sum("alpha/work#" in title for title in daemon.titles()) == 4)

    os.kill(zygote_of(before["alpha"]), signal.SIGKILL)

    conn = database.connect()
    until(lambda: [outcomes(conn, run)[0] for run in runs] == ["crashed"] * 4, 2)
    exited = daemon.until("child.exited", child="worker alpha")[0]
    until(lambda: all(is_completed(database, run) for run in runs), 4 + 1.5)
    assert exited["status"] == 1
    after = daemon.pids()
    assert after.pop("alpha") != before.pop("alpha")
    assert after == before


STUCK = """
import threading, time
from pgflowd import Flow
flow = Flow("stuck", max_attempts=1, timeout=2)

@flow.step
def work(run):
    def stay():
        with open(run["tid"], "w") as file: file.write(f"{threading.get_native_id()} .")
        time.sleep(600)
    if "tid" in run:
        threading.Thread(target=stay, daemon=True).start()
        time.sleep(600)
"""
PTRACE_SEIZE = 0x4206
WALL = 0x40000000  # wait for threads, too


@covers("row 17")
def test_a_runner_that_cannot_be_killed_is_reported_and_its_place_is_lost(setup, database):
    """The tracer has to reap a traced thread; before that its process has not ended."""
    setup.module("stuck", STUCK)
    setup.flow("alpha")
    daemon = setup.serve(
        supervisor={"hang_timeout": "7s"},  # the shorter it is, the more heartbeats
        database={"statement_timeout": "1s", "connect_timeout": "1s"},
        **{"flows.stuck": {"max_concurrency": 1}},
    )
    path = setup.directory / "tid"
    run_id = start_run(database, "stuck", tid=str(path))
    until(lambda: path.exists() and path.read_text().endswith("."))
    thread = int(path.read_text().split()[0])
    assert ctypes.CDLL(None).ptrace(PTRACE_SEIZE, thread, 0, 0) == 0
    waiting = start_run(database, "stuck")

    assert is_completed_soon(database, start_run(database, "alpha"))
    conn = database.connect()
    until(lambda: outcomes(conn, run_id) == ["timed_out"], 2 + 12)
    assert [each["level"] for each in not_gone(daemon)] == ["error"]
    until(lambda: flow_of(daemon, "stuck")["stuck"] == 1, 7)
    assert database.client.get_run(waiting).status == "started"
    assert "a runner cannot be killed" in daemon.command("status").stdout

    assert os.waitpid(thread, WALL)[0] == thread
    until(lambda: is_completed(database, waiting))
    assert len(daemon.events("child.started", child="worker stuck")) == 1


def not_gone(daemon):
    return [each for each in daemon.events("worker.error") if "is not gone" in each["error"]]


def flow_of(daemon, slug):
    return next(flow for flow in daemon.ask()["flows"] if flow["slug"] == slug)


@covers("row 18")
def test_an_import_that_blocks_is_a_crash_and_its_flow_is_parked_in_the_end(setup, database):
    gate = setup.directory / "gate"
    waits = f"import os, time\nwhile os.path.exists({str(gate)!r}): time.sleep(0.02)\n"
    setup.module("alpha", waits + FLOW.format(slug="alpha", attempts=3))
    setup.flow("beta")
    daemon = setup.serve(worker={"max_restarts": 1}, supervisor={"start_timeout": "2s"})
    before = daemon.pids()

    gate.touch()
    daemon.kill("alpha")
    daemon.until("child.parked", child="worker alpha")

    killed = daemon.events("child.killed", child="worker alpha")
    assert [each["reason"] for each in killed] == ["was not ready within 2 s"]
    assert daemon.state_of("alpha") == "failed"
    assert is_completed_soon(database, start_run(database, "beta"))
    assert daemon.pids()["beta"] == before["beta"]


CRASHES = """
import os, signal
if os.getsid(0) != os.getpid():  # in a worker's zygote; discovery leads its own session
    os.kill(os.getsid(0), signal.SIGKILL)
"""


@covers("row 29")
def test_a_worker_that_always_crashes_at_once_is_parked_after_growing_delays(setup, database):
    setup.module("alpha", CRASHES + FLOW.format(slug="alpha", attempts=3))
    setup.flow("beta")
    daemon = setup.start()
    daemon.until("child.ready", child="worker beta")
    beta = daemon.pid_of("beta")

    daemon.until("child.parked", child="worker alpha")

    assert len(daemon.events("child.started", child="worker alpha")) == 6
    restarted = daemon.events("child.restarted", child="worker alpha")
    assert [each["delay_s"] for each in restarted] == [0.0, 0.1, 0.2, 0.4, 0.8]
    daemon.until("supervisor.ready")
    assert (daemon.state_of("alpha"), daemon.state_of("beta")) == ("failed", "up")
    assert daemon.pid_of("beta") == beta
    assert is_completed_soon(database, start_run(database, "beta"))


@covers("row 37")
def test_without_a_flow_there_is_nothing_to_do(setup, database):
    daemon = setup.start()

    assert daemon.ended() == 78
    assert "E111" in daemon.log.read_text()
    assert daemon.events("child.started") == []


@covers("row 37")
def test_on_reload_only_the_wrong_entries_are_parked(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    before = daemon.pids()
    setup.module("raises", "raise ValueError('no')\n")
    setup.entries += ["no_such_module", "flow_alpha:mark"]
    setup.config()

    daemon.send(signal.SIGHUP)
    daemon.until("supervisor.reloaded")

    assert daemon.pids() | before == daemon.pids()
    flows = {flow["slug"]: flow for flow in daemon.ask()["flows"]}
    assert flows.pop("alpha")["state"] == "up"
    assert {slug: flow["state"] for slug, flow in flows.items()} == {
        "raises": "failed",
        "no_such_module": "failed",
        "flow_alpha:mark": "failed",
    }
    shown = daemon.ask()["problems"]
    problems = {each["flow"]: each["code"] for each in shown if each["flow"]}
    assert problems == {"raises": "E210", "no_such_module": "E210", "flow_alpha:mark": "E212"}


@covers("row 31", "rule 30")
def test_workers_that_crash_during_the_stop_are_not_restarted_and_cost_no_time(setup, database):
    """Twenty times, each a little later than the one before."""
    slugs = ["alpha", "beta", "gamma", "delta", "epsilon"]
    for slug in slugs:
        setup.flow(slug)
    for round_ in range(4):
        daemon = setup.serve()
        workers = [daemon.pids()[slug] for slug in slugs]
        asked_at = time.monotonic()

        daemon.send(signal.SIGTERM)
        for number, pid in enumerate(workers):
            moment = asked_at + (number + round_ / 4) * 0.01
            until(lambda moment=moment: time.monotonic() >= moment)
            with contextlib.suppress(ProcessLookupError):  # it may have ended as it was asked to
                os.kill(pid, signal.SIGKILL)

        assert daemon.ended() == 0
        assert len(daemon.events("child.started")) == len(slugs) + 2
