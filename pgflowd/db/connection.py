"""
Opens connections to the database, translates its errors into errors of pgflowd, and decides how to
handle a failure.

`connect` and `connect_async` give every connection the same limits: a lost server is noticed within
seconds, a lost client holds no lock, and each statement has a limit. The URL overrides these
defaults. `translated` wraps code that uses the database. An error without a translation, such as a
lock timeout or a deadlock, passes unchanged, so that the caller can try again. No text holds a
password.

SQLSTATE decides, never psycopg's class: 54000 is an OperationalError, 25006 an InternalError. The
SQL of pgflowd raises PF000 to PF034; all other states are PostgreSQL's. Constraint names and a few
texts are public parts of the contract and distinguish flows from runs.

`remedy_for_role` names the role of `pgflowd db sql roles` that a refused statement lacks, and the
grant that helps. The outermost function of ours that was called decides, not the inner one that was
refused: who defines a flow needs `pgflow_owner`, whatever `create_flow` calls. Without a function
it is a table that only workers change, or one that viewers read.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgflowd import errors
from pgflowd.core.failure import RETRY_STATES, DatabaseFailure
from pgflowd.core.redact import one_line, redact, secrets_in
from pgflowd.core.settings.values import URL_NEXT
from pgflowd.core.verbs import OPERATOR, OWNER, STARTER, VERBS, WORKER

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
        raise errors.Unreachable(text, next=URL_NEXT) from None
    except psycopg.Error as error:
        cause = _cause(error, url)
        if is_full(cause):
            text = f"the server of {place_of(url)} has no free connection: {cause}"
            raise errors.Unreachable(text, code="E310", next=FULL_NEXT) from None
        text = f"the database at {place_of(url)} cannot be reached: {cause}"
        remedy = "set [database] url, or PGHOST and the like, or start one with `pgflowd dev`"
        if url or os.environ.keys() & _NAMES_A_SERVER:
            remedy = "check that it runs and that [database] url, or PGHOST and the like, are right"
        known = next((known for word, known in _REMEDIES.items() if word in cause), remedy)
        raise errors.Unreachable(text, next=known) from None


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


VIEWER = "pgflow_viewer"

OF_OWNERS = re.compile(
    r"_?create(_\w+)?|add_step|ensure_flow_compiled|delete_flow_and_data|prune_data_older_than"
    r"|_?prune(?!_expired)\w*|_?delete_runs?|setup_\w+|cleanup_\w+|set_setting|watch_queue"
    r"|share_queue|drop_queue|purge_queue"
)
OF_STARTERS = re.compile(r"start(_runs|_flows?|_flow_with_states)?|get_run(_with_states)?")
OF_VERBS = {verb.function: verb.role for verb in VERBS} | {"task_claim": OPERATOR}
OF_VIEWERS = re.compile(
    r"(list|find)_\w+|run_(steps|troubles|violations)|queue_violations|violations|flow_shape"
    r"|active_runs|current_flow|require_schema|stalled_tasks|platform|output_channel|setting|flow_exists|metrics(_all)?"
)
OF_WORKERS = re.compile(r"workers|attempts|step_tasks|settings|schema_history|[aq]_\w+")
_DENIED = re.compile(r"permission denied for (?P<kind>[\w ]+?) (?P<name>\S+)$")
_CALLED = re.compile(r"function (?:pgflowd?|pgmq)\.(\w+)\(")
_EACH = (  # whoever has none of them
    f"{VIEWER} to look, {STARTER} to start runs, {OPERATOR} to act, {WORKER} to serve,"
    f" or {OWNER} to migrate and deploy,"
)
_RIGHTS = {
    "schema": "usage on schema",
    "function": "execute on function",
    "procedure": "execute on procedure",
    "sequence": "usage on sequence",
    "database": "create on database",
    "type": "usage on type",
}


def remedy_for_role(text: str, context: str, role: str) -> str:
    """Return what to do about a refusal with this text, in functions of this context."""
    match = _DENIED.search(text)
    kind, name = (match["kind"], match["name"]) if match else ("", "")
    needed = role_for(kind, name, context)
    which = f"{needed} (`grant {needed} to {role}`)" if needed else _EACH
    given = f"give {role} {which} of `pgflowd db sql roles`"
    if not match:
        return given
    right = _RIGHTS.get(kind, f"that permission on {kind}")
    return f"{given}, or grant {right} {name} to {role}"


def role_for(kind: str, name: str, context: str = "") -> str | None:
    """Return the role that may do this; None if each of them may."""
    if called := _CALLED.findall(context):
        kind, name = "function", called[-1]  # the outermost is last
    if kind == "function":
        if name in OF_VERBS:
            return OF_VERBS[name]
        if OF_OWNERS.fullmatch(name):
            return OWNER
        if OF_STARTERS.fullmatch(name):
            return STARTER
        return VIEWER if OF_VIEWERS.fullmatch(name) else WORKER
    if kind in ("table", "view"):
        return WORKER if OF_WORKERS.fullmatch(name) else VIEWER
    return None if kind == "schema" else OWNER


OURS: dict[str, tuple[type[errors.PgflowdError], str]] = {
    "PF001": (errors.LeaseLost, "E407"),
    "PF002": (errors.NotFound, "E409"),
    "PF003": (errors.RunEnded, "E411"),
    "PF004": (errors.NotRetryable, "E411"),
    "PF005": (errors.UndoStarted, "E420"),
    "PF006": (errors.KeyTaken, "E421"),
    "PF007": (errors.BadDependency, "E422"),
    "PF008": (errors.NotOpen, "E423"),
    "PF009": (errors.RunError, "E432"),
    "PF020": (errors.PgflowdError, "E105"),
    "PF021": (errors.TooLarge, "E424"),
    "PF022": (errors.WrongState, "E411"),
    "PF023": (errors.WrongState, "E411"),
    "PF024": (errors.DatabaseError, "E306"),
    "PF030": (errors.DatabaseError, "E307"),
    "PF031": (errors.DatabaseError, "E304"),
    "PF032": (errors.DatabaseError, "E302"),
    "PF033": (errors.DatabaseError, "E309"),
    "PF034": (errors.AccessDenied, "E305"),
}
CONSTRAINTS: dict[str, type[errors.PgflowdError]] = {
    "runs_flow_slug_fkey": errors.UnknownFlow,
    "runs_pkey": errors.RunExists,
}
UNREACHABLE = re.compile(r"08...|28...|3D000|53300|57P0[1-3]")
MISSING_OBJECT = {"3F000", "42P01", "42883"}  # schema, table, function
FULL = "53300"  # too_many_connections
FULL_NEXT = (
    "raise max_connections of the server, or let fewer clients connect; `pgflowd check` prints how"
    " many connections the daemon may need"
)
# a refused login has no SQLSTATE, only the words of PostgreSQL, or of pgbouncer
_FULL = re.compile(
    r"too many (clients|connections)|connection slots are reserved|no more connections allowed"
)
_REFUSED = ("28", "3D")  # SQLSTATEs of a login that the server refuses
_REFUSALS = ("authentication failed", "no pg_hba.conf entry", "does not exist")
_LINE_ENDS = re.compile(r"\s*\n\s*")
_OUR_SCHEMA = re.compile(r"\b(pgflowd?|pgmq)(\.|\")")
_PGMQ = re.compile(r"\bpgmq\b")
_MAP_LENGTH = re.compile(r"the input of flow .* has \d+ elements, and a map may have \d+$")
_MAP_INPUT = re.compile(r"Flow .* has root map steps but input is ")


class ServerError(NamedTuple):
    """What a server says of an error, whichever library has received it."""

    state: str | None  # SQLSTATE; None: the connection failed
    message: str | None
    hint: str | None = None
    detail: str | None = None
    context: str | None = None
    schema: str | None = None
    constraint: str | None = None


def server_error_of(error: psycopg.Error) -> ServerError | None:
    """What the server said; None if neither it nor the connection failed."""
    if error.sqlstate is None and not isinstance(error, psycopg.OperationalError):
        return None
    return as_diagnosed(error, error.sqlstate)


def as_diagnosed(error: Any, state: str | None) -> ServerError:
    """What the server said, as psycopg and psycopg2 have it."""
    names = ("message_hint", "message_detail", "context", "schema_name", "constraint_name")
    message = error.diag.message_primary or str(error).strip()
    return ServerError(state, message, *(getattr(error.diag, name) for name in names))


def translation_of(error: ServerError, user: str | None = None) -> errors.PgflowdError | None:
    """Return the error of pgflowd for what a server said, or None if there is none."""
    message = _LINE_ENDS.sub(" ", error.message or "")
    state, text = error.state, one_line(redact(message), 1000)
    if state is None:
        return _unreachable(text)
    if state in OURS:
        kind, code = OURS[state]
        hint = error.hint
        found = kind(text, code=code, next=None if hint is None else one_line(redact(hint), 1000))
        if isinstance(found, errors.KeyTaken) and error.detail:
            found.run_id = UUID(error.detail)
        return found
    if state == "42501":
        role = user or "the role"
        remedy = remedy_for_role(text, error.context or "", role)
        return errors.AccessDenied(f"{text}, as {role}", next=remedy)
    if state in MISSING_OBJECT and _OUR_SCHEMA.search(text):
        code = "E304" if _PGMQ.search(text) else "E302"
        return errors.DatabaseError(text, code=code, next="run `pgflowd db migrate`")
    if state == "25006":
        remedy = "check that it is the primary, and that the transaction is not read-only"
        return errors.Unreachable(f"the database is read-only: {text}", next=remedy)
    if state == FULL:
        return errors.Unreachable(
            f"the server has no free connection: {text}", code="E310", next=FULL_NEXT
        )
    if UNREACHABLE.fullmatch(state):
        return _unreachable(text)
    if state == "54000" and _MAP_LENGTH.match(text):
        remedy = "give it fewer elements, each with more work, or raise max_map_elements"
        return errors.MapInput(text, code="E404", next=f"{remedy} (docs/guides/handlers.md)")
    if state == "P0001" and _MAP_INPUT.match(text):
        return errors.MapInput(text, next="start it with a JSON array, one element per task")
    if error.schema in ("pgflow", "pgflowd") and error.constraint in CONSTRAINTS:
        return CONSTRAINTS[error.constraint](error.detail or text)
    return None


def failure_of(error: BaseException) -> tuple[DatabaseFailure, str]:
    """Return how to handle the failure of a whole call, and the text for the log."""
    state = sqlstate_of(error)
    text = one_line(redact(str(error) or type(error).__name__), 1000)
    if isinstance(error, errors.NotFound):
        failure = DatabaseFailure.GONE
    elif isinstance(error, errors.Unreachable):
        is_refused = (state or "").startswith(_REFUSED) or any(each in text for each in _REFUSALS)
        failure = DatabaseFailure.ALERT if is_refused else DatabaseFailure.RETRY
    elif isinstance(error, errors.DatabaseError) and error.code == "E307":
        failure = DatabaseFailure.SCHEMA
    elif isinstance(error, errors.PgflowdError):
        failure = DatabaseFailure.BROKEN
    elif isinstance(error, OSError | asyncio.CancelledError) or "start new thread" in text:
        failure = DatabaseFailure.RETRY
    else:
        is_transient = (state or "").startswith(RETRY_STATES)
        may_retry = is_transient or (state is None and isinstance(error, psycopg.Error))
        failure = DatabaseFailure.RETRY if may_retry else DatabaseFailure.BROKEN
    return failure, text


def sqlstate_of(error: BaseException | None) -> str | None:
    """Return the SQLSTATE of an error, or of its cause."""
    while error is not None:
        if isinstance(error, psycopg.Error) and error.sqlstate:
            return error.sqlstate
        error = error.__cause__ or error.__context__
    return None


def is_refused(error: BaseException) -> bool:
    """Whether a connection was refused, since the server has no free one."""
    return isinstance(error, errors.Unreachable) and error.code == "E310"


def is_full(text: str) -> bool:
    """Whether a server refuses a client because it has too many."""
    return _FULL.search(text) is not None


def _unreachable(text: str) -> errors.Unreachable:
    return errors.Unreachable(f"the database cannot be reached: {text}", next="check that it runs")
