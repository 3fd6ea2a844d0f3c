"""
SQL replay: the calls of the engine, executed by the database, for comparison.

`Journal` is an engine that records each call of `execute_tasks`. `replay` makes the
same calls on a connection, in one transaction that is rolled back and in one pipeline, since the
calls are known beforehand; it returns the claimed inputs and the last state of all tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import Connection
from psycopg.types.json import Jsonb

from pgflowd.core.json import SQL_NULL
from pgflowd.testing.engine import ClaimedRecord, Engine, EngineStep, Key, TaskRow

WORKER = "00000000-0000-0000-0000-0000000000aa"
FLOW = "random_flow"

CLAIM = """
select step_slug, task_index, input, flow_input is null, flow_input
  from pgflow.start_tasks(%(flow)s,
    (select array_agg(task.message_id) from pgflow.step_tasks as task
       join unnest(%(steps)s::text[], %(indexes)s::int[]) as wanted (step_slug, task_index)
         using (step_slug, task_index)
      where task.run_id = %(run)s), %(worker)s)
"""
STATES = """
select state.step_slug, jsonb_build_object(
         'status', state.status, 'remaining_deps', state.remaining_deps,
         'initial_tasks', state.initial_tasks, 'remaining_tasks', state.remaining_tasks,
         'error_message', state.error_message, 'skip_reason', state.skip_reason)
       || case when state.output is null then '{}'
               else jsonb_build_object('output', state.output) end
       || jsonb_build_object('tasks', (
         select coalesce(jsonb_agg(jsonb_build_object(
                  'status', task.status, 'attempts_count', task.attempts_count,
                  'error_message', task.error_message,
                  'archived', not exists (select from pgmq.q_random_flow as queue
                                           where queue.msg_id = task.message_id))
                  || case when task.output is null then '{}'
                          else jsonb_build_object('output', task.output) end
                  || coalesce((
                       select jsonb_build_object('wait',
                                jsonb_build_array(wait.kind, wait.name, wait.checkpoint))
                         from pgflowd.waits as wait
                        where wait.run_id = task.run_id and wait.step_slug = task.step_slug
                          and wait.task_index = task.task_index), '{}')
                  || coalesce((
                       select jsonb_build_object('saved', jsonb_object_agg(
                                kept.name, jsonb_build_array(kept.version, kept.data)))
                         from pgflowd.checkpoints as kept
                        where kept.run_id = task.run_id and kept.step_slug = task.step_slug
                          and kept.task_index = task.task_index having count(*) > 0), '{}')
                  order by task.task_index), '[]')
           from pgflow.step_tasks as task
          where task.run_id = state.run_id and task.step_slug = state.step_slug))
  from pgflow.step_states as state where state.run_id = %s
"""
RUN = """
select jsonb_build_object('status', status, 'remaining_steps', remaining_steps)
       || case when output is null then '{}' else jsonb_build_object('output', output) end
       || coalesce((
            select jsonb_build_object('signals', jsonb_agg(jsonb_build_array(
                     sent.name, sent.payload,
                     case when sent.step_slug is not null
                          then jsonb_build_array(sent.step_slug, sent.task_index) end)
                     order by sent.signal_id))
              from pgflowd.signals as sent
             where sent.run_id = run.run_id having count(*) > 0), '{}')
  from pgflow.runs as run where run_id = %s
"""
SPEND = """
update pgflow.step_tasks set attempts_count = greatest(attempts_count, %s)
 where run_id = %s and step_slug = %s and task_index = %s
"""


class Journal(Engine):
    """An engine that records its calls."""

    def __init__(self, shape: Any, flow_slug: str) -> None:
        super().__init__(shape, flow_slug)
        self.calls: list[tuple[str, Any]] = []

    def claim(self) -> list[ClaimedRecord]:
        records = super().claim()
        self.calls.append(("claim", records))
        return records

    def complete(self, key: Key, output: Any) -> TaskRow | None:
        self.calls.append(("complete", (*key, Jsonb(output))))
        return super().complete(key, output)

    def fail(
        self, key: Key, message: str, *, retry: bool = True, delay_s: float | None = None
    ) -> Any:
        state = self.states[key[1]]
        if not retry and self.is_going_on(state):
            self.calls.append(("spend", (state.plan.options["max_attempts"], *key)))
        self.calls.append(("fail", (*key, message)))
        return super().fail(key, message, retry=retry, delay_s=delay_s)


def engine_snapshot(engine: Engine) -> dict[str, Any]:
    """All that the tables would show of a run; what is SQL null or unused is left out."""
    signals = [
        [each.name, each.payload, each.receiver and list(each.receiver)]
        for each in engine.signals
        if each.sent_at <= engine.now
    ]
    return {
        "status": str(engine.status),
        "remaining_steps": engine.remaining_steps,
        **_output(engine.output),
        **({"signals": signals} if signals else {}),
        "steps": {slug: _step_snapshot(state) for slug, state in engine.states.items()},
    }


def _output(value: Any) -> dict[str, Any]:
    return {} if value is SQL_NULL else {"output": value}


def _step_snapshot(state: EngineStep) -> dict[str, Any]:
    return {
        "status": str(state.status),
        "remaining_deps": state.remaining_deps,
        "initial_tasks": state.initial_tasks,
        "remaining_tasks": state.remaining_tasks,
        "error_message": state.error,
        "skip_reason": state.skip_reason,
        **_output(state.output),
        "tasks": list(map(_task_snapshot, state.tasks)),
    }


def _task_snapshot(task: TaskRow) -> dict[str, Any]:
    """A task; of what it waits for, and its checkpoints, nothing if it has neither."""
    found: dict[str, Any] = {
        "status": str(task.status),
        "attempts_count": task.attempts,
        "error_message": task.error,
        "archived": task.is_archived,
        **_output(task.output),
    }
    if task.wait:
        found["wait"] = [str(task.wait.kind), task.wait.name, task.wait.checkpoint]
    if task.saved:
        found["saved"] = {each.name: [each.version, each.data] for each in task.saved.values()}
    return found


def replay(
    conn: Connection[Any], shape: Any, run_id: str, input: Any, calls: list[tuple[str, Any]]
) -> tuple[list[list[Any]], dict[str, Any]]:
    """Return the records of each claim, sorted, and a snapshot like the engine's."""
    with started(conn, shape, run_id, input):
        claims = [cursor for call in calls if (cursor := _call(conn, run_id, *call))]
        snapshot = snapshot_of(conn, run_id)
        return [sorted(map(_record, cursor.fetchall()), key=repr) for cursor in claims], snapshot


@contextmanager
def started(conn: Connection[Any], shape: Any, run_id: str, input: Any) -> Iterator[None]:
    """A run of this flow, and a worker; all of it is undone afterwards."""
    with conn.transaction(force_rollback=True), conn.pipeline():
        conn.execute("insert into pgflow.workers (worker_id, queue_name, function_name)"
                     " values (%s, %s, 'test')", (WORKER, FLOW))  # fmt: skip
        conn.execute("select pgflow._create_flow_from_shape(%s, %s)", (FLOW, Jsonb(shape)))
        conn.execute("select pgflowd._set_undo_options(%s, %s)", (FLOW, Jsonb(shape)))
        conn.execute("select pgflow.start_flow(%s, %s, %s)", (FLOW, Jsonb(input), run_id))
        yield


def snapshot_of(conn: Connection[Any], run_id: str) -> dict[str, Any]:
    """All that the engine's snapshot has, from the tables."""
    states, run = conn.execute(STATES, (run_id,)), conn.execute(RUN, (run_id,))
    (summary,) = run.fetchone() or ({},)
    return {**summary, "steps": dict(states.fetchall())}


def _call(conn: Connection[Any], run_id: str, name: str, given: Any) -> Any:
    if name == "claim" and given:
        wanted = {
            "flow": FLOW,
            "run": run_id,
            "worker": WORKER,
            "steps": [record.step_slug for record in given],
            "indexes": [record.task_index for record in given],
        }
        return conn.execute(CLAIM, wanted)
    if name == "spend":
        conn.execute(SPEND, given)
    elif name == "complete":
        conn.execute("select pgflow.complete_task(%s, %s, %s, %s)", given)
    elif name == "fail":
        conn.execute("select pgflow.fail_task(%s, %s, %s, %s)", given)
    return None


def _record(row: Any) -> list[Any]:
    slug, index, input, is_null, flow_input = row
    return [slug, index, input, SQL_NULL if is_null else flow_input]
