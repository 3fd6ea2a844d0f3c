"""
The status of the daemon as one document, made from the supervision tree and the facts of processes.

`pgflowd status` shows it, `status --json` prints it as it is. Times are ISO 8601 in UTC, durations
are float seconds. Facts are values that the tree lacks: pids, start times, and the numbers of each
child's last heartbeat (`metrics.definitions`), any of which may be old, missing or rubbish. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast, get_origin
from uuid import UUID

from pgflowd.core.documents import DocumentField, fields_of, versioned
from pgflowd.core.documents.daemons import (
    NOT_RUNNING,
    WAITING,
    ChildStatus,
    DaemonStatus,
    DatabaseStatus,
    FlowStatus,
    FlowTrouble,
    Since,
    SingleChildren,
    StatusProblem,
    Total,
)
from pgflowd.core.metrics.definitions import is_number
from pgflowd.core.statuses import ChildState, DaemonState, DatabaseState
from pgflowd.core.supervision.kinds import SWEEPER
from pgflowd.core.supervision.tree import STRATEGY, ChildEntry, DaemonPhase, Tree
from pgflowd.core.sweeper import SweeperPart
from pgflowd.core.text import counted, duration, short_id
from pgflowd.errors import Problem

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

    def number(self, key: str) -> float | None:
        return _number(self.numbers.get(key))

    def mapping(self, key: str) -> dict[str, Any]:
        return _mapping(self.numbers.get(key))


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

    def since(self, moment: float | None) -> float | None:
        return None if moment is None else max(0.0, self.monotonic - moment)


def _number(value: Any) -> float | None:
    return value if is_number(value) else None


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def counted_waits(numbers: Any, flow_slug: str) -> dict[str, Any]:
    """How many tasks of a flow wait, as the sweeper tells, and by kind; null if it does not."""
    if not isinstance(numbers, Mapping):
        return {"waiting": None, "waits": None}
    kinds = _mapping(numbers.get(flow_slug)).items()
    waits = {kind: count for kind, count in kinds if is_number(count)}
    return {"waiting": sum(waits.values()), "waits": waits}


def is_cut_off(reports: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a child has lost the database, by its last numbers."""
    states = [_mapping(numbers.get("database")).get("state") for numbers in reports]
    return DatabaseState.DOWN in states


def state_of(tree: Tree, *, is_sound: bool = True) -> DaemonState:
    """The state of the daemon; one with an error among its problems is degraded."""
    if tree.is_ending:
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
    is_ending = tree.is_ending
    idle = (ChildState.STOPPING if is_ending else ChildState.STARTING).value
    found = problems_of_children(tree, facts)
    in_line = {child.id for child in tree.waiting}
    waits = facts.of(tree.child(SWEEPER.child_id())).numbers.get("waiting")
    # the newest facts about the database that any child has reported
    database: dict[str, Any] = dict.fromkeys(DatabaseStatus.__annotations__)
    database["state"] = DatabaseState.UNKNOWN
    reports = [child.mapping("database") for child in facts.children.values()]
    for report in sorted(reports, key=lambda report: report.get("at") or 0):
        database |= {key: value for key, value in report.items() if key in database}
    if any(child.waiting_for == "database" for child in tree.children):
        database["state"] = DatabaseState.DOWN
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
            "strategy": STRATEGY,
            "restarts": tree.budget.count(facts.monotonic),
            "max_restarts": tree.policy.max_restarts,
            "max_period_s": tree.policy.max_period_s,
            "connections": {
                "most": tree.max_connections,
                "taken": tree.taken,
                "waiting": len(in_line),
            },
        },
        database=cast(DatabaseStatus, database),
        singles=cast(
            SingleChildren,
            {kind.key: _single(kind, tree, facts, idle) for kind in fields_of(SingleChildren)},
        ),
        flows=[
            _flow(child, facts, WAITING if child.id in in_line else idle, waits)
            for child in tree.workers
        ],
        problems=[*found, *facts.warnings],
    )


def _flow(child: ChildEntry, facts: DaemonFacts, idle: str, waits: Any) -> FlowStatus:
    own, state = facts.of(child), child.state
    is_parked, is_asleep = state is ChildState.PARKED, state is ChildState.ASLEEP
    old_version_of, open_runs = facts.old_versions.get(child.spec.name, (None, None))
    sent = {each.key: _sent(each, own, facts) for each in fields_of(FlowStatus)}
    if is_asleep:
        sent["queued"] = 0  # a message would have woken it
    due_in_s = None if child.due_at is None else max(0.0, child.due_at - facts.monotonic)
    age_s, queue_age_s = facts.since(own.heard_at), own.number("queue_age_s")
    told = {
        "slug": child.spec.name,
        "undoes": child.spec.undoes,
        "old_version_of": old_version_of,
        "open_runs": open_runs,
        **_process(child, facts, idle),
        "worker_id": own.worker_id,
        "max_concurrency": own.max_concurrency,
        **counted_waits(waits, child.spec.name),
        "error": child.error and FlowTrouble(code=child.error.code, text=child.error.text),
        "exits": list(child.exits),
        "parked_s": facts.since(child.parked_at) if is_parked else None,
        "retry_in_s": due_in_s if is_parked else None,
        "asleep_s": facts.since(child.asleep_at) if is_asleep else None,
        "next_due_in_s": due_in_s if is_asleep else None,
        # of the oldest number: it reads its queue less often than it sends
        "age_s": age_s + (queue_age_s or 0.0) if state.is_alive and age_s is not None else None,
    }
    return FlowStatus(**{**sent, **told})


def _single(kind: DocumentField, tree: Tree, facts: DaemonFacts, idle: str) -> dict[str, Any]:
    """The part of a child that is not in a group, such as the listener."""
    child = tree.child(kind.key)
    own, made = facts.of(child), _process(child, facts, idle)
    for each in fields_of(kind.type):
        if each.key not in ChildStatus.__annotations__:
            made[each.key] = _sent(each, own, facts)
    if kind.key == SWEEPER.name:
        made["due_late_s"] = due_late_s(own, facts.monotonic)
    return made


def _sent(field: DocumentField, own: ChildFacts, facts: DaemonFacts) -> Any:
    """What a child has sent for a field; as it says, what all have, or the time since then."""
    for note in field.notes:
        if isinstance(note, Since):
            moment = own.number(note.key)
            return None if moment is None else max(0.0, facts.now - moment)
        if isinstance(note, Total):
            total = dict.fromkeys(note.keys, 0)
            for each in facts.children.values():
                for key, count in each.mapping(field.key).items():
                    total[key] = total.get(key, 0) + int(_number(count) or 0)
            return total
    blank: Any = 0 if field.type is int else {} if get_origin(field.type) is dict else None
    return own.numbers.get(field.key, blank)


def _process(child: ChildEntry | None, facts: DaemonFacts, idle: str) -> dict[str, Any]:
    """A child's state and process; `idle` is the state shown for a child without a process."""
    state, own = child.state if child else ChildState.IDLE, facts.of(child)
    return {
        "state": idle if state is ChildState.IDLE else state.value,
        "pid": own.pid if state.is_alive else None,
        "up_s": facts.since(own.started_at) if state.is_alive else None,
        "restarts": child.restarts if child else 0,
    }


# What is wrong with the children. A flow with a backlog whose runners are all busy, or whose claims
# bring tasks, is only busy. Each part of the sweeper's work gets done within three intervals.
FAILING_S = 5.0  # by then a turn that failed by chance has been repeated with success
SLOW_S = 10.0  # of one call; those that wait for a lock end after 5 s
INTERVALS = 3
MIN_S = 15.0  # three heartbeats: numbers are so old as a rule
LOOK = "see worker.error in the daemon's log, and `pgflowd doctor`"
SEE_SWEEPER = "see sweeper.failed in the daemon's log, and `pgflowd doctor`"
BEHIND = "see E324 above, or what the database is busy with in pg_stat_activity"


def problems_of_children(tree: Tree, facts: DaemonFacts) -> list[StatusProblem]:
    """What is wrong now, each with the next step; not what a reload has refused."""
    found: list[StatusProblem] = []

    def add(flow: str | None, code: Any, text: Any, next: str | None) -> None:
        found.append({"code": code, "flow": flow, "text": text, "next": next})

    def judge(flow: str | None, problems: Iterable[Problem]) -> None:
        for each in problems:
            add(flow, each.code, each.text, each.next)

    for child in (*tree.workers, *tree.observers):
        flow, own = child.spec.name or None, facts.of(child)
        whose = "" if flow else f"{child.id}: "
        if child.state is ChildState.PARKED and (error := child.error):
            add(flow, error.code, f"{whose}{error.text}", "pgflowd reload")
        elif child.exits and child.restarts and child.state is not ChildState.DISABLED:
            often = "once" if child.restarts == 1 else f"{child.restarts} times, last"
            add(flow, None, f"{whose}restarted {often}: {child.exits[-1]}", "pgflowd tree")
        if stuck := own.numbers.get("stuck", 0):
            text = "a runner cannot be killed: its place is lost until it ends"
            many = f"{stuck} runners cannot be killed: their places are lost until they end"
            add(flow, None, text if stuck == 1 else many, None)
        if child.state is ChildState.UP and child.spec.is_worker:
            judge(flow, problems_of_worker(own, facts.monotonic))
    for child in tree.children:
        own = facts.of(child)
        given = own.numbers.get("problems")
        for told in map(_mapping, given if isinstance(given, list) else ()):
            if told:
                add(child.spec.name or None, told.get("code"), told.get("text"), told.get("next"))
        database = own.mapping("database")
        if child.waiting_for or (child.state.is_alive and is_cut_off([own.numbers])):
            why = f": {database['error']}" if database.get("error") else ""
            text = f"{child.id} waits for the {child.waiting_for or 'database'}{why}"
            remedy = database.get("next") or "see that it runs"
            add(None, database.get("code") or "E301", text, remedy)
        elif child.id == SWEEPER.child_id() and child.state is ChildState.UP:
            judge(None, problems_of_sweeper(own, facts.monotonic))
    if waiting := tree.long_waiting(facts.monotonic):
        flows = "1 flow waits" if len(waiting) == 1 else f"{len(waiting)} flows wait"
        text = (
            f"{flows} for a connection, and the daemon has {tree.taken} of at most"
            f" {tree.max_connections}: {tree.taken + len(tree.line)} would do"
        )
        remedy = (
            "raise [database] max_connections, and that of the server if `pgflowd check` says so"
        )
        add(None, "W320", text, remedy)
    return found


def problems_of_worker(own: ChildFacts, now: float) -> Iterator[Problem]:
    """Yield what is wrong with a worker that is up."""
    age_s = 0.0 if own.heard_at is None else max(0.0, now - own.heard_at)
    up_s = 0.0 if own.started_at is None else max(0.0, now - own.started_at)
    failing_s, call_s = own.number("line_failing_s"), own.number("line_call_s")
    if failing_s is not None and failing_s + age_s >= FAILING_S:
        yield _failing(own, failing_s + age_s)
    elif call_s is not None and call_s >= SLOW_S:  # it may have ended since the numbers were sent
        text = f"its call is under way for {duration(call_s + age_s)}: reports and claims wait"
        yield Problem("E322", text, None, "see in pg_stat_activity what it does or waits for")
    waits_s, claimed_s = own.number("oldest_queued_s"), own.number("claimed_s")
    if waits_s is None or own.late_s is None or not own.max_concurrency:
        return
    waits_s += age_s + (own.number("queue_age_s") or 0.0)
    idle_s = up_s if claimed_s is None else claimed_s + age_s
    busy = (own.number("running") or 0) + (own.number("stuck") or 0)
    if min(waits_s, idle_s) >= own.late_s and busy < own.max_concurrency:
        free = round(own.max_concurrency - busy)
        run = own.numbers.get("oldest_queued_run")
        whose = f" of run {short_id(str(run))}" if run else ""
        text = (
            f"a task{whose} waits for {duration(waits_s)}, although {counted(free, 'runner')}"
            f" {'is' if free == 1 else 'are'} free: no claim has brought a task for"
            f" {duration(idle_s)}"
        )
        yield Problem("E318", text, None, LOOK)


def _failing(own: ChildFacts, failing_s: float) -> Problem:
    error, times = own.mapping("line_error"), round(own.number("line_failures") or 1)
    often = "its last call failed" if times == 1 else f"its last {times} calls failed"
    state = f" ({error['code']})" if error.get("code") else ""
    what, remedy = "", LOOK
    if error.get("run"):
        run = short_id(str(error["run"]))
        task = f"/{error['task']}" if error.get("task") else ""
        what = f", for {run}{task}"
        remedy = f"see `pgflowd runs show {run} --attempts`"
    reason = error.get("text") or "no reason given"
    text = f"{often}, for {duration(failing_s)}{what}: {reason}{state}"
    return Problem("E322", text, None, remedy)


def problems_of_sweeper(own: ChildFacts, now: float) -> Iterator[Problem]:
    """Yield what of a sweeper's work is not done."""
    if own.started_at is None:
        return
    late: list[tuple[float, SweeperPart, dict[str, Any]]] = []
    for part in SweeperPart:
        known = _mapping(own.mapping("parts").get(part.value))
        late_s = _late_s(own, part, now)
        if late_s >= _limit_s(own):
            late.append((late_s, part, known))
        elif known.get("code") not in (None, "E331"):  # it says itself what is wrong
            text = f"{part}: {known.get('text')}"
            yield Problem(str(known["code"]), text, "database", known.get("next"))
    if late:
        late_s, part, known = max(late, key=lambda each: ("text" in each[2], each[0]))
        names = ", ".join(each.value for _, each, _ in late)
        text = f"the sweeper has not got done for {duration(late_s)}: {names}"
        if known.get("text"):
            text += f"; the last error ({part}): {known['text']}"
        yield Problem("E331", text, "database", known.get("next") or SEE_SWEEPER)
    due_s = due_late_s(own, now)
    if due_s is not None and due_s >= _limit_s(own) and not late:
        yield Problem("E331", f"what is due is late by {duration(due_s)}", "database", BEHIND)


def due_late_s(own: ChildFacts, now: float) -> float | None:
    """How late what is due is: as the sweeper has told, or for how long it has not got to it."""
    told_s, late_s = own.number("due_late_s"), _late_s(own, SweeperPart.DUE, now)
    return max(told_s or 0.0, late_s) if late_s >= _limit_s(own) else told_s


def _late_s(own: ChildFacts, part: SweeperPart, now: float) -> float:
    """For how long a part of the work was not done; a sweeper without a process is not late."""
    if own.started_at is None:
        return 0.0
    at = _number(_mapping(own.mapping("parts").get(part.value)).get("at"))
    return max(0.0, now - max(own.started_at, at or 0.0))


def _limit_s(own: ChildFacts) -> float:
    return max(MIN_S, INTERVALS * (own.number("interval_s") or 0.0))


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
