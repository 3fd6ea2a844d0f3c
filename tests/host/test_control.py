"""The control socket: for its owner alone, one request, small and quick."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.covers import covers

from pgflowd.host import control
from pgflowd.host.control import (
    MAX_CLIENTS,
    MAX_REQUEST,
    ControlSocket,
    SocketInUse,
    SocketPathError,
)
from pgflowd.testing.until import until


@pytest.fixture
def desk(tmp_path):
    """A control socket that is served by a thread; it answers with the request."""
    desk = ControlSocket(tmp_path / "control")
    stop = threading.Event()

    def serve(turn):
        while not stop.is_set():
            turn(0.002)
            desk.drop_overdue(time.monotonic())

    thread = threading.Thread(target=serve, args=[served(desk)])
    thread.start()
    yield desk
    stop.set()
    thread.join()
    desk.close()


def served(desk):
    """Answer each request with itself; return what does one turn of a loop."""
    selector = selectors.DefaultSelector()

    def serve(client, command, arguments):
        desk.answer(client, {"asked": command, **arguments})

    def turn(within_s):
        for key, _ in selector.select(within_s):
            key.data()

    desk.attend(selector, serve)
    return turn


def talk(desk, data):
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(5)
        line.connect(str(desk.path))
        line.sendall(data)
        answer = b""
        while chunk := line.recv(65536):
            answer += chunk
    return json.loads(answer)


def test_a_request_is_answered(desk):
    assert control.ask(desk.path, "stop", now=True) == {"asked": "stop", "now": True}


def test_further_input_on_an_answered_control_socket_is_ignored(tmp_path):
    desk, selector, asked = ControlSocket(tmp_path / "control"), selectors.DefaultSelector(), []
    desk.attend(selector, lambda client, *request: asked.append((client, request)))

    def turn():
        for key, _ in selector.select(1):
            key.data()

    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(desk.path))
        turn()
        for sent in (b'{"command": "reload"}\n', b"\n", b"x" * MAX_REQUEST):
            line.sendall(sent)
            turn()
        [(client, request)] = asked
        assert request == ("reload", {})

        desk.answer(client, {"kept": []})
        assert json.loads(line.recv(1000)) == {"kept": []}
    desk.close()


def test_the_socket_is_ours_alone(desk):
    assert stat.S_IMODE(desk.path.stat().st_mode) == 0o600


@covers("rule 47")
@pytest.mark.parametrize(
    "data",
    [b"hello\n", b"[]\n", b"{}\n", b'{"command": "explode"}\n', b'{"command": 3}\n', b"\xff\n",
     b'{"command": ["status"]}\n', b"[" * 4000 + b"\n", b"\x80\x04pickle\n"],
)  # fmt: skip
def test_garbage_is_answered_with_an_error(desk, data):
    assert "error" in talk(desk, data)


@covers("row 104")
def test_a_greedy_client_is_refused(desk):
    assert "error" in talk(desk, b"x" * (MAX_REQUEST + 1))


@covers("row 104")
def test_a_slow_client_is_dropped_and_delays_no_other(desk):
    slow = socket.socket(socket.AF_UNIX)
    slow.connect(str(desk.path))
    slow.send(b'{"comm')
    until(lambda: desk.clients)

    assert control.ask(desk.path, "status") == {"asked": "status"}
    assert desk.clients  # the slow client is still being waited for
    slow.settimeout(3)
    assert slow.recv(10) == b""
    slow.close()


@covers("row 104")
def test_only_so_many_are_served_at_a_time(desk):
    lines = [socket.socket(socket.AF_UNIX) for _ in range(MAX_CLIENTS + 4)]
    for line in lines:
        line.connect(str(desk.path))
    until(lambda: len(desk.clients) >= MAX_CLIENTS)

    assert len(desk.clients) <= MAX_CLIENTS
    for line in lines:
        line.close()
    until(lambda: not desk.clients, 3)
    assert control.ask(desk.path, "status") == {"asked": "status"}


def test_a_command_waits_for_room_at_a_socket_that_many_ask(tmp_path):
    with contextlib.ExitStack() as lines, ThreadPoolExecutor(1) as pool:
        place, fill = crowded(tmp_path, lines)
        with pytest.raises(BlockingIOError):
            control.ask(place.path, "status", timeout_s=0.1)
        asked = pool.submit(control.ask, place.path, "status", timeout_s=60)
        with pytest.raises(TimeoutError):
            asked.result(timeout=0.3)  # it waits

        for line in fill:
            line.close()
        turn = served(place)
        until(lambda: turn(0) or asked.done())

        assert asked.result(timeout=30) == {"asked": "status"}
        place.close()


def crowded(directory, lines):
    """A socket that nobody serves, and the connections that fill its queue."""
    place, fill = ControlSocket(directory / "control"), []
    with contextlib.suppress(BlockingIOError):
        while True:
            line = lines.enter_context(socket.socket(socket.AF_UNIX))
            line.setblocking(False)
            line.connect(str(place.path))
            fill.append(line)
    return place, fill


def test_the_lock_identifies_the_owner_of_the_socket(tmp_path):
    path = tmp_path / "run" / "control"
    first = ControlSocket(path)

    with pytest.raises(SocketInUse):
        ControlSocket(path)
    first.close()
    ControlSocket(path).close()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == []


def link(path):
    path.symlink_to("nowhere")


@covers("outside 9")
@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, os.mkfifo, link])
def test_what_is_no_socket_is_left_alone(tmp_path, make):
    path = tmp_path / "pgflowd.toml"
    make(path)

    with pytest.raises(SocketPathError, match=f"{path} is a .*, not the socket of a daemon"):
        ControlSocket(path)

    assert list(tmp_path.iterdir()) == [path]


@covers("outside 9")
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_the_socket_of_a_program_that_listens_is_left_alone(tmp_path, kind):
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX, kind) as other:
        other.bind(str(path))
        if kind != socket.SOCK_DGRAM:
            other.listen(0)

        with pytest.raises(SocketPathError, match=f"another program listens at {path}"):
            ControlSocket(path)

    assert list(tmp_path.iterdir()) == [path]


@covers("row 34")
def test_a_socket_left_behind_is_replaced(tmp_path):
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
        left_behind.listen()

    second = ControlSocket(path)

    assert path.exists()
    second.close()
    assert not path.exists()


@covers("outside 9")
def test_of_two_daemons_the_end_of_one_leaves_the_files_of_the_other(tmp_path):
    path = tmp_path / "control"
    first = ControlSocket(path)
    for file in list(tmp_path.iterdir()):
        file.unlink()
    second = ControlSocket(path)
    files = {file.name for file in tmp_path.iterdir()}

    with pytest.raises(SocketInUse):
        first.place.renew()
    first.close()

    assert {file.name for file in tmp_path.iterdir()} == files
    assert second.place.is_intact


def test_nothing_is_opened_through_a_symlink(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(SocketPathError):
        ControlSocket(tmp_path / "run" / "control")


def test_a_directory_in_which_others_may_do_things_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)

    with pytest.raises(SocketPathError, match="can be changed by other users"):
        ControlSocket(tmp_path / "run" / "control")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    os.chown(tmp_path / "run", 65534, 65534)

    with pytest.raises(SocketPathError, match="belongs to another user"):
        ControlSocket(tmp_path / "run" / "control")


@covers("row 104")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_by_uid(desk):
    desk.path.chmod(0o777)
    for part in (desk.path.parent, *list(desk.path.parents)[1:4]):
        part.chmod(stat.S_IMODE(part.stat().st_mode) | 0o011)  # /tmp, too, is one of them
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        try:
            control.ask(desk.path, "status")
            os.write(writes, b"answered")
        except BaseException as error:
            os.write(writes, type(error).__name__.encode())
        os._exit(0)
    os.waitpid(pid, 0)

    sent = os.read(reads, 100)

    assert sent != b"answered"


@covers("database 29")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("owner", "is_believed"), [(0, False), (65534, True)])
def test_an_answer_of_another_user_is_believed_only_in_his_own_directory_by_root(
    tmp_path, owner, is_believed
):
    path = tmp_path / "run" / "control"
    path.parent.mkdir()
    open_to_all(path)
    asked = answered_by(65534, path, lambda: os.chown(path.parent, owner, owner))

    assert asked == ({"pid": 1} if is_believed else "PermissionError")


@covers("database 29")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_never_believes_another(tmp_path):
    path = tmp_path / "run" / "control"
    path.parent.mkdir()
    open_to_all(path)

    asked = answered_by(65534, path, lambda: (path.chmod(0o777), os.seteuid(65533)))

    assert asked == "PermissionError"


def open_to_all(path):
    path.parent.chmod(0o777)
    for part in list(path.parents)[1:4]:
        part.chmod(stat.S_IMODE(part.stat().st_mode) | 0o011)


def answered_by(user, path, before):
    """What `ask` says of a socket on which another user answers to everybody."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setuid(user)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen()
            os.write(writes, b".")
            client, _ = listener.accept()
            client.recv(1000)
            client.sendall(b'{"pid": 1}\n')
        finally:
            os._exit(0)
    os.close(writes)
    try:
        os.read(reads, 1)
        before()
        return control.ask(path, "status")
    except OSError as error:
        return type(error).__name__
    finally:
        os.seteuid(0)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("name", ["control", "control.lock"])
def test_a_symlink_in_the_place_of_a_file_harms_not_what_it_leads_to(tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "run" / name).symlink_to(victim)

    with contextlib.suppress(SocketPathError, SocketInUse):
        ControlSocket(tmp_path / "run" / "control").close()

    assert victim.read_text() == "precious"
    assert (tmp_path / "run" / name).is_symlink()
