"""A task that a person has claimed, as programs see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from pgflowd.core.documents import FlowSlug, Inline, Named, StepSlug, TaskIndex, Words
from pgflowd.core.documents.flows import TaskKey
from pgflowd.core.statuses import Outcome, TaskStatus


@dataclass(frozen=True)
class HeldTask:
    """A task that is a person's until its lease is over."""

    run_id: UUID
    step_slug: StepSlug
    task_index: TaskIndex
    flow_slug: FlowSlug
    token: int
    attempt: int
    max_attempts: int
    lease_until: Annotated[datetime, "when its lease ends"]
    input: Annotated[Any, "the outputs of its deps, or the element of a map"]
    flow_input: Annotated[
        Any,
        Named("run"),
        "the input of the run; null if it is larger than 64 kB and the step is none of the first",
    ]

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.run_id, self.step_slug, self.task_index)


class ReportedTask(NamedTuple):
    """What became of a task that somebody has reported, or whose wait has been ended."""

    key: Inline[TaskKey]
    result: Annotated[
        str,
        Words((TaskStatus.QUEUED, Outcome.COMPLETED, Outcome.FAILED, Outcome.LATE)),
        "`late`, with exit code 1: the run or step had ended before",
    ]
