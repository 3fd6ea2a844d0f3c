"""The queries about versions of flows: which there are, which are served, and which is current."""

from __future__ import annotations

import json
from itertools import starmap
from typing import Any

import psycopg

from pgflowd.core.definition.shape import Shape
from pgflowd.core.documents.flows import Version
from pgflowd.db.query import Query, only

VERSIONS_CHANGED = "versions"  # on channel pgflowd
Connection = psycopg.Connection[Any]
_NO_SUCH = (
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.InsufficientPrivilege,
)


def served_versions(conn: Connection) -> list[tuple[str, dict[str, int | None]]]:
    """
    Return each name that has versions, with the flows of those that are to be served, and how many
    open runs each of the old ones has.

    An older schema has none, and is not refused here: workers say so.
    """
    try:
        rows = conn.execute(_SERVED_VERSIONS).fetchall()
    except _NO_SUCH:
        return []
    return [
        (_text(name), dict(zip(map(_text, slugs), open, strict=True))) for name, slugs, open in rows
    ]


def versions_of(name: str, shape: Shape | None = None) -> Query[list[Version]]:
    """Return the versions of a flow, oldest first; none if its shape has never changed."""
    params = (name, None if shape is None else json.dumps(shape))
    return Query(_VERSIONS_OF, params, lambda rows: list(starmap(Version, rows)))


def current_flow(name: str) -> Query[str]:
    """Return the flow in which runs of this name are started."""
    return Query("select pgflowd.current_flow(%s)", (name,), only)


def deploy_version(
    name: str, shape: Shape, code: str | None, *, take_code: bool
) -> Query[tuple[str, bool]]:
    """Make the version with this shape current; return its flow, and whether it is new."""
    params = (name, json.dumps(shape), code, take_code)
    return Query(_DEPLOY_VERSION, params, lambda rows: (rows[0][0], rows[0][1]))


def rollback(name: str) -> Query[str]:
    """Make the version before the current one current; return its flow."""
    return Query("select pgflowd.rollback_version(%s, session_user)", (name,), only)


def prune_versions(name: str) -> Query[list[str]]:
    """Delete old versions without runs; return their flows."""
    return Query("select pgflowd.prune_versions(%s, session_user)", (name,), only)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


_SERVED_VERSIONS = "select name, flow_slugs, open_runs from pgflowd.served_versions()"
_VERSIONS_OF = """
select version, flow_slug, is_current, deployed_at, deployed_by, code, has_shape
  from pgflowd.versions_of(%s, %s::jsonb)
"""
_DEPLOY_VERSION = """
select flow_slug, is_new
  from pgflowd.deploy_version(%s, %s::jsonb, session_user, %s, %s)
"""
