"""
The development server, as a user starts it: in one terminal, with a second one beside it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.covers import covers

from pgflowd.cli.app import App
from pgflowd.cli.commands import web
from pgflowd.cli.local import children
from pgflowd.host.config import announce_url, development_url
from pgflowd.testing.until import until

COMMAND = str(Path(sys.executable).with_name("pgflowd"))
FLOW = """\
from pgflowd import Flow

flow = Flow("double")

@flow.step
def twice(run):
    return 2 * run
"""
MORE = """
@flow.step
def again(twice):
    return 2 * twice
"""


class Dev:
    """A running `pgflowd dev`, and what it has printed."""

    def __init__(
        self, project: Path, *flags: str, stdin: int | None = None, **environ: str
    ) -> None:
        self.project, self._log = project, project / "dev.log"
        # sockets of their own, so that tests side by side do not meet
        control = {"PGFLOWD__SUPERVISOR__CONTROL": str(project / "s")}
        self._environ = {**os.environ, **control, **environ}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [COMMAND, "dev", *flags],
                cwd=project,
                env=self._environ,
                stdin=stdin,
                stdout=log,
                stderr=log,
                preexec_fn=_as_from_a_terminal,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def prints(self, text: str) -> None:
        until(lambda: text in self.output or self.process.poll() is not None, within_s=60)
        assert text in self.output, self.output

    def command(self, *arguments: str, code: int = 0) -> str:
        """Run a command in another terminal of the project."""
        ended = subprocess.run(
            [COMMAND, *arguments],
            cwd=self.project,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == code, ended.stderr
        return ended.stdout

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)


def _as_from_a_terminal() -> None:
    """The caller of the tests may ignore SIGHUP, which a closed terminal sends."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def project() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pgflowd-dev-") as name:
        root = Path(name)
        root.chmod(0o755)  # the server's user passes through when root runs this
        (root / "double.py").write_text(FLOW)
        config = '[pgflowd]\nname = "devtest"\nflows = ["double"]\npython_path = ["."]\n'
        (root / "pgflowd.toml").write_text(config)
        yield root


@covers("use 7")
def test_it_leaves_nothing_open_at_its_end(project: Path):
    dev = Dev(project, PYTHONWARNINGS="default")
    try:
        dev.prints("ready in")
        dev.command("runs", "start", "double", "4", "--follow")
    finally:
        assert dev.stop() == 0

    assert "ResourceWarning" not in dev.output


def test_another_terminal_finds_it_and_a_changed_shape_is_recreated(project: Path):
    dev = Dev(project)
    try:
        dev.prints("ready in")
        assert "double   1 step" in dev.output
        assert '"twice": 42' in dev.command("runs", "start", "double", "21", "--wait", "--json")
        dev.prints("in a browser")
        (link,) = re.findall(r"(http://\S+) +in a browser", dev.output)
        with httpx.Client(timeout=30) as browser:
            assert browser.get(link).status_code == 200
            assert "double" in browser.get(link.partition("?")[0]).text

        with (project / "double.py").open("a") as file:
            file.write(MORE)

        dev.prints("double: shape changed")
        assert "(+ step again, after twice); recreated, its run is deleted" in dev.output
        assert "double started" in dev.output and "double completed in" in dev.output
        assert "child.started" not in dev.output
        assert '"again": 84' in dev.command("runs", "start", "double", "21", "--wait", "--json")
    finally:
        code = dev.stop()
    assert code == 0
    assert "stopped" in dev.output
    assert development_url(str(project / "pgflowd.toml")) == ""


def test_an_error_at_the_start_is_printed_and_the_next_save_tries_again(project: Path):
    (project / "double.py").write_text(FLOW.replace("(run)", "(rum)"))
    dev = Dev(project)
    try:
        dev.prints("no flow can be served; waiting for a change")
        assert "double.py:5" in dev.output and "E201" in dev.output
        with (project / "pgflowd.toml").open("a") as file:
            file.write("nonsense = 1\n")
        dev.prints("E102")

        config = '[pgflowd]\nname = "devtest"\nflows = ["double"]\npython_path = ["."]\n'
        (project / "pgflowd.toml").write_text(config)
        (project / "double.py").write_text(FLOW)

        dev.prints("ready in")
        assert '"twice": 42' in dev.command("runs", "start", "double", "21", "--wait", "--json")
    finally:
        code = dev.stop()
    assert code == 0


def test_a_save_just_after_it_is_ready_is_seen_whatever_libpq_variables_are_set(project: Path):
    elsewhere = {"PGHOST": "127.0.0.1", "PGHOSTADDR": "127.0.0.1", "PGPORT": "1", "PGUSER": "no"}
    dev = Dev(project, PGSERVICE="nowhere", PGOPTIONS="-c nonsense=1", **elsewhere)
    try:
        until(lambda: "ready in" in dev.output or dev.process.poll() is not None, within_s=60)
        with (project / "double.py").open("a") as file:
            file.write(MORE)

        dev.prints("double: shape changed (+ step again, after twice); recreated.")
        assert '"again": 84' in dev.command("runs", "start", "double", "21", "--wait", "--json")
    finally:
        code = dev.stop()
    assert code == 0


def test_it_continues_when_the_database_crashed_and_when_the_config_is_wrong(project: Path):
    dev = Dev(project)
    try:
        dev.prints("ready in")
        pid = (project / ".pgflowd/pg/server/data/postmaster.pid").read_text().split()[0]
        backends = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(backends[-1]), signal.SIGKILL)  # takes all connections with it
        dev.prints("the database is back")
        with (project / "double.py").open("a") as file:
            file.write(MORE)
        dev.prints("double.py changed")

        with (project / "pgflowd.toml").open("a") as file:
            file.write("nonsense = 1\n")

        dev.prints("pgflowd.toml changed: not reloaded, refused")
        dev.prints("E102")
    finally:
        code = dev.stop()
    assert code == 0


def test_an_error_is_printed_once_and_also_its_end(project: Path):
    dev = Dev(project)
    try:
        dev.prints("ready in")
        (project / "double.py").write_text(FLOW.replace("(run)", "(rum)"))
        dev.prints("double.py changed: double is broken")
        (project / "double.py").write_text(FLOW)
        dev.prints("double.py changed: double is no longer broken")
        (project / "double.py").write_text(FLOW.replace("step\n", "step(timeout=7)\n"))
        dev.prints("double.py changed: double reloaded")
    finally:
        code = dev.stop()
    assert code == 0
    assert dev.output.count("E201") == 1
    assert "double: step twice: timeout unset → 7" in dev.output


UNLUCKY = """
import os
import signal
from pathlib import Path

if Path("imported").exists():  # by the discovery
    {end}
Path("imported").touch()
"""


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("os._exit(7)", "is parked"),
        ("os.kill(os.getppid(), signal.SIGKILL)", "crashed at its start, and is tried again"),
    ],
)
def test_a_flow_that_does_not_start_is_told_and_the_next_save_mends_it(
    project: Path, end: str, told: str
):
    dev = Dev(project)
    try:
        dev.prints("ready in")

        (project / "double.py").write_text(FLOW + UNLUCKY.format(end=end))
        dev.prints(f"double.py changed: double {told}")

        (project / "double.py").write_text(FLOW)
        until(lambda: dev.output.count("double.py changed: double") == 2, within_s=60)
        assert '"twice": 42' in dev.command("runs", "start", "double", "21", "--wait", "--json")
    finally:
        code = dev.stop()
    assert code == 0


def test_when_no_flow_starts_it_waits_for_a_change(project: Path):
    (project / "double.py").write_text(FLOW + UNLUCKY.format(end="os._exit(7)"))
    dev = Dev(project)
    try:
        dev.prints("no flow can be served; waiting for a change")
        assert "exited with code 7" in dev.output
        assert "ready in" not in dev.output

        (project / "double.py").write_text(FLOW)
        dev.prints("ready in")
    finally:
        code = dev.stop()
    assert code == 0


FAILING = """\
import json
from pgflowd import Flow

flow = Flow("double", max_attempts=1)

def parse(text):
    return json.loads(text)

@flow.step
def twice(run):
    return parse("{")
"""


@covers("newcomer 1")
def test_where_a_handler_failed_is_on_each_screen(project: Path):
    (project / "double.py").write_text(FAILING)
    calls = [
        'double.py:11 in twice   return parse("{")',
        "double.py:7 in parse    return json.loads(text)",
    ]
    dev = Dev(project)
    try:
        dev.prints("ready in")
        followed = dev.command("runs", "start", "double", "--follow", code=1)
        shown = dev.command("runs", "show", "@last")
        dev.prints("double failed after")
    finally:
        code = dev.stop()
    assert code == 0
    for screen in (followed, dev.output):
        assert [line.strip() for line in screen.splitlines() if ".py:" in line] == calls
    lines = [line.strip() for line in shown.partition("last error")[2].splitlines()]
    assert lines[0].endswith("(char 1)   at double.py:7 in parse")
    assert lines[1:4] == [
        "Traceback (most recent call last):",
        'File "double.py", line 11, in twice',
        'return parse("{")',
    ]
    assert lines[-1].startswith("json.decoder.JSONDecodeError: Expecting")
    assert "pgflowd/" not in shown


def test_on_a_terminal_it_asks_once_whether_a_changed_shape_is_a_version(project: Path):
    triple = FLOW.replace("double", "triple")
    ours, theirs = os.openpty()
    dev = Dev(project, stdin=theirs)
    try:
        dev.prints("ready in")
        (project / "triple.py").write_text(triple)
        config = project / "pgflowd.toml"  # a flow that came later is asked about, too
        config.write_text(config.read_text().replace('"double"', '"double", "triple"'))
        dev.prints("triple added")
        dev.command("runs", "start", "triple", "21", "--wait")
        (project / "triple.py").write_text(triple + MORE)
        dev.prints("triple: the shape has changed. Keep the runs, and make it a version?")
        os.write(ours, b"y\n")
        dev.prints("triple: starts go to triple_2")
        assert '"again": 84' in dev.command("runs", "start", "triple", "21", "--wait", "--json")
        (project / "triple.py").write_text(triple)  # back again, and nobody is asked
        dev.prints("triple: starts go to triple\n")
        assert '"twice": 42' in dev.command("runs", "start", "triple", "21", "--wait", "--json")
        assert len(dev.command("runs", "list", "--flow", "triple", "--json").split('"run_id"')) == 4
    finally:
        code = dev.stop()
        os.close(ours)
        os.close(theirs)
    assert code == 0
    assert "recreated" not in dev.output


@covers("newcomer 9")
def test_a_given_database_is_served_without_a_server_of_its_own(project: Path, empty_database):
    dev = Dev(project, "--database-url", empty_database.dsn)
    try:
        dev.prints("ready in")
        assert '"twice": 42' in dev.command("runs", "start", "double", "21", "--wait", "--json")
        with empty_database.connect() as connection:
            assert connection.execute("select count(*) from pgflow.runs").fetchone() == (1,)

            with (project / "double.py").open("a") as file:
                file.write(MORE)

            dev.prints("E306")
            assert connection.execute("select count(*) from pgflow.runs").fetchone() == (1,)
    finally:
        code = dev.stop()
    assert code == 0
    assert f"database {empty_database.dsn}" in dev.output
    assert not (project / ".pgflowd" / "pg").exists()


@covers("newcomer 9")
@pytest.mark.parametrize("flag", ["--ephemeral", "--reset", "--port=5433"])
def test_options_of_its_own_server_are_refused_with_a_given_database(project: Path, flag: str):
    dev = Dev(project, "--database-url", "postgresql:///x", flag)

    assert dev.process.wait(timeout=60) == 2
    assert "are for dev's own PostgreSQL" in dev.output


WAITING = """\
import time
from pathlib import Path
from pgflowd import Flow

def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.05)

wait_for("import.go")
flow = Flow("double", timeout=300)

@flow.step
def twice(run):
    wait_for("task.go")
"""


@covers("newcomer 17")
def test_it_tells_what_it_waits_for(project: Path):
    (project / "double.py").write_text(WAITING)
    dev = Dev(project)
    dev.prints("importing double …")
    (project / "import.go").touch()
    dev.prints("ready in")
    dev.command("runs", "start", "double")
    until(lambda: '"running": 1' in dev.command("status", "--json"))

    (project / "double.py").write_text(f"{WAITING}    return 1\n")
    dev.prints("waiting for 1 task of double with the old code …")
    dev.process.send_signal(signal.SIGINT)
    dev.prints("waiting for 1 task of double, at most 1m00s; Ctrl-C again stops now")

    assert dev.stop() == 0
    assert "stopping now; running tasks are given back" in dev.output


def test_a_closed_terminal_ends_it_like_ctrl_c(project: Path):
    dev = Dev(project, "--ephemeral")
    dev.prints("ready in")

    dev.process.send_signal(signal.SIGHUP)

    assert dev.process.wait(timeout=60) == 0
    assert "stopped" in dev.output
    assert list((project / ".pgflowd").glob("pg-*")) == []


def test_it_ends_well_when_its_daemon_is_stopped_as_asked(project: Path):
    dev = Dev(project)
    dev.prints("ready in")

    dev.command("stop", "--wait")

    assert dev.process.wait(timeout=60) == 0
    assert "stopped" in dev.output


def test_a_second_one_in_the_same_project_is_refused(project: Path):
    with announce_url(project, "postgresql:///x"):
        refused = subprocess.run(
            [COMMAND, "dev", "--ephemeral"], cwd=project, capture_output=True, text=True, timeout=60
        )

    assert refused.returncode == 75
    assert "another `pgflowd dev` runs" in refused.stderr


def test_what_a_killed_one_left_behind_counts_for_nothing(project: Path):
    (project / ".pgflowd").mkdir()
    (project / ".pgflowd" / "dev.url").write_text("postgresql:///gone")

    assert development_url(str(project / "pgflowd.toml")) == ""


def test_a_pipe_in_place_of_the_announcement_does_not_block(project: Path):
    (project / ".pgflowd").mkdir()
    os.mkfifo(project / ".pgflowd" / "dev.url")

    assert development_url(str(project / "pgflowd.toml")) == ""


def test_serve_alone_does_not_recreate(project: Path):
    (project / "pgflowd.toml").write_text('[pgflowd]\nflows = ["x"]\ndefinitions = "recreate"\n')

    refused = subprocess.run(
        [COMMAND, "serve"], cwd=project, capture_output=True, text=True, timeout=60
    )

    assert refused.returncode == 78
    assert "E106" in refused.stderr
    assert "pgflowd.toml:3" in refused.stderr


def test_without_the_dashboards_packages_it_says_how_to_get_them(capsys, monkeypatch):
    monkeypatch.setattr(web, "NEEDED", ("no_such_package",))

    with children.local_web(App(), [], "postgresql://nowhere/x") as dashboard:
        assert dashboard() is None

    assert "for a dashboard in the browser: pip install 'pgflowd[web]'" in capsys.readouterr().err


def test_a_dashboard_takes_another_port_if_somebody_has_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(children, "LISTEN", f"127.0.0.1:{taken.getsockname()[1]}")
        with children.local_web(App(), [], "postgresql://nowhere/x") as dashboard:
            link = dashboard()
            assert link is not None and f":{taken.getsockname()[1]}/" not in link
            assert httpx.get(link, timeout=30).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(link)
