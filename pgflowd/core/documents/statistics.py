"""What flows did, and what they have to do, as programs and screens see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pgflowd.core.documents import FlowSlug, Hidden, Inline, Named, StepSlug, shown

OF_RUNS = ""  # in place of a step


@dataclass(frozen=True)
class StepStats:
    """How often attempts of a step ended, or runs of a flow, and how long they took."""

    flow_slug: Hidden[str]
    step_slug: StepSlug
    completed: Annotated[int, "how many attempts completed"]
    failed: Annotated[int, "how many failed"]
    timed_out: Annotated[int, "how many took too long"]
    crashed: Annotated[int, "how many ended with their process"]
    ran_p50_s: Annotated[float | None, "how long half of them ran at most"]
    ran_p95_s: Annotated[float | None, "how long 95 of 100 ran at most"]
    waited_p50_s: Annotated[
        float | None, "how long half of the tasks waited for their first attempt at most"
    ]
    waited_p95_s: Annotated[float | None, "how long 95 of 100 waited at most"]
    since_s: Hidden[float]  # the time within which it was

    @property
    def ended(self) -> int:
        return self.completed + self.failures

    @property
    def failures(self) -> int:
        return self.failed + self.timed_out + self.crashed

    @property
    @shown
    def failure_rate(self) -> float | None:
        return self.failures / self.ended if self.ended else None

    @property
    @shown
    def per_minute(self) -> Annotated[float, "how many ended per minute"]:
        return self.ended * 60 / self.since_s


class RunStats(NamedTuple):
    """How often runs of a flow ended."""

    completed: Annotated[int, "how many completed"]
    failed: Annotated[int, "how many failed"]
    per_minute: Annotated[float, "how many ended per minute"]
    failure_rate: float | None


@dataclass(frozen=True)
class FlowWork:
    """The open tasks of a flow; at most ten thousand of each are counted."""

    flow_slug: FlowSlug
    ready: Annotated[int, "how many tasks may be claimed now"]
    running: int
    delayed: Annotated[int, "how many tasks may be claimed later"]
    oldest_ready_s: Annotated[float | None, "how long the oldest of the ready ones has been"]
    waits: Mapping[str, int]


class RunBucket(NamedTuple):
    """How many runs ended in a piece of time."""

    ok: Annotated[int, "how many completed"]
    failed: int


@dataclass(frozen=True)
class FlowStats:
    """A flow: what it has to do, and what it did within a time."""

    work: Inline[FlowWork]
    steps: Annotated[Sequence[StepStats], "of each step"]
    runs: Hidden[StepStats | None]
    since_s: Annotated[float, "how far back the numbers go"]
    buckets: Annotated[
        Sequence[RunBucket], "of each twelfth of the time, the oldest first; empty if no run ended"
    ] = ()

    @property
    @shown
    def ended_runs(self) -> Annotated[RunStats, Named("runs"), "of the runs that ended"]:
        if (runs := self.runs) is None:
            return RunStats(0, 0, 0.0, None)
        return RunStats(runs.completed, runs.failed, runs.per_minute, runs.failure_rate)


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
