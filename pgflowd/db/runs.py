"""
The queries that start, read, list, change and delete runs, and those that read what has happened:
events, actions, attempts and their values.

There is one truth about a run: the document of `pgflowd.get_run`, which a role that may not read
tables can call too. `pgflow.runs.status` is for other runtimes: to them a cancelled run is
`failed`, and one that waits `started`. The queries that list runs, steps and attempts need the
rights of a viewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import starmap
from typing import Any, Literal, TypeVar
from uuid import UUID

import psycopg

from pgflowd.core.documents.run_tasks import (
    DeadLetter,
    EventPage,
    PersonAction,
    RunEvent,
    StepUndo,
    ValueMember,
    ValuePart,
)
from pgflowd.core.documents.runs import (
    Attempt,
    AttemptOutput,
    FailedAttempt,
    ListedRun,
    Run,
    RunWithStates,
    StepState,
    StepTasks,
    TaskProgress,
)
from pgflowd.core.json import decode
from pgflowd.core.output_stream import read
from pgflowd.core.statuses import RunStatus, StepStatus
from pgflowd.core.sweeper import Kept, Pruned, RunPlace
from pgflowd.core.traces import EndedAttempt, EndedPart
from pgflowd.core.wishes import CheckedWishes, labels_json
from pgflowd.db.query import MOMENT, Query, Rows, document_of, documents, only
from pgflowd.errors import PgflowdError, RunError, Unreachable
from pgflowd.resources import schema_version

Document = dict[str, Any]

FOLLOW_AGAIN_S = 20.0  # a third of the time that `follow` lasts: two may be lost
FOLLOW_SOON_S = 0.2  # while a change is under way that may have looked for followers before


def require_schema() -> Query[None]:
    """Raise E302 unless the schema serves the clients of this release."""
    return Query("select pgflowd.require_schema(%s)", (schema_version(),), lambda _: None)


def start(flow_slug: str, inputs: Sequence[str], run_ids: Sequence[UUID]) -> Query[list[Run]]:
    """Start a run for each input; return them in their order."""
    params = (flow_slug, list(inputs), list(run_ids))
    return Query(_START, params, _runs_of)


def start_followed(flow_slug: str, input: str, run_id: UUID) -> Query[list[Run]]:
    """Start a run and follow it, in one transaction."""
    params = ([run_id], flow_slug, [input], [run_id])
    return Query(_START_FOLLOWED, params, _runs_of)


def start_wished(
    flow_slug: str, inputs: Sequence[str], run_ids: Sequence[UUID | None], wishes: CheckedWishes
) -> Query[list[Run]]:
    """Start runs with the same wishes, in their order."""
    begins, expires, trace = wishes.begins, wishes.expires, wishes.trace or (None, None)
    params = (list(inputs), list(run_ids), flow_slug, begins.at, begins.in_s, expires.at,
              expires.in_s, wishes.labels, wishes.key, wishes.singleton, wishes.on_conflict,
              wishes.actor, list(wishes.after), wishes.after_mode, *trace,
              list(wishes.after_keys) or None)  # fmt: skip
    return Query(_START_WISHED, params, _runs_of)


def get(run_id: UUID) -> Query[Run | None]:
    """Read a run without its steps; None for an unknown one."""

    def read(rows: Rows) -> Run | None:
        row = decode(only(rows))
        return None if row is None else run_of(row)

    return Query("select (pgflowd.get_run(%s, false) -> 'run')::text", (run_id,), read)


def get_with_states(run_id: UUID) -> Query[RunWithStates | None]:
    """Read a run and its steps: in the order in which they started, then those that have not."""

    def order(state: StepState) -> tuple[bool, Any, str]:
        moved = state.started_at or state.skipped_at or state.failed_at
        return (moved is None, moved or 0, state.step_slug)

    def read(rows: Rows) -> RunWithStates | None:
        row = decode(only(rows))
        if row is None:
            return None
        found = [StepState(**_fields(_STATE_FIELDS, StepStatus, each)) for each in row["steps"]]
        steps = {state.step_slug: state for state in sorted(found, key=order)}
        return RunWithStates(**_fields(_RUN_FIELDS, RunStatus, row["run"]), steps=steps)

    return Query("select pgflowd.get_run(%s)::text", (run_id,), read)


def channel(run_id: UUID | str) -> str:
    """Return the channel on which pgflow notifies the events of a run."""
    return f"pgflow:run:{run_id}"


def follow(run_ids: Sequence[UUID], *, with_output: bool = False) -> Query[float]:
    """
    Have the events of these runs notified for a minute, and perhaps what their handlers print.

    Read the runs afterwards. Return in how many seconds to do both again.
    """
    query, params = "select pgflowd.follow(%s, %s)", (list(run_ids), with_output)
    return Query(query, params, lambda rows: FOLLOW_AGAIN_S if only(rows) else FOLLOW_SOON_S)


def output_channels(run_ids: Sequence[UUID]) -> Query[dict[str, UUID]]:
    """Return the channels on which workers send the output of these runs' handlers."""
    query = "select pgflowd.output_channel(run_id), run_id from unnest(%s::uuid[]) as run_id"
    return Query(query, (list(run_ids),), lambda rows: {row[0]: row[1] for row in rows})


def publish_output(payloads: Sequence[tuple[str, str]]) -> Query[None]:
    """Send payloads, each on the output channel of its run."""
    run_ids, texts = [each for each, _ in payloads], [payload for _, payload in payloads]
    return Query(_PUBLISH_OUTPUT, (run_ids, texts), lambda _: None)


def is_end_event(payload: str) -> bool:
    """Whether a notification is probably about the end of its run, judging by its text."""
    return any(event in payload for event in _ENDS)


_ENDS = [f'"run:{status}"' for status in RunStatus if status.is_end]


def list_runs(
    flow_slug: str | None = None,
    statuses: Sequence[str] = (),
    since_s: float | None = None,
    most: int = 20,
    labels: str | None = None,
) -> Query[list[ListedRun]]:
    """Return the newest runs, without those that undo others; `labels` is JSON."""
    since = None if since_s is None else timedelta(seconds=since_s)
    params = (flow_slug, list(statuses) or None, since, most, labels)
    return listed_runs("pgflowd.list_runs(%s, %s, %s, %s, %s::jsonb)", params)


def listed_runs(source: str, params: Sequence[Any]) -> Query[list[ListedRun]]:
    """Read the rows of a source that have the columns of a list."""
    return documents(ListedRun, source, params, **LISTED)


def started_runs(flow_slug: str, most: int) -> Query[list[Run]]:
    """Return the newest runs of a flow with their inputs, also those that have not begun."""
    return Query(_STARTED_RUNS, (flow_slug, most), _runs_of)


def run_steps(run_id: UUID) -> Query[list[StepTasks]]:
    """Return the steps of a run in topological order."""
    return documents(StepTasks, "pgflowd.run_steps(%s)", (run_id,))


_PUBLISH_OUTPUT = """
select pg_notify(pgflowd.output_channel(line.run_id), line.payload)
  from unnest(%s::uuid[], %s::text[]) as line (run_id, payload)
"""
_START = (
    "select started.run::text from pgflowd.start_runs(%s, %s::jsonb[], %s::uuid[]) as started (run)"
)
_START_FOLLOWED = """
select started.run::text, pgflowd.follow(%s)
  from pgflowd.start_runs(%s, %s::jsonb[], %s::uuid[]) as started (run)
"""
_START_WISHED = f"""
select (pgflowd.get_run(started.run_id, false) -> 'run')::text
  from unnest(%s::jsonb[], %s::uuid[]) with ordinality as one (input, run_id, nr)
 cross join lateral pgflowd.start(
   %s, one.input, one.run_id, {MOMENT}, {MOMENT}, %s::jsonb, %s, %s, %s,
   coalesce(%s, session_user), %s::uuid[], %s, %s, %s, %s::text[]) as started
 order by one.nr
"""
LISTED = {"error": "error_message", "labels": "labels::text"}  # the columns of these fields
_STARTED_RUNS = """
select (pgflowd.get_run(run_id, false) -> 'run')::text from pgflowd.list_runs(%s, null, null, %s)
"""


def _runs_of(rows: Rows) -> list[Run]:
    return [run_of(decode(row[0])) for row in rows]


def run_of(row: Document) -> Run:
    """Read a run from its row as JSON."""
    return Run(**_fields(_RUN_FIELDS, RunStatus, row))


def _fields(
    names: Sequence[str], status: Callable[[str], RunStatus | StepStatus], row: Document
) -> Document:
    """The fields of a run or step from a row that may have other columns too, or fewer."""
    found = {name: row.get(name) for name in names}
    for name, value in found.items():
        if value is not None and name.endswith("_at"):
            found[name] = datetime.fromisoformat(value).astimezone(UTC)
        elif value is not None and name in _IDS:
            found[name] = UUID(value) if isinstance(value, str) else list(map(UUID, value))
    return {**found, "error": row.get("error_message"), "status": status(row["status"])}


_IDS = {"run_id", "parent_run_id", "undo_of", "undo_run_id", "blocked_by"}
_RUN_FIELDS = tuple(field.name for field in fields(Run))
_STATE_FIELDS = tuple(field.name for field in fields(StepState))


# many runs: fifty in a transaction; one that refuses keeps none of the others


Connection = psycopg.Connection[Any]
T = TypeVar("T")

AT_ONCE = 50  # in one transaction: it holds their locks until its end
_IN_THE_WAY = (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable)


def change_many(
    conn: Connection, run_ids: Sequence[UUID], change: Callable[[UUID], T]
) -> Iterator[tuple[UUID, T | PgflowdError]]:
    """Change each run; give what became of it, once that has been committed."""
    for first in range(0, len(run_ids), AT_ONCE):
        some = run_ids[first : first + AT_ONCE]
        with suppress(*_IN_THE_WAY):
            with conn.transaction():
                results = [(run_id, _change_one(conn, run_id, change)) for run_id in some]
            yield from results
            continue
        for run_id in some:  # one after the other, as together they were in somebody's way
            try:
                yield run_id, _change_one(conn, run_id, change)
            except _IN_THE_WAY as error:
                text = f"run {run_id} was left as it is: {error.diag.message_primary}"
                yield run_id, RunError(text, next="try it again")


def _change_one(conn: Connection, run_id: UUID, change: Callable[[UUID], T]) -> T | PgflowdError:
    try:
        with conn.transaction():
            return change(run_id)
    except Unreachable:
        raise
    except PgflowdError as error:
        return error


# undo


def has_undos(flow_slug: str) -> Query[bool]:
    """Whether a step of the flow has an undo."""
    flow = "select from pgflow.flows where flow_slug = pgflowd._undo_flow(%s)"
    return Query(f"select exists ({flow})", (flow_slug,), only)


def run_undos(run_id: UUID) -> Query[dict[str, StepUndo]]:
    """Return how far each step is undone of which something is, or was, to be undone."""
    undos = documents(StepUndo, "pgflowd.run_undos(%s)", (run_id,))
    return undos.then(lambda found: {one.step_slug: one for one in found})


# deletion, and how much a database keeps


PRUNED_AT_ONCE = 100  # runs of one transaction, some hundredths of a second


def prune_next(
    older_than_s: float,
    flow_slug: str | None,
    place: RunPlace | None,
    *,
    labels: Mapping[str, str],
    keep_failed: bool,
    only_count: bool,
    is_first: bool,
) -> Query[Pruned]:
    """Delete the next runs, or count them; `is_first`: of this prune, so it leaves an action."""
    age = timedelta(seconds=older_than_s)
    chosen = (age, flow_slug, keep_failed, PRUNED_AT_ONCE, only_count, *(place or NOWHERE))
    params = (*chosen, is_first, labels_json(labels or None))
    return Query(_PRUNE_NEXT, params, _read_pruned)


def prune_expired(
    place: RunPlace | None, most: int = PRUNED_AT_ONCE, *, is_skipped: bool = False
) -> Query[Pruned]:
    """Delete the next runs that are older than the settings allow, or go past them."""
    return Query(_PRUNE_EXPIRED, (most, *(place or NOWHERE), is_skipped), _read_pruned)


def kept() -> Query[Kept]:
    """Return how much the database keeps; it asks for the sizes of all files."""
    return Query(_KEPT, (), lambda rows: Kept(*rows[0]))


def _read_pruned(rows: Rows) -> Pruned:
    runs, *place = rows[0]
    return Pruned(runs, None if place[0] is None else RunPlace(*place))


NOWHERE = (None, None)
_PRUNE_NEXT = """
select pruned, after_at, after_run
  from pgflowd.prune_next(%s, %s, %s, %s, %s, %s, %s, case when %s then session_user end,
                          labels => %s::jsonb)
"""
_PRUNE_EXPIRED = "select pruned, after_at, after_run from pgflowd.prune_expired(%s, %s, %s, %s)"
_KEPT = """
select (select sum(pg_total_relation_size(class.oid))::bigint
          from pg_catalog.pg_class as class
          join pg_catalog.pg_namespace as schema on schema.oid = class.relnamespace
         where class.relkind in ('r', 'p') and (schema.nspname in ('pgflow', 'pgflowd')
               or schema.nspname = 'pgmq' and class.relname ~ '^[aq]_')),
       (select nullif(greatest(class.reltuples, 0), 0)::bigint from pg_catalog.pg_class as class
         where class.oid = 'pgflow.runs'::regclass),
       (select min(run.started_at) from pgflow.runs as run),
       pgflowd.setting('retention_completed') #>> '{}',
       pgflowd.setting('retention_failed') #>> '{}'
"""


def timeline(
    run_id: UUID,
    after: datetime | None = None,
    before: datetime | None = None,
    most: int | None = None,
) -> Query[list[RunEvent]]:
    """
    Return what happened in a run, in the order of time: `after` this moment, or at it, and
    `before` that one; the newest `most`, and what has the moment of the oldest of these.
    """

    source, params = "pgflowd.run_timeline(%s, %s, %s, %s)", (run_id, after, before, most)
    return documents(RunEvent, source, params, **_PLACE, detail="detail::text")


def event_page(run_id: UUID, before: datetime | None, most: int) -> Query[EventPage]:
    """Return the newest events of a run, or of those before a moment."""
    newest = timeline(run_id, None, before, most)
    return newest.then(lambda one: EventPage(one, one[0].at if len(one) >= most else None))


def list_actions(
    run_id: UUID | None = None,
    after: datetime | None = None,
    actor: str | None = None,
    most: int = 20,
) -> Query[list[PersonAction]]:
    """Return the newest things that people did, the newest first."""
    source, params = "pgflowd.list_actions(%s, %s, %s, %s)", (run_id, after, actor, most)
    return documents(PersonAction, source, params, **_PLACE, flow="flow_slug")


def dead_letters(
    flow_slug: str | None = None, since_s: float | None = None, most: int = 20
) -> Query[list[DeadLetter]]:
    """Return the tasks that failed for good, those of the newest runs first."""
    since = None if since_s is None else timedelta(seconds=since_s)
    source, params = "pgflowd.list_dead(%s, %s, %s)", (flow_slug, since, most)
    return documents(DeadLetter, source, params, **_PLACE, flow="flow_slug", error="error_message")


# attempts: how they ended, and what running ones have told


def run_progress(run_id: UUID) -> Query[list[TaskProgress]]:
    """Return what running tasks of a run have told of their progress."""
    told = documents(TaskProgress, "pgflowd.run_progress(%s)", (run_id,))
    return told.then(lambda found: [one for one in found if one.progress])


def failed_attempts(run_id: UUID, most: int = 1000) -> Query[list[FailedAttempt]]:
    """Return the newest attempts of a run that ended without an output, oldest first."""
    source = "pgflowd.run_troubles(%s, null, %s)"
    return documents(FailedAttempt, source, (run_id, most), **_OF_ATTEMPT)


def attempts(run_id: UUID) -> Query[list[Attempt]]:
    """Return all attempts of a run that are kept, oldest first."""
    return _attempts("run_id = %s order by token", (run_id,))


def task_attempts(run_id: UUID, step: str, task: int, most: int) -> Query[list[Attempt]]:
    """Return the newest attempts of a task that are kept, the newest first."""
    chosen = """
    run_id = %s and step_slug = %s and task_index = %s order by attempt desc, token desc limit %s
    """
    return _attempts(chosen, (run_id, step, task, most))


def _attempts(chosen: str, params: Sequence[Any]) -> Query[list[Attempt]]:
    columns = {**_PLACE, **_OF_ATTEMPT, "progress": "progress::text"}
    return documents(Attempt, f"pgflowd.attempt_history where {chosen}", params, **columns)


def kept_output(
    run_id: UUID, step: str | None, task: int | None, attempt: int | None, most: int
) -> Query[list[AttemptOutput]]:
    """Return what is kept of the output of the newest attempts of a run, step or task."""

    def one(*row: Any) -> AttemptOutput:
        lines, is_cut = (None, False) if row[-1] is None else read(row[-1])
        return document_of(AttemptOutput, (*row[:-1], lines, is_cut))

    params = (run_id, step, task, attempt, most)
    return Query(_KEPT_OUTPUT, params, lambda rows: list(starmap(one, rows)))


_PLACE = {"step": "step_slug", "task": "task_index"}  # the columns of these fields
_OF_ATTEMPT = {"error": "error_message", "output_lines": "printed_lines"}
_KEPT_OUTPUT = """
select step_slug, task_index, token, attempt, outcome, started_at, ended_at, printed
  from pgflowd.kept_output(%s, %s, %s, %s, %s)
"""


# a part of an input or output, so that a large one is not sent whole


MAX_MEMBERS = 200
MAX_BYTES = 64 * 1024


def value_part(
    run_id: UUID,
    step: str | None = None,
    task: int | None = None,
    what: Literal["input", "output"] = "output",
    path: Sequence[str] = (),
    start: int = 0,
    most: int = MAX_MEMBERS,
    max_bytes: int = MAX_BYTES,
) -> Query[ValuePart | None]:
    """
    Return what is at a path of a value of a run, of one of its steps, or of a task.

    `start` counts members, or the characters of a string. None: there is no such value.
    """

    source = "pgflowd.value_part(%s, %s, %s, %s, %s::text[], %s, %s, %s)"
    params = (run_id, step, task, what, list(path), start, most, max_bytes)

    def part(values: list[ValueMember]) -> ValuePart | None:
        if not values:
            return None
        it, *members = values
        return ValuePart(list(path), start, it.type, it.length, it.is_whole, it.value, members)

    return documents(ValueMember, source, params).then(part)


# traces


def trace_id(run_id: UUID) -> Query[str]:
    """Return the id of the trace of a run, also of one that was never traced."""
    return Query("select pgflowd.trace_id(%s)", (run_id,), only)


def export_attempts(most: int) -> Query[list[EndedAttempt]]:
    """Return attempts that have ended, and move the cursor of exports past them; none while
    another daemon exports. In a transaction, which is committed once they are exported."""
    columns = {**_EXPORTED, "error": "error_message"}
    return documents(EndedAttempt, "pgflowd.export_attempts(%s)", (most,), **columns)


def export_runs(run_ids: Sequence[str], most: int) -> Query[list[EndedPart]]:
    """Return these runs that have ended, and some that no report has ended, with their steps: each
    run before its steps. In the transaction of `export_attempts`."""
    source = "pgflowd.export_runs(%s::uuid[], %s) order by run_id, step_slug nulls first"
    return documents(EndedPart, source, (list(run_ids), most), **_EXPORTED)


_EXPORTED = {"run_id": "run_id::text", "flow": "flow_slug", "step": "step_slug", "told": "trace"}
