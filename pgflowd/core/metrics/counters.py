"""
Numbers: what a child tells of itself with each Beat, for `status` and for the metrics.

`Beat.numbers` is a plain object; each key replaces the one before, but for counters by name,
which are added to those already known: so a child may send some keys now and others later, and
`portions` cuts what would be too large for one message. Counters only grow while the process
lives; the supervisor adds what earlier processes of the same child had counted. Of a worker:

    running, runners, queued, oldest_queued_s         how things are now; queued from the database
    zygote                                            its pid
    completed_1m, failed_1m, p50_s, p95_s             over the last minute
    wakes_1m       {reason: n}                        notification, completion, due, fallback
    database       {state, server, place, pgmq, schema, rtt_s, clock_skew_s, at}
    problems       [{code, text}]                     warnings that `status` shows
    stuck          n                                  runners that cannot be killed
    busy           [{task, run, attempt, took_s}]     some of the running tasks, for a dump
    tasks          {step: {outcome: n}}               counters, as the following
    task_seconds, task_wait_seconds {step: histogram} see below; the latter of first attempts
    runs           {status: n}
    wakes          {reason: n}
    stalled        n
    database_errors {kind: n}

of the listener: reconnects, last_notification_at, wakes_1m, database_errors; of the sweeper:
last_sweep_at, interval_s, recovered_24h, given_up_24h, stalled, database_errors. Moments
(`…_at`) are seconds since 1970. A histogram is a list: the observations in each of `BUCKETS_S`
(not cumulated), those above, and their sum in seconds. Pure.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
MINUTE_S = 60.0
MOST_BYTES = 32 * 1024  # of one portion; a message holds twice as much
COUNTERS = (
    "tasks",
    "task_seconds",
    "task_wait_seconds",
    "runs",
    "wakes",
    "stalled",
    "database_errors",
    "reconnects",
)


class LastMinute:
    """Counts of what happened in the last minute, by name and second, however much it was."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, Counter[str]]] = deque()

    def add(self, name: str, now: float, count: int = 1) -> None:
        second = int(now)
        if not self._seconds or self._seconds[-1][0] != second:
            self._forget(now)
            self._seconds.append((second, Counter()))
        self._seconds[-1][1][name] += count

    def counts(self, now: float) -> Counter[str]:
        self._forget(now)
        return sum((counter for _, counter in self._seconds), Counter())

    def _forget(self, now: float) -> None:
        while self._seconds and self._seconds[0][0] < now - MINUTE_S:
            self._seconds.popleft()


def observe(histogram: list[float], seconds: float) -> None:
    """Count an observation; start with an empty list."""
    if not histogram:
        histogram.extend([0] * (len(BUCKETS_S) + 1) + [0.0])
    histogram[bisect_left(BUCKETS_S, seconds)] += 1
    histogram[-1] += seconds


def added(one: Any, other: Any) -> Any:
    """Return two counters of the same form as one; what does not fit counts as nothing."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return {
            key: added(one[key], other[key]) if key in one and key in other else rest
            for key, rest in {**one, **other}.items()
        }
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [added(left, right) for left, right in zip(one, other, strict=True)]
    if _is_number(one) and _is_number(other):
        return one + other
    return one if _is_number(one) or isinstance(one, Mapping | list) else other


def counters_of(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counters among the numbers."""
    return {key: numbers[key] for key in COUNTERS if key in numbers}


def merged(known: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known after one more Beat."""
    both = {**known, **told}
    for key in COUNTERS:
        old, new = known.get(key), told.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            both[key] = {**old, **new}
    return both


def portions(numbers: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Cut numbers into parts that fit into a Beat each; a flow may have very many steps."""
    large = {key for key in COUNTERS if isinstance(numbers.get(key), Mapping)}
    yield {key: value for key, value in numbers.items() if key not in large}
    part: dict[str, Any] = {}
    size = 0
    for key in sorted(large):
        for name, value in numbers[key].items():
            length = len(json.dumps({name: value}))
            if size + length > MOST_BYTES and part:
                yield part
                part, size = {}, 0
            part.setdefault(key, {})[name] = value
            size += length
    if part:
        yield part


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
