"""
Translates errors of the database into errors of pgflowd.

SQLSTATE decides, never psycopg's class. The SQL of pgflowd raises PF000 to PF033; all other states
are PostgreSQL's. Constraint names and a few texts are public parts of the contract and distinguish
flows from runs. Some errors have no translation, such as a lock timeout or a deadlock, after which
the caller tries again.
"""

from __future__ import annotations

import re

import psycopg

from pgflowd.core.redact import one_line, redact
from pgflowd.errors import (
    AccessDenied,
    DatabaseError,
    LeaseLost,
    MapInput,
    NotFound,
    NotRetryable,
    PgflowdError,
    RunEnded,
    RunExists,
    UnknownFlow,
    Unreachable,
)

OURS: dict[str, tuple[type[PgflowdError], str]] = {
    "PF001": (LeaseLost, "E407"),
    "PF002": (NotFound, "E409"),
    "PF003": (RunEnded, "E411"),
    "PF004": (NotRetryable, "E411"),
    "PF020": (PgflowdError, "E105"),
    "PF030": (DatabaseError, "E307"),
    "PF031": (DatabaseError, "E304"),
    "PF032": (DatabaseError, "E302"),
    "PF033": (DatabaseError, "E309"),
}
CONSTRAINTS: dict[str, type[PgflowdError]] = {
    "runs_flow_slug_fkey": UnknownFlow,
    "runs_pkey": RunExists,
}
UNREACHABLE = re.compile(r"08...|28...|3D000|53300|57P0[1-3]")
MISSING_OBJECT = {"3F000", "42P01", "42883"}  # schema, table, function
_OUR_SCHEMA = re.compile(r"\b(pgflowd?|pgmq)(\.|\")")
_PGMQ = re.compile(r"\bpgmq\b")
_DENIED = re.compile(r"permission denied for (?P<kind>[\w ]+?) (?P<name>\S+)$")
_MAP_INPUT = re.compile(r"Flow .* has root map steps but input is ")
_RIGHTS = {
    "schema": "usage on schema",
    "function": "execute on function",
    "procedure": "execute on procedure",
    "sequence": "usage on sequence",
    "database": "create on database",
    "type": "usage on type",
}


def error_for(error: psycopg.Error, user: str | None = None) -> PgflowdError | None:
    """Return the error of pgflowd for an error of the database, or None if there is none."""
    state, text = error.sqlstate, _text(error)
    if state is None:
        return _unreachable(text) if isinstance(error, psycopg.OperationalError) else None
    if state in OURS:
        kind, code = OURS[state]
        return kind(text, code=code, next=_hint(error))
    if state == "42501":
        return _denied(text, user)
    if state in MISSING_OBJECT and _OUR_SCHEMA.search(text):
        return _missing_object(text)
    if state == "25006":
        return _read_only(text)
    if UNREACHABLE.fullmatch(state):
        return _unreachable(text)
    if state == "P0001" and _MAP_INPUT.match(text):
        return MapInput(text, next="start it with a JSON array, one element per task")
    return _constraint(error)


def _unreachable(text: str) -> Unreachable:
    return Unreachable(f"the database cannot be reached: {text}", next="check that it runs")


def _read_only(text: str) -> Unreachable:
    remedy = "check that it is the primary, and that the transaction is not read-only"
    return Unreachable(f"the database is read-only: {text}", next=remedy)


def _missing_object(text: str) -> DatabaseError:
    code = "E304" if _PGMQ.search(text) else "E302"
    return DatabaseError(text, code=code, next="run `pgflowd db migrate`")


def _denied(text: str, user: str | None) -> AccessDenied:
    role = user or "the role"
    match = _DENIED.search(text)
    remedy = f"give {role} a role of `pgflowd db sql roles`"
    if match and match["kind"] in _RIGHTS:
        remedy = f"grant {_RIGHTS[match['kind']]} {match['name']} to {role}, or {remedy}"
    elif match:
        remedy = f"grant that permission on {match['kind']} {match['name']} to {role}, or {remedy}"
    return AccessDenied(f"{text}, as {role}", next=remedy)


def _constraint(error: psycopg.Error) -> PgflowdError | None:
    name = error.diag.constraint_name
    if error.diag.schema_name != "pgflow" or name not in CONSTRAINTS:
        return None
    return CONSTRAINTS[name](error.diag.message_detail or _text(error))


def _text(error: psycopg.Error) -> str:
    return one_line(redact(error.diag.message_primary or str(error).strip()), 1000)


def _hint(error: psycopg.Error) -> str | None:
    hint = error.diag.message_hint
    return None if hint is None else one_line(redact(hint), 1000)
