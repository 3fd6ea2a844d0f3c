"""
The timeline of a run: what has changed in it so far. Pure.

`timeline_of` makes entries, in the order of time, from a run, its steps, its failed attempts and
its tasks that wait, as they are now. Who follows a run reads it again and takes the entries that
are new, so no change is lost when notifications are.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from pgflowd.core.documents.run_tasks import PAUSED, QUARANTINED, OpenTask
from pgflowd.core.documents.runs import FailedAttempt, RunWithStates, TaskProgress, TimelineEntry
from pgflowd.core.output_stream import OUTPUT
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Outcome, RunStatus, StepStatus, TaskStatus
from pgflowd.core.text import between, duration, short_id, task_name
from pgflowd.core.undo import FAILURE_MARK, PREFIX
from pgflowd.core.waiting import WaitKind

# Says what a task waits for, and what would end that.
UNSERVED = " (no living worker has that)"


def ends_by(task: OpenTask) -> str | None:
    """The command that ends the wait of a task; None if only workers do."""
    if task.kind in (WaitKind.NEED, WaitKind.LIMIT):
        return None
    run = short_id(task.run_id)
    if task.kind == PAUSED:
        return f"pgflowd runs resume {run}"
    if task.kind == QUARANTINED:
        return f"pgflowd stalled requeue {task_name(*task.key)}"
    if task.is_approval:
        return f"pgflowd runs approve {run} {task.step_slug}"
    if task.kind == WaitKind.SIGNAL:
        return f"pgflowd runs signal {run} {shlex.quote(task.name or '')}"
    return f"pgflowd tasks wake {task_name(*task.key)}"


def wait_text(task: OpenTask, moment: datetime) -> str:
    """What a task waits for, and how long from this moment: `waits for signal paid, at most 7d`."""
    left_s = None if task.until is None else (task.until - moment).total_seconds()
    if left_s is not None and left_s <= 0:
        return "waits no longer: it is due"
    time = "" if left_s is None else duration(left_s)
    if task.kind == PAUSED or (task.kind == WaitKind.SLEEP and left_s is None):
        return "waits for the resume of its run"
    if task.kind == QUARANTINED:
        return f"is quarantined: {task.why}"
    if task.kind in (WaitKind.SIGNAL, WaitKind.RUNS):
        return f"waits for {task.waits_for}{f', at most {time}' if time else ''}"
    if task.kind == WaitKind.LIMIT:
        return f"waits for {task.waits_for}"
    if task.kind == WaitKind.NEED:
        return f"{task.waits_for}{UNSERVED if task.is_unserved else ''}"
    return f"waits {time}: {task.why}" if task.why else f"sleeps {time}"


T = TypeVar("T")

_STARTED = f"step:{StepStatus.STARTED}"
WAITING = f"task:{TaskStatus.WAITING}"
PROGRESS = "task:progress"
_MAX_INDEX = 2**31 - 1  # of a task: the largest int of the database
# in place of the start of a run that prints, and so has one
_NEVER = datetime.fromtimestamp(0, UTC)
RUN_UNDOING = f"run:{RunStatus.UNDOING}"
_UNDO_FAILED = f"undo:{RunStatus.UNDO_FAILED}"  # of a step


def timeline_of(
    run: RunWithStates,
    failures: Iterable[FailedAttempt] = (),
    waits: Iterable[OpenTask] = (),
    progress: Iterable[TaskProgress] = (),
) -> list[TimelineEntry]:
    """All entries of a run so far, its start first and its end last."""
    if run.started_at is None:  # it has not begun, or never did
        return list(_end(run))
    inner = [*_of_steps(run), *_of_tasks(run, failures, waits, progress)]
    inner.sort(key=lambda entry: (entry.at, _rank(entry)))
    return [_entry(run, f"run:{RunStatus.STARTED}", run.started_at), *inner, *_end(run)]


def _of_steps(run: RunWithStates) -> Iterator[TimelineEntry]:
    for step, state in run.steps.items():
        if state.started_at is not None:
            yield _entry(run, _STARTED, state.started_at, step)
        if state.status.is_end and state.ended_at is not None:
            yield _entry(
                run, f"step:{state.status}", state.ended_at, step, output=state.output,
                took_s=between(state.started_at, state.ended_at),
                error=state.error or state.skip_reason,
            )  # fmt: skip


def _of_tasks(
    run: RunWithStates,
    failures: Iterable[FailedAttempt],
    waits: Iterable[OpenTask],
    progress: Iterable[TaskProgress],
) -> Iterator[TimelineEntry]:
    for each in failures:
        # a late or lost report changed nothing in the run
        if each.outcome.is_failure or each.outcome in (Outcome.STALLED, Outcome.RELEASED):
            yield _entry(
                run, f"task:{each.outcome}", each.ended_at, each.step_slug, task=each.task_index,
                tasks=None, attempt=each.attempt, max_attempts=each.max_attempts,
                took_s=between(each.started_at, each.ended_at), error=each.error,
                traceback=each.traceback, next_at=each.next_at,
            )  # fmt: skip
    for task in waits:
        yield _entry(
            run, WAITING, task.since, task.step_slug, task=task.task_index, next_at=task.until,
            text=wait_text(task, task.since), ends_by=ends_by(task),
        )  # fmt: skip
    for told in progress:
        yield _entry(
            run, PROGRESS, told.progress.at or run.started_at or _NEVER, told.step_slug,
            task=told.task_index, attempt=told.attempt, text=told.progress.words,
            progress=told.progress,
        )  # fmt: skip


def _rank(entry: TimelineEntry) -> int:
    """The order of entries of one transaction: a failure, an end, then a start."""
    if entry.event.startswith("task:"):
        return 0
    if entry.event == _STARTED:
        return 2
    return 1 if entry.took_s else 3


def output_entry(run: RunWithStates, line: Mapping[str, Any]) -> TimelineEntry:
    """A line of output, as a worker sends it; a field of a wrong type is left out."""

    def given(key: str, kind: type[T]) -> T | None:
        value = line.get(key)
        return value if isinstance(value, kind) else None

    def number(key: str) -> int | None:
        value = given(key, int)
        return None if value is None or not 0 <= value <= _MAX_INDEX else int(value)

    step, at = given("step_slug", str), run.started_at or _NEVER
    with suppress(ValueError, OverflowError):
        told = datetime.fromisoformat(given("time", str) or "")
        at = told.astimezone(UTC) if told.tzinfo else at
    return _entry(
        run, OUTPUT, at, step if step in run.steps else None, task=number("task_index"),
        attempt=number("attempt"), stream=given("stream", str), level=given("level", str),
        text=given("text", str) or "",
    )  # fmt: skip


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


def _end(run: RunWithStates) -> Iterable[TimelineEntry]:
    """Its end; that of one that is being, or was, undone before that."""
    run = replace(run, status=run.status_before_undo)
    if run.has_ended:
        ended_at = run.ended_at or run.started_at
        assert ended_at is not None
        took_s = between(run.started_at, ended_at)
        event, error = f"run:{run.status}", reason(run)
        yield _entry(run, event, ended_at, took_s=took_s, output=run.output, error=error)


def _entry(
    run: RunWithStates, event: str, at: datetime, step: str | None = None, **more: Any
) -> TimelineEntry:
    """An entry; one of a step has the number of its tasks, if nothing else is given."""
    since_start_s = between(run.started_at, at) or 0.0
    if state := run.steps.get(step or ""):
        more = {"tasks": state.initial_tasks, **more}
    return TimelineEntry(event, str(run.run_id), run.flow_slug, at, since_start_s, step, **more)


# The timeline of the undo of a run, which is another run: its entries, told of the steps undone.
#
# Of the run that undoes, only what it does about the plan is told: who lists the elements of a map,
# and who has nothing to undo, is left out. Times count from the beginning of the undo.
def undo_timeline(
    run: RunWithStates,
    undo: RunWithStates | None,
    failures: Iterable[FailedAttempt] = (),
    waits: Iterable[OpenTask] = (),
) -> list[TimelineEntry]:
    """The entries of the undo of this run so far; `undo` is None while it has not begun."""
    found = []
    for entry in () if undo is None else timeline_of(undo, failures, waits):
        if entry.event == f"run:{RunStatus.STARTED}":
            tasks = sum(map(len, _plan(undo).values()))
            found.append(replace(entry, event=RUN_UNDOING, tasks=tasks))
        elif entry.step is not None and (told := _told_of_step(entry, undo)):
            found.append(told)
    ended_at = run.undo_wanted_at if undo is None else undo.ended_at
    if run.has_ended and ended_at is not None:
        took_s = between(run.undo_wanted_at, ended_at)
        failed = [each for each in found if each.event == _UNDO_FAILED]
        end = TimelineEntry(
            f"run:{run.status}", "", "", ended_at, took_s or 0.0, took_s=took_s,
            error=f"{failed[0].step}: {failed[0].error}" if failed else None,
        )  # fmt: skip
        found.append(end)
    return [replace(each, run_id=str(run.run_id), flow=run.flow_slug) for each in found]


def undo_output(
    run: RunWithStates, undo: RunWithStates, line: Mapping[str, Any]
) -> TimelineEntry | None:
    """A line that a handler printed while it undid something of this run."""
    told = _told_of_step(output_entry(undo, line), undo)
    return told and replace(told, run_id=str(run.run_id), flow=run.flow_slug)


def _told_of_step(entry: TimelineEntry, undo: RunWithStates | None) -> TimelineEntry | None:
    step = (entry.step or "").removeprefix(PREFIX)
    indexes = _plan(undo).get(step)
    if step == entry.step or not indexes:
        return None
    at = entry.task
    task = indexes[at] if at is not None and at < len(indexes) else at
    entry = replace(entry, step=step, task=task)
    if entry.event != "step:completed":
        return entry
    outputs = entry.output if isinstance(entry.output, list) else [entry.output]
    errors = [each[FAILURE_MARK].get("message", "") for each in outputs
              if isinstance(each, dict) and isinstance(each.get(FAILURE_MARK), dict)]  # fmt: skip
    event = _UNDO_FAILED if errors else f"undo:{RunStatus.UNDONE}"
    of = f"{len(errors)} of {len(indexes)}: " if len(indexes) > 1 else ""
    error = f"{of}{errors[0]}" if errors else None
    return replace(entry, event=event, output=None, error=error)


def _plan(undo: RunWithStates | None) -> dict[str, list[int]]:
    given = undo.input.get("plan") if undo and isinstance(undo.input, dict) else None
    return given if isinstance(given, dict) else {}


# What is said aloud of a run that somebody views: how it ended, and which of its steps failed.
MAX_STEPS = 3  # that are named
_MAX_TEXT = 200


def announcement(before: RunWithStates | None, now: RunWithStates) -> str:
    """What has happened in a run since it was read before; empty if that is nothing much."""
    if before is None:
        return ""
    if now.has_ended and now.status is not before.status:
        why = reason(now)
        status = str(now.status).replace("_", " ")
        text = f"run {short_id(now.run_id)} {status}{f': {why}' if why else ''}"
        return one_line(text, _MAX_TEXT)
    failed = [slug for slug in _failed(now) if slug not in _failed(before)]
    if not failed:
        return ""
    named = ", ".join(failed[:MAX_STEPS])
    more = f" and {len(failed) - MAX_STEPS} more" if len(failed) > MAX_STEPS else ""
    return one_line(f"failed: {named}{more}", _MAX_TEXT)


def _failed(run: RunWithStates) -> list[str]:
    return [slug for slug, step in run.steps.items() if step.status is StepStatus.FAILED]


# How far somebody is who follows a run, as a short text, from which another process continues.
# Pure.
#
# Events are read from the database again and again, and those that are new are sent in the order of
# their time. A slow transaction may add an event before others that were sent already, and what a
# task told of its progress is gone when it tells more. So a position does not say "all up to this
# one": it names the last events that were sent. Of those before them all were sent.
NAMED = 24  # events that a position names: one that comes later than so many others may be lost
_LETTERS = 6  # of base64, for each: among 10,000 events two are alike in one of 300,000 positions


def mark(entry: TimelineEntry) -> str:
    """What tells an event from the others of its run."""
    digest = hashlib.sha256(repr(entry.key).encode()).digest()
    return base64.urlsafe_b64encode(digest)[:_LETTERS].decode()


def is_position(text: str) -> bool:
    """Whether it may be a position."""
    is_plain = re.fullmatch(r"[A-Za-z0-9_-]*", text) is not None
    return is_plain and len(text) % _LETTERS == 0 and len(text) <= NAMED * _LETTERS


def sent_before(position: str, marks: Sequence[str]) -> set[str]:
    """What was sent to who has this position, of a run with these marks."""
    named = {position[i : i + _LETTERS] for i in range(0, len(position), _LETTERS)}
    if len(named) < NAMED:  # these are all
        return named
    first = next((i for i, each in enumerate(marks) if each in named), 0)
    return named | set(marks[:first])


def unsent(
    timeline: Sequence[TimelineEntry], marks: Sequence[str], sent: set[str]
) -> Iterator[tuple[TimelineEntry, str]]:
    """
    Yield the events that were not sent, each with the position after it.

    `marks` are those of the timeline. An event is added to `sent` when the next is asked for.
    """
    known = [i for i, each in enumerate(marks) if each in sent]
    for i, (entry, own) in enumerate(zip(timeline, marks, strict=True)):
        if own in sent:
            continue
        before = marks[max(0, i + 1 - NAMED) : i + 1]  # all of them were sent by now
        later = [marks[at] for at in known[-NAMED:] if at > i]
        yield entry, "".join([*before, *later][-NAMED:])
        sent.add(own)
