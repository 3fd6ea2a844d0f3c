"""
Renders the metrics of the daemon as text, for `/metrics` and `pgflowd status --metrics`.

There are two formats. In the classic one the family of a counter ends in `_total`, that of an info
in `_info`, and an info is a gauge. The numbers of a child include the counts of its earlier
processes. A number of an unexpected type counts as 0, so that one child cannot make the text
unreadable. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache, reduce
from itertools import accumulate
from typing import Any

from pgflowd.core.documents.daemon_status import is_ready
from pgflowd.core.metrics.definitions import (
    BOUNDS_S,
    METRICS,
    Metric,
    MetricSource,
    MetricType,
    added,
    is_number,
)
from pgflowd.core.statuses import ChildState, DaemonState, DatabaseState
from pgflowd.core.supervision.kinds import WORKER

MAX_STEPS = 100  # of a flow with a histogram of each: 1,700 lines of text, more with each step
_SUFFIXES = {MetricType.COUNTER: "_total", MetricType.INFO: "_info"}


class TextFormat(Enum):
    """The formats, by their types of content."""

    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    CLASSIC = "text/plain; version=0.0.4; charset=utf-8"


def exposition(
    numbers: Mapping[str, Any],
    processes: Mapping[str, Mapping[str, float]],
    form: TextFormat = TextFormat.OPENMETRICS,
) -> str:
    """Return the whole text. `numbers` are the supervisor's answer: `status`, its document;
    `counters` by child; `own`, its own. `processes` are what processes use, by metric."""
    status = numbers["status"]
    own = {**numbers["own"], **_facts(status), **processes}
    lines: list[str] = []
    for metric in METRICS:
        found = _numbers(metric, status, numbers["counters"], own)
        if metric.type is MetricType.HISTOGRAM:
            for flow, steps in found.items():
                if isinstance(steps, dict) and len(steps) > MAX_STEPS:
                    found[flow] = {"": reduce(added, steps.values())}  # as good as no label
        family, kind = f"pgflowd_{metric.name}", metric.type
        if form is TextFormat.CLASSIC:
            family += _SUFFIXES.get(kind, "")
            kind = MetricType.GAUGE if kind is MetricType.INFO else kind
        lines += [f"# HELP {family} {metric.help}", f"# TYPE {family} {kind.value}"]
        for values, number in _flattened(found, len(metric.labels)):
            lines += _samples(metric, _pairs(metric.labels, values), number)
    return "\n".join([*lines, *(["# EOF"] if form is TextFormat.OPENMETRICS else []), ""])


def _facts(status: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that the status document tells."""
    database, states = status["database"], [flow["state"] for flow in status["flows"]]
    facts = {
        "state": {state.value: int(status["state"] == state) for state in DaemonState},
        "ready": int(is_ready(status)),
        "database_up": int(database["state"] == DatabaseState.UP),
        "database_rtt_seconds": database["rtt_s"],
        "clock_skew_seconds": database["clock_skew_s"],
        "parked_workers": states.count(ChildState.PARKED),
        "asleep_workers": states.count(ChildState.ASLEEP),
        "due_late_seconds": status.get("sweeper", {}).get("due_late_s"),
        "quarantined": {  # they are among those that wait
            flow["slug"]: None if flow.get("waits") is None else flow["waits"].get("quarantined", 0)
            for flow in status["flows"]
        },
        "build": {(str(status["version"]), str(status["name"])): 1},
    }
    return {key: value for key, value in facts.items() if value is not None}


def _numbers(
    metric: Metric,
    status: Mapping[str, Any],
    counters: Mapping[str, Mapping[str, Any]],
    own: Mapping[str, Any],
) -> Any:
    """Return the numbers of a metric, nested by its labels; None: it is not known."""
    nothing: Any = {} if metric.labels else 0
    if metric.source is MetricSource.WORKER:
        slugs = [flow["slug"] for flow in status["flows"]]
        return {slug: counters.get(WORKER.child_id(slug), {}).get(metric.key) for slug in slugs}
    if metric.source is MetricSource.FLOW:
        served = ((flow["slug"], flow) for flow in status["flows"])
        flows = [*own.get("unserved", {}).items(), *served]
        return {slug: flow[metric.key] for slug, flow in flows if flow.get(metric.key) is not None}
    if metric.source is MetricSource.CHILDREN:
        return reduce(
            added, (each[metric.key] for each in counters.values() if metric.key in each), nothing
        )
    return own.get(metric.key, {} if metric.labels else None)


def _flattened(numbers: Any, depth: int) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of the labels and the number of each sample; a key may be a tuple."""
    if depth <= 0:
        if numbers is not None:
            yield (), numbers
        return
    for key, inner in numbers.items() if isinstance(numbers, dict) else ():
        head = key if isinstance(key, tuple) else (key,)
        for rest, number in _flattened(inner, depth - len(head)):
            yield (*head, *rest), number


def _samples(metric: Metric, pairs: str, number: Any) -> list[str]:
    name = f"pgflowd_{metric.name}"
    shown = f"{{{pairs}}}" if pairs else ""
    if metric.type is not MetricType.HISTOGRAM:
        return [f"{name}{_SUFFIXES.get(metric.type, '')}{shown} {_shown(number)}"]
    if not isinstance(number, list) or len(number) != len(BOUNDS_S) + 2:
        return []
    *buckets, total = number
    counts = [*accumulate(more if type(more) is int else 0 for more in buckets)]
    return [_histogram(name, pairs) % (*counts, counts[-1], _shown(total))]


@lru_cache(maxsize=8192)  # the same at each scrape
def _pairs(labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    escaped = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    pairs = zip(labels, values, strict=True)
    return ",".join([f'{label}="{str(text).translate(escaped)}"' for label, text in pairs])


@lru_cache(maxsize=4096)  # the most of the text, and the same at each scrape
def _histogram(name: str, pairs: str) -> str:
    """The lines of a histogram, with a place for each number."""
    known = pairs.replace("%", "%%")
    before = f'{name}_bucket{{{known}{"," if known else ""}le="'
    shown = f"{{{known}}}" if known else ""
    lines = [f'{before}{bound}"}} %d' for bound in (*BOUNDS_S, "+Inf")]
    return "\n".join([*lines, f"{name}_count{shown} %d", f"{name}_sum{shown} %s"])


def _shown(value: Any) -> str:
    """A number as text; anything else is 0."""
    return f"{value:.12g}" if is_number(value) else "0"
