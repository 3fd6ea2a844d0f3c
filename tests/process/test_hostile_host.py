"""The daemon on a host that takes things away: streams, directories, signals, processes, files."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from support.covers import covers
from support.daemon import FLOW, is_completed_soon, start_run

import pgflowd
from pgflowd.resources import schema_version, shipped
from pgflowd.testing.until import until


@covers("outside 8")
@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_a_daemon_whose_standard_streams_are_closed_executes_runs(setup, database, closed):
    setup.flow("alpha")
    setup.inside = ["sh", "-c", f'exec "$@" {closed}', "sh"]

    daemon = setup.start()

    until(lambda: daemon.control.exists() and daemon.ask()["state"] == "healthy", within_s=30)
    assert is_completed_soon(database, start_run(database, "alpha"))
    assert daemon.command("stop", "--wait").returncode == 0


IGNORES_SIGCHLD = """
import os, signal
from pgflowd import Flow
signal.signal(signal.SIGCHLD, {handler})
flow = Flow("alpha", max_attempts=1)

@flow.step
def work(run): os._exit(7)
"""


@covers("outside 14", "trap 14")
@pytest.mark.parametrize(
    "handler", ["signal.SIG_IGN", "lambda *_: os.waitpid(-1, 0)"], ids=["ignores", "reaps"]
)
def test_a_module_that_takes_sigchld_loses_no_exit_code(setup, database, handler):
    setup.module("alpha", IGNORES_SIGCHLD.format(handler=handler))
    setup.serve()

    run = database.client.start_flow_sync("alpha", {}, timeout=10)

    query = "select exit_code, error_message from pgflowd.attempts where run_id = %s"
    [(code, text)] = database.connect().execute(query, (run.run_id,)).fetchall()
    assert (run.status.value, code) == ("failed", 7)
    assert "exit code 7" in text or "code 7" in text, text


@covers("outside 9")
def test_a_symlink_at_the_path_of_the_control_socket_is_told_with_the_remedy(setup):
    setup.flow("alpha")
    path = setup.control()
    path.parent.mkdir(mode=0o700)
    path.symlink_to("precious")

    daemon = setup.start()

    assert daemon.ended() == 78
    text = daemon.log.read_text()
    assert f"{path} is a symlink, not the socket of a daemon; move it away, or set" in text
    assert [each.name for each in path.parent.iterdir()] == ["control"]
    assert path.is_symlink()


@covers("outside 9", "newcomer 21")
def test_a_control_socket_that_a_cleaner_removed_is_made_again(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    shutil.rmtree(daemon.control.parent)

    until(daemon.control.exists)

    assert daemon.ask()["pid"] == daemon.pid
    assert len(daemon.events("control.renewed")) == 1
    daemon.control.unlink()
    daemon.control.write_text("precious")
    daemon.until("control.lost")
    daemon.send(signal.SIGTERM)
    assert daemon.ended() == 0
    assert daemon.control.read_text() == "precious"
    assert [each.name for each in daemon.control.parent.iterdir()] == ["control"]


def start_in(setup, home):
    """Start a daemon in this directory."""
    home.mkdir()
    setup.inside = ["sh", "-c", 'cd "$0" && exec "$@"', str(home)]
    return setup.serve()


@covers("outside 6", "W114")
def test_without_its_working_directory_a_daemon_reloads_and_restarts_workers(setup, database):
    setup.flow("alpha")
    daemon = start_in(setup, setup.directory / "home")
    (setup.directory / "home").rmdir()

    setup.flow("beta")
    setup.config()
    reloaded = daemon.command("reload")
    daemon.kill("alpha")
    daemon.until("child.ready", child="worker alpha", count=2)

    assert (reloaded.returncode, reloaded.stderr) == (0, "")
    for slug in ("alpha", "beta"):
        assert is_completed_soon(database, start_run(database, slug))
    [told] = daemon.events("supervisor.problem")
    assert (told["code"], told["level"]) == ("W114", "warning")
    assert f"{setup.directory / 'home'} was deleted" in told["error"]


@covers("outside 6")
def test_a_working_directory_that_was_made_anew_is_used_again(setup, database):
    home = setup.directory / "home"
    setup.flow("alpha")
    daemon = start_in(setup, home)
    home.rmdir()
    home.mkdir()
    (home / "beta.py").write_text(FLOW.format(slug="beta", attempts=1))
    setup.entries.append("beta")
    setup.config()

    assert daemon.command("reload").returncode == 0

    daemon.until("child.ready", child="worker beta")
    assert Path(f"/proc/{daemon.pid_of('beta')}/cwd").readlink() == home
    assert daemon.events("supervisor.problem") == []


USES_THE_DATABASE = """
from pgflowd import Flow
flow = Flow("alpha", max_attempts=1)

@flow.step
def work(run, ctx):
    from pgflowd import Client
    with ctx.conn() as conn:
        return [Client.__name__, conn.execute("select 7").fetchone()[0]]
"""


@covers("outside 13")
def test_what_is_started_after_an_upgrade_on_disk_mixes_no_versions(setup, database):
    package = setup.directory / "installed" / "pgflowd"
    shutil.copytree(Path(pgflowd.__file__).parent, package)
    shutil.copytree(shipped("sql"), package / "sql", dirs_exist_ok=True)
    setup.environ["PYTHONPATH"] = str(package.parent)
    setup.module("alpha", USES_THE_DATABASE)
    daemon = setup.serve()
    for path in package.rglob("*.py"):
        path.write_text("raise SystemError('another version')")
    for path in package.rglob("*.sql"):
        path.unlink()

    daemon.kill("listener")  # all are started again after it
    daemon.until("child.ready", child="sweeper", count=2)
    assert daemon.ask("reload")["kept"] == ["alpha"]

    run = database.client.start_flow_sync("alpha", {}, timeout=10)
    assert (run.error, run.output) == (None, {"work": ["Client", 7]})
    assert daemon.ask()["database"]["schema"] == schema_version()


MAP = """
import time
from pgflowd import Flow
flow = Flow("{slug}", max_attempts=1)

@flow.map
def work(item):
    time.sleep(0.05)
    return item
"""
WITH_FEW_PROCESSES = """
import ctypes, os, resource, sys
for capability in (21, 24):  # SYS_ADMIN and SYS_RESOURCE: of who has these none are counted
    assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0
resource.setrlimit(resource.RLIMIT_NPROC, ({most}, {most}))
os.setresuid({uid}, 0, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def with_few_processes(most):
    own = 60000 + os.getpid() % 5000  # a user who has no other processes
    return [sys.executable, "-c", WITH_FEW_PROCESSES.format(most=most, uid=own)]


@covers("outside 10")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without processes")
def test_idle_runners_of_another_flow_end_where_there_is_no_room_for_processes(setup, database):
    setup.module("alpha", MAP.format(slug="alpha"))
    setup.module("beta", MAP.format(slug="beta"))
    setup.inside = with_few_processes(14)  # 9, and 5 runners
    daemon = setup.serve(worker={"runner_idle": "10m", "backoff_max": "30s"})

    for slug in ("alpha", "beta", "alpha"):
        run = database.client.start_flow_sync(slug, list(range(20)), timeout=20)
        assert run.output == {"work": list(range(20))}

    assert daemon.events("worker.error", flow="beta")[0]["error"].startswith(
        "a runner could not be started: [Errno 11]"
    )
    assert daemon.events("worker.made_room", flow="alpha")[0]["count"] >= 1
    assert daemon.events("child.exited") == []
    before = len(daemon.events("worker.made_room"))
    assert daemon.ask("reload")["kept"] == ["alpha", "beta"]  # it imports both in processes
    assert len(daemon.events("worker.made_room")) > before
