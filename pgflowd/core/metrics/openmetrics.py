"""
Renders the metrics of the daemon as OpenMetrics text, for `pgflowd status --metrics`.

The numbers of a child include the counts of its earlier processes. A number of an unexpected type
counts as 0, so that one child cannot make the text unreadable. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

from pgflowd.core.metrics.counters import added, is_number
from pgflowd.core.metrics.definitions import METRICS, Metric, MetricSource, MetricType
from pgflowd.core.supervision.kinds import WORKER
from pgflowd.core.supervision.lifecycle import ChildState

_SUFFIXES = {MetricType.COUNTER: "_total", MetricType.INFO: "_info"}


def exposition(
    status: Mapping[str, Any], counters: Mapping[str, Mapping[str, Any]], own: Mapping[str, Any]
) -> str:
    """Return the whole text. `counters` are by child; `own` are the supervisor's."""
    own = {
        "parked_workers": sum(flow["state"] == ChildState.PARKED for flow in status["flows"]),
        "asleep_workers": sum(flow["state"] == ChildState.ASLEEP for flow in status["flows"]),
        "build": {(str(status["version"]), str(status["name"])): 1},
        **own,
    }
    lines = []
    for metric in METRICS:
        lines += [f"# HELP pgflowd_{metric.name} {metric.help}"]
        lines += [f"# TYPE pgflowd_{metric.name} {metric.type.value}"]
        numbers = _numbers(metric, status, counters, own)
        for values, number in _flattened(numbers, len(metric.labels)):
            lines += _samples(metric, dict(zip(metric.labels, values, strict=True)), number)
    return "\n".join([*lines, "# EOF", ""])


def _numbers(
    metric: Metric,
    status: Mapping[str, Any],
    counters: Mapping[str, Mapping[str, Any]],
    own: Mapping[str, Any],
) -> Any:
    """Return the numbers of a metric, nested by its labels."""
    nothing: Any = {} if metric.labels else 0
    if metric.source is MetricSource.WORKER:
        slugs = [flow["slug"] for flow in status["flows"]]
        return {slug: counters.get(WORKER.child_id(slug), {}).get(metric.key) for slug in slugs}
    if metric.source is MetricSource.FLOW:
        flows = {flow["slug"]: flow.get(metric.key) for flow in status["flows"]}
        return {slug: number for slug, number in flows.items() if number is not None}
    if metric.source is MetricSource.CHILDREN:
        return reduce(
            added, (each[metric.key] for each in counters.values() if metric.key in each), nothing
        )
    return own.get(metric.key, nothing)


def _flattened(numbers: Any, depth: int) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of the labels and the number of each sample; a key may be a tuple."""
    if depth <= 0:
        yield (), numbers
        return
    for key, inner in numbers.items() if isinstance(numbers, Mapping) else ():
        head = key if isinstance(key, tuple) else (key,)
        for rest, number in _flattened(inner, depth - len(head)):
            yield (*head, *rest), number


def _samples(metric: Metric, labels: dict[str, str], number: Any) -> Iterator[str]:
    if metric.type is not MetricType.HISTOGRAM:
        yield _line(metric, _SUFFIXES.get(metric.type, ""), labels, number)
        return
    if not isinstance(number, list) or len(number) != len(metric.bounds_s) + 2:
        return
    count = 0.0
    for bound, more in zip((*map(str, metric.bounds_s), "+Inf"), number, strict=False):
        count += _number(more)
        yield _line(metric, "_bucket", {**labels, "le": bound}, count)
    yield _line(metric, "_count", labels, count)
    yield _line(metric, "_sum", labels, number[-1])


def _line(metric: Metric, suffix: str, labels: dict[str, str], number: Any) -> str:
    pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    shown = f"{{{pairs}}}" if pairs else ""
    return f"pgflowd_{metric.name}{suffix}{shown} {_number(number):.12g}"


def _escaped(text: str) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: Any) -> float:
    return value if is_number(value) else 0
