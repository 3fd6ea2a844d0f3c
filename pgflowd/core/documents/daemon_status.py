"""
The status of the daemon as one document, made from the supervision tree and the facts of processes.

`pgflowd status` shows it, `status --json` prints it as it is. Times are ISO 8601 in UTC, durations
are float seconds. Facts are values that the tree lacks: pids, start times, and the numbers of each
child's last heartbeat (`core.metrics.counters`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from pgflowd.core.documents import versioned
from pgflowd.core.documents.daemon import (
    WAITING,
    DaemonStatus,
    DatabaseStatus,
    FlowStatus,
    FlowTrouble,
    SingleChildren,
    StatusProblem,
)
from pgflowd.core.documents.waits import counted_waits
from pgflowd.core.documents.worker_problems import (
    due_late_s,
    problems_of_sweeper,
    problems_of_worker,
)
from pgflowd.core.metrics.counters import is_number
from pgflowd.core.statuses import DaemonState, DatabaseState
from pgflowd.core.supervision import places
from pgflowd.core.supervision.kinds import (
    SINGLE_KINDS,
    SWEEPER,
    ChildKind,
    FieldSource,
    StatusField,
)
from pgflowd.core.supervision.tree import ChildEntry, ChildState, DaemonPhase, Tree

_NUMBERS = (
    "queued", "oldest_queued_s", "oldest_running_s", "completed_1m", "failed_1m", "p50_s", "p95_s",
)  # fmt: skip
_ERROR = "E"  # codes of errors begin so; those of warnings leave a daemon healthy


@dataclass(frozen=True)
class ChildFacts:
    """The facts of a child's process."""

    pid: int | None = None
    started_at: float | None = None  # monotonic, so no correction of the clock makes it older
    worker_id: str | None = None
    max_concurrency: int | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    heard_at: float | None = None  # when the last of them came; monotonic
    late_s: float | None = None  # no task waits so long while a runner is free


NO_FACTS = ChildFacts()  # of a child without a process


@dataclass(frozen=True)
class DaemonFacts:
    """The facts of the daemon."""

    id: UUID  # of this start
    name: str
    host: str
    version: str
    pid: int
    started_at: float  # seconds since 1970
    monotonic_started_at: float
    now: float  # seconds since 1970
    monotonic: float
    children: Mapping[str, ChildFacts] = field(default_factory=dict)
    warnings: Sequence[StatusProblem] = ()
    old_versions: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # name, open runs

    def of(self, child: ChildEntry | None) -> ChildFacts:
        return self.children.get(child.id, NO_FACTS) if child else NO_FACTS


def is_cut_off(reports: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a child has lost the database, by its last numbers."""
    states = [_mapping(numbers.get("database")).get("state") for numbers in reports]
    return DatabaseState.DOWN in states


def state_of(tree: Tree, *, is_sound: bool = True) -> DaemonState:
    """The state of the daemon; one with an error among its problems is degraded."""
    if tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}:
        return DaemonState.DRAINING if tree.is_draining else DaemonState.STOPPING
    if not tree.was_ready:
        return DaemonState.STARTING
    served = [child for child in tree.workers if child.state is not ChildState.DISABLED]
    if served and all(child.state is ChildState.PARKED for child in served):
        return DaemonState.FAILED
    others = [
        child
        for child in tree.children
        if child.state is not ChildState.DISABLED and not child.spec.is_observer
    ]
    all_up = tree.phase is DaemonPhase.RUNNING and all(is_well(child) for child in others)
    return DaemonState.HEALTHY if all_up and is_sound else DaemonState.DEGRADED


def is_well(child: ChildEntry) -> bool:
    """Whether a child is up, asleep, on its way from one to the other, or waits for its place."""
    waking = {ChildState.IDLE, ChildState.STARTING}
    is_waking = (child.is_woken or child.queued_at is not None) and child.state in waking
    return child.state in {ChildState.UP, ChildState.ASLEEP} or is_waking


def is_sound(problems: Iterable[Mapping[str, Any]]) -> bool:
    """Whether no problem is an error."""
    return not any(str(each.get("code") or "").startswith(_ERROR) for each in problems)


def status_of(tree: Tree, facts: DaemonFacts) -> DaemonStatus:
    """The whole status."""
    is_ending = tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}
    idle = (ChildState.STOPPING if is_ending else ChildState.STARTING).value
    found = problems_of_children(tree, facts)
    in_line = {child.id for child in places.waiting(tree)}
    waits = facts.of(tree.child(SWEEPER.child_id())).numbers.get("waiting")
    return DaemonStatus(
        id=facts.id,
        name=facts.name,
        host=facts.host,
        version=facts.version,
        state=state_of(tree, is_sound=is_sound(found)),
        pid=facts.pid,
        started_at=datetime.fromtimestamp(int(facts.started_at), UTC),
        up_s=facts.monotonic - facts.monotonic_started_at,
        supervisor={
            "strategy": tree.policy.strategy,
            "restarts": tree.budget.count(facts.monotonic),
            "max_restarts": tree.policy.max_restarts,
            "max_period_s": tree.policy.max_period_s,
            "connections": {
                "most": tree.max_connections,
                "taken": places.taken(tree),
                "waiting": len(places.waiting(tree)),
            },
        },
        database=_database(tree, facts),
        singles=cast(
            SingleChildren,
            {kind.name: _single(kind, tree, facts, idle) for kind in SINGLE_KINDS},
        ),
        flows=[
            _flow(child, facts, WAITING if child.id in in_line else idle, waits)
            for child in tree.workers
        ],
        problems=[*found, *facts.warnings],
    )


def problems_of_children(tree: Tree, facts: DaemonFacts) -> list[StatusProblem]:
    """What is wrong now, each with the next step; not what a reload has refused."""
    found: list[StatusProblem] = []
    for child in (*tree.workers, *tree.observers):
        flow = child.spec.name or None
        whose = "" if flow else f"{child.id}: "
        if child.state is ChildState.PARKED and (error := child.error):
            found.append(_problem(error.code, flow, f"{whose}{error.text}", "pgflowd reload"))
        elif child.exits and child.restarts and child.state is not ChildState.DISABLED:
            often = "once" if child.restarts == 1 else f"{child.restarts} times, last"
            text = f"{whose}restarted {often}: {child.exits[-1]}"
            found.append(_problem(None, flow, text, "pgflowd tree"))
        if stuck := facts.of(child).numbers.get("stuck", 0):
            found.append(_problem(None, child.spec.name, _stuck(stuck), None))
        if child.state is ChildState.UP and child.spec.is_worker:
            found += _of_worker(child, facts)
    for child in tree.children:
        flow, numbers = child.spec.name or None, facts.of(child).numbers
        for each in _listed(numbers.get("problems")):
            found.append(_problem(each.get("code"), flow, each.get("text"), each.get("next")))
        database = _mapping(numbers.get("database"))
        if child.waiting_for or (child.state.is_alive and is_cut_off([numbers])):
            why = f": {database['error']}" if database.get("error") else ""
            text = f"{child.id} waits for the {child.waiting_for or 'database'}{why}"
            code, remedy = database.get("code") or "E301", database.get("next")
            found.append(_problem(code, None, text, remedy or "see that it runs"))
        elif child.id == SWEEPER.child_id() and child.state is ChildState.UP:
            found += _of_sweeper(child, facts)
    return found + _of_places(tree, facts)


def _of_places(tree: Tree, facts: DaemonFacts) -> list[StatusProblem]:
    """W320 if workers wait long for a connection, with the budget that would do."""
    waiting = places.long_waiting(tree, facts.monotonic)
    if not waiting:
        return []
    flows = "1 flow waits" if len(waiting) == 1 else f"{len(waiting)} flows wait"
    text = (
        f"{flows} for a connection, and the daemon has {places.taken(tree)} of at most"
        f" {tree.max_connections}: {places.enough(tree)} would do"
    )
    next = "raise [database] max_connections, and that of the server if `pgflowd check` says so"
    return [_problem("W320", None, text, next)]


def _of_worker(child: ChildEntry, facts: DaemonFacts) -> list[StatusProblem]:
    own = facts.of(child)
    judged = problems_of_worker(
        own.numbers,
        age_s=_since(own.heard_at, facts) or 0.0,
        up_s=_since(own.started_at, facts) or 0.0,
        late_s=own.late_s,
        max_concurrency=own.max_concurrency,
    )
    return [_problem(each.code, child.spec.name, each.text, each.next) for each in judged]


def _of_sweeper(child: ChildEntry, facts: DaemonFacts) -> list[StatusProblem]:
    own = facts.of(child)
    if own.started_at is None:
        return []
    judged = problems_of_sweeper(own.numbers, monotonic=facts.monotonic, started_at=own.started_at)
    return [_problem(each.code, None, each.text, each.next) for each in judged]


def _stuck(count: Any) -> str:
    if count == 1:
        return "a runner cannot be killed: its place is lost until it ends"
    return f"{count} runners cannot be killed: their places are lost until they end"


def _problem(code: Any, flow: str | None, text: Any, next: str | None) -> StatusProblem:
    return {"code": code, "flow": flow, "text": text, "next": next}


def _flow(child: ChildEntry, facts: DaemonFacts, idle: str, waits: Any) -> FlowStatus:
    own, state = facts.of(child), child.state
    numbers, has_process = own.numbers, state.is_alive
    is_parked, is_asleep = state is ChildState.PARKED, state is ChildState.ASLEEP
    old_version_of, open_runs = facts.old_versions.get(child.spec.name, (None, None))
    reported: dict[str, Any] = {key: numbers.get(key) for key in _NUMBERS}
    if is_asleep:
        reported["queued"] = 0  # a message would have woken it
    due_in_s = None if child.due_at is None else max(0.0, child.due_at - facts.monotonic)
    return FlowStatus(
        slug=child.spec.name,
        undoes=child.spec.undoes,
        old_version_of=old_version_of,
        open_runs=open_runs,
        **_process(child, own, facts, idle),
        worker_id=own.worker_id,
        running=numbers.get("running", 0) if has_process else 0,
        max_concurrency=own.max_concurrency,
        **reported,
        **counted_waits(waits, child.spec.name),
        restarts=child.restarts,
        error=(FlowTrouble(code=child.error.code, text=child.error.text) if child.error else None),
        zygote=numbers.get("zygote") if has_process else None,
        runners=numbers.get("runners", 0) if has_process else 0,
        stuck=numbers.get("stuck", 0),
        exits=list(child.exits),
        parked_s=_since(child.parked_at, facts) if is_parked else None,
        retry_in_s=due_in_s if is_parked else None,
        asleep_s=_since(child.asleep_at, facts) if is_asleep else None,
        next_due_in_s=due_in_s if is_asleep else None,
        import_s=numbers.get("import_s"),
        age_s=_age(own, facts) if has_process else None,
    )


def _age(own: ChildFacts, facts: DaemonFacts) -> float | None:
    """How old the oldest number of a worker is: it reads its queue less often than it sends."""
    queue_age_s: Any = own.numbers.get("queue_age_s")
    age_s = _since(own.heard_at, facts)
    return age_s + queue_age_s if age_s is not None and is_number(queue_age_s) else age_s


def _single(kind: ChildKind, tree: Tree, facts: DaemonFacts, idle: str) -> dict[str, Any]:
    """The part of a child that is not in a group, such as the listener."""
    child = tree.child(kind.child_id())
    own = facts.of(child)
    return {
        **_process(child, own, facts, idle),
        "restarts": child.restarts if child else 0,
        **{field.name: _status_field(field, own, facts) for field in kind.status},
    }


def _status_field(field: StatusField, own: ChildFacts, facts: DaemonFacts) -> Any:
    if field.source is FieldSource.TOTAL:
        total = dict(field.default)
        for each in facts.children.values():
            for key, count in _mapping(each.numbers.get(field.key)).items():
                if is_number(count):
                    total[key] = total.get(key, 0) + int(count)
        return total
    if field.source is FieldSource.LATE:
        return due_late_s(own.numbers, monotonic=facts.monotonic, started_at=own.started_at)
    number = own.numbers.get(field.key, field.default)
    if field.source is FieldSource.NUMBER:
        return number
    return max(0.0, facts.now - number) if is_number(number) else None


def _process(
    child: ChildEntry | None, own: ChildFacts, facts: DaemonFacts, idle: str
) -> dict[str, Any]:
    """A child's state and process; `idle` is the state shown for a child without a process."""
    state = child.state if child else ChildState.IDLE
    return {
        "state": idle if state is ChildState.IDLE else state.value,
        "pid": own.pid if state.is_alive else None,
        "up_s": _since(own.started_at, facts) if state.is_alive else None,
    }


def _database(tree: Tree, facts: DaemonFacts) -> DatabaseStatus:
    """The newest facts about the database that any child has reported."""
    reports = [_mapping(child.numbers.get("database")) for child in facts.children.values()]
    newest: dict[str, Any] = {}
    for report in sorted(reports, key=lambda report: report.get("at") or 0):
        newest.update(report)
    for name in ("at", "code", "error", "next"):
        newest.pop(name, None)
    is_waiting = any(child.waiting_for == "database" for child in tree.children)
    state = newest.pop("state", DatabaseState.UNKNOWN)
    blank = dict.fromkeys(("server", "place", "pgmq", "schema", "rtt_s", "clock_skew_s"))
    known = {"state": DatabaseState.DOWN if is_waiting else state, **blank, **newest}
    return cast(DatabaseStatus, known)


def _since(moment: float | None, facts: DaemonFacts) -> float | None:
    return None if moment is None else max(0.0, facts.monotonic - moment)


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _listed(value: Any) -> list[dict[str, Any]]:
    found = value if isinstance(value, list) else []
    return [each for each in found if isinstance(each, dict)]


SILENT = "unknown"  # the state of a daemon that has not answered
_READY_STATES = (DaemonState.HEALTHY, DaemonState.DEGRADED)
_SERVING = (ChildState.UP, ChildState.ASLEEP)


def is_ready(status: Mapping[str, Any]) -> bool:
    """Whether a worker is up or asleep, the database is reachable, and nothing ends or starts."""
    return (
        status["state"] in _READY_STATES
        and status["database"]["state"] == DatabaseState.UP
        and any(flow["state"] in _SERVING for flow in status["flows"])
    )


def health_of(status: Mapping[str, Any] | None, *, with_reasons: bool) -> dict[str, Any]:
    """The body of a health check; no status: the supervisor has not answered."""
    reasons = [_NO_ANSWER] if status is None else status["problems"]
    state = SILENT if status is None else status["state"]
    return versioned({"state": state, **({"reasons": reasons} if with_reasons else {})})


_NO_ANSWER = {
    "code": "E414",
    "flow": None,
    "text": "the supervisor has not answered in time",
    "next": "read its log; a service manager with a watchdog replaces it",
}


NOT_RUNNING = "not_running"


def status_without_daemon(
    name: str,
    database: Mapping[str, Any],
    queues: Iterable[tuple[str, int, float | None]],
    waits: Mapping[str, Mapping[str, int]],
    problems: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The status from the database alone: each flow with its queued messages, and its waits."""
    flows = [
        {
            "slug": slug,
            "state": NOT_RUNNING,
            "queued": queued,
            **counted_waits(waits, slug),
            "oldest_queued_s": oldest_s,
        }
        for slug, queued, oldest_s in queues
    ]
    fields = {"name": name, "state": NOT_RUNNING, "pid": None, "database": database}
    return versioned({**fields, "flows": flows, "problems": list(problems)})
