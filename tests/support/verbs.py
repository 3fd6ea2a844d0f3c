"""
The verbs of people and clients: how each is called so that it does something, and then nothing.

`VERBS` has a row for each SQL function that keeps an action, `NO_VERBS` each one that changes
something and keeps none. A new public function of `pgflowd` belongs into one of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from support.leases import LeaseDatabase

Call = tuple[str, tuple[Any, ...]]  # the second time it is refused, or repeats what was done


def run_of(db: LeaseDatabase, *steps: str) -> Any:
    return db.start(db.flow(*steps))


def cancelled(db: LeaseDatabase) -> Any:
    run = run_of(db)
    db.value("select pgflowd._cancel(%s, '', 'pgflowd')", run)
    return run


def ended(db: LeaseDatabase) -> Any:
    """A run that ended at once, and that the sweep has looked at."""
    run = cancelled(db)
    db.value("select pgflowd.process_due()")
    return run


def paused(db: LeaseDatabase) -> Any:
    run = run_of(db)
    db.value("select pgflowd.pause(%s)", run)
    return run


def paused_flow(db: LeaseDatabase) -> str:
    flow = db.flow()
    db.value("select pgflowd.pause_flow(%s)", flow)
    return flow


def planned(db: LeaseDatabase) -> Any:
    query = "select run_id from pgflowd.start(%s, '{}', start_at => now() + interval '1 hour')"
    return db.value(query, db.flow())


def waiting(db: LeaseDatabase) -> Any:
    flow = db.flow()
    run = db.start(flow)
    db.suspend(db.claim_one(flow, db.worker(flow)))
    return run


def claimed(db: LeaseDatabase) -> tuple[Any, int]:
    flow = db.flow()
    run = db.start(flow)
    query = "select token from pgflowd.task_claim(%s, '{}', '1 hour', 'jane')"
    return run, db.value(query, flow)


def stalled(db: LeaseDatabase) -> Any:
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    db.age(task, "1 hour")
    db.lapse(task)
    return run


def limited(db: LeaseDatabase) -> str:
    flow = db.flow()
    db.do(
        "insert into pgflowd.step_options (flow_slug, step_slug, limit_slots, limit_name)"
        " values (%s, 'a', 1, 'a')",
        flow,
    )
    return flow


def scheduled(db: LeaseDatabase, *, is_paused: bool = False) -> str:
    name, query = db.flow(), "select pgflowd.set_schedule(%s, %s, '@daily', actor => 'jane')"
    db.value(query, name, name)
    if is_paused:
        db.value("select pgflowd.pause_schedule(%s)", name)
    return name


def undoable(db: LeaseDatabase) -> Any:
    flow = db.flow()
    db.do(
        "insert into pgflowd.step_options (flow_slug, step_slug, undo)"
        " values (%s, 'a', 'completed')",
        flow,
    )
    run = db.start(flow)
    db.complete(db.claim_one(flow, db.worker(flow)))
    return run


def versioned(db: LeaseDatabase) -> str:
    flow = db.flow()
    db.value("select pgflowd.deploy_version(%s, %s::jsonb)", flow, shape_of("other"))
    return flow


def rolled_back(db: LeaseDatabase) -> str:
    flow = versioned(db)
    db.value("select pgflowd.rollback_version(%s)", flow)
    return flow


def shape_of(slug: str) -> str:
    step = {"slug": slug, "stepType": "single", "dependencies": [], "whenUnmet": "skip"}
    patterns = {f"{one}InputPattern": {"defined": False} for one in ("required", "forbidden")}
    return json.dumps({"steps": [step | patterns | {"whenExhausted": "fail"}]})


VERBS: dict[str, Callable[[LeaseDatabase], Call]] = {
    "answer": lambda db: ("answer(%s, 'a', true, 'fine', 'jane', 'once')", (run_of(db),)),
    "cancel": lambda db: ("cancel(%s, 'wrong', 'jane')", (run_of(db),)),
    "define": lambda db: ("define('defined', %s::jsonb, actor => 'jane')", (shape_of("one"),)),
    "delete_flow": lambda db: ("delete_flow(%s, 'old', 'jane')", (db.flow(),)),
    "delete_run": lambda db: ("delete_run(%s, 'jane')", (ended(db),)),
    "fire_schedule": lambda db: ("fire_schedule(%s, 'jane')", (scheduled(db),)),
    "give_up_task": lambda db: (
        "give_up_task(%s, 'a', 0, '60 s', 'gone', 'jane')",
        (stalled(db),),
    ),
    "pause": lambda db: ("pause(%s, 'wait', 'jane')", (run_of(db),)),
    "pause_flow": lambda db: ("pause_flow(%s, 'wait', 'jane')", (db.flow(),)),
    "prune": lambda db: (
        "prune('-1 s', (select flow_slug from pgflow.runs where run_id = %s), actor => 'jane')",
        (ended(db),),
    ),
    "prune_next": lambda db: (
        "prune_next('-1 s', (select flow_slug from pgflow.runs where run_id = %s), false, 100,"
        " false, null, null, 'jane')",
        (ended(db),),
    ),
    "pause_schedule": lambda db: ("pause_schedule(%s, 'jane')", (scheduled(db),)),
    "remove_schedule": lambda db: ("remove_schedule(%s, 'jane')", (scheduled(db),)),
    "requeue_task": lambda db: ("requeue_task(%s, 'a', 0, '60 s', 'jane', 'go')", (stalled(db),)),
    "reschedule": lambda db: ("reschedule(%s, '2100-01-01', null, 'new', 'jane')", (planned(db),)),
    "restart_worker": lambda db: (
        "restart_worker(%s, 'jane', 'leaks')",
        (db.worker(db.flow()),),
    ),
    "resume": lambda db: ("resume(%s, 'go', 'jane')", (paused(db),)),
    "resume_flow": lambda db: ("resume_flow(%s, 'go', 'jane')", (paused_flow(db),)),
    "resume_schedule": lambda db: (
        "resume_schedule(%s, 'jane')",
        (scheduled(db, is_paused=True),),
    ),
    "retry": lambda db: ("retry(%s, 'jane', true, 'once more')", (cancelled(db),)),
    "set_schedule": lambda db: (
        "set_schedule('s', %s, '@daily', actor => 'jane')",
        (db.flow(),),
    ),
    "set_option": lambda db: ("set_option(%s, 'a', 'limit', '2', 'jane')", (limited(db),)),
    "deploy_version": lambda db: (
        "deploy_version(%s, %s::jsonb, 'jane')",
        (db.flow(), shape_of("other")),
    ),
    "rollback_version": lambda db: ("rollback_version(%s, 'jane')", (versioned(db),)),
    "prune_versions": lambda db: ("prune_versions(%s, 'jane')", (rolled_back(db),)),
    "set_setting": lambda db: ("set_setting('crash_limit', '7', 'jane')", ()),
    "signal": lambda db: ("signal(%s, 'paid', '1', 'jane', 'once')", (run_of(db),)),
    "task_claim": lambda db: (
        "task_claim(%s, '{}', '1 hour', 'jane')",
        (db.column("select flow_slug from pgflow.runs where run_id = %s", run_of(db))[0],),
    ),
    "task_complete": lambda db: ("task_complete(%s, 'a', 0, '1', 'jane', %s)", claimed(db)),
    "task_extend": lambda db: (
        "task_extend(%s, 'a', 0, interval '9 days', 'jane', %s)",
        claimed(db),
    ),
    "task_fail": lambda db: ("task_fail(%s, 'a', 0, 'bad', true, 'jane', %s)", claimed(db)),
    "task_release": lambda db: (
        "task_release(%s, 'a', 0, '0 s', null, 'jane', %s)",
        claimed(db),
    ),
    "task_wake": lambda db: ("task_wake(%s, 'a', 0, 'jane', 'now')", (waiting(db),)),
    "undo": lambda db: ("undo(%s, 'bad', 'jane')", (undoable(db),)),
}

KEPT_AS = {"answer": "approve", "prune_next": "prune"}  # the name of the action, if another one

NO_VERBS = {
    # workers, and what they ask for their handlers
    "checkpoint_drop", "checkpoint_save", "claim", "complete", "crashed", "fail", "heartbeat",
    "release", "renew_workers", "report", "start_child", "start_runs", "tell_core", "arm", "disarm",
    "due_writers", "writers",
    "progress", "keep_last", "add_minute", "roll_up_minutes", "export_attempts", "export_runs",
    # the sweeper, or whoever calls it in its place
    "postpone_schedule", "process_due", "schedule_troubles", "tick",
    "prune_expired", "recover_stalled", "refill_limits", "resend", "sweep", "tell_daemon",
    "postpone_due", "postpone_stalled", "sweep_attempts", "sweep_dead", "sweeper_sleeps",
    # a start is kept by the run itself, with its actor
    "start",
    # reading, and what an installation calls
    "follow", "get_run", "look_at_daemons", "notify_queue", "share_queue", "watch_queue",
}  # fmt: skip
