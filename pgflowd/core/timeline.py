"""
The timeline of a run: what has changed in it so far. Pure.

`timeline_of` makes entries, in the order of time, from a run, its steps, its failed attempts and
its tasks that wait, as they are now. Who follows a run reads it again and takes the entries that
are new, so no change is lost when notifications are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from pgflowd.core.documents.runs import (
    FailedAttempt,
    Run,
    RunWithStates,
    StepState,
    TaskProgress,
    TimelineEntry,
)
from pgflowd.core.documents.waits import OpenTask
from pgflowd.core.output_stream import OUTPUT
from pgflowd.core.statuses import Outcome, RunStatus, StepStatus, TaskStatus
from pgflowd.core.text import between
from pgflowd.core.wait_text import ends_by, wait_text

T = TypeVar("T")

_STARTED = f"step:{StepStatus.STARTED}"
WAITING = f"task:{TaskStatus.WAITING}"
PROGRESS = "task:progress"
_MAX_INDEX = 2**31 - 1  # of a task: the largest int of the database
# in place of the start of a run that prints, and so has one
_NEVER = datetime.fromtimestamp(0, UTC)
RUN_UNDOING = f"run:{RunStatus.UNDOING}"


def timeline_of(
    run: RunWithStates,
    failures: Iterable[FailedAttempt] = (),
    waits: Iterable[OpenTask] = (),
    progress: Iterable[TaskProgress] = (),
) -> list[TimelineEntry]:
    """All entries of a run so far, its start first and its end last."""
    if run.started_at is None:  # it has not begun, or never did
        return list(_end(run))
    inner = [entry for state in run.steps.values() for entry in _of_step(run, state)]
    inner += [_of_failure(run, each) for each in failures if _is_shown(each.outcome)]
    inner += [_of_wait(run, each) for each in waits]
    inner += [_of_progress(run, each) for each in progress]
    inner.sort(key=lambda entry: (entry.at, _rank(entry)))
    start = _entry(run, f"run:{RunStatus.STARTED}", run.started_at)
    return [start, *inner, *_end(run)]


def output_entry(run: RunWithStates, line: Mapping[str, Any]) -> TimelineEntry:
    """A line of output, as a worker sends it; a field of a wrong type is left out."""

    def given(key: str, kind: type[T]) -> T | None:
        value = line.get(key)
        return value if isinstance(value, kind) else None

    def number(key: str) -> int | None:
        value = given(key, int)
        return None if value is None or not 0 <= value <= _MAX_INDEX else int(value)

    step = given("step_slug", str)
    step = step if step in run.steps else None
    return _entry(
        run,
        OUTPUT,
        _moment(line.get("time")) or run.started_at or _NEVER,
        step=step,
        task=number("task_index"),
        tasks=None if step is None else run.steps[step].initial_tasks,
        attempt=number("attempt"),
        stream=given("stream", str),
        level=given("level", str),
        text=given("text", str) or "",
    )


def reason(run: RunWithStates) -> str | None:
    """Why a run did not complete."""
    if run.status is RunStatus.EXPIRED:
        return "its time was over"
    if run.status is RunStatus.CANCELLED:
        by, text = run.cancelled_by or "an unknown user", run.cancel_reason
        return f"by {by}: {text}" if text else f"by {by}"
    failed = [state for state in run.steps.values() if state.status is StepStatus.FAILED]
    if failed and run.status is RunStatus.FAILED:
        return f"{failed[0].step_slug}: {failed[0].error or run.error or 'no text'}"
    return run.error


def _is_shown(outcome: Outcome) -> bool:
    """A late or lost report changed nothing in the run."""
    return outcome.is_failure or outcome in (Outcome.STALLED, Outcome.RELEASED)


def _rank(entry: TimelineEntry) -> int:
    """The order of entries of one transaction: a failure, an end, then a start."""
    if entry.event.startswith("task:"):
        return 0
    if entry.event == _STARTED:
        return 2
    return 1 if entry.took_s else 3


def _of_step(run: RunWithStates, state: StepState) -> Iterable[TimelineEntry]:
    step, tasks = state.step_slug, state.initial_tasks
    if state.started_at is not None:
        yield _entry(run, _STARTED, state.started_at, step=step, tasks=tasks)
    if state.status.is_end and state.ended_at is not None:
        yield _entry(
            run,
            f"step:{state.status}",
            state.ended_at,
            step=step,
            tasks=tasks,
            took_s=between(state.started_at, state.ended_at),
            output=state.output,
            error=state.error or state.skip_reason,
        )


def _of_failure(run: Run, failure: FailedAttempt) -> TimelineEntry:
    return _entry(
        run,
        f"task:{failure.outcome}",
        failure.ended_at,
        step=failure.step_slug,
        task=failure.task_index,
        attempt=failure.attempt,
        max_attempts=failure.max_attempts,
        took_s=between(failure.started_at, failure.ended_at),
        error=failure.error,
        traceback=failure.traceback,
        next_at=failure.next_at,
    )


def _of_wait(run: RunWithStates, task: OpenTask) -> TimelineEntry:
    state = run.steps.get(task.step_slug)
    return _entry(
        run,
        WAITING,
        task.since,
        step=task.step_slug,
        task=task.task_index,
        tasks=state and state.initial_tasks,
        next_at=task.until,
        text=wait_text(task, task.since),
        ends_by=ends_by(task),
    )


def _of_progress(run: RunWithStates, told: TaskProgress) -> TimelineEntry:
    state = run.steps.get(told.step_slug)
    return _entry(
        run,
        PROGRESS,
        told.progress.at or run.started_at or _NEVER,
        step=told.step_slug,
        task=told.task_index,
        tasks=state and state.initial_tasks,
        attempt=told.attempt,
        text=told.progress.words,
        progress=told.progress,
    )


def undo_event(status: RunStatus) -> str:
    """The event of a step that is undone, or could not be."""
    return f"undo:{status}"


def _end(run: RunWithStates) -> Iterable[TimelineEntry]:
    """Its end; that of one that is being, or was, undone before that."""
    run = replace(run, status=run.status_before_undo)
    if run.has_ended:
        ended_at = run.ended_at or run.started_at
        assert ended_at is not None
        took_s = between(run.started_at, ended_at)
        event, error = f"run:{run.status}", reason(run)
        yield _entry(run, event, ended_at, took_s=took_s, output=run.output, error=error)


def _entry(run: Run, event: str, at: datetime, **more: Any) -> TimelineEntry:
    since_start_s = between(run.started_at, at) or 0.0
    return TimelineEntry(event, str(run.run_id), run.flow_slug, at, since_start_s, **more)


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text))
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
