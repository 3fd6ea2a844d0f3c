"""What flows did, and what they have to do, as programs and screens see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pgflowd.core.documents import plain

OF_RUNS = ""  # in place of a step


@dataclass(frozen=True)
class StepStats:
    """How often attempts of a step ended, or runs of a flow, and how long they took."""

    flow_slug: str
    step_slug: str
    completed: int
    failed: int
    timed_out: int
    crashed: int
    ran_p50_s: float | None
    ran_p95_s: float | None
    waited_p50_s: float | None
    waited_p95_s: float | None

    @property
    def ended(self) -> int:
        return self.completed + self.failures

    @property
    def failures(self) -> int:
        return self.failed + self.timed_out + self.crashed

    @property
    def failure_rate(self) -> float | None:
        return self.failures / self.ended if self.ended else None

    def per_minute(self, since_s: float) -> float:
        return self.ended * 60 / since_s

    def to_json(self, since_s: float) -> dict[str, Any]:
        of_runs = self.step_slug == OF_RUNS
        counts = {"completed": self.completed, "failed": self.failed}
        rates = {"per_minute": self.per_minute(since_s), "failure_rate": self.failure_rate}
        if of_runs:
            return {**counts, **rates}
        return {
            "step": self.step_slug,
            **counts,
            "timed_out": self.timed_out,
            "crashed": self.crashed,
            **rates,
            "ran_p50_s": self.ran_p50_s,
            "ran_p95_s": self.ran_p95_s,
            "waited_p50_s": self.waited_p50_s,
            "waited_p95_s": self.waited_p95_s,
        }


@dataclass(frozen=True)
class FlowWork:
    """The open tasks of a flow; at most ten thousand of each are counted."""

    flow_slug: str
    ready: int
    running: int
    delayed: int
    oldest_ready_s: float | None
    waits: Mapping[str, int]  # by kind


class RunBucket(NamedTuple):
    """How many runs ended in a piece of time."""

    ok: int
    failed: int


@dataclass(frozen=True)
class FlowStats:
    """A flow: what it has to do, and what it did within a time."""

    work: FlowWork
    steps: Sequence[StepStats]
    runs: StepStats | None
    since_s: float
    buckets: Sequence[
        RunBucket
    ] = ()  # of pieces of this time, the oldest first; none: no run ended

    def to_json(self) -> dict[str, Any]:
        nothing = StepStats(self.work.flow_slug, OF_RUNS, *[0] * 4, *[None] * 4)
        return plain({
            "flow": self.work.flow_slug,
            "since_s": self.since_s,
            "ready": self.work.ready,
            "running": self.work.running,
            "delayed": self.work.delayed,
            "oldest_ready_s": self.work.oldest_ready_s,
            "waits": dict(self.work.waits),
            "runs": (self.runs or nothing).to_json(self.since_s),
            "buckets": [bucket._asdict() for bucket in self.buckets],
            "steps": [step.to_json(self.since_s) for step in self.steps],
        })  # fmt: skip


def stats_of(
    works: Sequence[FlowWork],
    found: Sequence[StepStats],
    since_s: float,
    buckets: Mapping[str, Sequence[RunBucket]],
) -> list[FlowStats]:
    """The flows, each with what was found of it."""
    return [
        FlowStats(
            work,
            [each for each in of_flow(found, work) if each.step_slug != OF_RUNS],
            next((each for each in of_flow(found, work) if each.step_slug == OF_RUNS), None),
            since_s,
            buckets.get(work.flow_slug, ()),
        )
        for work in works
    ]


def of_flow(found: Sequence[StepStats], work: FlowWork) -> list[StepStats]:
    return [each for each in found if each.flow_slug == work.flow_slug]
