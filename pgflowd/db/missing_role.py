"""
Names the role of `pgflowd db sql roles` that a refused statement lacks, and the grant that helps.

The outermost function of ours that was called decides, not the inner one that was refused: who
defines a flow needs `pgflow_owner`, whatever `create_flow` calls. Without a function it is a table
that only workers change, or one that viewers read.
"""

from __future__ import annotations

import re

from pgflowd.core.verbs import OPERATOR, OWNER, STARTER, VERBS, WORKER

VIEWER = "pgflow_viewer"

OF_OWNERS = re.compile(
    r"_?create(_\w+)?|add_step|ensure_flow_compiled|delete_flow_and_data|prune_data_older_than"
    r"|_?prune(?!_expired)\w*|_?delete_runs?|setup_\w+|cleanup_\w+|set_setting|watch_queue"
    r"|share_queue|drop_queue|purge_queue"
)
OF_STARTERS = {
    "start_flow",
    "start_flows",
    "start_flow_with_states",
    "get_run_with_states",
    "get_run",
    "start",
    "start_runs",
}
OF_VERBS = {verb.function: verb.role for verb in VERBS} | {"task_claim": OPERATOR}
OF_VIEWERS = re.compile(
    r"(list|find)_\w+|run_(steps|troubles|violations)|queue_violations|violations|flow_shape"
    r"|active_runs|current_flow|require_schema|stalled_tasks|platform|output_channel|setting|flow_exists|metrics(_all)?"
)
OF_WORKERS = re.compile(r"workers|attempts|step_tasks|settings|schema_history|[aq]_\w+")
_DENIED = re.compile(r"permission denied for (?P<kind>[\w ]+?) (?P<name>\S+)$")
_CALLED = re.compile(r"function (?:pgflowd?|pgmq)\.(\w+)\(")
_EACH = (  # whoever has none of them
    f"{VIEWER} to look, {STARTER} to start runs, {OPERATOR} to act, {WORKER} to serve,"
    f" or {OWNER} to migrate and deploy,"
)
_RIGHTS = {
    "schema": "usage on schema",
    "function": "execute on function",
    "procedure": "execute on procedure",
    "sequence": "usage on sequence",
    "database": "create on database",
    "type": "usage on type",
}


def remedy(text: str, context: str, role: str) -> str:
    """Return what to do about a refusal with this text, in functions of this context."""
    match = _DENIED.search(text)
    kind, name = (match["kind"], match["name"]) if match else ("", "")
    needed = role_for(kind, name, context)
    which = f"{needed} (`grant {needed} to {role}`)" if needed else _EACH
    given = f"give {role} {which} of `pgflowd db sql roles`"
    if not match:
        return given
    right = _RIGHTS.get(kind, f"that permission on {kind}")
    return f"{given}, or grant {right} {name} to {role}"


def role_for(kind: str, name: str, context: str = "") -> str | None:
    """Return the role that may do this; None if each of them may."""
    called = _CALLED.findall(context)  # the outermost is last
    function = called[-1] if called else name if kind == "function" else None
    if function is not None:
        return _role_of_function(function)
    if kind in ("table", "view"):
        return WORKER if OF_WORKERS.fullmatch(name) else VIEWER
    return None if kind == "schema" else OWNER


def _role_of_function(name: str) -> str:
    if (role := OF_VERBS.get(name)) is not None:
        return role
    if OF_OWNERS.fullmatch(name):
        return OWNER
    if name in OF_STARTERS:
        return STARTER
    return VIEWER if OF_VIEWERS.fullmatch(name) else WORKER
