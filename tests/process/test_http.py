"""Health over HTTP: true in each state, whoever asks, and nobody but the observer is disturbed."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from support import web
from support.covers import covers
from support.daemon import DaemonSetup, is_completed_soon, start_marked, start_run
from support.invariants import broken
from support.own_server import OwnServer
from support.servers import free_port

from pgflowd.db.connection import connect
from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until

HEALTHY = {"schema_version": 1, "state": "healthy", "reasons": []}
BROKEN = "raise ImportError('no pandas')\n"


@pytest.fixture
def address() -> int:
    return free_port()


@pytest.fixture
def server():
    with OwnServer({"synchronous_commit": "local"}) as server:
        yield server


@pytest.fixture
def setup_on(tmp_path, server):
    setup = DaemonSetup(tmp_path, server.dsn)
    setup.flow("alpha")
    yield setup
    setup.close()
    with connect(server.dsn) as conn:
        assert broken(conn, setup.oracle) == []


def health(address: int | str) -> tuple[int, int]:
    """The answers of /livez and /readyz."""
    return web.status_of(address, "/livez"), web.status_of(address, "/readyz")


def listen(address: int) -> dict[str, str]:
    return {"listen": f"127.0.0.1:{address}"}


@covers("rule 50", "rule 53")
def test_health_is_true_from_the_first_second_to_the_last(setup_on, server, address):
    server.stop()
    daemon = setup_on.start(http=listen(address))

    until(lambda: health(address) == (200, 503), 15)
    assert web.get(address, "/readyz").json["state"] == "starting"
    server.start()
    daemon.until("supervisor.ready")
    until(lambda: health(address) == (200, 200), 5)
    until(lambda: web.get(address, "/readyz").json == HEALTHY, 5)

    setup_on.module("broken", BROKEN)
    setup_on.config(http=listen(address))
    assert daemon.command("reload").returncode == 1
    until(lambda: web.get(address, "/readyz").json["state"] == "degraded", 5)
    body = web.get(address, "/readyz")
    assert (body.status, [each["code"] for each in body.json["reasons"]]) == (200, ["E210"])

    daemon.send(signal.SIGSTOP)
    until(lambda: health(address) == (503, 503), 6)
    assert [each["code"] for each in web.get(address, "/livez").json["reasons"]] == ["E414"]
    assert web.get(address, "/metrics").status == 503
    daemon.send(signal.SIGCONT)
    until(lambda: health(address) == (200, 200), 6)

    server.stop()
    until(lambda: health(address) == (200, 503), 10)
    assert "E301" in {each["code"] for each in web.get(address, "/readyz").json["reasons"]}
    server.start()
    until(lambda: health(address) == (200, 200), 10)

    gate = setup_on.directory / "gate"
    again = ScratchDatabase(server.dsn)
    start_marked(setup_on, again, gate=str(gate))
    again.close()
    daemon.send(signal.SIGTERM)
    until(lambda: web.get(address, "/readyz").json["state"] == "draining", 5)
    assert health(address) == (200, 503)
    gate.touch()
    assert daemon.ended() == 0
    ends = [each["child"] for each in daemon.events("child.exited") if each["child"] != "discovery"]
    assert ends[-2:] == ["listener", "http"]
    assert web.status_of(address, "/livez") == 0


def idle(line: socket.socket, stop: threading.Event) -> None:
    """Send one byte a second, for ever."""
    while not stop.wait(1.0):
        try:
            line.send(b"x")
        except OSError:
            return


@covers("rule 51")
def test_neither_hostile_clients_nor_a_killed_observer_disturb_anybody(setup, database, address):
    setup.flow("alpha")
    daemon = setup.serve(http=listen(address))
    before = daemon.pids()
    run_id = start_marked(setup, database, gate=str(setup.directory / "gate"))
    stop = threading.Event()

    slow = [web.connect(address) for _ in range(100)]
    for line in slow:
        line.sendall(b"GET /livez HTTP/1.1\r\nX: ")
        threading.Thread(target=idle, args=(line, stop), daemon=True).start()
    assert health(address) == (200, 200)
    meanwhile = start_run(database, "alpha")
    for _ in range(10_000):
        with socket.create_connection(("127.0.0.1", address), web.TIMEOUT_S):
            pass
    assert is_completed_soon(database, meanwhile)
    assert health(address) == (200, 200)
    lazy = [web.connect(address) for _ in range(100)]  # they ask, and never read the answer
    for line in lazy:
        line.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert health(address) == (200, 200)
    assert web.send(address, b"GET /livez HTTP/1.1\r\nX: " + b"x" * 70_000).status == 431
    twice = b"GET /livez HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n"
    assert "pgflowd_" not in web.send(address, twice).body
    with web.connect(address) as line:
        line.sendall(b"GET /livez HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n")
        with pytest.raises(OSError):
            for _ in range(1000):
                line.sendall(b"x" * 100_000)
    stop.set()
    for line in [*slow, *lazy]:
        line.close()
    other = start_run(database, "alpha")
    assert is_completed_soon(database, other)

    os.kill(daemon.ask()["http"]["pid"], signal.SIGKILL)
    daemon.until("child.ready", child="http", count=2)

    until(lambda: health(address) == (200, 200), 5)
    assert daemon.pids() == before
    document = web.get(address, "/readyz").json
    assert document["state"] == "healthy"
    assert "http: restarted once: killed by SIGKILL, perhaps out of memory" in {
        each["text"] for each in document["reasons"]
    }
    (setup.directory / "gate").touch()
    assert is_completed_soon(database, run_id)


@covers("rule 52", "E504")
def test_an_address_in_use_stops_no_task_and_a_reload_mends_it(setup, database, address):
    setup.flow("alpha")
    with socket.create_server(("127.0.0.1", address)):
        daemon = setup.serve(http=listen(address))
        daemon.until("child.parked", child="http", code="E504")
        until(lambda: daemon.ask()["problems"])
        (problem,) = [each for each in daemon.ask()["problems"] if each["code"] == "E504"]
        assert problem["next"] == "pgflowd reload"
        assert f"127.0.0.1:{address}" in problem["text"] and "in use" in problem["text"]
        assert "pgflowd reload" in daemon.command("status").stdout
        assert is_completed_soon(database, start_run(database, "alpha"))
    before = daemon.pids()

    assert daemon.command("reload").returncode == 0
    until(lambda: health(address) == (200, 200), 10)
    assert "pgflowd_ready 1" in web.get(address, "/metrics").body

    path = setup.directory / "web" / "http.sock"
    secret = setup.directory / "token"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    setup.config(http={"listen": "unix:web/http.sock", "token": f"file:{secret}"})
    assert daemon.command("reload").returncode == 0
    until(lambda: health(str(path)) == (200, 200), 10)
    assert web.status_of(address, "/livez") == 0
    check_token(str(path), secret)

    setup.config()
    assert daemon.command("reload").returncode == 0
    until(lambda: daemon.ask()["http"]["state"] == "disabled", 10)
    assert not path.exists()
    assert not [title for title in daemon.titles() if "http" in title]
    assert "http" not in daemon.command("status").stdout + daemon.command("tree").stdout
    assert daemon.pids() == before
    assert Path(daemon.control).exists()


def check_token(path: str, secret: Path) -> None:
    """Metrics and reasons are for those who bring the token of this moment."""
    assert web.get(path, "/metrics").status == 401
    assert web.get(path, "/readyz").json == {"schema_version": 1, "state": "healthy"}
    assert web.get(path, "/metrics", Authorization="Bearer wrong").status == 401
    known = {"Authorization": "Bearer s3cret"}
    assert web.get(path, "/metrics", **known).status == 200
    assert "reasons" in web.get(path, "/readyz", **known).json
    secret.write_text("other\n")
    assert web.get(path, "/metrics", **known).status == 401
    secret.write_text("")
    assert web.get(path, "/metrics", Authorization="Bearer ").status == 401
    head = web.get(path, "/livez", "HEAD")
    assert (head.status, head.body, head.headers["connection"]) == (200, "", "close")
    assert int(head.headers["content-length"]) > 0
