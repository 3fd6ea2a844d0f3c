"""
Verifies, creates and changes flows in the database, for workers and deployments.

The options of a flow follow the code. A changed shape is a new version, which is a flow of the
database by itself: `deploy` makes it, and so does a worker with `definitions = "version"`; with
"create" and "verify" it is refused. The queries about versions are here, too: which there are,
which are served, and which is current.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg

from pgflowd.core.definition.options import OptionValues, change_text
from pgflowd.core.definition.schedule import schedule_differences
from pgflowd.core.definition.shape import Code, Shape, changes_between, undoable, unserved_steps
from pgflowd.core.documents.flows import Version
from pgflowd.core.json import decode
from pgflowd.core.text import counted
from pgflowd.core.undo import PREFIX
from pgflowd.db.connection import translated
from pgflowd.db.query import Query, document_of, documents, execute, fetch_value, only
from pgflowd.db.waits import taken_names
from pgflowd.errors import DatabaseError, Problem

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
        found = "select name, flow_slugs, open_runs from pgflowd.served_versions()"
        rows = conn.execute(found).fetchall()
    except _NO_SUCH:
        return []
    return [
        (_text(name), dict(zip(map(_text, slugs), open, strict=True))) for name, slugs, open in rows
    ]


def versions_of(name: str, shape: Shape | None = None) -> Query[list[Version]]:
    """Return the versions of a flow, oldest first; none if its shape has never changed."""
    params = (name, None if shape is None else json.dumps(shape))
    return documents(Version, "pgflowd.versions_of(%s, %s::jsonb)", params, number="version")


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


_DEPLOY_VERSION = """
select flow_slug, is_new
  from pgflowd.deploy_version(%s, %s::jsonb, session_user, %s, %s)
"""


PLACE = "database"  # of problems

_DEFINE = "select pgflowd.define(%s, %s::jsonb, %s, session_user, %s)"
_SHAPE = "select pgflowd.flow_shape(%s)"
_NAME_OF = "select pgflowd._name_of(%s)"
_HAS_OPEN_WORK = "select pgflowd._has_open_work(%s)"
_ACTIVE_RUNS = "select pgflowd.active_runs(%s)"
_RUNS_TO_UNDO = """
select coalesce(sum(pgflowd.active_runs(known)), 0)::int
  from unnest(pgflowd.flows_of(%s)) as known
 where pgflowd._has_undo(known) and pgflowd._undo_flow(known) = %s
"""
_RUNS_OF_FIRST_VERSION = """
select count(*)
  from (select from pgflowd.versions as known
          join pgflow.runs as run
            on run.flow_slug = known.name and run.started_at > known.deployed_at
         where known.name = %s and known.is_current and known.version > 1
           and not exists (select from pgflowd.runs as planned
                            where planned.run_id = run.run_id
                              and planned.created_at <= known.deployed_at)
         limit 1000) as started
"""


class Defined(NamedTuple):
    """What became of a definition: warnings, and the options that were changed, as texts."""

    warnings: list[Problem]
    changes: list[str]


def define(conn: Connection, code: Code, mode: str, *, take_code: bool = False) -> Defined:
    """Verify or create the flow, in one transaction; its options follow the code.

    Only what is not as it should be is looked at again under the flow's lock. Options that were
    tuned in the database stay, unless `take_code`. Raises E306 for a shape that is no version of
    the flow, E308 for a missing flow that may not be created.
    """
    slug, shape = code.name, code.shape
    with translated(conn), conn.transaction():
        found = find_version(conn, slug, shape)
        if found is None:
            conn.execute("select pgflowd._lock_definition(%s)", (slug,))
            found = find_version(conn, slug, shape)
        if found is not None:
            may_write = mode != "verify"
            if mode == "recreate" and found != execute(conn, current_flow(slug)):
                execute(conn, deploy_version(slug, shape, None, take_code=take_code))
            return _follow(conn, code, found, may_write=may_write, take_code=take_code)
        known = fetch_value(conn, _SHAPE, (execute(conn, current_flow(slug)),))
        if known is not None and (problem := _refusal(conn, code, known, mode)):
            raise DatabaseError(problem.text, code=problem.code, next=problem.next)
        if known is not None and mode == "version":
            next_one, _ = execute(conn, deploy_version(slug, shape, None, take_code=take_code))
            return Defined([], [f"version {next_one} is current"])
        if known is None and mode == "verify":
            raise DatabaseError(
                f"the database has no flow {slug}, and definitions is 'verify'",
                code="E308",
                next=f"run `pgflowd flows deploy {slug}`",
            )
        for version in execute(conn, versions_of(slug)):  # to recreate means to lose all
            if version.number > 1:
                conn.execute("select pgflow.delete_flow_and_data(%s)", (version.flow_slug,))
        conn.execute(_DEFINE, (slug, json.dumps(shape), mode == "recreate", False))
        return Defined(_taken(conn, slug, shape), [])


def defining(slug: str, shape: Shape) -> Query[None]:
    """Create a flow, or let the options of one that has this shape follow it."""
    return Query(_DEFINE, (slug, json.dumps(shape), False, False), lambda rows: None)


def refusal(conn: Connection, code: Code, mode: str) -> Problem | None:
    """Why `define` would refuse this flow, if it would; nothing is written."""
    with translated(conn):
        try:
            found = find_version(conn, code.name, code.shape)
        except DatabaseError as refused:
            return Problem(refused.code, refused.text, PLACE, refused.next)
        if found is not None:
            return None
        known = fetch_value(conn, _SHAPE, (execute(conn, current_flow(code.name)),))
        if known is None:
            return None  # it is new, or the worker says what is missing
        return _refusal(conn, code, known, mode)


def _refusal(conn: Connection, code: Code, known: Shape, mode: str) -> Problem | None:
    """Why the shape of the code may not follow the known one."""
    if mode == "version":  # open runs would have no handler
        return next(iter(unserved_versions(conn, code)), None)
    if mode == "recreate":
        return None
    slug, found = code.name, "; ".join(changes_between(known, code.shape)[:5])
    text = f"{slug}: the code has another shape than the database: {found}"
    remedy = f"see `pgflowd flows diff {slug}`; `pgflowd flows deploy {slug}` makes it a version"
    return Problem("E306", text, PLACE, remedy)


def find_version(conn: Connection, name: str, shape: Shape) -> str | None:
    """The flow of the database that has this shape; None if there is none, or no flow at all.

    Of several versions it is the current one, else the newest. Raises E306 for the slug of a
    version of another flow.
    """
    versions = execute(conn, versions_of(name, shape))
    if versions:
        same = sorted((v for v in versions if v.has_shape), key=lambda v: (v.is_current, v.number))
        return same[-1].flow_slug if same else None
    known = fetch_value(conn, _SHAPE, (name,))
    if known is not None and (owner := fetch_value(conn, _NAME_OF, (name,))) != name:
        remedy = "give the flow of the code another slug"
        raise DatabaseError(f"{name} is a version of flow {owner}", code="E306", next=remedy)
    return None if known is None or changes_between(known, shape) else name


def version_to_serve(conn: Connection, code: Code, slug: str) -> tuple[Shape, int] | None:
    """
    Return shape and number of a version that is served otherwise than the code has it.

    None if it has the code's shape. Raises W322 if the code cannot execute it.
    """
    versions = {each.flow_slug: each.number for each in execute(conn, versions_of(code.name))}
    version, known = versions.get(slug, 1), fetch_value(conn, _SHAPE, (slug,))
    if known is None:
        raise DatabaseError(f"flow {slug} is no longer in the database", code="E308")
    if not changes_between(known, code.shape):
        return None
    if problem := _unserved(code, known, slug, version, None):
        raise DatabaseError(problem.text, code="W322", next=problem.next)
    return known, version


def unserved_versions(conn: Connection, code: Code) -> list[Problem]:
    """W322 for each version that this code cannot serve, or whose runs it can undo no more."""
    found = list(unserved_flows(conn, code).values())
    if any(each.has_undo for each in code.handlers):
        return found
    for slug, number, known in _other_versions(conn, code):
        if undoable(known) and (runs := fetch_value(conn, _ACTIVE_RUNS, (slug,))):
            which = f"version {number} with {counted(runs, 'open run')}"
            text = f"{slug}: {which} has undos, and the code has none any more"
            remedy = "keep @….undo(…) for its steps, retired ones too"
            found.append(Problem("W322", text, PLACE, remedy))
    return found


def unserved_flows(conn: Connection, code: Code) -> dict[str, Problem]:
    """W322 by the flow of a version that cannot be served: with open runs, or to undo such."""
    found = {}
    for slug, number, known in _other_versions(conn, code):
        to_undo = 0
        if code.name.startswith(PREFIX):
            to_undo = fetch_value(conn, _RUNS_TO_UNDO, (code.name.removeprefix(PREFIX), slug))
        if to_undo or fetch_value(conn, _HAS_OPEN_WORK, (slug,)):
            runs = to_undo + fetch_value(conn, _ACTIVE_RUNS, (slug,))
            if problem := _unserved(code, known, slug, number, runs):
                found[slug] = problem
    return found


def _other_versions(conn: Connection, code: Code) -> Iterator[tuple[str, int, Shape]]:
    """Flow, number and shape of each version that is not as the code has it."""
    versions = [(v.flow_slug, v.number) for v in execute(conn, versions_of(code.name))]
    for slug, number in versions or [(code.name, 1)]:
        known = fetch_value(conn, _SHAPE, (slug,))
        if known is not None and changes_between(known, code.shape):
            yield slug, number, known


def runs_of_first_version(conn: Connection, name: str) -> list[Problem]:
    """W321 if somebody has started the first version after another one became current."""
    count = fetch_value(conn, _RUNS_OF_FIRST_VERSION, (name,))
    if not count:
        return []
    text = f"{name}: {counted(count, 'run')} of version 1 began although another one is current"
    remedy = "pgflow.start_flow starts version 1, pgflowd.start and clients the current one"
    return [Problem("W321", text, PLACE, remedy)]


def _unserved(
    code: Code, known: Shape, slug: str, version: int, runs: int | None
) -> Problem | None:
    """W322 if the code cannot execute each step of this version."""
    steps = unserved_steps(known, code.handlers, version)
    if not steps:
        return None
    first, *rest = steps
    of_runs = f" with {counted(runs, 'open run')}" if runs else ""
    more = f", and {counted(len(rest), 'step')} more" if rest else ""
    text = f"{slug}: step {first.slug} of version {version}{of_runs} {first.why}{more}"
    return Problem("W322", text, PLACE, first.remedy)


def _follow(
    conn: Connection, code: Code, slug: str, *, may_write: bool, take_code: bool
) -> Defined:
    """Let options and schedules follow the code, if this role may change them; warn of others."""
    shape, changes = code.shape, []
    values, stale = execute(conn, option_values(slug, shape)), stale_parts(conn, code, slug)
    if may_write and (take_code or stale or any(each.is_new for each in values)):
        try:
            with conn.transaction():
                answer = fetch_value(conn, _DEFINE, (slug, json.dumps(shape), False, take_code))
            changes = [change_text(change) for change in answer["options"]]
            values = execute(conn, option_values(slug, shape))
            stale = []
        except psycopg.errors.InsufficientPrivilege:
            pass
    texts = [(text, f"run `pgflowd flows deploy {code.name}`") for text in stale]
    texts += [(each.text, each.remedy(code.name)) for each in values if each.differs]
    warnings = [Problem("W310", f"{slug}: {text}", PLACE, remedy) for text, remedy in texts]
    return Defined([*_taken(conn, code.name, shape), *warnings], changes)


def stale_parts(conn: Connection, code: Code, slug: str) -> list[str]:
    """
    What of the code differs from the database, which applies, besides options and shape, as texts.

    That is the schema of the input, whether it is a job, and the schedules: only the code of the
    current version says which there are.
    """
    known = fetch_value(conn, _SHAPE, (slug,)) or {}
    found = []
    kind = code.shape.get("flowType", "flow")
    if known.get("flowType", kind) != kind:
        found.append(f"it is a {kind} in the code, and not in the database")
    if code.shape.get("inputSchema") != known.get("inputSchema"):
        found.append("the types of the run's input differ, and `runs start` checks the old ones")
    ours, theirs = code.shape.get("schedules") or [], known.get("schedules") or []
    if (ours or theirs) and slug == execute(conn, current_flow(code.name)):
        found += schedule_differences(ours, theirs)
    return found


def _taken(conn: Connection, slug: str, shape: Shape) -> list[Problem]:
    """The schedules of the code that are not written, since somebody else has their names."""
    names = [each["name"] for each in shape.get("schedules") or []]
    return execute(conn, taken_names(slug, names)) if names else []


# options in code and database


def option_values(slug: str, shape: Shape) -> Query[list[OptionValues]]:
    """Return the options of which code, database and last deployment do not say the same."""
    params = (slug, json.dumps(shape))
    return Query(
        _OPTION_VALUES, params, lambda rows: [document_of(OptionValues, row) for row in rows]
    )


def set_option(slug: str, step: str, key: str, value: Any) -> Query[Any]:
    """Tune an option in the database; return its value before. None: it is unset."""
    params = (slug, step, key, None if value is None else json.dumps(value))
    query = "select pgflowd.set_option(%s, %s, %s, %s::jsonb, session_user)"
    return Query(query, params, lambda rows: decode(only(rows)))


_OPTION_VALUES = """
select one.step_slug, one.option, one.code::text, one.deployed::text, one.database::text,
       one.is_tuned, action.actor, action.at
  from (select %s::text as flow_slug, %s::jsonb as shape) as given
 cross join lateral pgflowd.compare_options(given.flow_slug, given.shape) as one
  left join lateral (
    select known.actor, known.at from pgflowd.actions as known
     where one.is_tuned and known.run_id is null
       and known.flow_slug in (given.flow_slug, pgflowd._name_of(given.flow_slug))
       and known.action = 'set_option' and coalesce(known.step_slug, '') = one.step_slug
       and known.data ->> 'option' = one.option
     order by known.action_id desc limit 1) as action on true
"""
