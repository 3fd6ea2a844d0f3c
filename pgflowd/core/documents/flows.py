"""Flows and stalled tasks, as programs and screens see them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, NamedTuple
from uuid import UUID

from pgflowd.core.definition.plan import StepPlan
from pgflowd.core.documents import FlowSlug, Hidden, Named, StepSlug, TaskIndex, shown


@dataclass(frozen=True)
class ListedFlow:
    """A flow in the database, and its work."""

    flow_slug: Hidden[str]
    steps: int
    queue_name: Annotated[str, Named("queue"), "the name of its queue"]
    is_watched: Annotated[bool, Named("watched"), "whether an insert into it notifies"]
    queued: int
    oldest_queued_at: Annotated[datetime | None, "when the oldest queued task was queued"]
    running: int
    active_runs: Annotated[int, "how many runs have begun and not ended"]
    workers: Annotated[int, "how many sent a heartbeat in the last 30 seconds"]
    last_run_at: Annotated[datetime | None, "when its last run began"]
    created_at: datetime
    is_asleep: Annotated[
        bool,
        Named("asleep"),
        "whether its worker sleeps, and a daemon starts one when there is work",
    ]
    waiting: int
    planned: Annotated[int, "how many runs have not begun, to 10,000"]
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
    ] = None

    @property
    @shown
    def title(self) -> Annotated[str, Named("flow")]:
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

    key: Annotated[str, "its key, or that of the places"]
    steps: Annotated[list[str], "the steps that it is for"]
    slots: Annotated[int, "how many places there are"]
    taken: Annotated[int, "how many are taken"]
    waiting: Annotated[int, "how many tasks wait for one"]
    first_since: Annotated[datetime | None, "since when the first of them waits"]
    holders: Annotated[list[str], "at most ten tasks that have a place"]


class WorkerCaps(NamedTuple):
    """What a living worker of a flow has."""

    name: Annotated[str, Named("worker"), "the name of the worker"]
    caps: Annotated[tuple[str, ...], "what it has"]


def unserved_needs(steps: Iterable[StepPlan], workers: Iterable[WorkerCaps]) -> list[str]:
    """What steps need and no worker has, each once, in words."""
    have = [{*worker.caps} for worker in workers]
    needed = {step.options["needs"] or () for step in steps}
    return sorted(", ".join(one) for one in needed if one and not any({*one} <= c for c in have))


class TaskKey(NamedTuple):
    """The identity of a task."""

    run_id: UUID
    step_slug: StepSlug
    task_index: TaskIndex


@dataclass(frozen=True)
class StalledTask:
    """A started task on which no worker works any more, or a queued one without a message."""

    run_id: UUID
    step_slug: StepSlug
    task_index: TaskIndex
    flow_slug: FlowSlug
    worker_id: UUID | None
    attempt: int
    started_at: Annotated[
        datetime | None, "when it started; null for a queued task whose message is gone"
    ]
    stalled_at: Annotated[datetime, "when its lease was over"]
    times: Annotated[int, "how often it stalled before"]
    reason: str

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.run_id, self.step_slug, self.task_index)


class StalledTasks(NamedTuple):
    tasks: Annotated[Sequence[StalledTask], "the tasks whose worker vanished"]
