"""
Status: what the daemon says of itself: one JSON document, made from the tree and a few facts.

`pgflowd status` draws it, `status --json` prints it as it is. Times are ISO 8601 in UTC,
durations float seconds. Facts are what only processes can tell: pids, start times, and the
numbers of their last Beat (`core.metrics.counters`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pgflowd.core.statuses import DaemonState
from pgflowd.core.supervision.kinds import SINGLE_KINDS, ChildKind, FieldSource, StatusField
from pgflowd.core.supervision.lifecycle import ChildState, DaemonPhase
from pgflowd.core.supervision.tree import ChildEntry, Tree

SCHEMA_VERSION = 1
_QUEUE = ("queued", "oldest_queued_s")
_LAST_MINUTE = ("completed_1m", "failed_1m", "p50_s", "p95_s")


@dataclass(frozen=True)
class Fact:
    """What is known of a child's process."""

    pid: int | None = None
    since: float | None = None  # monotonic, as no correction of the clock makes it older
    worker_id: str | None = None
    max_concurrency: int | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """What is known of the daemon."""

    name: str
    version: str
    pid: int
    started: float  # seconds since 1970
    began: float  # the same on the monotonic clock
    now: float  # seconds since 1970
    monotonic: float
    children: Mapping[str, Fact] = field(default_factory=dict)
    warnings: Sequence[Mapping[str, Any]] = ()

    def of(self, child: ChildEntry | None) -> Fact:
        return self.children.get(child.id, Fact()) if child else Fact()


def is_cut_off(told: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a child, by its last numbers, has lost the database."""
    return any(_mapping(numbers.get("database")).get("state") == "down" for numbers in told)


def state_of(tree: Tree, *, cut_off: bool = False) -> DaemonState:
    """The state of the daemon; one that is cut off from the database is degraded."""
    if tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}:
        return DaemonState.DRAINING if tree.is_draining else DaemonState.STOPPING
    if not tree.was_ready:
        return DaemonState.STARTING
    served = [child for child in tree.workers if child.state is not ChildState.DISABLED]
    if served and all(child.state is ChildState.PARKED for child in served):
        return DaemonState.FAILED
    others = [child for child in tree.children if child.state is not ChildState.DISABLED]
    all_up = tree.phase is DaemonPhase.RUNNING and all(
        child.state is ChildState.UP for child in others
    )
    return DaemonState.HEALTHY if all_up and not cut_off else DaemonState.DEGRADED


def document(tree: Tree, facts: Facts) -> dict[str, Any]:
    """Return the whole status."""
    database = _database(tree, facts)
    idle = "stopping" if tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED} else "starting"
    return {
        "schema_version": SCHEMA_VERSION,
        "name": facts.name,
        "version": facts.version,
        "state": state_of(tree, cut_off=is_cut_off(f.numbers for f in facts.children.values())),
        "pid": facts.pid,
        "started_at": iso(facts.started),
        "up_s": facts.monotonic - facts.began,
        "supervisor": {
            "strategy": tree.policy.strategy,
            "restarts": tree.budget.count(facts.monotonic),
            "max_restarts": tree.policy.max_restarts,
            "max_period_s": tree.policy.max_period_s,
        },
        "database": database,
        **{kind.name: _single(kind, tree, facts, idle) for kind in SINGLE_KINDS},
        "flows": [_flow(child, facts, idle) for child in tree.workers],
        "problems": problems(tree, facts),
    }


def problems(tree: Tree, facts: Facts) -> list[dict[str, Any]]:
    """What a person should look at, with the next step."""
    found: list[dict[str, Any]] = []
    for child in tree.workers:
        if child.state is ChildState.PARKED and child.error is not None:
            code, text = child.error.code, child.error.reason
            found.append(_problem(code, child.spec.name, text, "pgflowd reload"))
        elif child.exits and child.restarts and child.state is not ChildState.DISABLED:
            often = "once" if child.restarts == 1 else f"{child.restarts} times, last"
            text = f"restarted {often}: {child.exits[-1]}"
            found.append(_problem(None, child.spec.name, text, "pgflowd tree"))
        if stuck := facts.of(child).numbers.get("stuck", 0):
            found.append(_problem(None, child.spec.name, _stuck(stuck), None))
    for child in tree.children:
        for each in _listed(facts.of(child).numbers.get("problems")):
            flow = child.spec.name or None
            found.append(_problem(each.get("code"), flow, each.get("text"), each.get("next")))
        numbers = facts.of(child).numbers
        database = _mapping(numbers.get("database"))
        if child.waiting_for or (child.state.is_alive and is_cut_off([numbers])):
            why = f": {database['error']}" if database.get("error") else ""
            text = f"{child.id} waits for the {child.waiting_for or 'database'}{why}"
            found.append(_problem("E301", None, text, database.get("next") or "see that it runs"))
    found += [dict(warning) for warning in facts.warnings]
    return found


def _stuck(count: Any) -> str:
    if count == 1:
        return "a runner cannot be killed: its place is lost until it ends"
    return f"{count} runners cannot be killed: their places are lost until they end"


def iso(moment: float) -> str:
    """Return a moment in ISO 8601 and UTC."""
    text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
    return text.replace("+00:00", "Z")


def _problem(code: Any, flow: str | None, text: Any, next: str | None) -> dict[str, Any]:
    return {"code": code, "flow": flow, "text": text, "next": next}


def _flow(child: ChildEntry, facts: Facts, idle: str) -> dict[str, Any]:
    fact = facts.of(child)
    numbers = fact.numbers
    has_process = child.state.is_alive
    return {
        "slug": child.spec.name,
        **_process(child, fact, facts, idle),
        "worker_id": fact.worker_id,
        "running": numbers.get("running", 0) if has_process else 0,
        "max_concurrency": fact.max_concurrency,
        **{key: numbers.get(key) for key in (*_QUEUE, *_LAST_MINUTE)},
        "restarts": child.restarts,
        "error": child.error.document() if child.error else None,
        "zygote": numbers.get("zygote") if has_process else None,
        "runners": numbers.get("runners", 0) if has_process else 0,
        "stuck": numbers.get("stuck", 0),
        "exits": list(child.exits),
        "parked_s": _passed(child.parked_at, facts) if child.state is ChildState.PARKED else None,
        "retry_in_s": _left(child.due_at, facts) if child.state is ChildState.PARKED else None,
    }


def _single(kind: ChildKind, tree: Tree, facts: Facts, idle: str) -> dict[str, Any]:
    """The part of a child that is not in a group, such as the listener."""
    child = tree.child(kind.child_id())
    fact = facts.of(child)
    return {
        **_process(child, fact, facts, idle),
        "restarts": child.restarts if child else 0,
        **{field.name: _status_field(field, fact, facts) for field in kind.status},
    }


def _status_field(field: StatusField, fact: Fact, facts: Facts) -> Any:
    if field.source is FieldSource.TOTAL:
        total = dict(field.default)
        for each in facts.children.values():
            for key, count in _mapping(each.numbers.get(field.key)).items():
                if _is_number(count):
                    total[key] = total.get(key, 0) + int(count)
        return total
    number = fact.numbers.get(field.key, field.default)
    return _ago(number, facts) if field.source is FieldSource.AGE else number


def _process(child: ChildEntry | None, fact: Fact, facts: Facts, idle: str) -> dict[str, Any]:
    """What is known of a child's process; `idle` says what one without a process is about to do."""
    state = child.state if child else ChildState.IDLE
    shown = idle if state is ChildState.IDLE else state.value
    return {
        "state": shown,
        "pid": fact.pid if state.is_alive else None,
        "up_s": _passed(fact.since, facts) if state.is_alive else None,
    }


def _database(tree: Tree, facts: Facts) -> dict[str, Any]:
    """The newest that any child has said of the database."""
    told = [_mapping(fact.numbers.get("database")) for fact in facts.children.values()]
    newest: dict[str, Any] = {}
    for each in sorted(told, key=lambda said: said.get("at") or 0):
        newest.update(each)
    for name in ("at", "error", "next"):
        newest.pop(name, None)
    waiting = any(child.waiting_for == "database" for child in tree.children)
    state = "down" if waiting else newest.pop("state", "unknown")
    blank = dict.fromkeys(("server", "place", "pgmq", "schema", "rtt_s", "clock_skew_s"))
    return {"state": state, **blank, **{k: v for k, v in newest.items() if k != "state"}}


def _ago(moment: Any, facts: Facts) -> float | None:
    return max(0.0, facts.now - moment) if _is_number(moment) else None


def _passed(since: float | None, facts: Facts) -> float | None:
    return None if since is None else max(0.0, facts.monotonic - since)


def _left(due: float | None, facts: Facts) -> float | None:
    return None if due is None else max(0.0, due - facts.monotonic)


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _listed(value: Any) -> list[dict[str, Any]]:
    found = value if isinstance(value, list) else []
    return [each for each in found if isinstance(each, dict)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
