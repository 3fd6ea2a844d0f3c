"""Commands that ask a running daemon: their answers and exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from support import documents
from support.covers import covers
from support.daemon import PGFLOWD, start_marked

from pgflowd.host.control import ControlSocket
from pgflowd.testing.until import until


def status(daemon, *args):
    done = daemon.command("status", "--json", *args)
    return done.returncode, json.loads(done.stdout)


@covers("P25")
def test_status_while_running(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    start_marked(setup, database, s=10)
    until(lambda: daemon.ask()["flows"][0]["running"] == 1, 8)

    code, shown = status(daemon)

    assert code == 0
    assert shown["schema_version"] == 1
    assert (shown["name"], shown["state"], shown["pid"]) == ("t", "healthy", daemon.pid)
    flow = shown["flows"][0]
    assert (flow["slug"], flow["state"], flow["running"]) == ("alpha", "up", 1)
    assert flow["max_concurrency"] == 10
    assert shown["database"]["state"] == "up"
    assert daemon.command("status", "--check").returncode == 0


@covers("P25")
def test_status_while_draining_and_when_stopped(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(supervisor={"drain_timeout": "1m"})
    start_marked(setup, database, s=20)
    daemon.send(signal.SIGTERM)
    daemon.until("supervisor.draining")

    code, shown = status(daemon)
    assert (code, shown["state"]) == (0, "draining")
    assert daemon.command("status", "--check").returncode == 1
    assert daemon.command("reload").returncode == 75

    assert daemon.command("stop", "--now", "--wait").returncode == 0
    code, shown = status(daemon)
    assert (code, shown["state"]) == (3, "not_running")
    assert shown["database"]["state"] == "up"
    assert [flow["slug"] for flow in shown["flows"]] == ["alpha"]
    for command in (["stop"], ["drain"], ["reload"], ["tree"], ["status", "--check"]):
        assert daemon.command(*command).returncode == 3


@covers("P25")
def test_status_with_a_stale_socket(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    daemon.send(signal.SIGKILL)
    daemon.process.wait()
    assert daemon.control.exists()

    assert status(daemon)[0] == 3


@covers("E414")
def test_a_daemon_that_does_not_answer_is_e414(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    daemon.send(signal.SIGSTOP)

    done = daemon.command("status")

    assert done.returncode == 3
    assert "E414" in done.stderr

    with contextlib.ExitStack() as lines:  # as many wait for it as may
        with contextlib.suppress(BlockingIOError):
            while True:
                line = lines.enter_context(socket.socket(socket.AF_UNIX))
                line.setblocking(False)
                line.connect(str(daemon.control))
        done = daemon.command("status")
    assert done.returncode == 3
    assert "E414" in done.stderr and "too many other requests wait for it" in done.stderr
    daemon.send(signal.SIGCONT)


def test_status_without_a_database_reports_it_and_still_exits_3(setup):
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        url = f"postgresql://u:canary@127.0.0.1:{line.getsockname()[1]}/none"
        setup.flow("alpha")
        daemon = setup.start(database={"url": url, "startup_wait": "0s"})
        assert daemon.ended() == 69

        code, shown = status(daemon)

    assert code == 3
    assert shown["database"]["state"] == "down"
    assert shown["problems"][0]["code"] == "E301"
    assert "canary" not in json.dumps(shown)
    assert "canary" not in daemon.log.read_text()


def test_the_screens_of_status_and_tree(setup, database):
    setup.flow("alpha")
    setup.module("broken", "import no_such_module\n")
    daemon = setup.serve()

    screen = daemon.command("status").stdout
    tree = daemon.command("tree").stdout

    assert f"pid {daemon.pid}" in screen
    assert "degraded" in screen
    assert "E210" in screen
    assert "pgflowd reload" in screen
    assert f"supervisor {daemon.pid}   rest_for_one   restarts 0 of 20 in 60 s" in tree
    assert "zygote" in tree
    assert "next try on reload" in tree
    assert list(map(len, [tree.splitlines()])) == [6]


def test_metrics_of_a_running_daemon(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    assert database.client.start_flow_sync("alpha", {}, timeout=10).status == "completed"
    daemon.kill("alpha")
    daemon.until("child.ready", child="worker alpha", count=2)

    text = daemon.command("status", "--metrics").stdout

    restarts = 'pgflowd_restarts_total{child="worker alpha",reason="killed by SIGKILL"} 1'
    assert restarts in text.splitlines()
    assert text.endswith("# EOF\n")


def test_commands_with_json_answer_as_documented(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()

    reloaded = json.loads(daemon.command("reload", "--json").stdout)
    start_marked(setup, database, s=30)  # else it has drained before we stop it
    drained = json.loads(daemon.command("drain", "--json").stdout)
    stopped = json.loads(daemon.command("stop", "--now", "--wait", "--json").stdout)

    assert (reloaded["kept"], reloaded["error"], reloaded["problems"]) == (["alpha"], None, [])
    assert (drained["pid"], drained["state"]) == (daemon.pid, "draining")
    assert (stopped["pid"], stopped["state"]) == (daemon.pid, "stopped")
    for answer in (reloaded, drained, stopped):
        assert answer["schema_version"] == 1


@covers("newcomer 21")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_is_told_how_to_ask_the_daemon_of_another_user(setup, database, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    name = f"t-{os.getpid()}"
    config = setup.config(name, supervisor={"control": ""})
    path = Path(f"/tmp/pgflowd-65534/{name}.sock")
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.setuid(65534)
            control = ControlSocket(path)
            signal.pause()
            control.close()
        os._exit(1)
    try:
        until(path.exists)
        for command in (["status"], ["stop"]):
            done = subprocess.run(
                [*PGFLOWD, *command, "-c", str(config)],
                capture_output=True, text=True, env=setup.environ, cwd=setup.directory, check=False,
            )  # fmt: skip
            assert done.returncode == 3
            how = f"PGFLOWD__SUPERVISOR__CONTROL={path}"
            assert f"nobody has one, which answers with {how}" in " ".join(done.stderr.split())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        shutil.rmtree(path.parent)


def test_watching_continues_until_interrupted(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    command = [*PGFLOWD, "status", "--watch", "100ms", "--json", "-c", str(daemon.config)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=setup.environ, **pipes) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=5)

    documents.check(command[len(PGFLOWD) :], "".join(lines), "")
    assert all(json.loads(line)["state"] == "healthy" for line in lines)
    assert process.returncode == 130


@pytest.mark.parametrize("pause", ["soon", "0s", "-1s"])
def test_a_pause_that_is_none_is_refused(setup, pause):
    setup.flow("alpha")
    setup.config()
    daemon = setup.start()

    assert daemon.command("status", f"--watch={pause}").returncode == 2


@covers("rule 47", "row 104")
def test_garbage_on_the_control_socket_is_answered_and_does_no_harm(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    before = daemon.pids()

    for data in (b"\xff\x00garbage\n", b"[" * 4096, b'{"command": "explode"}\n'):
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(5)
            line.connect(str(daemon.control))
            line.sendall(data + b"\n")
            assert b"error" in line.recv(4096)

    assert daemon.pids() == before


@covers("rule 47", "E903")
def test_garbage_on_a_childs_pipe_is_that_childs_crash(setup, database):
    source = """
import os, sys
from pgflowd import Flow
flow = Flow("alpha")

@flow.step
def work(run):
    return 1
"""
    setup.module("flow_alpha", source)
    daemon = setup.serve()
    pid = daemon.pid_of("sweeper")
    write_into_channel(pid, b"\x80\x04pickle")

    garbage = daemon.until("child.garbage", child="sweeper")
    daemon.until("child.ready", child="sweeper", count=2)

    assert garbage[0]["code"] == "E903"
    assert daemon.events("child.exited", child="sweeper")[0]["reason"].startswith("E903")


def write_into_channel(pid, data):
    """Write into a process's socket pair, as that process would."""
    handle = os.pidfd_open(pid)
    pidfd_getfd = 438
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    sockets = [
        int(path.name)
        for path in Path(f"/proc/{pid}/fd").iterdir()
        if str(path.readlink()).startswith("socket:")
    ]
    for number in sockets:
        own = libc.syscall(pidfd_getfd, handle, number, 0)
        with socket.socket(fileno=own) as line:
            if line.type == socket.SOCK_SEQPACKET:
                line.send(data)
                break
    os.close(handle)


@covers("rule 46")
def test_the_supervisor_has_no_line_to_the_database_and_runs_no_user_code(setup, database):
    setup.module(
        "flow_alpha",
        "import os\nopen('importers', 'a').write(f'{os.getpid()}\\n')\n"
        "from pgflowd import Flow\nflow = Flow('alpha')\n"
        "@flow.step\ndef work(run): return 1\n",
    )
    daemon = setup.serve()

    importers = (setup.directory / "importers").read_text().split()
    query = """
        select application_name from pg_stat_activity
         where datname = current_database() and application_name like 't: %'
    """
    names = {row[0] for row in database.connect().execute(query)}

    assert str(daemon.pid) not in importers
    assert {name.split()[1] for name in names} <= {"listener", "worker", "sweeper"}
    sockets = [
        line for line in Path(f"/proc/{daemon.pid}/net/tcp").read_text().splitlines()[1:]
        if line.split()[9] in inodes_of(daemon.pid)
    ]  # fmt: skip
    assert sockets == []


def inodes_of(pid):
    links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return {link[8:-1] for link in links if link.startswith("socket:[")}


@covers("rule 46")
def test_a_hanging_database_does_not_slow_the_supervisor_down(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    conn = database.connect(autocommit=False)
    conn.execute("lock table pgflow.runs, pgflow.step_tasks, pgflow.workers")

    for _ in range(20):
        assert daemon.ask()["pid"] == daemon.pid
    assert conn.info.transaction_status  # the tables were locked all the time
    conn.rollback()


def test_a_quiet_daemon_logs_warnings_only_and_a_wrong_flow_gets_a_suggestion(setup, database):
    setup.flow("checkout")
    quiet = setup.start("t", "--flow", "chekout", "--quiet")

    assert quiet.process.wait(timeout=30) == 78
    assert {record["level"] for record in quiet.events()} <= {"warning", "error"}
    (record,) = quiet.events(code="E415")
    assert record["error"] == "there is no flow chekout to serve"
    assert record["next"] == "did you mean 'checkout'?"
