"""
The SQL state machine in pure Python: the twin that `run_flow` executes and tests compare with SQL.

It follows the functions of sql/schema/pgflow: conditions and empty maps alternate until nothing
changes, and tasks of a skipped step become `skipped`. It has no clock: `now` is a number that
`advance` moves, and a message is visible or hidden by it. It has no workers, leases, recovery or
cancelling.

    engine = Engine(flow.shape())
    run = engine.start({"url": "x"})             MapInput where the SQL raises P0001
    engine.claimable()                           tasks whose messages a worker would read now
    record = engine.start_tasks([task])[0]       as `start_tasks`, visible or not; or engine.claim()
    engine.complete(record.key, output)          as `complete_task`; SQL_NULL is SQL null
    engine.fail(record.key, "text")              as `fail_task`; retry=False, delay_s= as ours
    engine.suspend(record.key, wait)             as a report of `suspended`
    engine.signal(run.run_id, SentSignal(…))     as `signal`, now or at a moment to come
    engine.process_due()                         as the sweep: frees tasks whose waits are over
    engine.advance_to_next()                     to when a message becomes visible or a wait ends
    engine.snapshot(run.run_id)                  statuses, counters, outputs, errors, tasks
    run.events                                   type, step and error of each event, in order

A key is (run id, step slug, task index). Reports may be late, repeated or about unclaimed tasks:
the effect is the same as in SQL. Every call either happens as a whole or raises.
"""

from __future__ import annotations

from pgflowd.core.json import SQL_NULL
from pgflowd.testing.engine.engine import Engine
from pgflowd.testing.engine.state import (
    ClaimedRecord,
    EndedWait,
    EngineRun,
    EngineStep,
    Key,
    SentSignal,
    TaskRow,
    element_of,
    json_null,
    waiting,
)

__all__ = [
    "SQL_NULL",
    "ClaimedRecord",
    "EndedWait",
    "Engine",
    "EngineRun",
    "EngineStep",
    "Key",
    "SentSignal",
    "TaskRow",
    "element_of",
    "json_null",
    "waiting",
]
