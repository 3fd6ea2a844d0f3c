"""
A pooler as a client sees it: a server that reports another process id than its own.

    with pooler(database.dsn) as dsn: …
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg.conninfo import make_conninfo

KEY_DATA = b"K\0\0\0\x0c"  # a message of 12 bytes: process id and secret


@contextmanager
def pooler(dsn: str) -> Iterator[str]:
    """Forward both ways, except the process id; the DSN leads through here."""
    with psycopg.connect(dsn) as conn:
        host, port = conn.info.host, conn.info.port
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, host, port), daemon=True).start()
        here = listener.getsockname()[1]
        yield make_conninfo(dsn, host="127.0.0.1", port=here, sslmode="disable")
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, host: str, port: int) -> None:
    with suppress(OSError):  # the test is over
        while True:
            client, _ = listener.accept()
            server = _server(host, port)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=_pass_on, args=ends, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError), source, target:
        while data := source.recv(65536):
            before, found, after = data.partition(KEY_DATA)
            target.sendall(before + found + b"\0\0\0\7" + after[4:] if found else data)


def _server(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    server = socket.socket(socket.AF_UNIX)
    server.connect(f"{host}/.s.PGSQL.{port}")
    return server
