"""
A TCP proxy between a worker and the database, in a process of its own, that fails on demand.

    python proxy.py HOST PORT OWN_PORT      prints its port, then obeys lines on stdin:
    pass     forward both ways (and what was held back)
    hold     lines stay open, nothing is forwarded
    mute     requests of clients arrive, answers of the server are lost
    cut      reset all lines; new ones are accepted
    half     close the way to the clients of all connections; their requests still arrive
    refuse   reset all lines, and new ones at once
    slow     forward with 50 ms of latency in each direction, and 1 Mbit/s on each line
"""

from __future__ import annotations

import contextlib
import heapq
import selectors
import socket
import struct
import subprocess
import sys
import time
from itertools import count

from psycopg import conninfo

LATENCY_S = 0.05
BYTES_PER_S = 125_000


class Proxy:
    def __init__(self, host: str, port: int, own_port: int) -> None:
        self._target = (host, port)
        self._mode = "pass"
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", own_port))
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        self._other: dict[socket.socket, socket.socket] = {}
        self._servers: set[socket.socket] = set()
        self._under_way: list[tuple[float, int, socket.socket, bytes]] = []
        self._numbers = count()
        self._free_at: dict[socket.socket, float] = {}  # when a line can carry more
        _say(self._listener.getsockname()[1])

    def run(self) -> None:
        while True:
            self._deliver()
            for key, _ in self._selector.select(self._nap_s()):
                if key.fileobj is sys.stdin:
                    self._obey(sys.stdin.readline().strip())
                elif key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._other:
                    self._forward(key.fileobj)

    def _obey(self, mode: str) -> None:
        if not mode:
            sys.exit()
        self._mode = "pass" if mode in ("cut", "half") else mode
        if mode in ("cut", "refuse"):
            for line in list(self._other):
                self._end(line)
        if mode == "half":
            for client in self._other.keys() - self._servers:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_WR)
        for line in self._other:
            known = line in self._selector.get_map()
            if mode == "hold" and known:
                self._selector.unregister(line)
            elif mode != "hold" and not known:
                self._selector.register(line, selectors.EVENT_READ)
        _say("ok")

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._mode == "refuse":
            _reset(client)
            return
        try:
            server = _connected(*self._target)
        except OSError:  # no server is there; the client sees the same
            _reset(client)
            return
        self._servers.add(server)
        self._other[client], self._other[server] = server, client
        if self._mode != "hold":
            for line in (client, server):
                self._selector.register(line, selectors.EVENT_READ)

    def _forward(self, line: socket.socket) -> None:
        try:
            data = line.recv(65536)
            if data and self._mode == "slow":
                self._send_later(self._other[line], data)
            elif data and not (self._mode == "mute" and line in self._servers):
                self._other[line].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._end(line)

    def _send_later(self, target: socket.socket, data: bytes) -> None:
        sent_at = max(self._free_at.get(target, 0.0), time.monotonic()) + len(data) / BYTES_PER_S
        self._free_at[target] = sent_at
        heapq.heappush(self._under_way, (sent_at + LATENCY_S, next(self._numbers), target, data))

    def _nap_s(self) -> float | None:
        return max(0.0, self._under_way[0][0] - time.monotonic()) if self._under_way else None

    def _deliver(self) -> None:
        while self._under_way and self._under_way[0][0] <= time.monotonic():
            *_, target, data = heapq.heappop(self._under_way)
            if target in self._other:
                with contextlib.suppress(OSError):
                    target.sendall(data)

    def _end(self, line: socket.socket) -> None:
        other = self._other.get(line)
        for each in (line, other):
            if each is not None and self._other.pop(each, None):
                self._servers.discard(each)
                if each in self._selector.get_map():
                    self._selector.unregister(each)
                _reset(each)


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _connected(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    server = socket.socket(socket.AF_UNIX)
    server.connect(f"{host}/.s.PGSQL.{port}")
    return server


def _reset(line: socket.socket) -> None:
    if line.family == socket.AF_INET:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


class ProxyProcess:
    """A proxy in its own process: `dsn` leads through it, `do` sets how it misbehaves."""

    def __init__(self, dsn: str, port: int = 0) -> None:
        parts = conninfo.conninfo_to_dict(dsn)
        target = [parts.get("host", "127.0.0.1"), parts.get("port", 5432), port]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *map(str, target)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        own_port = self._said()
        self.dsn = conninfo.make_conninfo(dsn, host="127.0.0.1", port=own_port, sslmode="disable")
        self.url = f"postgresql://postgres@127.0.0.1:{own_port}/{parts['dbname']}"

    def __enter__(self) -> ProxyProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def do(self, mode: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{mode}\n".encode())
        self._process.stdin.flush()
        assert self._said() == "ok"

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


if __name__ == "__main__":
    Proxy(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).run()
