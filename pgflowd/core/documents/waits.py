"""Open tasks and what they wait for, signals and checkpoints, as programs and screens see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pgflowd.core.documents import plain
from pgflowd.core.documents.flows import TaskKey
from pgflowd.core.failure import APPROVAL
from pgflowd.core.json import dumps
from pgflowd.core.metrics.counters import is_number
from pgflowd.core.needs import in_words
from pgflowd.core.statuses import TaskStatus
from pgflowd.core.text import who
from pgflowd.core.waiting import WaitKind

# kinds of waits that no handler asks for
PAUSED = "paused"  # for the resume of the run
QUARANTINED = "quarantined"  # for somebody to decide


@dataclass(frozen=True)
class OpenTask:
    """A task that has not ended, and what it waits for."""

    run_id: UUID
    step_slug: str
    task_index: int
    flow_slug: str
    status: TaskStatus
    attempts: int
    kind: str | None  # of the wait, like the next two
    name: str | None
    why: str | None
    since: datetime
    until: datetime | None  # the end of the wait, of the lease, or of the delay
    is_unserved: bool | None = None  # no living worker has what it needs
    worker: str | None = None  # the name of who has it: a worker or a person
    title: str | None = None  # of its run

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.run_id, self.step_slug, self.task_index)

    @property
    def is_approval(self) -> bool:
        return self.why == APPROVAL

    @property
    def waits_for(self) -> str:
        """In a few words; empty for a task that does not wait."""
        if self.kind == WaitKind.NEED:
            return f"{in_words(self.name or '')}{f': {self.why}' if self.why else ''}"
        if self.kind == WaitKind.LIMIT:
            return f"a place of {self.name}"
        if self.why:
            return self.why
        if self.kind == WaitKind.SIGNAL:
            return f"signal {self.name}"
        return "the resume of its run" if self.kind == PAUSED else self.kind or ""

    def to_json(self) -> dict[str, Any]:
        return plain({
            **self.key.to_json(),
            "flow": self.flow_slug,
            "status": self.status,
            "attempts": self.attempts,
            "kind": self.kind,
            "name": self.name,
            "why": self.why,
            "unserved": self.is_unserved,
            "since": self.since,
            "until": self.until,
            "worker": self.worker,
            "title": self.title,
        })  # fmt: skip


@dataclass(frozen=True)
class ListedSignal:
    """A signal, and which task got it."""

    signal_id: int
    run_id: UUID
    name: str
    payload: Any
    dedup: str | None
    sent_by: str | None
    sent_at: datetime
    step_slug: str | None  # of the task that got it, like the next two
    task_index: int | None
    consumed_at: datetime | None
    session_role: str | None  # that was connected; None: before it was kept

    @property
    def sender(self) -> str:
        """Who sent it, and by which role."""
        return who(self.sent_by, self.session_role)

    def to_json(self) -> dict[str, Any]:
        return plain({
            "signal_id": self.signal_id,
            "run_id": self.run_id,
            "name": self.name,
            "payload": self.payload,
            "dedup": self.dedup,
            "sent_by": self.sent_by,
            "sent_at": self.sent_at,
            "step": self.step_slug,
            "task": self.task_index,
            "consumed_at": self.consumed_at,
            "session_role": self.session_role,
        })  # fmt: skip


@dataclass(frozen=True)
class SavedCheckpoint:
    """What a task has saved under a name."""

    step_slug: str
    task_index: int
    name: str
    version: int
    saved_at: datetime
    data: Any

    @property
    def size(self) -> int:
        """The bytes of its JSON."""
        return len(dumps(self.data).encode())

    def to_json(self) -> dict[str, Any]:
        return plain({
            "step": self.step_slug,
            "task": self.task_index,
            "name": self.name,
            "version": self.version,
            "size": self.size,
            "saved_at": self.saved_at,
            "data": self.data,
        })  # fmt: skip


def counted_waits(numbers: Any, flow_slug: str) -> dict[str, Any]:
    """How many tasks of a flow wait, as the sweeper tells, and by kind; null if it does not."""
    if not isinstance(numbers, Mapping):
        return {"waiting": None, "waits": None}
    found = numbers.get(flow_slug)
    kinds = found.items() if isinstance(found, Mapping) else ()
    waits = {kind: count for kind, count in kinds if is_number(count)}
    return {"waiting": sum(waits.values()), "waits": waits}
