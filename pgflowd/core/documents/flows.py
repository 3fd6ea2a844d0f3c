"""
Flows, as programs and screens see them: what they have to do and did, their limits, versions and
newest runs; stalled tasks; and what needs attention in a database, in numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, NamedTuple
from uuid import UUID

from pgflowd.core.definition.shape import StepPlan
from pgflowd.core.documents import (
    FlowSlug,
    Hidden,
    Inline,
    ListColumn,
    Named,
    StepSlug,
    TaskIndex,
    TaskKey,
    number,
    shown,
)
from pgflowd.core.statuses import RunStatus, StepStatus


@dataclass(frozen=True)
class ListedFlow:
    """A flow in the database, and its work."""

    flow_slug: Hidden[str]
    steps: Annotated[int, number("STEPS")]
    queue_name: Annotated[str, Named("queue"), "the name of its queue"]
    is_watched: Annotated[bool, Named("watched"), "whether an insert into it notifies"]
    queued: Annotated[int, number("QUEUED")]
    oldest_queued_at: Annotated[
        datetime | None, "when the oldest queued task was queued", number("OLDEST")
    ]
    running: Annotated[int, number("RUNNING")]
    active_runs: Annotated[
        int, "how many runs have begun and not ended", number("RUNS", page="Open runs")
    ]
    workers: Annotated[int, "how many sent a heartbeat in the last 30 seconds", number("WORKERS")]
    last_run_at: Annotated[datetime | None, "when its last run began", ListColumn("LAST RUN")]
    created_at: datetime
    is_asleep: Annotated[
        bool,
        Named("asleep"),
        "whether its worker sleeps, and a daemon starts one when there is work",
    ]
    waiting: Annotated[int, number("WAITING", is_rare=True)]
    planned: Annotated[
        int, "how many runs have not begun, to 10,000", number("PLANNED", is_rare=True)
    ]
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    undoes: Annotated[
        str | None,
        "the flow whose runs it undoes; such a flow is listed on a screen while it has work, or"
        " with `-v`",
    ]
    name: Hidden[str | None] = None  # in the code; none of an old version
    version: Annotated[int, "the number of the current version; with `-v` each has an entry"] = 1
    old_versions: Annotated[int, "how many older ones there are"] = 0
    old_runs: Annotated[int, "how many of their runs are open"] = 0
    import_s: Annotated[
        float | None,
        "how long the last import of its module took; null unless the daemon of this configuration"
        " serves it",
        number("IMPORT"),
    ] = None

    @property
    @shown
    def title(self) -> Annotated[str, Named("flow"), ListColumn("FLOW")]:
        """What people call it."""
        return self.name or self.flow_slug

    @property
    def open_runs(self) -> int:
        """Of all its versions."""
        return self.active_runs + self.old_runs


@dataclass(frozen=True)
class Version:
    """A version of a flow; `has_shape`: the one that was asked for."""

    number: Annotated[int, Named("version")]
    flow_slug: Annotated[str, Named("flow"), "its flow in the database"]
    is_current: Annotated[bool, Named("current"), "whether starts go to it"]
    deployed_at: Annotated[datetime, "when it was deployed"]
    deployed_by: Annotated[str | None, "who deployed it"]
    code: Annotated[str | None, "the name of the code that was deployed, such as a commit"]
    has_shape: Hidden[bool]


@dataclass(frozen=True)
class ListedLimit:
    """A limit in use: its places, who has them, and who waits for one."""

    key: Annotated[str, "its key, or that of the places", ListColumn("KEY", 60)]
    steps: Annotated[list[str], "the steps that it is for"]
    slots: Annotated[int, "how many places there are", number("SLOTS")]
    taken: Annotated[int, "how many are taken", number("TAKEN")]
    waiting: Annotated[int, "how many tasks wait for one", number("WAITING")]
    first_since: Annotated[
        datetime | None, "since when the first of them waits", number("FIRST WAITS")
    ]
    holders: Annotated[list[str], "at most ten tasks that have a place", ListColumn("TAKEN BY", 60)]


class WorkerCaps(NamedTuple):
    """What a living worker of a flow has."""

    name: Annotated[str, Named("worker"), "the name of the worker"]
    caps: Annotated[tuple[str, ...], "what it has"]


def unserved_needs(steps: Iterable[StepPlan], workers: Iterable[WorkerCaps]) -> list[str]:
    """What steps need and no worker has, each once, in words."""
    have = [{*worker.caps} for worker in workers]
    needed = {step.options["needs"] or () for step in steps}
    return sorted(", ".join(one) for one in needed if one and not any({*one} <= c for c in have))


@dataclass(frozen=True)
class StalledTask:
    """A started task on which no worker works any more, or a queued one without a message."""

    run_id: UUID
    step_slug: StepSlug
    task_index: TaskIndex
    flow_slug: Annotated[FlowSlug, ListColumn("FLOW")]
    worker_id: UUID | None
    attempt: Annotated[int, number("ATTEMPT")]
    started_at: Annotated[
        datetime | None, "when it started; null for a queued task whose message is gone"
    ]
    stalled_at: Annotated[datetime, "when its lease was over", ListColumn("STALLED")]
    times: Annotated[int, "how often it stalled before", number("TIMES")]
    reason: Annotated[str, ListColumn("WHY")]

    @property
    def key(self) -> Annotated[TaskKey, ListColumn("TASK")]:
        return TaskKey(self.run_id, self.step_slug, self.task_index)


class StalledTasks(NamedTuple):
    tasks: Annotated[Sequence[StalledTask], "the tasks whose worker vanished"]


@dataclass(frozen=True)
class GridRun:
    """A run, with its steps in the order of its flow; a map is one step."""

    run_id: UUID
    flow_slug: FlowSlug
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None
    steps: Hidden[Mapping[str, StepStatus]]


class GridRow(NamedTuple):
    """A run in a grid."""

    run: Inline[GridRun]
    statuses: Annotated[
        list[StepStatus | None],
        "of these steps in their order, null where a run has no such step; a map is one",
    ]


@dataclass(frozen=True)
class FlowGrid:
    """The newest runs of all versions of a flow, newest first."""

    flow: str
    runs: Hidden[Sequence[GridRun]]

    @property
    @shown
    def steps(self) -> Annotated[list[str], "the slugs of its steps"]:
        """All steps of these runs: those of the newest run in its order, then others."""
        return list(dict.fromkeys(step for run in self.runs for step in run.steps))

    @property
    @shown
    def rows(self) -> Annotated[list[GridRow], Named("runs"), "the newest first"]:
        steps = self.steps
        return [GridRow(run, [run.steps.get(step) for step in steps]) for run in self.runs]


OF_RUNS = ""  # in place of a step


@dataclass(frozen=True)
class StepStats:
    """How often attempts of a step ended, or runs of a flow, and how long they took."""

    flow_slug: Hidden[str]
    step_slug: Annotated[StepSlug, ListColumn("STEP")]
    completed: Annotated[int, "how many attempts completed"]
    failed: Annotated[int, "how many failed"]
    timed_out: Annotated[int, "how many took too long"]
    crashed: Annotated[int, "how many ended with their process"]
    ran_p50_s: Annotated[float | None, "how long half of them ran at most", number("RAN 50%")]
    ran_p95_s: Annotated[float | None, "how long 95 of 100 ran at most", number("95%")]
    waited_p50_s: Annotated[
        float | None,
        "how long half of the tasks waited for their first attempt at most",
        number("WAITED 50%"),
    ]
    waited_p95_s: Annotated[float | None, "how long 95 of 100 waited at most", number("95% ")]
    since_s: Hidden[float]  # the time within which it was

    @property
    def ended(self) -> Annotated[int, number("ENDED")]:
        return self.completed + self.failures

    @property
    def failures(self) -> int:
        return self.failed + self.timed_out + self.crashed

    @property
    @shown
    def failure_rate(self) -> Annotated[float | None, number("FAILED", show="{:.1%}".format)]:
        return self.failures / self.ended if self.ended else None

    @property
    @shown
    def per_minute(
        self,
    ) -> Annotated[float, "how many ended per minute", number("A MINUTE", show="{:.3g}".format)]:
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
    flows = []
    for work in works:
        of_flow = {each.step_slug: each for each in found if each.flow_slug == work.flow_slug}
        runs, of_time = of_flow.pop(OF_RUNS, None), buckets.get(work.flow_slug, ())
        flows.append(FlowStats(work, list(of_flow.values()), runs, since_s, of_time))
    return flows


@dataclass(frozen=True)
class OverviewCounts:
    """Each at most 1,001, which stands for any number above a thousand."""

    failed: Annotated[int, "runs that failed and started within a day"]
    people: Annotated[int, "tasks that wait for people"]
    quarantined: Annotated[int, "tasks in quarantine"]
    stalled: Annotated[int, "tasks that have stalled"]
    dead: Annotated[int, "tasks that have failed for good"]
