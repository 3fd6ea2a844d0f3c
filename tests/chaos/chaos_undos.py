"""
The checks of the chaos of undos: what was undone, in which order, and when.

Each query returns no row if all is well. `oracle` is the ledger of the handlers: "undid" has the
run, step and index that an undo handler took back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from chaos_environment import LEASE_S, Environment
from psycopg.rows import tuple_row

SHOWN = 5
TROUBLES = {
    "every saga is undone": """
        select run_id, status from pgflowd.run_status
         where flow_slug = 'saga' and status <> 'undone'
    """,
    "what completed is undone": """
        select task.run_id, task.step_slug, task.task_index
          from pgflow.step_tasks as task
         where task.flow_slug = 'saga' and task.status = 'completed'
           and not exists (
             select from oracle as undid
              where undid.event = 'undid'
                and undid.output = jsonb_build_array(task.run_id, task.step_slug, task.task_index))
    """,
    "nothing else is undone": """
        select undid.output from oracle as undid
         where undid.event = 'undid'
           and not exists (
             select from oracle as ended
              where ended.event = 'end'
                and undid.output
                    = jsonb_build_array(ended.run_id, ended.step_slug, ended.task_index))
    """,
}
UNDONE = """
with undone as (
  select (output ->> 0)::uuid as run_id, output ->> 1 as step_slug, min(at) as began,
         max(at) as ended, min(daemon) as daemon
    from oracle where event = 'undid' group by 1, 2)
"""
GRACE_S = 5.0  # in which a result is taken, or its runner killed
# when what is wrong began and ended, and the daemon whose standstill would excuse it
OUT_OF_ORDER = {
    "what came later is undone first": f"""{UNDONE}
        select late.daemon, early.began, late.ended, early.run_id, late.step_slug
          from undone as early join undone as late using (run_id)
         where early.step_slug = 'books' and late.step_slug <> 'books'
           and late.ended > early.began
    """,
    "nothing is executed once the undo has begun": f"""{UNDONE}
        select done.daemon, undone.began, done.at, done.run_id, done.step_slug
          from oracle as done join undone using (run_id)
         where done.flow_slug = 'saga' and done.at > undone.began
    """,
    "what returned though its run had ended is undone": f"""
        select done.daemon, done.at, done.at + {GRACE_S}, done.run_id, done.step_slug
          from oracle as done join pgflowd.attempts as attempt using (token)
         where done.event = 'end' and done.flow_slug = 'saga' and attempt.run_id = done.run_id
           and attempt.error_type = 'Cancelled'
           and not exists (
             select from oracle as undid
              where undid.event = 'undid'
                and undid.output
                    = jsonb_build_array(done.run_id, done.step_slug, done.task_index))
    """,
}
StoodStill = Callable[[Environment, str, float, float], bool]


def troubles(environment: Environment, stood_still: StoodStill) -> Iterator[str]:
    """What is wrong with undos, when everything has settled."""
    asking = environment.conn().cursor(row_factory=tuple_row)
    for name, query in TROUBLES.items():
        if rows := asking.execute(query.encode()).fetchmany(SHOWN):
            yield f"{name}: {[_shown(row) for row in rows]}"
    for name, query in OUT_OF_ORDER.items():
        for row in asking.execute(query.encode()).fetchall():
            if not stood_still(environment, row[0], row[1] - LEASE_S, row[2]):
                yield f"{name}: {_shown(row)}"


def _shown(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(map(str, row))
