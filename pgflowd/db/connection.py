"""
Opens connections to the database, and translates its errors into errors of pgflowd.

`connect` and `connect_async` give every connection the same limits: a lost server is noticed within
seconds, a lost client holds no lock, and each statement has a limit. The URL overrides these
defaults. `translated` wraps code that uses the database; `db.errors` defines the translation. An
error without one passes unchanged, so that the caller can try again. No text holds a password.
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
from pgflowd.core.settings.values import URL_NEXT
from pgflowd.db.errors import FULL_NEXT, is_full, server_error_of, translation_of
from pgflowd.errors import Unreachable

if TYPE_CHECKING:
    from pgflowd.core.settings.sections import DatabaseSettings

AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
Guard = Callable[[psycopg.Connection[Any]], AbstractContextManager[object]]
_NAMES_A_SERVER = {"PGHOST", "PGHOSTADDR", "PGSERVICE"}  # variables of libpq
_PRIMARY = "name the primary; with target_session_attrs=any in the URL this one can be read"
_LOGIN = "check user and password in [database] url, PGUSER, PGPASSWORD or the password file"
_REMEDIES = {  # by words of libpq, or of a server whose messages are English
    "read-only": _PRIMARY,
    "hot standby": _PRIMARY,
    "password": _LOGIN,
    "pg_hba.conf": _LOGIN,
    'FATAL:  role "': _LOGIN,
    'FATAL:  database "': "create it, or name another one in [database] url or PGDATABASE",
}
_FAILED = re.compile(r"\A(connection (failed|is bad): )+")


@dataclass(frozen=True)
class Limits:
    """The limits of a connection in seconds; zero means no limit."""

    connect_s: float = 10.0
    statement_s: float = 30.0
    tcp_user_s: float = 20.0
    lock_s: float = 5.0
    idle_in_transaction_s: float = 10.0
    client_check_s: float = 1.0  # how often the server checks, during a statement, that we live


DEFAULT_LIMITS = Limits()


def limits_of(database: DatabaseSettings) -> Limits:
    """Return the limits from the settings."""
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
    """
    Open a connection; raise Unreachable if that fails.

    An empty URL means the libpq environment. `pooled` means a transaction pooler in between, which
    would pass session settings and prepared statements on to other clients. A pooler is also
    detected: it gives its clients another process id than the server has. `guard` limits the first
    statement, which a pooler without a server never answers.
    """
    with _as_unreachable(url):
        conn = psycopg.connect(conninfo(url, name, limits), autocommit=True)
        with guard(conn):
            values = _settings(limits, conn, is_ours=autocommit)
            is_direct = not pooled and conn.execute(_SETTINGS, values).fetchone()
            if not is_direct:
                conn.prepare_threshold = None
                if _has_foreign_styles(conn):
                    conn.execute(_OUR_STYLES)
        conn.autocommit = autocommit
    return conn


def reset(conn: psycopg.Connection[Any]) -> None:
    """Make a session that somebody has used like a new one of `connect`, without autocommit.

    What the server has compiled and planned for it stays.
    """
    conn.prepare_threshold = None
    conn.autocommit = True
    conn.execute(_RESET)
    conn.execute(_SETTINGS, _settings(DEFAULT_LIMITS, conn, is_ours=False))


async def connect_async(
    url: str = "",
    *,
    name: str = "pgflowd",
    limits: Limits = DEFAULT_LIMITS,
    pooled: bool = False,
    autocommit: bool = True,
) -> psycopg.AsyncConnection[Any]:
    """Do the same as `connect` with asyncio."""
    with _as_unreachable(url):
        conn = await psycopg.AsyncConnection.connect(conninfo(url, name, limits), autocommit=True)
        values = _settings(limits, conn, is_ours=autocommit)
        if pooled or not await (await conn.execute(_SETTINGS, values)).fetchone():
            conn.prepare_threshold = None
            if _has_foreign_styles(conn):
                await conn.execute(_OUR_STYLES)
        await conn.set_autocommit(autocommit)
    return conn


async def as_async(conn: psycopg.Connection[Any]) -> psycopg.AsyncConnection[Any]:
    """
    Return a connection of `connect` for asyncio.

    The caller executes nothing more on `conn`, but keeps it: psycopg complains of connections that
    are forgotten while they are open.
    """
    if not is_pooled(conn):  # else it has prepared nothing
        conn.execute("deallocate all")  # the names would be used again
    same = psycopg.AsyncConnection[Any](conn.pgconn)
    same.prepare_threshold = conn.prepare_threshold
    await same.set_autocommit(conn.autocommit)
    return same


def is_pooled(conn: AnyConnection) -> bool:
    """Whether a connection of `connect` goes through a pooler."""
    return conn.prepare_threshold is None


def conninfo(url: str, name: str, limits: Limits) -> str:
    """Return the connection string: the URL, and our defaults for values that it does not set."""
    defaults: dict[str, Any] = {
        "application_name": name,
        "client_encoding": "UTF8",  # overrides PGCLIENTENCODING
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
    """Whether the connection leads to another machine and is not encrypted."""
    address = conn.info.hostaddr.partition("%")[0]  # none: a Unix socket
    if not address or ip_address(address).is_loopback or conn.pgconn.ssl_in_use:
        return False
    return conn.execute(_HAS_GSS_ENCRYPTION).fetchone() is None


_HAS_GSS_ENCRYPTION = "select from pg_stat_gssapi where pid = pg_backend_pid() and encrypted"
EXPOSED = "passwords and data go to another machine unencrypted"
EXPOSED_NEXT = "set sslmode=verify-full, or at least sslmode=require"


@contextmanager
def translated(conn: AnyConnection | None = None) -> Iterator[None]:
    """Raise errors of the database as errors of pgflowd, where there is a translation."""
    try:
        yield
    except psycopg.Error as error:
        user = None if conn is None or conn.closed else conn.info.user
        found = server_error_of(error)
        translation = found and translation_of(found, user)
        if translation is None:
            raise
        raise translation from error


@contextmanager
def _as_unreachable(url: str) -> Iterator[None]:
    """Raise Unreachable with the server and the cause, without the password."""
    try:
        yield
    except psycopg.ProgrammingError as error:
        text = f"the database URL cannot be read: {_cause(error, url)}"
        raise Unreachable(text, next=URL_NEXT) from None
    except psycopg.Error as error:
        cause = _cause(error, url)
        if is_full(cause):
            text = f"the server of {place_of(url)} has no free connection: {cause}"
            raise Unreachable(text, code="E310", next=FULL_NEXT) from None
        text = f"the database at {place_of(url)} cannot be reached: {cause}"
        remedy = "set [database] url, or PGHOST and the like, or start one with `pgflowd dev`"
        if url or os.environ.keys() & _NAMES_A_SERVER:
            remedy = "check that it runs and that [database] url, or PGHOST and the like, are right"
        known = next((known for word, known in _REMEDIES.items() if word in cause), remedy)
        raise Unreachable(text, next=known) from None


def place_of(url: str) -> str:
    """Return host, port and database of a URL, without secrets."""
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


# what `discard all` does, but for plans, which take the next completion 10 ms
_RESET = """
close all; set session authorization default; reset role; reset all; deallocate all; unlisten *;
select pg_advisory_unlock_all(); discard temp; discard sequences
"""
_SETTINGS = """
select set_config('statement_timeout', %s, false),
       set_config('lock_timeout', %s, false),
       set_config('idle_in_transaction_session_timeout', %s, false),
       set_config('client_connection_check_interval', %s, false),
       set_config('DateStyle', 'ISO, MDY', false),
       set_config('IntervalStyle', 'postgres', false),
       set_config('array_nulls', 'on', false),
       set_config('standard_conforming_strings', 'on', false),
       set_config('extra_float_digits', '1', false),
       case when %s then set_config('default_transaction_isolation', 'read committed', false) end,
       case when %s then set_config('idle_session_timeout', '0', false) end
 where pg_backend_pid() = %s
"""


def _settings(limits: Limits, conn: AnyConnection, *, is_ours: bool) -> list[str | int]:
    """What `_SETTINGS` takes; `is_ours`: no handler decides on its transactions."""
    idle_s, check_s = limits.idle_in_transaction_s, limits.client_check_s
    waits = (limits.statement_s, limits.lock_s, idle_s, check_s)
    return [*(f"{round(wait * 1000)}ms" for wait in waits), is_ours, is_ours, conn.info.backend_pid]


# a pooler such as pgbouncer keeps these settings, and few others, for each of its clients
_OUR_STYLES = "set datestyle = 'ISO, MDY'; set standard_conforming_strings = on"


def _has_foreign_styles(conn: AnyConnection) -> bool:
    """Whether psycopg cannot read how dates come, or backslashes in strings have a meaning."""
    shown = conn.info.parameter_status
    has_dates = (shown("DateStyle") or "ISO").startswith("ISO")
    return not has_dates or shown("standard_conforming_strings") == "off"


def _cause(error: psycopg.Error, url: str) -> str:
    text = _FAILED.sub("", str(error)).splitlines()
    lines = [line.strip() for line in text if line.strip() and not line.startswith("\t")]
    return one_line(redact("; ".join(lines), secrets_in(url)), 500)
