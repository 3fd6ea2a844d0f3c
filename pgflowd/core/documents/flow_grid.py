"""The newest runs of a flow with the status of their steps, as programs and screens see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pgflowd.core.documents import plain
from pgflowd.core.statuses import RunStatus, StepStatus


@dataclass(frozen=True)
class GridRun:
    """A run, with its steps in the order of its flow; a map is one step."""

    run_id: UUID
    flow_slug: str  # the version
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None
    steps: Mapping[str, StepStatus]

    def to_json(self, steps: Sequence[str]) -> dict[str, Any]:
        """The run with the status of each of these steps; None where it has no such step."""
        return plain({
            "run_id": self.run_id,
            "flow": self.flow_slug,
            "status": self.status,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "statuses": [self.steps.get(step) for step in steps],
        })  # fmt: skip


@dataclass(frozen=True)
class FlowGrid:
    """The newest runs of all versions of a flow, newest first."""

    flow: str
    runs: Sequence[GridRun]

    @property
    def steps(self) -> list[str]:
        """All steps of these runs: those of the newest run in its order, then others."""
        return list(dict.fromkeys(step for run in self.runs for step in run.steps))

    def to_json(self) -> dict[str, Any]:
        return plain(
            {
                "flow": self.flow,
                "steps": self.steps,
                "runs": [run.to_json(self.steps) for run in self.runs],
            }
        )
