"""
Lists, compares, creates, pauses and deletes the flows of the database.

`compare` reports how a flow differs from the code and changes nothing. `deploy` creates a missing
flow, as the role that owns the schema. `delete` removes a flow with all its runs. `script` returns
the SQL of a deployment, to be executed elsewhere. The statistics count what flows did, and what
needs attention.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg import sql

from pgflowd.core.definition.options import OptionValues
from pgflowd.core.definition.shape import Code, Shape, changes_between
from pgflowd.core.documents.flows import (
    FlowGrid,
    FlowWork,
    GridRun,
    ListedFlow,
    OverviewCounts,
    RunBucket,
    StepStats,
    WorkerCaps,
)
from pgflowd.core.json import decode
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import RunStatus, StepStatus
from pgflowd.core.typed.codec import fault_of
from pgflowd.db import definitions
from pgflowd.db.connection import translated
from pgflowd.db.query import (
    Query,
    Rows,
    SyncConnection,
    document,
    documents,
    execute,
    fetch_value,
    only,
)
from pgflowd.db.workers import MAX_COUNTED
from pgflowd.errors import Problem, TypeMismatch

OWNER = "pgflow_owner"


@dataclass(frozen=True)
class Comparison:
    """How a flow of the code differs from the same flow in the database."""

    exists: bool
    shape: list[str] = field(default_factory=list)  # of the code; with one no worker starts
    values: list[OptionValues] = field(default_factory=list)  # where the three are not the same
    flow_slug: str = ""  # the version of the flow that was compared
    current: str = ""  # the version to which starts go
    stale: list[str] = field(default_factory=list)  # schedules and types that differ

    @property
    def is_new_version(self) -> bool:
        """Whether a deployment makes another version current."""
        return bool(self.shape) or self.flow_slug != self.current

    @property
    def options(self) -> list[str]:
        """The options that differ: the database's value holds."""
        return [*self.stale, *(each.text for each in self.values if each.differs)]


def list_flows(*, with_old: bool = False) -> Query[list[ListedFlow]]:
    """Return all flows in the database; of those with versions the current one, or all."""
    source = "pgflowd.list_flows(%s)"
    return documents(ListedFlow, source, (with_old,), import_s="null::float8")


def flow_names() -> Query[list[str]]:
    """Return the slugs of all flows, versions included."""
    query = "select flow_slug from pgflow.flows order by flow_slug"
    return Query(query, (), lambda rows: [row[0] for row in rows])


def flow_shape(flow_slug: str) -> Query[dict[str, Any] | None]:
    """Return the shape of a flow, with the options in force; None for an unknown flow."""
    return Query("select pgflowd.flow_shape(%s)", (flow_slug,), lambda rows: decode(only(rows)))


def input_schema(name: str) -> Query[Any]:
    """Return the JSON Schema of what runs of a flow take; None if the code does not say."""
    return Query("select pgflowd.input_schema(%s)", (name,), lambda rows: decode(only(rows)))


def living_workers() -> Query[list[tuple[str, str]]]:
    """Return queue and name of each worker that is awake, of any runtime."""
    return Query(_LIVING_WORKERS, (), lambda rows: [(queue, name) for queue, name in rows])


def unserved_queues() -> Query[dict[str, dict[str, float]]]:
    """Return the ready messages of flows that no worker of any daemon serves, as `status` has those
    of a flow: their number, and the age of the oldest."""

    def read(rows: Rows) -> dict[str, dict[str, float]]:
        return {slug: {"queued": count, "oldest_queued_s": age_s} for slug, count, age_s in rows}

    query = "select flow_slug, queued, oldest_queued_s from pgflowd.unserved_queues()"
    return Query(query, (), read)


def is_paused(slug: str) -> Query[bool]:
    """Whether the flow is paused as a whole."""
    query = "select exists (select from pgflowd.paused_flows where flow_slug = %s)"
    return Query(query, (slug,), only)


def is_served(flow_slug: str) -> Query[bool]:
    """Return whether a worker of a flow lives, or is started when there is work."""
    return Query(_IS_SERVED, (flow_slug,), only)


def worker_caps(flow_slug: str) -> Query[list[WorkerCaps]]:
    """Return what the living workers of a flow have, of those that have something."""
    return documents(WorkerCaps, "pgflowd.list_caps(%s)", (flow_slug,))


def queued_messages(conn: SyncConnection) -> list[tuple[str, int, float | None]]:
    """Return each flow with the number of its ready messages and the age of the oldest."""
    flows = conn.execute(
        """select flow_slug, to_regclass('pgmq.q_' || lower(flow_slug collate "C")) is not null"""
        "  from pgflow.flows order by flow_slug"
    ).fetchall()
    found = []
    for slug in (slug for slug, has_queue in flows if has_queue):
        table, most = sql.Identifier("pgmq", f"q_{slug.lower()}"), sql.Literal(MAX_COUNTED)
        row = conn.execute(sql.SQL(_QUEUED).format(table=table, most=most)).fetchone()
        assert row is not None
        found.append((slug, int(row[0]), row[1]))
    return found


def compare(conn: SyncConnection, slug: str, shape: Shape) -> Comparison:
    """How the flow in the database differs from this shape: a version that has it, else the
    current one."""
    current = execute(conn, definitions.current_flow(slug))
    found = definitions.find_version(conn, slug, shape)
    known = execute(conn, flow_shape(found or current))
    if known is None:
        return Comparison(exists=False)
    values = execute(conn, definitions.option_values(found or current, shape))
    stale = definitions.stale_parts(conn, Code(slug, shape), found or current)
    shapes = changes_between(known, shape)
    return Comparison(True, shapes, values, found or current, current, stale)


@contextmanager
def as_owner(conn: SyncConnection) -> Iterator[None]:
    """One transaction, in which this role acts as the owner of the schema, if it may."""
    with translated(conn), conn.transaction():
        if fetch_value(conn, _MAY_BE_OWNER):
            conn.execute(f"set local role {OWNER}".encode())
        yield


@dataclass(frozen=True)
class Deployed:
    """What a deployment did: created the flow, or changed options, which are listed as texts."""

    is_new: bool
    changes: list[str]
    warnings: list[Problem]
    flow_slug: str  # the flow, or the version of it


def deploy(
    conn: SyncConnection,
    slug: str,
    shape: Shape,
    *,
    take_code: bool = False,
    may_change: bool = False,
    code: str | None = None,
) -> Deployed:
    """
    Create the flow, its queue and trigger, or let its options follow.

    A shape that starts by name do not get yet becomes the current version, if it `may_change`;
    else E306. `code` says what was deployed, such as a commit.
    """
    with as_owner(conn):
        compared = compare(conn, slug, shape)
        if compared.exists and compared.is_new_version and may_change:
            version = definitions.deploy_version(slug, shape, code, take_code=take_code)
            found, is_new = execute(conn, version)
            warnings, _ = definitions.define(conn, Code(slug, shape), "verify")
            changed = [one for one in compared.values if take_code or not one.is_tuned]
            defined = definitions.Defined(warnings, [one.change for one in changed if one.differs])
        else:
            defined = definitions.define(conn, Code(slug, shape), "create", take_code=take_code)
            found, is_new = compared.flow_slug or slug, not compared.exists
        conn.execute(_WATCH, (found,))
    return Deployed(is_new, defined.changes, defined.warnings, found)


def active_runs(slug: str) -> Query[int]:
    """How many runs of the flow have not ended."""
    return Query("select pgflowd.active_runs(%s)", (slug,), only)


def script(slug: str, shape: Shape, place: str, *, may_change: bool = False) -> str:
    """The SQL that deploys the flow.

    If the database has another shape of it, it makes the next version, or raises.
    """
    tag = "$pgflowd$"
    text = json.dumps(shape, indent=1, ensure_ascii=False).replace("'", "''")
    while tag in text:
        tag = f"{tag[:-1]}_$"
    otherwise = _CHANGE if may_change else _REFUSE
    return _SCRIPT.format(
        slug=slug, shape=text, place=one_line(place), tag=tag, otherwise=otherwise.format(slug=slug)
    )


_LIVING_WORKERS = """
select queue_name, function_name from pgflowd.worker_status
 where not is_asleep and last_heartbeat_at > now() - interval '30 s' order by 1, 2
"""
_IS_SERVED = """
select exists (select from pgflowd.worker_status
                where lower(queue_name) = lower(%s)
                  and (is_asleep or last_heartbeat_at > now() - interval '30 s'))
"""
_QUEUED = """
select (select count(*) from (select from {table} where vt <= now() limit {most}) as ready),
       (select extract(epoch from now() - min(vt))::float8 from {table} where vt <= now())
"""
_MAY_BE_OWNER = f"""
select exists (select from pg_catalog.pg_namespace as schema
                 join pg_catalog.pg_roles as role on role.oid = schema.nspowner
                where schema.nspname = 'pgflow' and role.rolname = '{OWNER}'
                  and pg_catalog.pg_has_role(role.oid, 'member'))
"""
_WATCH = "select pgflowd.watch_queue(queue.queue_name) from pgflowd._queues(%s) as queue"
_SCRIPT = """\
-- {slug}, from {place}
do {tag}
declare
  shape constant jsonb := '{shape}';
  version text := coalesce((
    select one.flow_slug from pgflowd.versions_of('{slug}', shape) as one
     where one.has_shape order by one.is_current desc, one.version desc limit 1), '{slug}');
  answer constant jsonb := pgflowd.define(version, shape);
begin
{otherwise}
  perform pgflowd.watch_queue(queue.queue_name) from pgflowd._queues(version) as queue;
end {tag};"""
_REFUSE = """\
  if answer ->> 'status' = 'mismatch' then
    raise exception 'flow {slug} has another shape here: %', answer ->> 'differences'
      using hint = 'flows deploy --sql --yes makes it the next version';
  end if;"""
_CHANGE = """\
  if answer ->> 'status' = 'mismatch' or version <> pgflowd.current_flow('{slug}') then
    select one.flow_slug into version from pgflowd.deploy_version('{slug}', shape) as one;
  end if;"""


# the input of a run, before it starts


def check_input(conn: SyncConnection, flow: str, input: Any) -> None:
    """Raise TypeMismatch for an input that does not fit; without a schema every one does."""
    schema = execute(conn, input_schema(flow))
    if schema is not None and (fault := fault_of(schema, input, "input")):
        raise TypeMismatch(f"{flow}: {fault}", next=f"see `pgflowd flows schema {flow}`")


BUCKETS = 12  # of an hour: five minutes each
NO_RUNS = RunBucket(0, 0)


def roll_up_minutes() -> Query[int]:
    """Add old minutes of the statistics up to hours; return how many."""
    return Query("select pgflowd.roll_up_minutes()", (), only)


def flow_stats(flow_slug: str | None, since_s: float) -> Query[list[StepStats]]:
    """Return what workers did within this time, by flow and step; step '' has the runs."""
    params = (since_s, flow_slug, since_s)
    source = "pgflowd.flow_stats(%s, make_interval(secs => %s))"
    return documents(StepStats, source, params, since_s="%s::float8")


def flow_buckets(
    flow_slug: str | None, since_s: float, count: int = BUCKETS
) -> Query[dict[str, list[RunBucket]]]:
    """Return how many runs of each flow ended in so many pieces of this time, the oldest first."""

    def read(rows: Rows) -> dict[str, list[RunBucket]]:
        found: dict[str, list[RunBucket]] = defaultdict(lambda: [NO_RUNS] * count)
        for slug, place, ok, failed in rows:
            found[slug][place] = RunBucket(ok, failed)
        return found

    return Query(_FLOW_BUCKETS, (flow_slug, since_s, count), read)


def flow_work(flow_slug: str | None) -> Query[list[FlowWork]]:
    """Return the open work of flows, or of one."""
    columns = {"ready": "queued", "oldest_ready_s": "oldest_queued_s", "waits": _WAITS}
    return documents(FlowWork, _FLOW_WORK, (flow_slug, flow_slug), **columns)


_FLOW_BUCKETS = """
select flow_slug, bucket, ok, failed from pgflowd.flow_buckets(%s, make_interval(secs => %s), %s)
"""
_WAITS = """
(select coalesce(jsonb_object_agg(waits.kind, waits.waiting), '{}')
   from pgflowd.waiting_tasks() as waits where waits.flow_slug = status.flow_slug)
"""
_FLOW_WORK = """
pgflowd.flow_status as status
 where %s::text is null or status.flow_slug = any (pgflowd.flows_of(%s))
 order by status.flow_slug
"""


# what needs attention


def overview_counts() -> Query[OverviewCounts]:
    return document(OverviewCounts, "pgflowd.overview_counts()")


# the newest runs of a flow, with the status of their steps


MAX_RUNS = 30


def flow_grid(flow_slug: str, most: int = MAX_RUNS) -> Query[FlowGrid]:
    """Return the newest runs of a flow, of all its versions, that have begun."""

    def read(rows: Rows) -> FlowGrid:
        runs = []
        for run_id, slug, status, started_at, ended_at, slugs, statuses in rows:
            steps = dict(zip(slugs or (), map(StepStatus, statuses or ()), strict=True))
            runs.append(GridRun(run_id, slug, RunStatus(status), started_at, ended_at, steps))
        return FlowGrid(flow_slug, runs)

    return Query(_FLOW_GRID, (flow_slug, most), read)


_FLOW_GRID = """
select run_id, flow_slug, status, started_at, ended_at, steps, statuses
  from pgflowd.flow_grid(%s, %s)
"""
