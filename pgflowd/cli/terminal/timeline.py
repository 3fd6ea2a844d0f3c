"""
Story: what has happened in a run, told from how it looks now.

`story_of` reads a run, its steps and its troubles as a list of happenings in the order of
time. Whoever follows a run looks again and tells what was not there before, so that nothing is
lost however many notifications were. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from pgflowd.core.output_stream import OUTPUT
from pgflowd.core.text import between

if TYPE_CHECKING:
    from pgflowd.db.overview import Trouble
    from pgflowd.db.runs import Run, RunWithStates, StepState

T = TypeVar("T")

_ENDS = {"completed": "completed_at", "failed": "failed_at", "skipped": "skipped_at"}
_MOST = 2**31 - 1  # of an index, as the database has it
_TOLD = {"failed", "timed_out", "crashed", "stalled", "released"}


@dataclass(frozen=True)
class TimelineEntry:
    """Something that happened in a run: to itself, to a step, or to a task."""

    event: str  # run:started, step:completed, task:failed, …
    run_id: str
    flow_slug: str
    at: datetime
    since_start_s: float
    step: str | None = None
    task: int | None = None
    tasks: int | None = None
    attempt: int | None = None
    max_attempts: int | None = None
    took_s: float | None = None
    output: Any = None
    error: str | None = None
    next_at: datetime | None = None
    stream: str | None = None  # of a line that a handler printed: stdout, stderr, log
    level: str | None = None
    text: str | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from all others of its run."""
        return (self.event, self.step, self.task, self.attempt, self.at)

    @property
    def is_end(self) -> bool:
        return self.event in {"run:completed", "run:failed", "run:cancelled"}


def timeline_of(run: RunWithStates, troubles: Iterable[Trouble] = ()) -> list[TimelineEntry]:
    """All that has happened, the run's start first and its end last."""
    assert run.started_at is not None
    inner = [happening for state in run.steps.values() for happening in _of_step(run, state)]
    inner += [_of_trouble(run, trouble) for trouble in troubles if trouble.outcome in _TOLD]
    inner.sort(key=lambda one: (one.at, _rank(one)))
    start = _about(run, "run:started", run.started_at)
    return [start, *inner, *_end(run)]


def _rank(happening: TimelineEntry) -> int:
    """What comes first of all that one transaction did: a failure, an end, then a start."""
    if happening.event.startswith("task:"):
        return 0
    if happening.event == "step:started":
        return 2
    return 1 if happening.took_s else 3


def _of_step(run: RunWithStates, state: StepState) -> Iterable[TimelineEntry]:
    step, tasks = state.step_slug, state.initial_tasks
    if state.started_at is not None:
        yield _about(run, "step:started", state.started_at, step=step, tasks=tasks)
    ended_at = getattr(state, _ENDS[state.status]) if state.status in _ENDS else None
    if ended_at is not None:
        yield _about(
            run,
            f"step:{state.status}",
            ended_at,
            step=step,
            tasks=tasks,
            took_s=between(state.started_at, ended_at),
            output=state.output,
            error=state.error or state.skip_reason,
        )


def _of_trouble(run: Run, trouble: Trouble) -> TimelineEntry:
    return _about(
        run,
        f"task:{trouble.outcome}",
        trouble.ended_at,
        step=trouble.step_slug,
        task=trouble.task_index,
        attempt=trouble.attempt,
        max_attempts=trouble.max_attempts,
        took_s=between(trouble.started_at, trouble.ended_at),
        error=trouble.error,
        next_at=trouble.next_at,
    )


def _end(run: RunWithStates) -> list[TimelineEntry]:
    if not run.has_ended:
        return []
    ended_at = run.completed_at or run.failed_at or run.started_at
    assert ended_at is not None
    told = _about(
        run,
        f"run:{run.status}",
        ended_at,
        took_s=between(run.started_at, ended_at),
        output=run.output,
        error=why(run),
    )
    return [told]


def said_by(run: RunWithStates, line: Mapping[str, Any]) -> TimelineEntry:
    """A line of output, as a worker sends it; what is odd in it is passed over."""

    def given(key: str, kind: type[T]) -> T | None:
        value = line.get(key)
        return value if isinstance(value, kind) else None

    def number(key: str) -> int | None:
        value = given(key, int)
        return None if value is None or not 0 <= value <= _MOST else int(value)

    step = given("step_slug", str)
    step = step if step in run.steps else None
    return _about(
        run,
        OUTPUT,
        _moment(line.get("time")) or run.started_at or datetime.now(UTC),
        step=step,
        task=number("task_index"),
        tasks=None if step is None else run.steps[step].initial_tasks,
        attempt=number("attempt"),
        stream=given("stream", str),
        level=given("level", str),
        text=given("text", str) or "",
    )


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text))
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def why(run: RunWithStates) -> str | None:
    """Why a run did not complete."""
    if run.status == "cancelled":
        by, reason = run.cancelled_by or "somebody", run.cancel_reason
        return f"by {by}: {reason}" if reason else f"by {by}"
    failed = next((state for state in run.steps.values() if state.status == "failed"), None)
    if failed is not None and run.status == "failed":
        return f"{failed.step_slug}: {failed.error or run.error or 'no text'}"
    return run.error


def _about(run: Run, event: str, at: datetime, **more: Any) -> TimelineEntry:
    passed = between(run.started_at, at) or 0.0
    return TimelineEntry(event, str(run.run_id), run.flow_slug, at, passed, **more)
