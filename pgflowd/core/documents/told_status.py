"""
Reads the status document of a row of `pgflowd.daemons`, which any worker's role may write.

It may come from another version, or from somebody who wants to do harm. What is returned has each
key that pages and screens use, with a value of its type and of a bounded size, and no other. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any
from uuid import UUID

from pgflowd.core.documents import SCHEMA_VERSION
from pgflowd.core.metrics.counters import is_number
from pgflowd.core.statuses import DaemonState, DatabaseState
from pgflowd.core.supervision.tree import ChildState

Reader = Callable[[Any], Any]

_MOST_CHARS = 1000  # of a text; SQL cuts those of problems before they travel
_MOST_MEMBERS = 100  # of an object with any keys, and of a list of texts
_MOST = 1e15  # of a number: what is more cannot be meant


def told_status(document: Any) -> dict[str, Any]:
    """
    The document as `status --json` has it, but for the id and the start, which the row knows.

    What is odd in it is left out, null, zero or empty; an odd state is degraded or disabled.
    """
    read: dict[str, Any] = _STATUS(document)
    return read


def _object(keys: Mapping[str, Reader]) -> Reader:
    """Of an object with these keys."""

    def read(value: Any) -> dict[str, Any]:
        given = value if isinstance(value, Mapping) else {}
        return {key: reader(given.get(key)) for key, reader in keys.items()}

    return read


def _objects(read: Reader) -> Reader:
    return lambda value: [read(one) for one in _list(value) if isinstance(one, Mapping)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _maybe(read: Reader, kind: type) -> Reader:
    return lambda value: read(value) if isinstance(value, kind) else None


def _text(value: Any) -> str:
    return value[:_MOST_CHARS] if isinstance(value, str) else ""


def _texts(value: Any) -> list[str]:
    return [_text(each) for each in _list(value)[-_MOST_MEMBERS:] if isinstance(each, str)]


def _state_of(states: Iterable[str], otherwise: str) -> Reader:
    """Of one of these words."""
    known = set(states)
    return lambda value: value if isinstance(value, str) and value in known else otherwise


def _number(value: Any) -> int | float | None:
    return value if is_number(value) and abs(value) < _MOST and isfinite(value) else None


def _count(value: Any) -> int:
    return int(_number(value) or 0)


def _maybe_count(value: Any) -> int | None:
    return None if (number := _number(value)) is None else int(number)


def _counts(value: Any) -> dict[str, int]:
    """Of an object whose keys nobody knows: numbers by what they count."""
    return {_text(key)[:40]: _count(one) for key, one in list(value.items())[:_MOST_MEMBERS]}


def _some_counts(value: Any) -> dict[str, int]:
    return _counts(value) if isinstance(value, Mapping) else {}


def _id(value: Any) -> str | None:
    try:
        return str(UUID(value)) if isinstance(value, str) else None
    except ValueError:
        return None


_maybe_text = _maybe(_text, str)
_child_state = _state_of([*ChildState, "waiting"], ChildState.DISABLED.value)
_PROCESS: dict[str, Reader] = {
    "state": _child_state, "pid": _maybe_count, "up_s": _number, "restarts": _count,
}  # fmt: skip
_FLOW = _object(
    {
        "slug": _text,
        "undoes": _maybe_text,
        "old_version_of": _maybe_text,
        "open_runs": _maybe_count,
        **_PROCESS,
        "worker_id": _id,
        "running": _count,
        "max_concurrency": _maybe_count,
        "queued": _maybe_count,
        "waiting": _maybe_count,
        "waits": _maybe(_counts, dict),
        **dict.fromkeys(("oldest_queued_s", "oldest_running_s"), _number),
        **dict.fromkeys(("completed_1m", "failed_1m"), _maybe_count),
        **dict.fromkeys(("p50_s", "p95_s"), _number),
        "error": _maybe(_object({"code": _maybe_text, "text": _text}), dict),
        "zygote": _maybe_count,
        "runners": _count,
        "stuck": _count,
        "exits": _texts,
        **dict.fromkeys(("parked_s", "retry_in_s", "asleep_s", "next_due_in_s"), _number),
        **dict.fromkeys(("import_s", "age_s"), _number),
    }
)
_STATUS = _object(
    {
        "schema_version": lambda _: SCHEMA_VERSION,
        "id": _text,
        "name": _text,
        "host": _text,
        "version": _text,
        "state": _state_of(DaemonState, DaemonState.DEGRADED.value),
        "pid": _count,
        "started_at": _text,
        "up_s": lambda value: float(_number(value) or 0),
        "supervisor": _object(
            {
                "strategy": _text,
                "restarts": _count,
                "max_restarts": _count,
                "max_period_s": lambda value: float(_number(value) or 0),
                "connections": _object({"most": _maybe_count, "taken": _count, "waiting": _count}),
            }
        ),
        "database": _object(
            {
                "state": _state_of(DatabaseState, DatabaseState.UNKNOWN.value),
                **dict.fromkeys(("server", "place", "pgmq"), _maybe_text),
                "schema": _maybe_count,
                "rtt_s": _number,
                "clock_skew_s": _number,
            }
        ),
        "listener": _object(
            {
                **_PROCESS,
                "reconnects": _count,
                "last_notification_s": _number,
                "wakes_1m": _some_counts,
            }
        ),
        "sweeper": _object(
            {
                **_PROCESS,
                "interval_s": _number,
                "last_sweep_s": _number,
                **dict.fromkeys(("recovered_24h", "given_up_24h"), _maybe_count),
                "due_late_s": _number,
            }
        ),
        "http": _object(
            {**_PROCESS, "listen": _maybe_text, "requests": _count, "last_request_s": _number}
        ),
        "exporter": _object(
            {**_PROCESS, "endpoint": _maybe_text, "spans": _some_counts, "queued": _count}
        ),
        "flows": _objects(_FLOW),
        "problems": _objects(
            _object({"code": _maybe_text, "flow": _maybe_text, "text": _text, "next": _maybe_text})
        ),
    }
)
