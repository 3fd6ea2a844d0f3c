"""
Which document each command prints with `--json`, in the words of `support.document_types`.

A new document gets its lines here; then `make contract` writes its JSON Schema.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pgflowd.cli.commands.version import PARTS
from pgflowd.core.definition.option_values import OptionValues
from pgflowd.core.documents.daemons import ListedDaemon
from pgflowd.core.documents.documentation import ContentsPart, FoundText
from pgflowd.core.documents.error_pages import ErrorPage
from pgflowd.core.documents.families import FamilyMember
from pgflowd.core.documents.flow_grid import FlowGrid, GridRun
from pgflowd.core.documents.flows import ListedFlow, ListedLimit, StalledTask, TaskKey, WorkerCaps
from pgflowd.core.documents.history import DeadLetter, EventPage, PersonAction, RunEvent
from pgflowd.core.documents.overview import OverviewCounts
from pgflowd.core.documents.people import HeldTask
from pgflowd.core.documents.run_list import RunPage
from pgflowd.core.documents.run_tasks import StepTask, StepTasksPage, StripCell
from pgflowd.core.documents.runs import (
    Attempt,
    AttemptOutput,
    ListedRun,
    Run,
    RunDetails,
    StepTasks,
    TimelineEntry,
)
from pgflowd.core.documents.schedules import Fired, ListedSchedule
from pgflowd.core.documents.settings import SharedSetting
from pgflowd.core.documents.statistics import FlowStats, StepStats
from pgflowd.core.documents.undos import StepUndo
from pgflowd.core.documents.values import ValueMember, ValuePart
from pgflowd.core.documents.waits import ListedSignal, OpenTask, SavedCheckpoint
from pgflowd.core.finding import FindingState, Section
from pgflowd.core.output_stream import KeptLine
from pgflowd.core.progress import Progress
from pgflowd.core.settings.show import Variable
from pgflowd.core.statuses import DaemonState, DatabaseState, RunStatus, StepStatus
from pgflowd.core.supervision.reload import ReloadResult
from pgflowd.core.supervision.tree import ChildState
from pgflowd.db.schema.migrate import Migrated
from pgflowd.db.versions import Version
from support.document_types import Keys, Maybe, either

PROBLEM = {"code": str | None, "place": str | None, "text": str, "next": str | None}
DAEMON_PROBLEM = {"code": str | None, "flow": str | None, "text": str, "next": str | None}
CHILD_STATE = either(*(each.value for each in ChildState if each is not ChildState.IDLE), "waiting")
CHILD = {"state": CHILD_STATE, "pid": int | None, "up_s": float | None, "restarts": int}
COUNTS = dict[str, int]
DAEMON_FLOW = {
    "slug": str,
    "undoes": str | None,
    "old_version_of": str | None,
    "open_runs": int | None,
    **CHILD,
    "worker_id": UUID | None,
    "running": int,
    "max_concurrency": int | None,
    "queued": int | None,
    "waiting": int | None,
    "waits": COUNTS | None,
    "oldest_queued_s": float | None,
    "oldest_running_s": float | None,
    "completed_1m": int | None,
    "failed_1m": int | None,
    "p50_s": float | None,
    "p95_s": float | None,
    "error": either({"code": str | None, "text": str}, None),
    "zygote": int | None,
    "runners": int,
    "stuck": int,
    "exits": [str],
    "parked_s": float | None,
    "retry_in_s": float | None,
    "asleep_s": float | None,
    "next_due_in_s": float | None,
    "import_s": float | None,
    "age_s": float | None,
}
DAEMON = {
    "id": UUID,
    "name": str,
    "host": str,
    "version": str,
    "state": DaemonState,
    "pid": int,
    "started_at": datetime,
    "up_s": float,
    "supervisor": {
        "strategy": str,
        "restarts": int,
        "max_restarts": int,
        "max_period_s": float,
        "connections": {"most": int | None, "taken": int, "waiting": int},
    },
    "database": {
        "state": DatabaseState,
        "server": str | None,
        "place": str | None,
        "pgmq": str | None,
        "schema": int | None,
        "rtt_s": float | None,
        "clock_skew_s": float | None,
    },
    "listener": {
        **CHILD,
        "reconnects": int,
        "last_notification_s": float | None,
        "wakes_1m": COUNTS,
    },
    "sweeper": {
        **CHILD,
        "interval_s": float | None,
        "last_sweep_s": float | None,
        "recovered_24h": int | None,
        "given_up_24h": int | None,
        "due_late_s": float | None,
    },
    "http": {**CHILD, "listen": str | None, "requests": int, "last_request_s": float | None},
    "exporter": {**CHILD, "endpoint": str | None, "spans": COUNTS, "queued": int},
    "flows": [DAEMON_FLOW],
    "problems": [DAEMON_PROBLEM],
}
LISTED_DAEMON = {Keys: ListedDaemon, "status": {"schema_version": int, **DAEMON}}
NO_DAEMON = {
    "name": str,
    "state": "not_running",
    "pid": None,
    "database": {
        "state": DatabaseState,
        "server": str | None,
        "place": str | None,
        "schema": Maybe(int | None),
    },
    "flows": [
        {
            "slug": str,
            "state": "not_running",
            "queued": int,
            "waiting": int,
            "waits": COUNTS,
            "oldest_queued_s": float | None,
        }
    ],
    "problems": [DAEMON_PROBLEM],
}
FINDING = {
    "section": Section, "check": str, "state": FindingState, "text": str, "code": str | None,
    "next": str | None,
}  # fmt: skip
OF_RUNS = {"completed": int, "failed": int, "per_minute": float, "failure_rate": float | None}
FLOW_STATS = {Keys: FlowStats, "runs": OF_RUNS}
OPTION = {Keys: OptionValues, "step": str | None}  # None: of the flow
TYPES = {"ChildState": CHILD_STATE} | {  # parts of documents, each after those that are parts of it
    each.__name__: each
    for each in (
        Progress, KeptLine, StepUndo, StepTasks, Run, ListedRun, Attempt, AttemptOutput,
        SavedCheckpoint, FamilyMember, TaskKey, StepTask, StripCell, GridRun, FlowGrid, ValueMember,
        OpenTask, HeldTask, ListedSignal, DeadLetter, StalledTask, RunEvent, PersonAction,
        ListedFlow, ListedLimit, WorkerCaps, Version, ListedSchedule, StepStats,
        SharedSetting, Variable,
    )
} | {
    "Finding": FINDING,
    "FlowStats": FLOW_STATS,
    "OptionValues": OPTION,
    "Problem": PROBLEM,
    "DaemonProblem": DAEMON_PROBLEM,
    "DaemonFlow": DAEMON_FLOW,
    "ListedDaemon": LISTED_DAEMON,
}  # fmt: skip


PART = {Keys: ValuePart, "next": int | None}  # whose examples have no next
DOCUMENTS = {  # by the name of the file, with the commands that print it
    "run": (Run, ["runs start"]),
    "runs": (
        {"runs": [Run]},
        ["runs start --wait", "runs wait", "runs cancel", "runs undo", "runs retry",
         "runs reschedule", "runs pause", "runs resume"],
    ),
    "run-list": (RunPage, ["runs list"]),
    "run-details": (RunDetails, ["runs show"]),
    "run-events": (EventPage, ["runs log"]),
    "run-event": (RunEvent, ["runs log --follow"]),
    "run-timeline": (
        {Keys: TimelineEntry, "run_id": UUID},
        ["runs follow", "runs start --follow", "runs retry --follow", "runs undo --follow",
         "runs output --follow"],
    ),
    "run-output": ({"run_id": UUID, "attempts": [AttemptOutput]}, ["runs output"]),
    "run-tasks": (StepTasksPage, ["runs tasks"]),
    "value-part": (PART, []),
    "run-values": (
        {
            "run_id": UUID,
            "values": [{
                "what": either("input", "output"), "step": str | None, "task": int | None, **PART,
            }],
        },
        [],
    ),
    "overview-counts": (OverviewCounts, []),
    "overview": (
        {
            "flows": [ListedFlow], "counts": OverviewCounts, "buckets": dict[str, Any],
            "failures": [ListedRun],
        },
        [],
    ),
    "start-form": (
        {"flow": str, "run_id": UUID, "input": Any, "schema": dict[str, Any] | None}, [],
    ),
    "runs-changed": (
        {
            "verb": str, "done": [UUID], "already": [UUID],
            "refused": [{"run_id": UUID, "code": str, "text": str, "next": str | None}],
            "left": [UUID],
        },
        [],
    ),
    "runs-pruned": ({"deleted": int, "dry_run": bool}, ["runs prune"]),
    "runs-deleted": ({"runs": [{"run_id": UUID, "deleted": int}]}, ["runs delete"]),
    "signal": (
        either(ListedSignal, {"signal_id": int, "run_id": UUID}),
        ["runs signal", "runs approve", "runs reject"],
    ),
    "signals": ({"signals": [ListedSignal]}, ["signals list"]),
    "actions": ({"actions": [PersonAction]}, ["log"]),
    "action": (PersonAction, ["log --follow"]),
    "dead-letters": ({"tasks": [DeadLetter]}, ["dead list"]),
    "tasks": ({"tasks": [OpenTask]}, ["tasks list"]),
    "task-result": (
        {Keys: TaskKey, "result": either("queued", "completed", "failed", "late")},
        ["tasks wake", "tasks complete", "tasks fail", "tasks release"],
    ),
    "task-extended": ({Keys: TaskKey, "lease_until": datetime}, ["tasks extend"]),
    "task-claimed": ({"task": either(HeldTask, None)}, ["tasks claim"]),
    "stalled-tasks": ({"tasks": [StalledTask]}, ["stalled list"]),
    "stalled-requeued": ({"requeued": [TaskKey], "left": [TaskKey]}, ["stalled requeue"]),
    "stalled-failed": ({"failed": [TaskKey], "left": [TaskKey]}, ["stalled fail"]),
    "flows": ({"flows": [ListedFlow]}, ["flows list"]),
    "flow": (
        {
            Keys: ListedFlow, "shape": dict[str, Any], "caps": [WorkerCaps],
            "versions": [Version], "schedules": [ListedSchedule], "grid": FlowGrid,
        },
        ["flows show"],
    ),
    "flow-stats": ({"flows": [FLOW_STATS]}, ["flows stats"]),
    "flow-graph": (
        {
            "nodes": [{
                "slug": str, "kind": either("single", "map"), "column": int, "row": int,
                "status": Maybe(StepStatus),
            }],
            "edges": [{"from": str, "to": str}],
        },
        ["flows graph"],
    ),
    "flow-limits": ({"limits": [ListedLimit]}, ["flows limits"]),
    "flow-schema": (
        {
            "flow": str, "input": dict[str, Any] | None,
            "steps": [{
                "step": str, "parameters": dict[str, Any], "output": dict[str, Any] | None,
            }],
        },
        ["flows schema"],
    ),
    "flow-diff": (
        {
            "flow": str, "place": str | None, "exists": bool, "same": bool,
            "version": str | None, "current": str | None, "differences": [str],
            "options": [OPTION],
        },
        ["flows diff"],
    ),
    "flows-deployed": (
        {
            "flows": [{
                "flow": str,
                "result": either("created", "changed", "unchanged", "versioned", "current"),
                "changes": [str], "version": str,
            }],
        },
        ["flows deploy"],
    ),
    "flows-sql": ({"sql": dict[str, str]}, ["flows deploy --sql"]),
    "flow-options": (
        {
            "flow": str, "step": str | None,
            "changes": [{"option": str, "before": Any, "after": Any}],
        },
        ["flows set"],
    ),
    "flow-changed": ({"flow": str, "changed": bool}, ["flows pause", "flows resume"]),
    "flow-current": ({"flow": str, "current": str}, ["flows rollback"]),
    "flow-versions-deleted": ({"flow": str, "deleted": [str]}, ["flows prune-versions"]),
    "flow-deleted": ({"flow": str, "deleted": bool}, ["flows delete"]),
    "schedules": ({"schedules": [ListedSchedule]}, ["schedules list"]),
    "schedule-ticks": ({"name": str, "paused": bool, "ticks": [datetime]}, ["schedules next"]),
    "schedule-fired": ({"name": str, Keys: Fired}, ["schedules fire"]),
    "schedule-changed": ({"name": str, "changed": bool}, ["schedules pause", "schedules resume"]),
    "schedule-added": (
        {"name": str, "flow": str, "changed": bool, "next_at": datetime | None}, ["schedules add"],
    ),
    "schedule-removed": ({"name": str, "removed": bool, "origin": str}, ["schedules remove"]),
    "check": (
        {
            "ok": bool, "problems": [PROBLEM],
            "flows": [{
                "flow": str, "entry": str, "place": str | None,
                "database": either("same", "differs", "missing", None),
                "undo": [str], "undoes": str | None,
                "schedules": [{"name": str, "when": str}],
            }],
            "connections": {
                "daemon": int, "handlers": int, "others": int | None, "server": int | None,
            },
        },
        ["check"],
    ),
    "doctor": ({"ok": bool, "findings": [FINDING]}, ["doctor"]),
    "status": (either(DAEMON, NO_DAEMON), ["status", "status --watch", "tree"]),
    "daemons": ({"daemons": [LISTED_DAEMON]}, ["daemons list"]),
    "daemon": (LISTED_DAEMON, ["daemons show"]),
    "worker-restarted": (
        {"worker_id": UUID, "result": either("restarting", "repeated")}, ["daemons restart"],
    ),
    "daemon-end": (
        {"pid": int, "state": either("draining", "stopping", "stopped")}, ["drain", "stop"],
    ),
    "reload": (
        {
            "code": str | None, "error": str | None,
            "flows": [{
                "flow": str, "result": ReloadResult, "code": str | None, "text": str | None,
            }],
            "kept": [str], "changed": [str], "new": [str], "gone": [str], "retried": [str],
            "broken": [str], "problems": [PROBLEM],
        },
        ["reload"],
    ),
    "wake": ({"flow": str, "state": CHILD_STATE, "was_asleep": bool}, ["wake"]),
    "demo": (
        {
            "pgflowd": str, "postgresql": str, "directory": str, "dsn": str,
            "runs": [{
                "flow": str, "run_id": UUID, "status": RunStatus, "took_s": float, "output": Any,
            }],
            "tasks": int, "retries": int,
        },
        ["demo"],
    ),
    "new": ({"directory": str, "template": str, "files": [str]}, ["new"]),
    "systemd-install": (
        {"dry_run": bool, "files": [{"path": str, "text": str}]}, ["systemd install"],
    ),
    "systemd-units": ({"files": [{"path": str, "text": str, "same": bool}]}, ["systemd show"]),
    "db-status": (
        {
            "server": str, "pgmq": str | None, "core": str, "version": int | None, "needed": int,
            "release": str | None, "applied_at": datetime | None, "applied_by": str | None,
            "functions_differ": bool, "problem": either(PROBLEM, None),
        },
        ["db status"],
    ),
    "db-migrated": (Migrated, ["db migrate"]),
    "db-sql": ({"sql": str}, ["db sql"]),
    "db-settings": ({"settings": [SharedSetting]}, ["db settings"]),
    "db-set": ({"name": str, "value": Any, "old": Any}, ["db set"]),
    "config": ({"file": str | None, "settings": dict[str, Any]}, ["config show"]),
    "config-variables": ({"variables": [Variable]}, ["config env"]),
    "web": ({"listen": str, "link": str}, ["web"]),
    "web-password": (
        {"name": str, "may_act": bool, "file": str, "replaced": bool}, ["web passwd"],
    ),
    "web-token": (
        {"name": str, "may_act": bool, "file": str, "replaced": bool, "token": str},
        ["web token"],
    ),
    "monitoring-file": (
        {"file": str, "text": str},
        ["monitoring scrape", "monitoring alerts", "monitoring grafana"],
    ),
    "documentation": (
        either(
            {"topic": str, "title": str, "part": str, "text": str},
            {"parts": [ContentsPart]},
            {"found": [FoundText]},
        ),
        ["docs"],
    ),
    "explanation": (
        either(ErrorPage, {"codes": [{"code": str, "title": str, "group": str}]}), ["explain"],
    ),
    "version": (
        {"pgflowd": str, "python": str, **dict.fromkeys(PARTS, str | None)}, ["version"],
    ),
    "completion": ({"shell": str, "script": str}, ["completion"]),
}  # fmt: skip
