"""Flows and stalled tasks, as programs and screens see them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from pgflowd.core.definition.plan import StepPlan
from pgflowd.core.documents import plain


@dataclass(frozen=True)
class ListedFlow:
    """A flow in the database, and its work."""

    flow_slug: str
    steps: int
    queue_name: str
    is_watched: bool  # its queue has a trigger that notifies workers
    queued: int
    oldest_queued_at: datetime | None
    running: int
    active_runs: int
    workers: int
    last_run_at: datetime | None
    created_at: datetime
    is_asleep: bool  # a daemon serves it, and starts its worker when there is work
    waiting: int
    planned: int  # runs that have not begun
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    undoes: str | None  # the flow whose runs it undoes
    name: str | None = None  # in the code; none of an old version
    version: int = 1
    old_versions: int = 0
    old_runs: int = 0  # of these, that have not ended

    @property
    def title(self) -> str:
        """What people call it."""
        return self.name or self.flow_slug

    @property
    def open_runs(self) -> int:
        """Of all its versions."""
        return self.active_runs + self.old_runs

    def to_json(self, import_s: float | None) -> dict[str, Any]:
        """The document; the daemon knows how long the import of the flow took."""
        return plain({
            "flow": self.title,
            "version": self.version,
            "old_versions": self.old_versions,
            "old_runs": self.old_runs,
            "undoes": self.undoes,
            "steps": self.steps,
            "queue": self.queue_name,
            "watched": self.is_watched,
            "queued": self.queued,
            "waiting": self.waiting,
            "planned": self.planned,
            "oldest_queued_at": self.oldest_queued_at,
            "running": self.running,
            "active_runs": self.active_runs,
            "workers": self.workers,
            "asleep": self.is_asleep,
            "paused_at": self.paused_at,
            "paused_by": self.paused_by,
            "pause_reason": self.pause_reason,
            "import_s": import_s,
            "last_run_at": self.last_run_at,
            "created_at": self.created_at,
        })  # fmt: skip


@dataclass(frozen=True)
class ListedLimit:
    """A limit in use: its places, who has them, and who waits for one."""

    key: str
    steps: list[str]
    slots: int
    taken: int
    waiting: int
    first_since: datetime | None
    holders: list[str]

    def to_json(self) -> dict[str, Any]:
        return plain({
            "key": self.key,
            "steps": self.steps,
            "slots": self.slots,
            "taken": self.taken,
            "waiting": self.waiting,
            "first_since": self.first_since,
            "holders": self.holders,
        })  # fmt: skip


class WorkerCaps(NamedTuple):
    """What a living worker of a flow has."""

    name: str
    caps: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"worker": self.name, "caps": list(self.caps)}


def unserved_needs(steps: Iterable[StepPlan], workers: Iterable[WorkerCaps]) -> list[str]:
    """What steps need and no worker has, each once, in words."""
    have = [{*worker.caps} for worker in workers]
    needed = {step.options["needs"] or () for step in steps}
    return sorted(", ".join(one) for one in needed if one and not any({*one} <= c for c in have))


class TaskKey(NamedTuple):
    """The identity of a task."""

    run_id: UUID
    step_slug: str
    task_index: int

    def to_json(self) -> dict[str, Any]:
        return plain({"run_id": self.run_id, "step": self.step_slug, "task": self.task_index})


@dataclass(frozen=True)
class StalledTask:
    """A started task on which no worker works any more, or a queued one without a message."""

    run_id: UUID
    step_slug: str
    task_index: int
    flow_slug: str
    worker_id: UUID | None
    attempt: int
    started_at: datetime | None
    stalled_at: datetime
    times: int
    reason: str

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.run_id, self.step_slug, self.task_index)

    def to_json(self) -> dict[str, Any]:
        return plain({
            **self.key.to_json(),
            "flow": self.flow_slug,
            "worker_id": self.worker_id,
            "attempt": self.attempt,
            "times": self.times,
            "started_at": self.started_at,
            "stalled_at": self.stalled_at,
            "reason": self.reason,
        })  # fmt: skip
