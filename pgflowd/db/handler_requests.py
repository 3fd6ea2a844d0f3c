"""
The queries that answer what handlers ask for; workers execute them, and drains in tests.

They save, read and drop the checkpoints of a task, and start its child runs; the claim's token must
be shown to change them. Values are JSON as text, which is cast in the database alone. `save` and
`drop` never wait for a lock: where another session has the task they return False, and are to be
called again soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pgflowd.core.documents.run_tasks import FamilyMember
from pgflowd.core.json import dumps
from pgflowd.core.worker.state import FetchRequest, HandlerRequest
from pgflowd.core.worker.task import Task
from pgflowd.db import workers
from pgflowd.db.query import Query, Rows, documents, only

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


def start(task: Key, token: int, child_id: str, given: str) -> Query[bytes | None]:
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
        return workers.run_input(task.run_id)
    if request.kind is HandlerRequest.STEP_OUTPUT:
        return workers.step_output(task.run_id, request.step)
    if request.kind is HandlerRequest.WISHES:
        return workers.run_wishes(task.run_id)
    if request.kind is HandlerRequest.ORIGINAL:
        return workers.read_original(task.key, request.parts)
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
        return start(task.key, token, request.runs[0], request.data.decode())
    if request.kind is HandlerRequest.DROP:
        return drop(task.key, token, name)
    data, version = request.data.decode(), request.version
    return save(task.key, token, name, data, version, lease_s)
