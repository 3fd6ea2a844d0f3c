"""The newest runs of a flow with the status of their steps, as programs and screens see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, NamedTuple
from uuid import UUID

from pgflowd.core.documents import FlowSlug, Hidden, Inline, Named, shown
from pgflowd.core.statuses import RunStatus, StepStatus


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
