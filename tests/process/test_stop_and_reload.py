"""Stops, signals, waiting for the database, and reloads, from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.covers import covers
from support.daemon import (
    FLOW,
    PGFLOWD,
    attempts,
    black_hole,
    connected,
    is_completed,
    is_completed_soon,
    is_gone,
    marks,
    passed,
    start_marked,
    start_run,
    terminate_all,
    unreachable_url,
)
from support.proxy import ProxyProcess

from pgflowd.testing.until import until

KILL_GRACE_S = 0.5


# Stop


@covers("rule 28", "rule 32")
def test_term_drains_in_reverse_order_and_exits_0(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    family = daemon.family()
    run_id = start_marked(setup, database, s=0.5)

    daemon.send(signal.SIGTERM)
    code = daemon.ended(3)

    assert code == 0
    assert is_completed(database, run_id)
    exited = [record["child"] for record in daemon.events("child.exited")]
    assert exited[-3:] == ["sweeper", "worker alpha", "listener"]
    assert all(is_gone(seen) for seen in family)
    assert not daemon.control.exists()


@covers("row 22")
def test_an_idle_daemon_ends_without_killing_anything(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()

    daemon.send(signal.SIGTERM)

    assert daemon.ended() == 0
    assert daemon.events("child.killed") == []


@covers("rule 29")
def test_a_task_longer_than_drain_timeout_is_given_back_unspent(setup, database):
    setup.flow("alpha", attempts=1)
    daemon = setup.serve(supervisor={"drain_timeout": "500ms"})
    run_id = start_marked(setup, database, s=20)

    daemon.send(signal.SIGTERM)

    assert daemon.ended(0.5 + KILL_GRACE_S + 5) == 0
    assert database.client.get_run(run_id).status == "started"
    assert attempts(database, run_id) == [0]


@covers("row 23")
def test_a_drain_finishes_what_runs_and_claims_nothing_more(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(worker={"max_concurrency": 10}, supervisor={"drain_timeout": "20s"})
    path = setup.directory / "marks"
    for _ in range(30):
        start_run(database, "alpha", s=1, marks=str(path))
    until(lambda: [what for what, _, _ in marks(path)].count("start") >= 10)

    daemon.send(signal.SIGTERM)

    assert daemon.ended() == 0
    written = [what for what, _, _ in marks(path)]
    assert written.count("end") == written.count("start") < 30
    query = "select status, attempts_count from pgflow.step_tasks group by 1, 2"
    found = set(database.connect().execute(query))
    assert found == {("completed", 1), ("queued", 0)}


@covers("row 24")
def test_what_a_stop_gives_back_is_done_at_once_by_another_daemon(setup, database):
    setup.flow("alpha", attempts=1)
    first = setup.serve("one", supervisor={"drain_timeout": "200ms"})
    run_id = start_marked(setup, database, s=1.5)
    first.send(signal.SIGTERM)
    second = setup.serve("two")

    assert first.ended() == 0
    until(lambda: is_completed(database, run_id), 6)
    assert attempts(database, run_id) == [1]
    assert second.ask()["state"] == "healthy"


@covers("rule 32", "row 25")
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_in_the_middle_of_a_drain_makes_it_quick(setup, database, second):
    setup.flow("alpha")
    daemon = setup.serve(supervisor={"drain_timeout": "1m"})
    run_id = start_marked(setup, database, s=30)
    daemon.send(signal.SIGINT)
    daemon.until("child.exited", child="sweeper")

    daemon.send(second)

    assert daemon.ended() == 0
    assert attempts(database, run_id) == [0]


@covers("rule 32", "row 25")
def test_quit_puts_all_stacks_into_the_log_and_stops_quickly(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    start_marked(setup, database, s=30)

    daemon.send(signal.SIGQUIT)

    assert daemon.ended(KILL_GRACE_S + 5) == 0
    assert daemon.events("supervisor.stack")
    assert daemon.events("supervisor.dump")[0]["signal"] == "SIGQUIT"


@covers("row 28")
def test_usr1_puts_tree_and_stacks_into_the_log_and_changes_nothing(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    before = daemon.pids()
    run_id = start_marked(setup, database, s=10)
    until(lambda: daemon.ask()["flows"][0]["running"] == 1, 8)

    daemon.send(signal.SIGUSR1)

    daemon.until("supervisor.stack")
    task = daemon.until("supervisor.task")[0]
    assert (task["task"], task["run"]) == ("work#0", str(run_id))
    until(
        lambda: (
            {each["process"] for each in daemon.events("child.stack")}
            >= {"listener", "sweeper", "worker"}
        )
    )
    assert {"alpha"} <= {
        each["slug"] for each in daemon.events("supervisor.tree") if "slug" in each
    }
    assert daemon.pids() == before


@covers("rule 32")
def test_drain_by_command_waits_for_as_long_as_the_task_takes(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(supervisor={"drain_timeout": "100ms"})
    run_id = start_marked(setup, database, s=1.2)

    done = daemon.command("drain", "--wait")

    assert done.returncode == 0
    assert daemon.ended(1) == 0
    assert is_completed(database, run_id)


@covers("rule 32")
def test_stop_now_is_a_quick_stop(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(supervisor={"drain_timeout": "1m"})
    run_id = start_marked(setup, database, s=30)

    done = daemon.command("stop", "--now", "--wait")

    assert done.returncode == 0
    assert daemon.ended(1) == 0
    assert attempts(database, run_id) == [0]
    assert daemon.events("supervisor.stopping")


@covers("rule 30", "row 31")
def test_a_worker_that_crashes_during_the_stop_is_not_restarted(setup, database):
    for slug in ("alpha", "beta"):
        setup.flow(slug)
    daemon = setup.serve()
    start_marked(setup, database, s=0.6)
    beta = daemon.pid_of("beta")

    daemon.send(signal.SIGTERM)
    daemon.until("supervisor.draining")
    os.kill(beta, signal.SIGKILL)

    assert daemon.ended(3) == 0
    assert len(daemon.events("child.started", child="worker beta")) == 1


@covers("rule 29")
def test_a_stopped_listener_holds_the_stop_up_for_5_s_at_most(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    daemon.kill("listener", signal.SIGSTOP)

    daemon.send(signal.SIGTERM)

    assert daemon.ended() == 0
    assert daemon.events("child.killed", child="listener")


# The database is not there


@covers("P14", "rule 2")
@pytest.mark.parametrize("kind", [unreachable_url, black_hole])
def test_a_stop_while_the_database_is_unreachable_at_the_start(setup, kind):
    line, url = kind()
    setup.flow("alpha")
    daemon = setup.start(database={"url": url})
    daemon.until("child.started", child="listener")
    until(lambda: daemon.ask()["state"] == "starting")

    daemon.send(signal.SIGTERM)

    assert daemon.ended() == 0
    assert "Traceback" not in daemon.log.read_text()
    line.close()


@covers("rule 2")
def test_a_stop_during_discovery_ends_at_once(setup):
    setup.module("slow", "import time\ntime.sleep(1000)\n")
    daemon = setup.start()
    until(daemon.control.exists)

    daemon.send(signal.SIGTERM)

    assert daemon.ended() == 0
    assert daemon.events("child.started") == []


@covers("rule 5", "row 65")
def test_after_startup_wait_the_exit_is_69(setup):
    line, url = unreachable_url()
    setup.flow("alpha")
    daemon = setup.start(database={"url": url, "startup_wait": "1s"})

    assert daemon.ended(8) == 69
    assert daemon.events("child.restarted") == []
    line.close()


@covers("rule 5", "row 65")
def test_it_waits_for_a_database_that_comes_later(setup, database):
    line, url = unreachable_url()
    port = line.getsockname()[1]
    setup.flow("alpha")
    daemon = setup.start(database={"url": url.replace("/none", f"/{database.name}")})
    daemon.until("child.waiting", child="listener")
    assert daemon.ask()["database"]["state"] == "down"
    line.close()

    with ProxyProcess(database.dsn, port):
        daemon.until("supervisor.ready", within_s=8)
        assert daemon.events("child.restarted") == []
        daemon.send(signal.SIGTERM)
        assert daemon.ended() == 0


@covers("rule 5", "rule 42")
def test_a_worker_that_waits_for_the_database_is_not_killed_as_hanging(setup, database, proxy):
    setup.flow("alpha")
    limits = {"statement_timeout": "1s", "connect_timeout": "1s", "url": proxy.url}
    daemon = setup.serve(supervisor={"hang_timeout": "4s"}, database=limits)
    proxy.do("refuse")

    daemon.kill("alpha")
    waiting = daemon.until("child.waiting", child="worker alpha")
    since = time.monotonic()
    until(lambda: passed(since) > 6, 8)
    proxy.do("pass")

    daemon.until("child.ready", child="worker alpha", count=2)
    assert waiting
    assert daemon.events("child.killed") == []


@covers("P18", "row 68")
def test_lost_sessions_cost_no_restart_and_outcomes_arrive_once(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    before = daemon.pids()
    run_id = start_marked(setup, database, s=0.7)

    for _ in range(20):
        assert terminate_all(database)
        until(lambda: connected(database) >= 3)

    until(lambda: is_completed(database, run_id), 6)
    assert attempts(database, run_id) == [1]
    until(lambda: connected(database) >= 3)
    again = start_run(database, "alpha", marks=str(setup.directory / "marks"))
    assert is_completed_soon(database, again)
    assert daemon.pids() == before
    assert daemon.ask()["supervisor"]["restarts"] == 0


# Exit 10 and 78


@covers("P19", "rule 25", "rule 40")
def test_a_deprecated_worker_is_replaced_and_costs_nothing(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    first = daemon.ask()["flows"][0]["worker_id"]
    conn = database.connect()

    conn.execute("update pgflow.workers set deprecated_at = now() where worker_id = %s", (first,))
    exited = daemon.until("child.exited", child="worker alpha", within_s=20)
    daemon.until("child.ready", child="worker alpha", count=2)
    second = daemon.ask()["flows"][0]
    conn.execute("delete from pgflow.workers where worker_id = %s", (second["worker_id"],))
    daemon.until("child.ready", child="worker alpha", count=3, within_s=20)
    third = daemon.ask()["flows"][0]

    assert exited[0]["status"] == 10
    assert len({first, second["worker_id"], third["worker_id"]}) == 3
    assert daemon.events("child.restarted") == []
    assert third["restarts"] == 0


@covers("newcomer 20", "newcomer 21", "P24", "rule 24", "row 97")
def test_another_shape_in_the_database_parks_the_flow_and_keeps_its_history(setup, database):
    setup.flow("alpha")
    setup.flow("beta")
    first = setup.serve()
    run_id = start_run(database, "alpha")
    assert is_completed_soon(database, run_id)
    first.send(signal.SIGTERM)
    first.ended()
    more = "\n@flow.step\ndef more(work):\n    return work\n"

    setup.module("flow_alpha", FLOW.format(slug="alpha", attempts=3) + more)
    daemon = setup.serve()

    flow = daemon.ask()["flows"][0]
    assert (flow["slug"], flow["state"], flow["error"]["code"]) == ("alpha", "failed", "E306")
    assert flow["error"]["text"].startswith("alpha: the code has another shape")  # no code twice
    assert "+ step more, after work" in flow["error"]["text"]
    parked = daemon.until("child.parked")[0]
    assert (parked["flow"], parked["code"]) == ("alpha", "E306")
    assert parked["error"] == flow["error"]["text"]
    assert database.client.get_run(run_id).status == "completed"
    assert daemon.ask()["problems"][0]["next"] == "pgflowd reload"


@covers("P24")
def test_other_options_in_the_database_are_a_warning_and_the_database_rules(setup, database):
    setup.flow("alpha", attempts=3)
    first = setup.serve()
    first.send(signal.SIGTERM)
    first.ended()
    database.connect().execute("update pgflow.flows set opt_max_attempts = 7")

    daemon = setup.serve()

    assert daemon.state_of("alpha") == "up"
    assert "W310" in daemon.log.read_text()


@covers("row 81")
def test_a_database_without_schema_is_78_with_the_command_to_run(setup, empty_database):
    setup.flow("alpha")
    daemon = setup.start(database={"url": empty_database.dsn})

    assert daemon.ended() == 78
    assert "pgflowd db migrate" in daemon.log.read_text()


# Reload


@covers("rule 43", "rule 45", "row 27")
def test_a_reload_replaces_what_changed_and_nothing_else(setup, database):
    for slug in ("alpha", "beta", "gamma"):
        setup.flow(slug)
    setup.module("broken", "import no_such_module\n")
    daemon = setup.serve()
    before = daemon.pids()
    setup.flow("beta", attempts=3)
    setup.module("flow_beta", FLOW.format(slug="beta", attempts=3) + "\n# newer\n")
    setup.module("broken", FLOW.format(slug="mended", attempts=3))
    setup.flow("delta")
    setup.entries.remove("flow_gamma")
    setup.config()

    done = daemon.command("reload", "--json")
    daemon.until("child.ready", child="worker beta", count=2)
    daemon.until("child.ready", child="worker mended")
    daemon.until("child.ready", child="worker delta")
    until(lambda: "gamma" not in daemon.pids())

    answer = json.loads(done.stdout)
    assert answer["kept"] == ["alpha"]
    assert answer["changed"] == ["beta"]
    assert sorted(answer["new"]) == ["delta", "mended"]
    assert answer["gone"] == ["gamma"]
    after = daemon.pids()
    assert after["beta"] != before["beta"]
    assert {k: after[k] for k in ("alpha", "listener", "sweeper")} == {
        k: before[k] for k in ("alpha", "listener", "sweeper")
    }
    assert set(after) == {"alpha", "beta", "delta", "mended", "listener", "sweeper"}


@covers("rule 43", "row 27", "row 37")
def test_a_bad_file_changes_nothing_and_a_broken_module_keeps_its_worker(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    before = daemon.pids()
    good = daemon.config.read_text()

    daemon.config.write_text(good.replace("[worker]", "[worker]\nmax_concurency = 3"))
    refused = daemon.ask("reload")
    after_refusal = daemon.ask()["problems"][-1]
    daemon.config.write_text(good)
    setup.module("flow_alpha", "import no_such_module\n")
    daemon.send(signal.SIGHUP)
    reloaded = daemon.until("supervisor.reloaded")
    after_break = daemon.ask()["problems"][-1]

    assert [problem["code"] for problem in refused["problems"]] == ["E102"]
    assert daemon.events("supervisor.problem", code="E102")
    assert after_refusal["code"] == "E102" and ".toml:" in after_refusal["text"]
    assert reloaded[0]["broken"] == ["flow_alpha"]
    assert after_break["code"] == "E210" and "the old code until it ends" in after_break["text"]
    assert daemon.pids() == before


@covers("rule 43")
def test_a_reload_reports_why_a_flow_is_broken_until_it_is_repaired(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    good = (setup.directory / "flow_alpha.py").read_text()
    setup.module("flow_alpha", "import no_such_module\n")

    refused = daemon.command("reload")
    setup.module("flow_alpha", good)
    mended = daemon.command("reload")

    assert refused.returncode == 1 and mended.returncode == 0
    assert "E210" in refused.stderr and "no_such_module" in refused.stderr
    assert "E210" not in [problem["code"] for problem in daemon.ask()["problems"]]


@covers("newcomer 18", "rule 43")
def test_a_reload_tells_what_became_of_each_flow(setup, database):
    for slug in ("alpha", "beta", "gamma", "delta", "old"):
        setup.flow(slug)
    daemon = setup.serve()
    gate = setup.directory / "gate"
    start_marked(setup, database, "beta", gate=str(gate))
    setup.module("flow_beta", FLOW.format(slug="beta", attempts=3) + "\n# newer\n")
    setup.module("flow_delta", FLOW.format(slug="delta", attempts=3).replace("work", "other"))
    setup.module("flow_old", "import no_such_module\n")
    setup.flow("new")
    setup.config(supervisor={"drain_timeout": "1m"}, **{"flows.gamma": {"enabled": False}})

    command = [*PGFLOWD, "reload", "-c", str(daemon.config)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=setup.environ) as asked:
        daemon.until("supervisor.reloaded")
        assert asked.poll() is None  # a task of beta still runs
        gate.touch()
        shown, problems = (text.splitlines() for text in asked.communicate(timeout=30))

    assert asked.returncode == 1
    assert sorted(shown) == [
        "alpha: unchanged",
        "beta: drained and started again",
        "delta: kept the old code and shape, because the new code cannot be served",
        "gamma: disabled",
        "new: started",
        "old: kept the old code and shape, because the new code cannot be served",
    ]
    assert sum("E210" in line for line in problems) == sum("E306" in line for line in problems) == 1

    setup.flow("old")
    setup.entries.remove("flow_delta")
    setup.config()
    again = json.loads(daemon.command("reload", "--json").stdout)["flows"]
    assert {(flow["flow"], flow["result"]) for flow in again} == {
        ("alpha", "unchanged"),
        ("beta", "unchanged"),
        ("new", "unchanged"),
        ("gamma", "started"),
        ("old", "unchanged"),
        ("delta", "removed"),
    }


@covers("rule 44", "E113")
def test_what_needs_a_restart_is_reported(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    before = daemon.pids()
    setup.config(database={"connect_timeout": "2s"})

    done = daemon.command("reload")

    assert "E113" in done.stderr
    assert "[database] connect_timeout" in done.stderr
    assert daemon.pids() == before


def test_a_reload_with_other_limits_replaces_the_worker_that_lives_by_them(setup, database):
    setup.flow("alpha")
    setup.flow("beta")
    daemon = setup.serve()
    before = daemon.pids()
    setup.config(**{"flows.beta": {"max_concurrency": 3}})

    daemon.send(signal.SIGHUP)
    daemon.until("child.ready", child="worker beta", count=2)

    after = daemon.ask()["flows"]
    assert [flow["max_concurrency"] for flow in after] == [10, 3]
    assert daemon.pids()["alpha"] == before["alpha"]


@covers("rule 43")
def test_the_sweeper_alone_is_replaced_when_only_its_settings_change(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    before = daemon.pids()
    setup.config(recovery={"recovery_interval": "700ms"}, supervisor={"max_restarts": 7})

    daemon.send(signal.SIGHUP)
    daemon.until("child.ready", child="sweeper", count=2)
    until(lambda: daemon.ask()["sweeper"]["interval_s"] == 0.7)

    after = daemon.pids()
    assert after["sweeper"] != before["sweeper"]
    assert after["listener"] == before["listener"]
    assert after["alpha"] == before["alpha"]
    assert daemon.ask()["supervisor"]["max_restarts"] == 7
    assert daemon.events("child.restarted") == []


@covers("rule 45")
def test_many_reloads_at_once_are_done_one_after_another(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()

    for _ in range(5):
        daemon.send(signal.SIGHUP)
    until(lambda: daemon.ask("reload").get("kept") == ["alpha"])

    assert daemon.ask()["state"] == "healthy"


@covers("rule 45")
def test_a_stop_goes_before_a_reload(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    setup.module("slow", "import time\ntime.sleep(1000)\n")
    setup.config()
    daemon.send(signal.SIGHUP)
    until(lambda: any("discovery" in title for title in daemon.titles()))

    daemon.send(signal.SIGTERM)

    assert daemon.ended() == 0


def test_listener_and_sweeper_obey_even_in_the_middle_of_a_call_that_hangs(setup, database, proxy):
    setup.flow("alpha")
    daemon = setup.serve(database={"url": proxy.url, "statement_timeout": "8s"})
    proxy.do("hold")
    sweeper = daemon.pid_of("sweeper")
    until(lambda: is_in_a_call(sweeper), 5)

    daemon.send(signal.SIGTERM)
    daemon.until("child.exited", child="sweeper")

    assert daemon.ended(15) == 0
    assert daemon.events("child.killed", child="sweeper") == []
    assert daemon.events("child.killed", child="listener") == []


def is_in_a_call(pid):
    """Whether a sweeper waits for an answer: then its channel sends it a signal."""
    flags = [path.read_text() for path in Path(f"/proc/{pid}/fdinfo").iterdir()]
    return any(int(text.split("flags:")[1].split()[0], 8) & os.O_ASYNC for text in flags)


@covers("row 26")
def test_a_stop_while_the_database_hangs_is_in_time(setup, database, proxy):
    setup.flow("alpha", attempts=1)
    daemon = setup.serve(supervisor={"drain_timeout": "1s"}, database={"url": proxy.url})
    start_marked(setup, database, s=30)
    proxy.do("hold")

    daemon.send(signal.SIGTERM)

    assert daemon.ended(20) == 0


def test_a_config_section_of_an_unknown_flow_is_refused(setup, database):
    setup.flow("alpha")
    daemon = setup.start(**{"flows.typo": {"max_concurrency": 3}})

    assert daemon.ended() == 78
    assert daemon.events("supervisor.problem")[0]["code"] == "E108"


def test_serve_flow_serves_these_alone(setup, database):
    setup.flow("alpha")
    setup.flow("beta")
    daemon = setup.start("t", "--flow", "beta")
    daemon.until("supervisor.ready")

    assert [flow["slug"] for flow in daemon.ask()["flows"]] == ["beta"]


def test_a_disabled_flow_is_shown_and_not_started(setup, database):
    setup.flow("alpha")
    setup.flow("beta")
    daemon = setup.serve(**{"flows.beta": {"enabled": False}})

    assert daemon.state_of("beta") == "disabled"
    assert daemon.ask()["state"] == "healthy"


def test_a_daemon_whose_flows_are_all_disabled_reports_it_and_ends(setup, database):
    setup.flow("alpha")
    daemon = setup.start(**{"flows.alpha": {"enabled": False}})

    assert daemon.ended() == 78
    [problem] = daemon.events("supervisor.problem", code="E111")
    assert "no flow is enabled: alpha" in problem["error"]


# Pid 1


@covers("row 32")
@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace of its own needs root")
def test_as_pid_1_of_a_container_it_reaps_orphans_and_obeys_sigterm(setup, database):
    setup.flow("alpha")
    config = setup.config()
    log = (setup.directory / "one.log").open("wb")
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *PGFLOWD]
    process = subprocess.Popen(
        [*command, "serve", "-c", str(config)], stderr=log, env=setup.environ
    )
    try:
        text = (setup.directory / "one.log").read_text
        until(lambda: "supervisor.ready" in text(), 15)
        inside = int(
            subprocess.check_output(["pgrep", "-P", str(process.pid)], text=True).split()[0]
        )
        orphan = "import os; os._exit(0) if os.fork() else os._exit(0)"
        subprocess.run(
            ["nsenter", "--target", str(inside), "--pid", "--mount", sys.executable, "-c", orphan],
            check=True,
        )
        until(lambda: not zombies_of(inside))

        os.kill(inside, signal.SIGTERM)
        assert process.wait(8) == 0
    finally:
        process.kill()


def zombies_of(pid):
    from pgflowd.host.process_tree import all_processes

    return [seen for seen in all_processes() if seen.parent == pid and seen.is_zombie]


@covers("rule 32")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT])
def test_no_signal_at_the_last_moment_spoils_the_exit_code(setup, database, number):
    setup.flow("alpha")
    daemon = setup.serve()

    daemon.send(signal.SIGTERM)
    daemon.until("supervisor.stopped")
    while daemon.process.poll() is None:
        daemon.process.send_signal(number)

    assert daemon.ended() == 0
