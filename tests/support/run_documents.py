"""Documents of runs for tests that need no database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pgflowd.core.documents.runs import (
    FailedAttempt,
    RunDetails,
    RunWithStates,
    StepState,
    StepTasks,
)
from pgflowd.core.statuses import Outcome, RunStatus, StepStatus

NOW = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
START = NOW - timedelta(seconds=40)
_ENDS = {"completed": "completed_at", "failed": "failed_at", "skipped": "skipped_at"}


def at(seconds: float | None) -> datetime | None:
    """A moment of the run; it is 40 s old."""
    return None if seconds is None else START + timedelta(seconds=seconds)


def state(
    slug: str, status: str, began: float | None = None, ended: float | None = None, **more: Any
) -> StepState:
    fields: dict[str, Any] = {
        **dict.fromkeys(("output", "error", "skip_reason", *_ENDS.values())),
        "initial_tasks": 1, "remaining_tasks": 1, "remaining_deps": 0,
        "created_at": START, "started_at": at(began),
    }  # fmt: skip
    if ended is not None:
        fields[_ENDS[status]] = at(ended)
    return StepState(slug, StepStatus(status), **{**fields, **more})


def tasks(slug: str, deps: Sequence[str] = (), **more: Any) -> StepTasks:
    fields: dict[str, Any] = {
        "step_type": "single", "tasks": 1, "queued": 0, "running": 0, "completed": 0, "failed": 0,
        "attempts": 1, "max_attempts": 3, "timeout_s": 60, "running_since": None, "next_at": None,
    }  # fmt: skip
    return StepTasks(slug, deps=list(deps), **{**fields, **more})


def failed(
    slug: str, attempt: int, began: float, ended: float, outcome: str = "failed", **more: Any
) -> FailedAttempt:
    fields: dict[str, Any] = {
        "task_index": 0, "token": attempt, "max_attempts": 3, "error_type": "ValueError",
        "error": "no", "traceback": None, "next_at": None,
    }  # fmt: skip
    return FailedAttempt(
        slug, attempt=attempt, outcome=Outcome(outcome),
        started_at=START + timedelta(seconds=began), ended_at=START + timedelta(seconds=ended),
        **{**fields, **more},
    )  # fmt: skip


def details(
    *steps: tuple[StepState, StepTasks],
    failures: Sequence[FailedAttempt] = (),
    status: str = "started",
    ended: float | None = None,
    **more: Any,
) -> RunDetails:
    """A run of these steps."""
    run = RunWithStates(
        run_id=UUID("019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"), flow_slug="shop",
        status=RunStatus(status), input=None, output=None, error=None, remaining_steps=1,
        started_at=START, completed_at=at(ended) if status == "completed" else None,
        failed_at=at(ended) if status == "failed" else None,
        steps={each.step_slug: each for each, _ in steps},
    )  # fmt: skip
    fields: dict[str, Any] = {"attempts": None, "now": NOW, **more}
    return RunDetails(run, [each for _, each in steps], list(failures), **fields)
