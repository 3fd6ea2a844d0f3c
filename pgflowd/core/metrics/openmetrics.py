"""
Openmetrics: the daemon's numbers as the text that monitoring systems collect.

Labels grow with flows and steps only. Counters go on when a child is replaced, since the
supervisor adds what earlier processes had counted. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pgflowd.core.metrics.counters import BUCKETS_S

Labels = dict[str, str]
Sample = tuple[str, Labels, float]  # suffix, labels, value


@dataclass(frozen=True)
class Family:
    """One metric with all its samples."""

    name: str
    kind: str  # "counter", "gauge", "histogram", "info"
    help: str
    samples: list[Sample] = field(default_factory=list)


def exposition(
    status: Mapping[str, Any], counters: Mapping[str, Mapping[str, Any]], more: Mapping[str, Any]
) -> str:
    """Return the whole text. `counters` are by child; `more` are the supervisor's own."""
    families = [*_by_flow(status, counters), *_of_daemon(status, counters, more)]
    lines = [line for family in families for line in _lines(family)]
    return "\n".join([*lines, "# EOF", ""])


def _by_flow(
    status: Mapping[str, Any], counters: Mapping[str, Mapping[str, Any]]
) -> Iterator[Family]:
    flows = {flow["slug"]: counters.get(f"worker {flow['slug']}", {}) for flow in status["flows"]}
    tasks = [
        ("_total", {"flow": slug, "step": step, "outcome": outcome}, count)
        for slug, numbers in flows.items()
        for step, outcomes in _items(numbers.get("tasks"))
        for outcome, count in _items(outcomes)
    ]
    yield Family("pgflowd_tasks", "counter", "Attempts that ended, by outcome.", tasks)
    for key, text in (
        ("task_seconds", "How long tasks ran."),
        ("task_wait_seconds", "How long tasks waited for their first attempt."),
    ):
        samples = [
            sample
            for slug, numbers in flows.items()
            for step, histogram in _items(numbers.get(key))
            for sample in _histogram(histogram, {"flow": slug, "step": step})
        ]
        yield Family(f"pgflowd_{key}", "histogram", text, samples)
    for key, label, text in (
        ("runs", "status", "Runs ended by reports from here, or cancelled meanwhile."),
        ("wakes", "reason", "Looks for work, by what caused them."),
    ):
        found = [
            ("_total", {"flow": slug, label: name}, count)
            for slug, numbers in flows.items()
            for name, count in _items(numbers.get(key))
        ]
        yield Family(f"pgflowd_{key}", "counter", text, found)
    for key, name, text in (
        ("running", "running_tasks", "Tasks that run now."),
        ("max_concurrency", "max_concurrency", "Tasks that may run at once."),
        ("queued", "queued_tasks", "Tasks that wait in the queue."),
        ("oldest_queued_s", "oldest_queued_seconds", "Age of the oldest ready task."),
    ):
        gauges = [
            ("", {"flow": flow["slug"]}, flow[key])
            for flow in status["flows"]
            if flow.get(key) is not None
        ]
        yield Family(f"pgflowd_{name}", "gauge", text, gauges)


def _of_daemon(
    status: Mapping[str, Any],
    counters: Mapping[str, Mapping[str, Any]],
    more: Mapping[str, Any],
) -> Iterator[Family]:
    reconnects = counters.get("listener", {}).get("reconnects", 0)
    yield _single("listener_reconnects", "counter", "Lost LISTEN connections.", reconnects)
    restarts = [
        ("_total", {"child": child, "reason": reason}, count)
        for (child, reason), count in more.get("restarts", {}).items()
    ]
    yield Family("pgflowd_restarts", "counter", "Restarts of children.", restarts)
    parked = sum(flow["state"] == "failed" for flow in status["flows"])
    yield _single("parked_workers", "gauge", "Workers that wait for a person.", parked)
    stalled = sum(_number(numbers.get("stalled")) for numbers in counters.values())
    yield _single("stalled_tasks", "counter", "Tasks whose worker vanished.", stalled)
    errors: dict[str, float] = {}
    for numbers in counters.values():
        for kind, count in _items(numbers.get("database_errors")):
            errors[kind] = errors.get(kind, 0) + _number(count)
    by_kind = [("_total", {"kind": kind}, count) for kind, count in errors.items()]
    yield Family("pgflowd_database_errors", "counter", "Errors of the database.", by_kind)
    reloads = [
        ("_total", {"result": result}, count) for result, count in more.get("reloads", {}).items()
    ]
    yield Family("pgflowd_reloads", "counter", "Reloads, by result.", reloads)
    labels = {"version": str(status["version"]), "name": str(status["name"])}
    yield Family("pgflowd_build", "info", "What runs here.", [("_info", labels, 1)])


def _single(name: str, kind: str, text: str, value: Any) -> Family:
    suffix = "_total" if kind == "counter" else ""
    return Family(f"pgflowd_{name}", kind, text, [(suffix, {}, _number(value))])


def _histogram(histogram: Any, labels: Labels) -> Iterator[Sample]:
    if not isinstance(histogram, list) or len(histogram) != len(BUCKETS_S) + 2:
        return
    counted = 0.0
    for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), histogram, strict=False):
        counted += _number(count)
        yield "_bucket", {**labels, "le": bound}, counted
    yield "_count", labels, counted
    yield "_sum", labels, _number(histogram[-1])


def _lines(family: Family) -> Iterable[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    for suffix, labels, value in family.samples:
        pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        shown = f"{{{pairs}}}" if pairs else ""
        yield f"{family.name}{suffix}{shown} {_number(value):.12g}"


def _escaped(text: str) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
