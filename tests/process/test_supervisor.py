"""The supervisor from outside: start, crashes, budgets."""

from __future__ import annotations

import os
import signal

from support.covers import covers
from support.daemon import (
    attempts,
    is_completed,
    is_completed_soon,
    is_gone,
    marks,
    start_run,
)

from pgflowd.host.process_tree import command_line, in_session
from pgflowd.testing.until import until

KILL_GRACE_S = 0.5
W_S = 3.0  # the bound after a worker's death


@covers("P1", "rule 4", "rule 7")
def test_it_is_ready_when_all_are_up_in_this_order(setup, database):
    setup.flow("alpha")
    setup.flow("beta")
    daemon = setup.serve()

    ready = [record["child"] for record in daemon.events("child.ready")]
    assert ready[0] == "listener"
    assert sorted(ready[1:3]) == ["worker alpha", "worker beta"]
    assert ready[3] == "sweeper"
    assert command_line(daemon.pid) == "t: supervisor"
    titles = daemon.titles()
    assert {"t: listener", "t: sweeper"} <= set(titles)
    assert {"t: zygote alpha", "t: worker alpha 0/10"} <= set(titles)
    status = daemon.ask()
    assert status["state"] == "healthy"
    assert [flow["slug"] for flow in status["flows"]] == ["alpha", "beta"]
    assert all(flow["pid"] and flow["worker_id"] for flow in status["flows"])


@covers("P2", "rule 13", "rule 14", "rule 15", "rule 16", "row 8")
def test_a_dead_listener_takes_all_after_it_along(setup, database):
    setup.flow("alpha")
    setup.flow("beta")
    daemon = setup.serve()
    before = daemon.pids()
    path = setup.directory / "marks"
    run_id = start_run(database, "alpha", s=1, marks=str(path))
    until(lambda: marks(path))

    daemon.kill("listener")
    meanwhile = start_run(database, "beta")
    daemon.until("child.ready", child="sweeper", count=2)

    after = daemon.pids()
    assert not set(before.values()) & set(after.values())
    started = [record["child"] for record in daemon.events("child.started")][4:]
    assert started[0] == "listener"
    assert started[-1] == "sweeper"
    assert len(daemon.events("child.restarted")) == 1
    assert daemon.ask()["supervisor"]["restarts"] == 1
    until(lambda: is_completed(database, run_id), 10)
    assert is_completed_soon(database, meanwhile)
    assert attempts(database, run_id) == [1]  # the interrupted attempt was given back

    assert is_completed_soon(database, start_run(database, "alpha"))


@covers("P3", "rule 11", "rule 12", "row 3", "row 20")
def test_a_dead_worker_alone_is_replaced_and_its_tasks_run_again(setup, database):
    for slug in ("alpha", "beta", "gamma"):
        setup.flow(slug)
    daemon = setup.serve()
    before = daemon.pids()
    path = setup.directory / "marks"
    run_id = start_run(database, "alpha", s=0.6, marks=str(path))
    until(lambda: marks(path))
    below = [seen for seen in daemon.family() if seen.session == before["alpha"]]

    daemon.kill("alpha")
    until(lambda: all(is_gone(seen) for seen in below), 1)
    daemon.until("child.ready", child="worker alpha", count=2, within_s=1.5)
    until(lambda: [what for what, _, _ in marks(path)].count("start") == 2, W_S)

    after = daemon.pids()
    assert after["alpha"] != before["alpha"]
    assert {k: v for k, v in after.items() if k != "alpha"} == {
        k: v for k, v in before.items() if k != "alpha"
    }
    until(lambda: is_completed(database, run_id), 5)
    assert attempts(database, run_id) == [1]


@covers("P4", "rule 14")
def test_a_killed_sweeper_alone_is_replaced(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    before = daemon.pids()
    path = setup.directory / "marks"
    run_id = start_run(database, "alpha", s=0.7, marks=str(path))
    until(lambda: marks(path))

    daemon.kill("sweeper")
    daemon.until("child.ready", child="sweeper", count=2)

    after = daemon.pids()
    assert after.pop("sweeper") != before.pop("sweeper")
    assert after == before
    until(lambda: is_completed(database, run_id))
    assert len({pid for _, pid, _ in marks(path)}) == 1


@covers("rule 12")
def test_crashed_workers_are_remembered_through_a_restart_of_the_sweeper(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(recovery={"lease": "1m", "recovery_interval": "1m"})
    path = setup.directory / "marks"
    run_id = start_run(database, "alpha", s=0.5, marks=str(path))
    until(lambda: marks(path))

    daemon.kill("sweeper", signal.SIGSTOP)
    daemon.kill("alpha")
    daemon.until("child.ready", child="worker alpha", count=2)
    daemon.kill("sweeper")

    until(lambda: is_completed(database, run_id), 6)


@covers("P5", "rule 35", "row 19")
def test_a_killed_supervisor_leaves_no_process_behind(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    path = setup.directory / "marks"
    run_id = start_run(database, "alpha", s=1, marks=str(path))
    until(lambda: marks(path))
    family = daemon.family()
    assert len(family) >= 5

    daemon.send(signal.SIGKILL)
    until(lambda: all(is_gone(seen) for seen in family), 2)

    setup.serve()
    until(lambda: is_completed(database, run_id), 10)


DETACHING = """
import os, subprocess, time
from pgflowd import Flow
flow = Flow("leaver", max_attempts=1)

@flow.step
def work(run):
    plain = subprocess.Popen(["sleep", "1000"])
    away = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.setsid()
        pid = os.fork()
        if pid == 0:
            os.execvp("sleep", ["sleep", "1000"])
        os.write(writes, str(pid).encode())
        os._exit(0)
    twice = int(os.read(reads, 20))
    with open(run["pids"], "w") as file:
        file.write(f"{plain.pid} {away.pid} {twice} .")
    time.sleep(1000)
"""


def detached(setup, database):
    """Start a handler with children that leave the session in all ways; return them."""
    from pgflowd.host.process_tree import read_stat

    path = setup.directory / "pids"
    start_run(database, "leaver", pids=str(path))
    until(lambda: path.exists() and path.read_text().endswith("."))
    return [read_stat(int(pid)) for pid in path.read_text().split()[:3]]


@covers("rule 34", "rule 35", "row 19")
def test_nothing_that_fled_outlives_a_killed_supervisor(setup, database):
    setup.module("leaver", DETACHING)
    daemon = setup.serve()
    fled = detached(setup, database)
    family = daemon.family()

    daemon.send(signal.SIGKILL)

    until(lambda: all(is_gone(seen) for seen in [*fled, *family]), 2)


@covers("rule 11", "row 3", "row 20")
def test_nothing_that_fled_outlives_a_killed_worker(setup, database):
    setup.module("leaver", DETACHING)
    daemon = setup.serve()
    fled = detached(setup, database)

    daemon.kill("leaver")

    until(lambda: all(is_gone(seen) for seen in fled), 1)


@covers("rule 34")
def test_nothing_that_fled_outlives_a_stop(setup, database):
    setup.module("leaver", DETACHING)
    daemon = setup.serve()
    fled = detached(setup, database)
    family = daemon.family()

    daemon.send(signal.SIGTERM)
    daemon.send(signal.SIGTERM)

    assert daemon.ended(KILL_GRACE_S + 5) == 0
    assert all(is_gone(seen) for seen in [*fled, *family])


@covers("rule 35", "row 21")
def test_what_survives_a_kill_of_supervisor_and_worker_is_cleared_by_the_next_start(
    setup, database
):
    setup.module("leaver", DETACHING)
    daemon = setup.serve()
    fled = detached(setup, database)
    known = daemon.control.with_name("control.processes")
    until(lambda: all(str(seen.pid) in known.read_text() for seen in fled), 8)
    worker = daemon.pid_of("leaver")
    ours = [seen for seen in daemon.family() if seen.session == worker]
    handlers = [seen for seen in ours if seen.name != "sleep"]

    os.kill(daemon.pid, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    until(lambda: all(is_gone(seen) for seen in handlers), 2)
    setup.serve()

    assert all(is_gone(seen) for seen in fled)


@covers("P15", "rule 23")
def test_a_worker_that_dies_six_times_is_parked_until_a_reload(setup, database):
    setup.flow("alpha")
    setup.flow("beta")
    daemon = setup.serve(worker={"backoff_max": "100ms"})

    for count in range(1, 7):
        daemon.until("child.ready", child="worker alpha", count=count)
        until(lambda: daemon.state_of("alpha") == "up")
        daemon.kill("alpha")

    daemon.until("child.parked", child="worker alpha")
    assert len(daemon.events("child.restarted", child="worker alpha")) == 5
    assert daemon.ask()["state"] == "degraded"
    assert daemon.ask()["problems"][0]["flow"] == "alpha"
    daemon.ask("reload")
    daemon.until("child.ready", child="worker alpha", count=7, within_s=4)


@covers("P15", "rule 26")
def test_the_only_worker_being_parked_for_crashing_the_daemon_gives_up(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(worker={"backoff_max": "100ms"})

    for count in range(1, 7):
        daemon.until("child.ready", child="worker alpha", count=count)
        until(lambda: daemon.pid_of("alpha"))
        daemon.kill("alpha")

    assert daemon.ended() == 1
    assert daemon.events("supervisor.gave_up")[0]["child"] == "worker alpha"


@covers("P15", "rule 20", "rule 27", "row 30", "E413")
def test_the_root_gives_up_at_the_21st_restart_in_reverse_order(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(
        supervisor={"backoff_min": "1ms", "backoff_max": "1ms", "max_restarts": 20}
    )

    for count in range(1, 22):
        daemon.until("child.ready", child="sweeper", count=count)
        daemon.kill("listener")

    assert daemon.ended() == 1
    assert len(daemon.events("child.restarted", child="listener")) == 20
    gave_up = daemon.events("supervisor.gave_up")
    assert [(record["child"], record["code"]) for record in gave_up] == [("listener", "E413")]
    last = [record["child"] for record in daemon.events("child.exited")][-2:]
    assert last == ["sweeper", "worker alpha"]


@covers("P16", "rule 21")
def test_as_many_kills_over_more_than_the_period_are_forgiven(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(
        worker={"max_restarts": 1, "backoff_max": "100ms"},
        supervisor={"max_period": "700ms", "backoff_min": "1ms", "backoff_max": "1ms"},
    )

    for count in range(1, 5):
        ready = daemon.until("child.ready", child="worker alpha", count=count)[-1]["time"]
        until(lambda ready=ready: _age_s(ready) > 0.8)
        daemon.kill("alpha")

    daemon.until("child.ready", child="worker alpha", count=5)
    assert daemon.events("child.parked") == []


def _age_s(moment):
    from datetime import UTC, datetime

    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()


@covers("P17", "rule 3", "rule 24", "row 62")
def test_a_module_that_raises_is_parked_and_the_others_work(setup, database):
    setup.flow("alpha")
    setup.module("broken", "import no_such_module\n")
    setup.flow("beta")
    daemon = setup.serve()

    status = daemon.ask()

    states = {flow["slug"]: flow["state"] for flow in status["flows"]}
    assert states == {"alpha": "up", "beta": "up", "broken": "failed"}
    problem = status["problems"][0]
    assert (problem["code"], problem["flow"]) == ("E210", "broken")
    assert "broken.py:1" in problem["text"]
    assert is_completed_soon(database, start_run(database, "beta"))
    assert len(daemon.events("child.started")) == 4


@covers("rule 3", "row 18", "row 62")
def test_modules_that_die_or_hang_at_import_hide_no_other(setup, database):
    setup.module("dies", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    setup.module("hangs", "import time\ntime.sleep(1000)\n")
    setup.module("leaves", "raise SystemExit(3)\n")
    setup.module("garbled", "def f(:\n")
    setup.flow("alpha")
    daemon = setup.serve(supervisor={"start_timeout": "1500ms"})

    flows = {flow["slug"]: flow for flow in daemon.ask()["flows"]}

    assert flows["alpha"]["state"] == "up"
    assert "SIGSEGV" in flows["dies"]["error"]["text"]
    assert flows["hangs"]["error"]["code"] == "E211"
    assert "leaves.py:1" in flows["leaves"]["error"]["text"]
    assert "garbled.py:1" in flows["garbled"]["error"]["text"]


@covers("rule 7", "row 37")
def test_with_every_entry_broken_the_exit_is_78_with_a_line_for_each(setup, database):
    setup.module("empty", "x = 1\n")
    setup.module("broken", "import no_such_module\n")
    setup.entries.append("not_there:flow")
    daemon = setup.start()

    assert daemon.ended() == 78
    problems = daemon.events("supervisor.problem")
    assert [record["code"] for record in problems] == ["E212", "E210", "E210"]
    assert daemon.events("child.started") == []


@covers("rule 8", "row 33")
def test_a_second_daemon_exits_75_and_starts_nothing(setup, database):
    setup.flow("alpha")
    first = setup.serve()

    second = setup.start()

    assert second.ended(5) == 75
    assert second.events("child.started") == []
    assert first.ask()["state"] == "healthy"


@covers("rule 8", "row 33", "row 34")
def test_with_another_name_both_work_and_a_stale_socket_is_replaced(setup, database):
    setup.flow("alpha")
    first, second = setup.serve("one"), setup.serve("two")
    ids = {daemon.ask()["flows"][0]["worker_id"] for daemon in (first, second)}
    assert len(ids) == 2

    first.send(signal.SIGKILL)
    first.process.wait()
    again = setup.serve("one")

    assert again.ask()["state"] == "healthy"


@covers("rule 9", "rule 10")
def test_an_unrequested_exit_is_a_crash_and_unknown_pids_are_ignored(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()

    daemon.kill("sweeper", signal.SIGKILL)
    exited = daemon.until("child.exited", child="sweeper")

    assert exited[0]["reason"].startswith("killed by SIGKILL")
    daemon.until("child.ready", child="sweeper", count=2)


@covers("rule 31")
def test_children_ignore_int_and_term(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    before = daemon.pids()

    for pid in before.values():
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    run_id = start_run(database, "alpha")

    assert is_completed_soon(database, run_id)
    assert daemon.pids() == before


@covers("rule 42", "P25", "row 16")
def test_a_stopped_worker_is_replaced(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(
        supervisor={"hang_timeout": "7s"},
        database={"statement_timeout": "1s", "connect_timeout": "1s"},
    )
    path = setup.directory / "marks"
    run_id = start_run(database, "alpha", s=1, marks=str(path))
    until(lambda: marks(path))
    setup.was_frozen = True
    worker = daemon.kill("alpha", signal.SIGSTOP)

    killed = daemon.until("child.killed", child="worker alpha", within_s=14)

    assert killed[0]["reason"] == "said nothing for 7 s"
    daemon.until("child.ready", child="worker alpha", count=2)
    assert in_session(worker) == []
    assert len(daemon.events("child.restarted", child="worker alpha")) == 1
    until(lambda: is_completed(database, run_id))


@covers("rule 49")
def test_every_step_of_a_child_is_a_record(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    pid = daemon.kill("alpha")
    daemon.until("child.ready", child="worker alpha", count=2)

    exited = daemon.events("child.exited", child="worker alpha")[0]
    restarted = daemon.events("child.restarted", child="worker alpha")[0]

    assert exited["child_pid"] == pid
    assert "SIGKILL" in exited["reason"]
    assert (restarted["count"], restarted["delay_s"]) == (1, 0.0)
