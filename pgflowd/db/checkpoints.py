"""
Saves, reads and drops the checkpoints of a task; the claim's token must be shown to change them.

Values are JSON as text, which is cast in the database alone. `save` and `drop` never wait for a
lock: where another session has the task they return False, and are to be called again soon.
"""

from __future__ import annotations

from pgflowd.core.json import dumps
from pgflowd.db.query import Query, Rows, only

MAX_LOADED_BYTES = 16 * 1024 * 1024  # as they are stored, compressed perhaps
Key = tuple[str, str, int]  # run, step, index


def save(
    task: Key, token: int, name: str, data: str, version: int = 1, lease_s: float = 30.0
) -> Query[bool]:
    """Save a value, and renew the lease; return whether it is done."""
    return Query(_SAVE, (*task, token, name, data, version, lease_s), _is_done)


def drop(task: Key, token: int, name: str) -> Query[bool]:
    """Delete a checkpoint, if there is one; return whether it is done."""
    return Query(_DROP, (*task, token, name), _is_done)


def load(task: Key) -> Query[bytes]:
    """Return the checkpoints of a task, as a JSON list of name, version and data.

    They may be many: the data of those beyond 16 MiB is left out, and read one by one.
    """
    return Query(_LOAD, (MAX_LOADED_BYTES, *task), _as_json)


def load_one(task: Key, name: str) -> Query[bytes]:
    """Return this checkpoint alone, if there is one, as such a list."""
    return Query(_LOAD_ONE, (*task, name), _as_json)


def _is_done(rows: Rows) -> bool:
    return bool(only(rows) == "ok")


def _as_json(rows: Rows) -> bytes:
    return b"[%b]" % b",".join(
        b'{"name":%b,"version":%d%b}' % (dumps(name).encode(), version, _field(data))
        for name, version, data in rows
    )


def _field(data: bytes | None) -> bytes:
    return b"" if data is None else b',"data":' + data


_SAVE = """
select pgflowd.checkpoint_save(%s, %s, %s, %s, %s, %s, %s, make_interval(secs => %s))
"""
_DROP = "select pgflowd.checkpoint_drop(%s, %s, %s, %s, %s)"
_LOAD = """
select name, version,
       case when sum(pg_column_size(data)) over (order by name) <= %s then data end
  from pgflowd.checkpoint_load(%s, %s, %s)
"""
_LOAD_ONE = """
select name, version, data from pgflowd.checkpoint_load(%s, %s, %s) where name = %s
"""
