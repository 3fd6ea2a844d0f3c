"""
Reads and writes a worker's row, and answers what its handlers ask for.

A worker inserts its row, renews it together with its leases, and marks it stopped as it ends; the
sweeper renews the rows of workers without leases. Before that the worker makes sure that the flow
in the database is the one in the code. The columns of `pgflow.workers` are a public part of the
contract, as are `runs.input` and `step_states.output`.

Handlers save, read and drop the checkpoints of a task, and start its child runs; the claim's token
must be shown to change them. Values are JSON as text, which is cast in the database alone. `save`
and `drop` never wait for a lock: where another session has the task they return False, and are to
be called again soon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from pgflowd.core.documents.run_tasks import FamilyMember
from pgflowd.core.json import dumps
from pgflowd.core.output_stream import MAX_RUNS
from pgflowd.core.undo import PARTS
from pgflowd.core.worker.state import FetchRequest, HandlerRequest, RowState, Standing
from pgflowd.core.worker.task import Task
from pgflowd.db.connection import translated
from pgflowd.db.query import Query, Rows, documents, fetch_value, only

_NOTE_CAPS = """
insert into pgflowd.worker_caps as known (worker_id, caps) values (%s, %s)
    on conflict (worker_id) do update set caps = excluded.caps
"""
MAX_ORIGINAL = 64 * 1024  # bytes that come with a claim; who takes more asks for it
MAX_COUNTED = 10_000  # waiting messages; to count more takes too long


Connection = psycopg.Connection[Any]


def insert_row(
    conn: Connection, worker_id: UUID, queue: str, name: str, caps: Sequence[str] = ()
) -> None:
    """
    Insert the worker's row, or take up that of a worker that has slept, or tried before.

    Its caps are noted beside it, for those who ask who can do what.
    """
    query = """
    insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, %s, %s)
        on conflict (worker_id) do update set last_heartbeat_at = now() returning xmax <> 0
    """
    with translated(conn):
        is_known = fetch_value(conn, query, (worker_id, queue, name))
        if is_known:
            resume = "update pgflow.workers set stopped_at = null where worker_id = %s"
            conn.execute(resume, (worker_id,))
        if caps:
            conn.execute(_NOTE_CAPS, (worker_id, list(caps)))
        elif is_known:  # it may have had some before a reload
            conn.execute("delete from pgflowd.worker_caps where worker_id = %s", (worker_id,))


def watch(conn: Connection, queue: str, *, may_write: bool) -> bool:
    """Make an insert into the queue wake workers, if allowed; return whether it does."""
    query = """
    select exists (select from pg_trigger as trigger
                    where trigger.tgrelid = to_regclass(%s) and trigger.tgname = 'pgflowd_notify')
    """
    if fetch_value(conn, query, (f'pgmq."q_{queue}"',)):
        return True
    if not may_write:
        return False
    try:
        conn.execute("select pgflowd.watch_queue(%s)", (queue,))
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


def wanted_output(conn: Connection) -> list[str]:
    """Return the runs whose followers want what handlers print."""
    return [str(run) for run in fetch_value(conn, "select pgflowd.wanted_output(%s)", (MAX_RUNS,))]


def renew_row(worker_id: UUID, queue: str) -> Query[Standing]:
    """Renew the worker's row; return how it and the queue are, and whose output is wanted."""
    table = sql.Identifier("pgmq", f"q_{queue}")
    query = sql.SQL(
        """
        update pgflow.workers as worker set last_heartbeat_at = now()
         where worker.worker_id = %s
        returning worker.deprecated_at is not null,
          (select count(*)
             from (select from {table} where vt <= now() order by vt limit {most}) as waiting),
          (select array[extract(epoch from now() - vt)::text, left(message ->> 'run_id', 36)]
             from {table} where vt <= now() order by vt limit 1),
          (select extract(epoch from min(vt) - now())::float8 from {table} where vt > now()),
          pgflowd.wanted_output({runs})
        """
    ).format(table=table, most=sql.Literal(MAX_COUNTED), runs=sql.Literal(MAX_RUNS))
    return Query(query.as_string(), (worker_id,), _standing)


def renew_rows(worker_ids: Sequence[str], after_s: float) -> Query[list[tuple[str, Standing]]]:
    """Renew the rows of those that were not renewed for so long; return how they and the queues
    are."""
    query = """
    select worker_id::text, is_deprecated, visible, oldest_s, oldest_run, due_in_s
      from pgflowd.renew_workers(%s::uuid[], make_interval(secs => %s))
    """
    return Query(query, (list(worker_ids), after_s), lambda rows: list(map(_renewed, rows)))


def next_due(queue: str) -> Query[tuple[float | None, int]]:
    """
    Return in how many seconds the next hidden message becomes visible, and how many are now; of a
    paused flow none.
    """
    query = sql.SQL(
        """
        select (select extract(epoch from min(vt) - now())::float8 from {table} where vt > now()),
          (select count(*)
             from (select from {table} where vt <= now() order by vt limit {most}) as waiting)
         where not exists (select from pgflowd.paused_flows where queue_name = {queue})
        """
    ).format(
        table=sql.Identifier("pgmq", f"q_{queue}"),
        most=sql.Literal(MAX_COUNTED),
        queue=sql.Literal(queue),
    )
    return Query(
        query.as_string(), (), lambda rows: (rows[0][0], rows[0][1]) if rows else (None, 0)
    )


def look_at_queues(queues: Sequence[str]) -> Query[list[tuple[str, float]]]:
    """In how many seconds the next message of each queue becomes visible; 0 or less: now."""
    query = "select queue_name, due_in_s from pgflowd.look_at_queues(%s)"
    return Query(query, (list(queues),), lambda rows: [(name, due_in_s) for name, due_in_s in rows])


def renew_sleeping(worker_ids: Sequence[str]) -> Query[None]:
    """Renew the rows of workers that sleep, except locked ones."""
    query = """
    update pgflow.workers as worker set last_heartbeat_at = now()
      from (select known.worker_id from pgflow.workers as known
             where known.worker_id = any (%s::uuid[])
             order by known.worker_id for no key update skip locked) as due
     where worker.worker_id = due.worker_id
    returning 1
    """
    return Query(query, (list(worker_ids),), lambda rows: None)


def mark_stopped(worker_id: UUID, *, keeps_doorbell: bool) -> Query[None]:
    """Mark the worker's row stopped, and take its doorbell down, unless it only sleeps."""
    query = """
    with bell as (delete from pgflowd.doorbells as bell where bell.owner = %s and not %s)
    update pgflow.workers as worker set stopped_at = now() where worker.worker_id = %s returning 1
    """
    return Query(query, (worker_id, keeps_doorbell, worker_id), lambda rows: None)


def add_minute(flow_slug: str, steps: Sequence[Mapping[str, Any]]) -> Query[None]:
    """Add to the statistics what was done since the last time."""
    query = "select pgflowd.add_minute(%s, %s::jsonb)"
    return Query(query, (flow_slug, json.dumps(steps)), lambda rows: None)


def run_input(run_id: str) -> Query[bytes | None]:
    return Query("select input from pgflow.runs where run_id = %s", (run_id,), _first)


def run_wishes(run_id: str) -> Query[bytes | None]:
    """Read what the start of a run asked for, as JSON; None if it had no wishes."""
    query = """
    select jsonb_build_object('labels', run.labels, 'start_at', run.start_at)
      from pgflowd.runs as run where run.run_id = %s
    """
    return Query(query, (run_id,), _first)


def step_output(run_id: str, step: str) -> Query[bytes | None]:
    query = "select output from pgflow.step_states where run_id = %s and step_slug = %s"
    return Query(query, (run_id, step), _first)


def read_original(task: tuple[str, str, int], parts: Sequence[str]) -> Query[bytes | None]:
    """Read the task that this one undoes, as JSON; None if there is nothing to undo."""
    query = "select undo, output, run_input, item from pgflowd.read_original(%s, %s, %s, %s)"
    return Query(query, (*task, list(parts)), lambda rows: _joined(rows[0]) if rows else None)


def read_originals(
    keys: Sequence[tuple[str, str, int]], asked: Mapping[str, Sequence[str]]
) -> Query[dict[tuple[str, str, int], bytes]]:
    """Read the tasks that these undo, by their keys, but for those of which much is asked."""
    runs, steps, indexes = ([*column] for column in zip(*keys, strict=True))
    params = (runs, steps, indexes, json.dumps(dict(asked)), MAX_ORIGINAL)
    return Query(
        "select ord, undo, output, run_input, item"
        "  from pgflowd.read_originals(%s::uuid[], %s, %s, %s, %s)",
        params,
        lambda rows: {keys[ord - 1]: _joined(row) for ord, *row in rows},
    )


def _joined(row: Sequence[bytes | None]) -> bytes:
    """Join what the database has as JSON; a part that is not there has no key."""
    named = zip(("undo", *PARTS), row, strict=True)
    return b"{%b}" % b",".join(b'"%b":%b' % (k.encode(), v) for k, v in named if v is not None)


def _standing(rows: Rows) -> Standing:
    if not rows:
        return Standing(RowState.GONE)
    is_deprecated, queued, oldest, due_in_s, followed = rows[0]
    row = RowState.DEPRECATED if is_deprecated else RowState.OK
    text, run_id = oldest or (None, None)
    waits_s = None if text is None else float(text)
    return Standing(row, queued, waits_s, due_in_s, run_id, tuple(map(str, followed)))


def _renewed(row: Sequence[Any]) -> tuple[str, Standing]:
    worker_id, is_deprecated, visible, oldest_s, oldest_run, due_in_s = row
    if is_deprecated is None:
        return worker_id, Standing(RowState.GONE)
    state = RowState.DEPRECATED if is_deprecated else RowState.OK
    return worker_id, Standing(state, visible or 0, oldest_s, due_in_s, oldest_run)


def _first(rows: Rows) -> bytes | None:
    return rows[0][0] if rows else None


MAX_LOADED_BYTES = 16 * 1024 * 1024  # as they are stored, compressed perhaps
Key = tuple[str, str, int]  # run, step, index


def save(
    task: Key, token: int, name: str, data: str, version: int = 1, lease_s: float = 30.0
) -> Query[bool]:
    """Save a value, and renew the lease; return whether it is done."""
    call = "pgflowd.checkpoint_save(%s, %s, %s, %s, %s, %s, %s, make_interval(secs => %s))"
    return Query(f"select {call}", (*task, token, name, data, version, lease_s), _is_done)


def drop(task: Key, token: int, name: str) -> Query[bool]:
    """Delete a checkpoint, if there is one; return whether it is done."""
    query = "select pgflowd.checkpoint_drop(%s, %s, %s, %s, %s)"
    return Query(query, (*task, token, name), _is_done)


def load(task: Key) -> Query[bytes]:
    """Return the checkpoints of a task, as a JSON list of name, version and data.

    They may be many: the data of those beyond 16 MiB is left out, and read one by one.
    """
    return Query(_LOAD, (MAX_LOADED_BYTES, *task), _as_json)


def load_one(task: Key, name: str) -> Query[bytes]:
    """Return this checkpoint alone, if there is one, as such a list."""
    query = "select name, version, data from pgflowd.checkpoint_load(%s, %s, %s) where name = %s"
    return Query(query, (*task, name), _as_json)


def _is_done(rows: Rows) -> bool:
    return bool(only(rows) == "ok")


def _as_json(rows: Rows) -> bytes:
    return b"[%b]" % b",".join(
        b'{"name":%b,"version":%d%b}'
        % (dumps(name).encode(), version, b"" if data is None else b',"data":' + data)
        for name, version, data in rows
    )


_LOAD = """
select name, version,
       case when sum(pg_column_size(data)) over (order by name) <= %s then data end
  from pgflowd.checkpoint_load(%s, %s, %s)
"""


# child runs


MAX_READ_BYTES = 16 * 1024 * 1024  # of outputs in one answer, as they are stored


def start_child(task: Key, token: int, child_id: str, given: str) -> Query[bytes | None]:
    """Start a child from a JSON with flow, input and wishes, unless that was done before.

    Return the id of the run as JSON; None while another session has the task: call it again soon.
    """

    def read(rows: Rows) -> bytes | None:
        run_id = only(rows)
        return None if run_id is None else dumps(str(run_id)).encode()

    query = "select pgflowd.start_child(%s, %s, %s, %s, %s, %s)"
    return Query(query, (*task, token, child_id, given), read)


def children(task: Key) -> Query[bytes]:
    """Return pairs of child and run that a task has started, as JSON."""
    query = "select child_id::text, run_id::text from pgflowd.list_children(%s, %s, %s)"
    return Query(query, task, lambda rows: dumps([list(row) for row in rows]).encode())


def read_runs(run_ids: Sequence[str]) -> Query[bytes]:
    """Return id, status, output and error of the first of these runs, one at least, as JSON.

    PF002 for an unknown one.
    """

    def read(rows: Rows) -> bytes:
        return b"[%b]" % b",".join(
            b"[%b,%b,%b]"
            % (dumps([run_id, status])[1:-1].encode(), output or b"null", dumps(error).encode())
            for run_id, status, output, error in rows
        )

    query = "select run_id::text, status, output, error from pgflowd.read_runs(%s::uuid[], %s)"
    return Query(query, (list(run_ids), MAX_READ_BYTES), read)


def family(run_id: UUID, most: int = 1000) -> Query[list[FamilyMember]]:
    """Return the family of a run: each run after its parent, and children by age."""
    return documents(FamilyMember, "pgflowd.run_family(%s, %s)", (run_id, most))


def reading(request: FetchRequest, task: Task) -> Query[Any] | None:
    """What a handler reads; None if it changes something."""
    if request.kind is HandlerRequest.RUN_INPUT:
        return run_input(task.run_id)
    if request.kind is HandlerRequest.STEP_OUTPUT:
        return step_output(task.run_id, request.step)
    if request.kind is HandlerRequest.WISHES:
        return run_wishes(task.run_id)
    if request.kind is HandlerRequest.ORIGINAL:
        return read_original(task.key, request.parts)
    if request.kind is HandlerRequest.CHECKPOINTS:
        one = request.checkpoint
        return load_one(task.key, one) if one else load(task.key)
    if request.kind is HandlerRequest.CHILDREN:
        return children(task.key)
    if request.kind is HandlerRequest.RUNS:
        return read_runs(request.runs)
    return None


def changing(request: FetchRequest, task: Task, lease_s: float) -> Query[Any]:
    """Change something for a task; nothing is done, and false returned, while it is locked."""
    name, token = request.checkpoint, task.token
    if request.kind is HandlerRequest.START:
        return start_child(task.key, token, request.runs[0], request.data.decode())
    if request.kind is HandlerRequest.DROP:
        return drop(task.key, token, name)
    data, version = request.data.decode(), request.version
    return save(task.key, token, name, data, version, lease_s)
