"""A task that a person has claimed, as programs see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pgflowd.core.documents import plain
from pgflowd.core.documents.flows import TaskKey


@dataclass(frozen=True)
class HeldTask:
    """A task that is a person's until its lease is over."""

    run_id: UUID
    step_slug: str
    task_index: int
    flow_slug: str
    token: int
    attempt: int
    max_attempts: int
    lease_until: datetime
    input: Any  # the outputs of its deps, or the element of a map
    flow_input: Any  # None, too, if it is a large one and the step is none of the first

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.run_id, self.step_slug, self.task_index)

    def to_json(self) -> dict[str, Any]:
        return plain({
            **self.key.to_json(),
            "flow": self.flow_slug,
            "token": self.token,
            "attempt": self.attempt,
            "max_attempts": self.max_attempts,
            "lease_until": self.lease_until,
            "input": self.input,
            "run": self.flow_input,
        })  # fmt: skip
