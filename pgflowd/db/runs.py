"""
Runs: starting, reading, cancelling and retrying them, as calls for `db.query`.

A run is read from the document of `get_run_with_states`, which a role that may read no table
can call, too; so whatever columns a core has more or less do not matter. Cancelled runs are
`failed` to other runtimes; who cancelled, when and why is read from schema `pgflowd` where it
is there and may be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pgflowd.core.documents.runs import Run, RunWithStates, StepState
from pgflowd.core.json.values import decode
from pgflowd.core.output_stream import request_output
from pgflowd.core.statuses import RunStatus, StepStatus
from pgflowd.db.query import Query, Rows, only

Document = dict[str, Any]


@dataclass(frozen=True)
class Abilities:
    """What this role can do in this database, so that nothing is tried in vain."""

    start_many: bool  # by `start_flows`; otherwise one by one, as a role that reads no table
    read_runs: bool  # without their steps
    read_cancelled: bool


def abilities() -> Query[Abilities]:
    return Query(_ABILITIES, (), lambda rows: Abilities(*rows[0]))


def start(flow_slug: str, input: str, run_id: UUID) -> Query[Run]:
    return Query(_START, (flow_slug, input, run_id), lambda rows: run_of(decode(only(rows))))


def start_many(
    flow_slug: str, inputs: Sequence[str], run_ids: Sequence[UUID], can: Abilities
) -> Query[list[Run]]:
    sql = _START_MANY if can.start_many else _START_EACH
    return Query(
        sql, (flow_slug, list(inputs), list(run_ids)), lambda rows: _in_order(rows, run_ids)
    )


def get(run_id: UUID) -> Query[Run | None]:
    return Query(_GET, (run_id,), _run_or_none)


def glance(run_id: UUID, can: Abilities) -> Query[Run | None]:
    """Read a run without making its steps' outputs into a document, if that is allowed."""
    return Query(_GLANCE if can.read_runs else _GET, (run_id,), _run_or_none)


def get_with_states(run_id: UUID) -> Query[RunWithStates | None]:
    return Query(_GET_WITH_STATES, (run_id,), _states_or_none)


def get_cancelled(run_id: UUID) -> Query[tuple[datetime, str | None, str | None] | None]:
    return Query(_GET_CANCELLED, (run_id,), lambda rows: rows[0] if rows else None)


def cancel(run_id: UUID, reason: str | None, actor: str | None) -> Query[str]:
    return Query(_CANCEL, (run_id, reason, actor), only)


def retry(run_id: UUID, actor: str | None, even_if_cancelled: bool) -> Query[int]:
    return Query(_RETRY, (run_id, actor, even_if_cancelled), only)


def channel(run_id: UUID) -> str:
    """The channel on which plain PostgreSQL tells the events of a run."""
    return f"pgflow:run:{run_id}"


def ask_for_output(run_ids: Sequence[UUID]) -> Query[None]:
    """Have workers tell on these channels what handlers print, for a while."""
    return Query(
        _NOTIFY, (["pgflowd"] * len(run_ids), [request_output(each) for each in run_ids]), _nothing
    )


def tell(told: Sequence[tuple[str, str]]) -> Query[None]:
    """Send payloads on the channels of their runs."""
    channels = [f"pgflow:run:{run_id}" for run_id, _ in told]
    return Query(_NOTIFY, (channels, [payload for _, payload in told]), _nothing)


def tells_the_end(payload: str) -> bool:
    """Whether a notification is, as far as text can tell, about the end of its run."""
    return '"run:completed"' in payload or '"run:failed"' in payload


_NOTIFY = """
select pg_notify(told.channel, told.payload)
  from unnest(%s::text[], %s::text[]) as told (channel, payload)
"""

_ABILITIES = """
select to_regprocedure('pgflow.start_flows(text, jsonb[], uuid[])') is not null
         and has_table_privilege('pgflow.runs', 'insert'),
       has_table_privilege('pgflow.runs', 'select'),
       exists (select from pg_catalog.pg_class as class
                 join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
                where namespace.nspname = 'pgflowd' and class.relname = 'runs'
                  and has_schema_privilege(namespace.oid, 'usage')
                  and has_table_privilege(class.oid, 'select'))
"""
_START = "select pgflow.start_flow_with_states(%s, %s::jsonb, %s) -> 'run'"
_START_MANY = "select to_jsonb(run) from pgflow.start_flows(%s, %s::jsonb[], %s::uuid[]) as run"
_START_EACH = """
select pgflow.start_flow_with_states(given.flow_slug, one.input, one.run_id) -> 'run'
  from (select %s::text as flow_slug, %s::jsonb[] as inputs, %s::uuid[] as run_ids) as given,
       unnest(given.inputs, given.run_ids) as one (input, run_id)
"""
_GET = "select pgflow.get_run_with_states(%s) -> 'run'"
_GLANCE = "select (select to_jsonb(run) from pgflow.runs as run where run.run_id = %s)"
_GET_WITH_STATES = "select pgflow.get_run_with_states(%s)"
_GET_CANCELLED = """
select cancelled_at, cancelled_by, cancel_reason
  from pgflowd.runs where run_id = %s and cancelled_at is not null
"""
_CANCEL = "select pgflowd.cancel(%s, %s, coalesce(%s, session_user))"
_RETRY = "select pgflowd.retry(%s, coalesce(%s, session_user), %s)"


def run_of(row: Document) -> Run:
    """Read a run from its row as JSON."""
    return Run(**_columns(row))


def _columns(row: Document) -> dict[str, Any]:
    return {
        "run_id": UUID(row["run_id"]),
        "flow_slug": row["flow_slug"],
        "status": RunStatus(row["status"]),
        "input": row["input"],
        "output": row["output"],
        "error": row.get("error_message"),
        "remaining_steps": row["remaining_steps"],
        "started_at": _time(row["started_at"]),
        "completed_at": _time(row["completed_at"]),
        "failed_at": _time(row["failed_at"]),
    }


def _state_of(row: Document) -> StepState:
    return StepState(
        step_slug=row["step_slug"],
        status=StepStatus(row["status"]),
        output=row.get("output"),
        error=row.get("error_message"),
        skip_reason=row.get("skip_reason"),
        initial_tasks=row.get("initial_tasks"),
        remaining_tasks=row["remaining_tasks"],
        remaining_deps=row["remaining_deps"],
        created_at=_time(row["created_at"]),
        started_at=_time(row["started_at"]),
        completed_at=_time(row["completed_at"]),
        failed_at=_time(row["failed_at"]),
        skipped_at=_time(row.get("skipped_at")),
    )


def _run_or_none(rows: Rows) -> Run | None:
    document = decode(only(rows))
    return None if document is None else run_of(document)


def _states_or_none(rows: Rows) -> RunWithStates | None:
    document = decode(only(rows))
    if document is None:
        return None
    states = sorted(map(_state_of, document["steps"]), key=_first_moved)
    return RunWithStates(
        **_columns(document["run"]), steps={state.step_slug: state for state in states}
    )


def _first_moved(state: StepState) -> tuple[bool, Any, str]:
    """Those that moved first come first; those that have not moved last."""
    moved = state.started_at or state.skipped_at or state.failed_at
    return (moved is None, moved or 0, state.step_slug)


def _in_order(rows: Rows, run_ids: Sequence[UUID]) -> list[Run]:
    by_id = {run.run_id: run for run in (run_of(decode(row[0])) for row in rows)}
    return [by_id[run_id] for run_id in run_ids]


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _nothing(rows: Rows) -> None:
    return None
