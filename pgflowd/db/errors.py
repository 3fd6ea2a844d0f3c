"""
Translates errors of the database into errors of pgflowd, and decides how to handle a failure.

SQLSTATE decides, never psycopg's class: 54000 is an OperationalError, 25006 an InternalError. The
SQL of pgflowd raises PF000 to PF034; all other states are PostgreSQL's. Constraint names and a few
texts are public parts of the contract and distinguish flows from runs. Some errors have no
translation, such as a lock timeout or a deadlock, after which the caller tries again.

`remedy_for_role` names the role of `pgflowd db sql roles` that a refused statement lacks, and the
grant that helps. The outermost function of ours that was called decides, not the inner one that was
refused: who defines a flow needs `pgflow_owner`, whatever `create_flow` calls. Without a function
it is a table that only workers change, or one that viewers read.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from pgflowd import errors
from pgflowd.core.failure import RETRY_STATES, DatabaseFailure
from pgflowd.core.redact import one_line, redact
from pgflowd.core.verbs import OPERATOR, OWNER, STARTER, VERBS, WORKER

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
