"""
A transaction pooler: few sessions of the server for any number of clients, a transaction each.

    with TransactionPooler(database.dsn) as pooler:
        connect(pooler.url)

A client holds a session from its first message until the server is ready and in no transaction.
Sessions go round, so that the next transaction meets another one: whatever a client left in
its session, it does not find again, and others may. With `last_first` the next transaction meets
the session that was used last, as with pgbouncer: a client that is alone seems to have its own.
"""

from __future__ import annotations

import contextlib
import queue
import selectors
import socket
import struct
import threading
from types import TracebackType

from psycopg.conninfo import conninfo_to_dict

SSL, GSS = 80877103, 80877104
FAKE_KEY = b"K" + struct.pack("!iii", 12, 7, 7)
READY = b"Z"
ENDS_A_TURN = (b"Q", b"S")  # a simple query, and the Sync of the extended protocol


class TransactionPooler:
    """Sessions, and the clients that wait for one."""

    def __init__(self, dsn: str, sessions: int = 3, *, last_first: bool = False) -> None:
        self._parts = conninfo_to_dict(dsn)
        self._free: queue.Queue[Messages] = queue.LifoQueue() if last_first else queue.Queue()
        self._everybody: list[socket.socket] = []
        self.sessions, self.turns = sessions, 0
        for _ in range(sessions):
            self._greeting = self._log_in()
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"host=127.0.0.1 port={port} user=postgres dbname={self._parts['dbname']}"

    def __enter__(self) -> TransactionPooler:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for line in (self._listener, *self._everybody):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def _log_in(self) -> bytes:
        """Open a session; return the parameters that a server reports to its clients."""
        host, port = str(self._parts["host"]), int(str(self._parts.get("port", 5432)))
        if host.startswith("/"):
            line = socket.socket(socket.AF_UNIX)
            line.connect(f"{host}/.s.PGSQL.{port}")
        else:
            line = socket.create_connection((host, port))
        user = f"user\0postgres\0database\0{self._parts['dbname']}\0application_name\0pooler\0\0"
        line.sendall(struct.pack("!ii", len(user) + 8, 3 << 16) + user.encode())
        server, greeting = Messages(line), b""
        while True:
            kind, message = server.next()
            assert kind != b"E", message
            if kind == READY:
                self._everybody.append(line)
                self._free.put(server)
                return greeting
            if kind in (b"R", b"S"):
                greeting += message

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                self._everybody.append(line)
                threading.Thread(target=self._serve, args=(Messages(line),), daemon=True).start()

    def _serve(self, client: Messages) -> None:
        with contextlib.suppress(OSError, EOFError):
            while client.greeting() in (SSL, GSS):
                client.line.sendall(b"N")
            client.line.sendall(self._greeting + FAKE_KEY + b"Z\0\0\0\5I")
            while True:
                first = client.next()
                if first[0] == b"X":
                    break
                server = self._free.get(timeout=30)
                self.turns += 1
                try:
                    Turn(client, server).play(first)
                except (OSError, EOFError):  # the client has gone in the middle of its turn
                    self._log_in()
                    raise
                self._free.put(server)
        client.line.close()


class Turn:
    """One client and one session, for a transaction."""

    def __init__(self, client: Messages, server: Messages) -> None:
        self._client, self._server = client, server
        self._is_open = True
        self._awaited = 0  # answers to what ends a turn
        self._is_between = False  # messages were sent that no Sync has followed yet

    def play(self, first: tuple[bytes, bytes]) -> None:
        self._ask(first)
        with selectors.DefaultSelector() as selector:
            for one in (self._client, self._server):
                selector.register(one.line, selectors.EVENT_READ, one)
            while self._is_open:
                while (request := self._client.whole()) is not None:
                    self._ask(request)
                for key, _ in selector.select():
                    key.data.fill()
                while self._is_open and (answer := self._server.whole()) is not None:
                    self._answer(answer)

    def _ask(self, message: tuple[bytes, bytes]) -> None:
        kind, whole = message
        self._is_between = kind not in ENDS_A_TURN
        self._awaited += kind in ENDS_A_TURN
        self._server.line.sendall(whole)

    def _answer(self, message: tuple[bytes, bytes]) -> None:
        kind, whole = message
        self._client.line.sendall(whole)
        if kind == READY:
            self._awaited -= 1
            self._is_open = self._is_between or self._awaited > 0 or whole[-1:] != b"I"


class Messages:
    """A line, cut into messages of the protocol: kind, and the whole of it."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self._bytes = b""

    def fill(self) -> None:
        data = self.line.recv(65536)
        if not data:
            raise EOFError
        self._bytes += data

    def whole(self) -> tuple[bytes, bytes] | None:
        """The next message, if all of it is here."""
        if len(self._bytes) < 5:
            return None
        (length,) = struct.unpack("!i", self._bytes[1:5])
        if len(self._bytes) < length + 1:
            return None
        message, self._bytes = self._bytes[: length + 1], self._bytes[length + 1 :]
        return message[:1], message

    def next(self) -> tuple[bytes, bytes]:
        while (message := self.whole()) is None:
            self.fill()
        return message

    def greeting(self) -> int:
        """The code of a client's first message, which has no kind."""
        while len(self._bytes) < 8:
            self.fill()
        length, code = struct.unpack("!ii", self._bytes[:8])
        while len(self._bytes) < length:
            self.fill()
        self._bytes = self._bytes[length:]
        return int(code)
