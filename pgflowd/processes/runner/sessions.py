"""
Keeps the session of `ctx.conn()` for the next task of the runner.

To open one takes the server 2 ms, and the first completion there 25 ms instead of 3, since each
session plans for itself. So a session that ends in order stays open. Nothing that a handler did to
it reaches the next one: not its settings, role, prepared statements, cursors, temporary tables,
locks and channels. Its Python objects are cut off from it. A session in a pooler is closed, and
one that no task has used for `KEPT_S`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq.abc import PGconn


ELSEWHERE = ""  # a database without our schema
KEPT_S = 5.0  # unused; others may need the server's connections more


class Sessions:
    """At most one session of a runner that no task uses."""

    def __init__(self) -> None:
        self._key = ("", "")  # where it leads, and its name
        self._is_direct = False
        self._used: list[PGconn] = []  # by the last task
        self._clean: list[PGconn] = []

    @property
    def has_kept(self) -> bool:
        return bool(self._clean)

    def close_kept(self) -> None:
        while self._clean:
            self._clean.pop().finish()

    def open(self, conninfo: str, name: str) -> tuple[psycopg.Connection[Any], str]:
        """Return a connection as `psycopg.connect` does, and to which database it leads."""
        from pgflowd.db.connection import connect, is_pooled

        if (conn := self._take((conninfo, name))) is not None:
            return conn
        opened = connect(conninfo, name=name, autocommit=False)
        self._key, self._is_direct = (conninfo, name), not is_pooled(opened)
        return opened, _database_of(opened)

    def _take(self, key: tuple[str, str]) -> tuple[psycopg.Connection[Any], str] | None:
        import psycopg

        from pgflowd.errors import PgflowdError

        try:
            pgconn = self._clean.pop()  # threads of a handler may ask at once
        except IndexError:
            return None
        conn = psycopg.Connection[Any](pgconn)
        try:
            if key == self._key:
                return conn, _database_of(conn)
        except (psycopg.Error, PgflowdError):
            pass  # the server has ended it
        conn.close()
        return None

    def give_back(self, conn: psycopg.Connection[Any], *, may_keep: bool) -> None:
        """A task has ended: keep its session, or close it unless it has ended in order."""
        from psycopg.pq import PipelineStatus, TransactionStatus

        pgconn = conn.pgconn
        is_idle = pgconn.transaction_status == TransactionStatus.IDLE
        is_plain = pgconn.pipeline_status == PipelineStatus.OFF
        if may_keep and self._is_direct and is_idle and is_plain and not self._used:
            cut_off(conn)
            self._used.append(pgconn)
        else:
            conn.close()

    def clean(self) -> None:
        """Leave nothing of the last task in its session."""
        if not self._used:
            return
        import psycopg

        from pgflowd.db.connection import reset

        while self._used:
            conn = psycopg.Connection[Any](self._used.pop())
            try:
                reset(conn)
                self._clean.append(conn.pgconn)
                cut_off(conn)
            except psycopg.Error:
                conn.close()


def cut_off(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Make an object useless, and leave its session as it is."""
    conn.pgconn = _closed()


@cache
def _closed() -> PGconn:
    from psycopg.pq import PGconn

    closed = PGconn.connect_start(b"host=/nowhere")
    closed.finish()
    return closed


def _database_of(conn: psycopg.Connection[Any]) -> str:
    """Which database a connection leads to; it begins no transaction."""
    from pgflowd.db.query import database_identity, execute
    from pgflowd.errors import DatabaseError

    conn.autocommit = True
    try:
        return execute(conn, database_identity())
    except DatabaseError:
        if conn.closed:
            raise
        return ELSEWHERE
    finally:
        if not conn.closed:
            conn.autocommit = False
