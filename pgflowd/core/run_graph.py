"""A run as a graph: its steps with their states, what happens next to each, and the last error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from pgflowd.core.documents.run_tasks import StepUndo
from pgflowd.core.documents.runs import (
    FailedAttempt,
    RunDetails,
    RunWithStates,
    StepState,
    StepTasks,
)
from pgflowd.core.graph import Graph, Node
from pgflowd.core.settings.values import format_duration
from pgflowd.core.statuses import Outcome, RunStatus, Status, StepStatus
from pgflowd.core.text import ago, between, duration


def graph_of_run(
    run: RunWithStates,
    steps: Sequence[StepTasks],
    now: datetime,
    undos: Mapping[str, StepUndo] | None = None,
) -> Graph:
    """The graph of a run's flow, with the states of its steps, and how far each is undone."""
    known = undos or {}
    return Graph(tuple(_node(step, run, now, known.get(step.step_slug)) for step in steps))


def last_error(
    run: RunWithStates, failures: Sequence[FailedAttempt], now: datetime
) -> tuple[str, str | None] | None:
    """The last error of a run, and its traceback; not of a task that was ended with the run."""
    failures = [each for each in failures if each.outcome is not Outcome.RELEASED]
    in_time = [each for each in failures if each.outcome is not Outcome.LATE]
    failures = in_time or [each for each in failures if each.error]
    if failures:
        last = failures[-1]
        index = f"#{last.task_index}" if last.task_index else ""
        text = last.error or last.outcome.replace("_", " ")
        head = f"{last.step_slug}{index}, attempt {last.attempt}, {ago(last.ended_at, now)}"
        return f"{head}: {text}", last.traceback
    steps = [each for each in run.steps.values() if each.status is StepStatus.FAILED and each.error]
    return (f"{steps[-1].step_slug}: {steps[-1].error}", None) if steps else None


def _node(step: StepTasks, run: RunWithStates, now: datetime, undo: StepUndo | None) -> Node:
    state = run.steps.get(step.step_slug)
    status: Status = state.status if state else StepStatus.CREATED
    run_status = run.status_before_undo
    if run_status in (RunStatus.CANCELLED, RunStatus.EXPIRED) and status is StepStatus.FAILED:
        status = run_status
    elif run_status.is_end and status is StepStatus.STARTED:  # it was ended with its run
        status = RunStatus.CANCELLED
    is_open = status is StepStatus.STARTED
    words = step_words(step, state, status, run.ended_at or now)
    if is_open and step.only_waits:
        status = RunStatus.WAITING
    return Node(
        slug=step.step_slug,
        deps=tuple(step.deps),
        is_map=step.step_type == "map",
        status=status,
        detail="  ".join([*words, undo.text] if undo else words),
        note=_note(step, now) if is_open else "",
    )


def step_words(
    step: StepTasks,
    state: StepState | None,
    status: Status,
    now: datetime,
    number: Callable[[int], str] = str,
) -> list[str]:
    """What is behind the sign: how long the step took or takes, tasks, attempts beyond one."""
    if state is None or state.started_at is None:
        return [status]
    took_s = between(state.started_at, state.ended_at or now) or 0.0
    is_queued = (step.queued or step.waiting) and not step.running and step.tasks == 1
    if status is StepStatus.SKIPPED:
        words: list[str] = [status]
    elif is_queued and not status.is_end:
        return ["waits"]
    else:  # while it runs, in whole seconds: a fraction is outdated at once
        words = [duration(took_s if status.is_end or took_s >= 60 else int(took_s))]
    if step.tasks > 1:
        tasks = number(step.tasks)
        words.append(f"{tasks} tasks" if state.ended_at else f"{number(step.completed)}/{tasks}")
    elif step.attempts > 1:
        words.append(f"{step.attempts}/{step.max_attempts}")
    return words


def _note(step: StepTasks, now: datetime) -> str:
    """What happens next."""
    words = []
    if step.waiting and step.tasks > 1:
        words.append(f"{step.waiting} wait")
    if step.attempts > 1 or (step.queued and step.attempts):
        upcoming = step.attempts + (1 if step.queued and not step.running else 0)
        words.append(f"attempt {min(upcoming, step.max_attempts)} of {step.max_attempts}")
    if step.running_since is not None:
        left_s = step.timeout_s - (now - step.running_since).total_seconds()
        words.append(f"timeout in {duration(round(left_s))}" if left_s > 0 else "past its timeout")
    elif step.running:
        words.append("a person has it" if step.tasks == 1 else "people have some")
    elif step.next_at is not None:
        left_s = (step.next_at - now).total_seconds()
        if step.only_waits:
            words.append(f"{duration(round(left_s))} left" if left_s > 0 else "due")
        else:
            is_due = left_s < 0.5
            words.append("waits for a worker" if is_due else f"next in {duration(round(left_s))}")
    return ", ".join(words)


# The steps of a run as bars over its time: when each waited, when it was executed, and how its
# attempts ended. Pure; times are seconds since the start of the run.
#
# Of a single task the attempts say when it was executed. They are all known if they were read with
# the run. Else only those that failed are, and what came after is taken for the last one. A map is
# one bar from its first task to its last.
_ROUND_S = [digit * 10.0**power for power in range(-4, 0) for digit in (1, 2, 5)]
_ROUND_S += [count * unit for unit in (1.0, 60.0) for count in (1, 2, 5, 10, 15, 20, 30)]
_ROUND_S += [hours * 3600.0 for hours in (1, 2, 3, 6, 12)]
_ROUND_S += [days * 86400.0 * 10**power for power in range(9) for days in (1, 2, 5)]


class BarPart(NamedTuple):
    """A time in which a step waited or was executed."""

    start_s: float
    end_s: float
    is_executed: bool
    is_open: bool  # it goes on


class BarMark(NamedTuple):
    """The end of an attempt that did not complete."""

    at_s: float
    outcome: Outcome
    attempt: int
    task: int


@dataclass(frozen=True)
class StepBar:
    """A step over the time of its run."""

    tasks: StepTasks
    status: Status
    parts: Sequence[BarPart] = ()  # none: it has not begun
    marks: Sequence[BarMark] = ()

    @property
    def slug(self) -> str:
        return self.tasks.step_slug

    @property
    def is_map(self) -> bool:
        return self.tasks.step_type == "map"

    @property
    def took_s(self) -> float | None:
        return self.parts[-1].end_s - self.parts[0].start_s if self.parts else None

    @property
    def is_open(self) -> bool:
        return bool(self.parts) and self.parts[-1].is_open

    @property
    def per_second(self) -> float | None:
        """How many tasks of a map that goes on completed in a second."""
        if not (self.is_map and self.is_open and self.tasks.completed and self.took_s):
            return None
        return self.tasks.completed / self.took_s

    @property
    def left_s(self) -> float | None:
        """How long a map goes on if it goes on like this."""
        rate, tasks = self.per_second, self.tasks
        return None if rate is None else (tasks.tasks - tasks.completed - tasks.failed) / rate


class _Try(NamedTuple):
    """An attempt that is known; `next_at`: when the next one may begin."""

    started_at: datetime
    ended_at: datetime | None
    outcome: Outcome | None
    attempt: int
    task: int
    next_at: datetime | None = None


def bars_of(details: RunDetails) -> list[StepBar]:
    """A bar for each step, in topological order; none if the run has not begun."""
    if details.run.started_at is None:
        return []
    nodes = graph_of_run(details.run, details.steps, details.now).nodes
    tries = defaultdict[str, list[_Try]](list)
    if details.attempts is None:
        for one in details.failures:
            known = one.started_at, one.ended_at, one.outcome, one.attempt, one.task_index
            tries[one.step_slug].append(_Try(*known, one.next_at))
    for each in details.attempts or ():
        found = _Try(each.started_at, each.ended_at, each.outcome, each.attempt, each.task)
        tries[each.step].append(found)
    return [
        _bar(details, step, node.status or StepStatus.CREATED, tries[step.step_slug])
        for step, node in zip(details.steps, nodes, strict=True)
    ]


def _bar(details: RunDetails, step: StepTasks, status: Status, tries: Sequence[_Try]) -> StepBar:
    """The time of a step from beginning to end, in pieces; executions may overlap."""
    run, state = details.run, details.run.steps.get(step.step_slug)
    if state is None or state.started_at is None:
        return StepBar(step, status)
    began, end = state.started_at, state.ended_at or run.ended_at or details.now
    executed = sorted((each.started_at, each.ended_at or end) for each in tries)
    if not details.attempts and step.running:
        executed.append((step.running_since or began, end))
    elif not details.attempts and state.status is StepStatus.COMPLETED:
        after = (each.next_at or each.ended_at or began for each in tries)
        executed.append((max(after, default=began), end))
    if step.step_type == "map" and executed:
        # which of its tasks was the first is known if all attempts are
        executed = [(executed[0][0] if details.attempts else began, end)]

    def seconds(moment: datetime) -> float:
        return between(run.started_at, moment) or 0.0

    parts: list[BarPart] = []
    at, last = seconds(began), seconds(end)
    for start, stop in ((seconds(one), seconds(other)) for one, other in executed):
        start, stop = min(max(start, at), last), min(stop, last)
        if start > at:
            parts.append(BarPart(at, start, is_executed=False, is_open=False))
        if stop > start:
            parts.append(BarPart(start, stop, is_executed=True, is_open=False))
        at = max(at, stop)
    if at < last or not parts:
        parts.append(BarPart(at, max(last, at), is_executed=False, is_open=False))
    parts[-1] = parts[-1]._replace(is_open=state.ended_at is None and not run.has_ended)
    marks = [
        BarMark(seconds(each.ended_at), each.outcome, each.attempt, each.task)
        for each in tries
        if each.ended_at and each.outcome and each.outcome is not Outcome.COMPLETED
    ]
    return StepBar(step, status, parts, marks)


def length_s(details: RunDetails, bars: Iterable[StepBar]) -> float:
    """How much time a picture of these bars shows.

    That of a run that goes on is more than it took, so that bars have room to grow, and seldom
    another one, so that those that have ended stay where they are.
    """
    ends = [part.end_s for bar in bars for part in bar.parts]
    run = details.run
    ends.append(between(run.started_at, run.ended_at or details.now) or 0.0)
    longest = max(max(ends), 0.001)
    if run.has_ended:
        return longest
    return next(step for step in _ROUND_S if step >= longest * 1.02)


def ticks_of(length: float, most: int = 8) -> list[tuple[float, str]]:
    """Round times from 0 to the length, and how they are written."""
    step = next(step for step in _ROUND_S if length / step <= most)
    count = int(length / step + 1e-9)
    return [(index * step, _written(index * step, step)) for index in range(count + 1)]


def _written(seconds: float, step: float) -> str:
    """A tick, in the unit of the steps: `1m30s`, `2h`, `20ms`."""
    if seconds == 0:
        return "0"
    if step < 1:
        return f"{seconds * 1000:.4g}ms" if seconds < 1 else f"{seconds:.4g}s"
    return format_duration(seconds)
