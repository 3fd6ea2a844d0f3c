"""
Connection: opens connections to the database, and turns its errors into ours.

`connect` and `connect_async` give every connection the same limits: a server that is gone is
noticed within seconds, a client that is gone holds no lock, and no statement waits for ever.
What the URL says wins. `translated` wraps whatever talks to the database; what an error
becomes is written in `db.errors`, and what has no meaning of ours passes unchanged, so that
the caller can try again. No text of ours holds a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgflowd.core.redact import one_line, redact, secrets_in
from pgflowd.db.errors import error_for
from pgflowd.errors import Unreachable

if TYPE_CHECKING:
    from pgflowd.core.settings.sections import DatabaseSettings

AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
Guard = Callable[[psycopg.Connection[Any]], AbstractContextManager[object]]
_NAMES_A_SERVER = {"PGHOST", "PGHOSTADDR", "PGSERVICE"}  # variables of libpq
_LOOKING = "name the primary; with target_session_attrs=any in the URL, this one can be read"
_WHO = "see that [database] url, PGUSER, PGPASSWORD or the password file say who may log in"
_REMEDIES = {  # by what a server that speaks English, or libpq, says
    "read-only": _LOOKING,
    "hot standby": _LOOKING,
    "password": _WHO,
    "pg_hba.conf": _WHO,
    'FATAL:  role "': _WHO,
    'FATAL:  database "': "create it, or name another one in [database] url or PGDATABASE",
}
_FAILED = re.compile(r"\A(connection (failed|is bad): )+")


@dataclass(frozen=True)
class Limits:
    """How long a connection waits for what, in seconds; zero is for ever."""

    connect_s: float = 10.0
    statement_s: float = 30.0
    tcp_user_s: float = 20.0
    lock_s: float = 5.0
    idle_in_transaction_s: float = 10.0
    client_check_s: float = 1.0  # the server looks whether we live while it works for us


DEFAULT_LIMITS = Limits()


def limits_of(database: DatabaseSettings) -> Limits:
    """The limits that the settings give."""
    return Limits(
        connect_s=database.connect_timeout_s,
        statement_s=database.statement_timeout_s,
        tcp_user_s=database.tcp_user_timeout_s,
    )


def connect(
    url: str = "",
    *,
    name: str = "pgflowd",
    limits: Limits = DEFAULT_LIMITS,
    pooled: bool = False,
    autocommit: bool = True,
    guard: Guard = nullcontext,
) -> psycopg.Connection[Any]:
    """Open a connection; raise Unreachable when nobody answers.

    An empty URL means the libpq environment. `pooled` says that a transaction pooler stands
    between, where session settings and prepared statements would end up with others. One that
    nobody told of is noticed: it gives its clients another process id than the server has.
    `guard` ends our first question when it takes too long, as at a pooler without a server.
    """
    with _reaching(url):
        conn = psycopg.connect(conninfo(url, name, limits), autocommit=True)
        with guard(conn):
            is_direct = not pooled and conn.execute(_SETTINGS, _settings(limits, conn)).fetchone()
        if not is_direct:
            conn.prepare_threshold = None
        conn.autocommit = autocommit
    return conn


async def connect_async(
    url: str = "",
    *,
    name: str = "pgflowd",
    limits: Limits = DEFAULT_LIMITS,
    pooled: bool = False,
    autocommit: bool = True,
) -> psycopg.AsyncConnection[Any]:
    """Do what `connect` does, for those who await."""
    with _reaching(url):
        conn = await psycopg.AsyncConnection.connect(conninfo(url, name, limits), autocommit=True)
        if pooled or not await (await conn.execute(_SETTINGS, _settings(limits, conn))).fetchone():
            conn.prepare_threshold = None
        await conn.set_autocommit(autocommit)
    return conn


def is_pooled(conn: AnyConnection) -> bool:
    """Whether a connection of `connect` goes through a pooler."""
    return conn.prepare_threshold is None


def conninfo(url: str, name: str, limits: Limits) -> str:
    """Return the connection string with our defaults beside what the URL says."""
    defaults: dict[str, Any] = {
        "application_name": name,
        "client_encoding": "UTF8",  # whatever PGCLIENTENCODING says
        "connect_timeout": max(2, round(limits.connect_s)),
        "target_session_attrs": "read-write",
        "keepalives": 1,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": round(limits.tcp_user_s * 1000),
    }
    return make_conninfo(**{**defaults, **conninfo_to_dict(url)})


def is_exposed(conn: psycopg.Connection[Any]) -> bool:
    """Whether others may read along: the server is another machine, and nothing is encrypted."""
    address = conn.info.hostaddr.partition("%")[0]  # none: a Unix socket
    if not address or ip_address(address).is_loopback or conn.pgconn.ssl_in_use:
        return False
    return conn.execute(_HAS_GSS_ENCRYPTION).fetchone() is None


_HAS_GSS_ENCRYPTION = "select from pg_stat_gssapi where pid = pg_backend_pid() and encrypted"
EXPOSED = "passwords and data go to another machine unencrypted"
EXPOSED_NEXT = "set sslmode=verify-full, or at least sslmode=require"


@contextmanager
def translated(conn: AnyConnection | None = None) -> Iterator[None]:
    """Raise errors of the database as errors of ours, where they have a meaning of ours."""
    try:
        yield
    except psycopg.Error as error:
        ours = error_for(error, user=_user(conn))
        if ours is None:
            raise
        raise ours from error


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Say which server could not be reached, and why, without its password."""
    try:
        yield
    except psycopg.ProgrammingError as error:
        raise Unreachable(
            f"the database URL cannot be read: {_cause(error, url)}",
            next="it should look like postgresql://user@host:5432/dbname",
        ) from None
    except psycopg.Error as error:
        cause = _cause(error, url)
        raise Unreachable(
            f"the database at {place_of(url)} cannot be reached: {cause}",
            next=_remedy(url, cause),
        ) from None


def _remedy(url: str, cause: str) -> str:
    told = next((remedy for word, remedy in _REMEDIES.items() if word in cause), None)
    if told:
        return told
    if url or os.environ.keys() & _NAMES_A_SERVER:
        return "see that it runs and that [database] url, or PGHOST and the like, are right"
    return "set [database] url, or PGHOST and the like, or serve one with `pgflowd dev`"


def place_of(url: str) -> str:
    """Return host, port and database of a URL, and nothing secret."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return "?"
    if "service" in parts:
        return f"service {parts['service']}"
    host = parts.get("host") or parts.get("hostaddr") or "the libpq default"
    port = f":{parts['port']}" if "port" in parts else ""
    name = f"/{parts['dbname']}" if "dbname" in parts else ""
    return one_line(f"{host}{port}{name}", 200)


_SETTINGS = """
select set_config('statement_timeout', %s, false),
       set_config('lock_timeout', %s, false),
       set_config('idle_in_transaction_session_timeout', %s, false),
       set_config('client_connection_check_interval', %s, false)
 where pg_backend_pid() = %s
"""


def _settings(limits: Limits, conn: AnyConnection) -> list[str | int]:
    waits = (
        limits.statement_s,
        limits.lock_s,
        limits.idle_in_transaction_s,
        limits.client_check_s,
    )
    return [*(f"{round(wait * 1000)}ms" for wait in waits), conn.info.backend_pid]


def _cause(error: psycopg.Error, url: str) -> str:
    said = _FAILED.sub("", str(error)).splitlines()
    lines = [line.strip() for line in said if line.strip() and not line.startswith("\t")]
    return one_line(redact("; ".join(lines), secrets_in(url)), 500)


def _user(conn: AnyConnection | None) -> str | None:
    return None if conn is None or conn.closed else conn.info.user
