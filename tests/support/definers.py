"""
The functions that have their owner's rights, and which roles of `sql/roles.sql` may call each.

They are few, since each is a way to do what a role has no right to. `w` worker, `s` starter,
`v` viewer, `o` operator. Those of verbs are in `core.verbs`.
"""

from pgflowd.core.verbs import OPERATOR, STARTER, VERBS, WORKER

_WITH = {STARTER: "wso", OPERATOR: "wo", WORKER: "w"}
DEFINERS = {
    "pgflow._followed": "w",
    "pgflow._forget_waits": "w",
    "pgflow._is_paused": "w",
    "pgflow._lock_starts": "w",
    "pgflow._mark_ended": "w",
    "pgflow._mark_failed": "w",
    "pgflow._run_in_input": "w",
    "pgflow._start_wished": "w",
    "pgflow._untrusted_owner": "w",
    "pgflow._waits": "w",
    "pgflow.cleanup_ensure_workers_logs": "",
    "pgflow.get_run_with_states": "wsvo",
    "pgflow.recover_stalled_tasks": "w",
    "pgflow.requeue_stalled_tasks": "w",
    "pgflow.setup_ensure_workers_cron": "",
    "pgflow.setup_requeue_stalled_tasks_cron": "",
    "pgflow.start_flow_with_states": "wso",
    "pgflowd._process_due_awaits": "w",
    "pgflowd._process_due_runs": "w",
    "pgflowd.current_flow": "wsvo",
    "pgflowd.follow": "wsvo",
    "pgflowd.get_run": "wsvo",
    "pgflowd.input_schema": "wsvo",
    "pgflowd.notify_queue": "",
    "pgflowd.postpone_due": "w",
    "pgflowd.postpone_schedule": "w",
    "pgflowd.prune_expired": "w",
    "pgflowd.require_schema": "wsvo",
    "pgflowd.schedule_troubles": "w",
    "pgflowd.start": "wso",
    "pgflowd.start_child": "w",
    "pgflowd.start_runs": "wso",
    "pgflowd.task_claim": "wo",
    "pgflowd.tell_core": "w",
    "pgflowd.tick": "w",
    **{f"pgflowd.{verb.function}": _WITH[verb.role] for verb in VERBS if verb.role in _WITH},
    "pgflowd.delete_run": "o",  # workers delete none
}
