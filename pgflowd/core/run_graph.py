"""A run as a graph: its steps with their states, what happens next to each, and the last error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from pgflowd.core.documents.run_tasks import StepUndo
from pgflowd.core.documents.runs import (
    Attempt,
    FailedAttempt,
    RunDetails,
    RunWithStates,
    StepState,
    StepTasks,
)
from pgflowd.core.graph import Graph, Node
from pgflowd.core.statuses import Outcome, RunStatus, Status, StepStatus
from pgflowd.core.text import ago, between, duration


def graph_of_run(
    run: RunWithStates,
    steps: Sequence[StepTasks],
    now: datetime,
    undos: Mapping[str, StepUndo] | None = None,
) -> Graph:
    """The graph of a run's flow, with the states of its steps, and how far each is undone."""
    nodes = (_node(step, run.steps.get(step.step_slug), run, now) for step in steps)
    told = {slug: f"  {undo.text}" for slug, undo in (undos or {}).items()}
    return Graph(
        tuple(replace(node, detail=node.detail + told.get(node.slug, "")) for node in nodes)
    )


def last_error(
    run: RunWithStates, failures: Sequence[FailedAttempt], now: datetime
) -> tuple[str, str | None] | None:
    """The last error of a run, and its traceback; not of a task that was ended with the run."""
    failures = [each for each in failures if each.outcome is not Outcome.RELEASED]
    failures = [each for each in failures if each.error or each.outcome is not Outcome.LATE]
    failures = [each for each in failures if each.outcome is not Outcome.LATE] or failures
    if failures:
        last = failures[-1]
        index = f"#{last.task_index}" if last.task_index else ""
        text = last.error or last.outcome.replace("_", " ")
        head = f"{last.step_slug}{index}, attempt {last.attempt}, {ago(last.ended_at, now)}"
        return f"{head}: {text}", last.traceback
    steps = [each for each in run.steps.values() if each.status is StepStatus.FAILED and each.error]
    return (f"{steps[-1].step_slug}: {steps[-1].error}", None) if steps else None


def _node(step: StepTasks, state: StepState | None, run: RunWithStates, now: datetime) -> Node:
    status: Status = state.status if state else StepStatus.CREATED
    run_status = run.status_before_undo
    if run_status in (RunStatus.CANCELLED, RunStatus.EXPIRED) and status is StepStatus.FAILED:
        status = run_status
    elif run_status.is_end and status is StepStatus.STARTED:  # it was ended with its run
        status = RunStatus.CANCELLED
    is_open = status is StepStatus.STARTED
    detail = "  ".join(step_words(step, state, status, run.ended_at or now))
    if is_open and step.only_waits:
        status = RunStatus.WAITING
    return Node(
        slug=step.step_slug,
        deps=tuple(step.deps),
        is_map=step.step_type == "map",
        status=status,
        detail=detail,
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
_SCALE = ((1, "s"), (60, "m"), (3600, "h"), (86400, "d"))
_STEPS = (1, 2, 5, 10, 15, 20, 30)  # of seconds and of minutes
_HOURS = (1, 2, 3, 6, 12)


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
    is_map: bool
    parts: Sequence[BarPart]  # none: it has not begun
    marks: Sequence[BarMark]

    @property
    def slug(self) -> str:
        return self.tasks.step_slug

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


def bars_of(details: RunDetails) -> list[StepBar]:
    """A bar for each step, in topological order; none if the run has not begun."""
    run = details.run
    zero = run.started_at
    if zero is None:
        return []
    nodes = graph_of_run(run, details.steps, details.now).nodes
    found = details.failures if details.attempts is None else details.attempts
    by_step: dict[str, list[Attempt | FailedAttempt]] = {}
    for attempt in found:
        slug = attempt.step_slug if isinstance(attempt, FailedAttempt) else attempt.step
        by_step.setdefault(slug, []).append(attempt)
    return [
        _bar(
            details, zero, step, node.status or StepStatus.CREATED, by_step.get(step.step_slug, [])
        )
        for step, node in zip(details.steps, nodes, strict=True)
    ]


def _bar(
    details: RunDetails,
    zero: datetime,
    step: StepTasks,
    status: Status,
    attempts: Sequence[Attempt | FailedAttempt],
) -> StepBar:
    run, is_map = details.run, step.step_type == "map"
    state = run.steps.get(step.step_slug)
    parts: list[BarPart] = []
    marks: list[BarMark] = []
    if state is not None and state.started_at is not None:
        is_open = state.ended_at is None and not run.has_ended
        end = state.ended_at or run.ended_at or details.now
        begun = _executions(details, step, state, attempts, end)
        if is_map and begun:  # which of its tasks was the first is known if all attempts are
            begun = [(begun[0][0] if details.attempts else state.started_at, end)]
        parts = _parts(zero, state.started_at, end, begun, is_open)
        marks = list(_marks(zero, attempts))
    return StepBar(step, status, is_map, parts, marks)


def _executions(
    details: RunDetails,
    step: StepTasks,
    state: StepState,
    attempts: Sequence[Attempt | FailedAttempt],
    end: datetime,
) -> list[tuple[datetime, datetime]]:
    """When its tasks were executed, from and to."""
    found = sorted((each.started_at, each.ended_at or end) for each in attempts)
    if details.attempts:
        return found
    began = state.started_at
    assert began is not None
    if step.running:
        last = step.running_since or began
    elif state.status is StepStatus.COMPLETED:
        failed = [each for each in attempts if isinstance(each, FailedAttempt)]
        last = max((each.next_at or each.ended_at for each in failed), default=began)
    else:
        return found
    return [*found, (last, end)] if last < end else found


def _parts(
    zero: datetime,
    began: datetime,
    end: datetime,
    executed: Iterable[tuple[datetime, datetime]],
    is_open: bool,
) -> list[BarPart]:
    """The time from beginning to end, in pieces; executions may overlap, and none is left out."""

    def seconds(moment: datetime) -> float:
        return between(zero, moment) or 0.0

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
    return [*parts[:-1], parts[-1]._replace(is_open=is_open)]


def _marks(zero: datetime, attempts: Iterable[Attempt | FailedAttempt]) -> Iterable[BarMark]:
    for each in attempts:
        if each.outcome is None or each.ended_at is None or each.outcome is Outcome.COMPLETED:
            continue
        task = each.task_index if isinstance(each, FailedAttempt) else each.task
        yield BarMark(between(zero, each.ended_at) or 0.0, each.outcome, each.attempt, task)


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
    return next(step for step in _nice() if step >= longest * 1.02)


def ticks_of(length: float, most: int = 8) -> list[tuple[float, str]]:
    """Round times from 0 to the length, and how they are written."""
    step = next(step for step in _nice() if length / step <= most)
    count = int(length / step + 1e-9)
    return [(index * step, _written(index * step, step)) for index in range(count + 1)]


def _nice() -> Iterable[float]:
    """Round lengths of time, from a tenth of a millisecond on."""
    for power in range(-4, 0):
        yield from (digit * 10.0**power for digit in (1, 2, 5))
    for unit in (1.0, 60.0):
        yield from (number * unit for number in _STEPS)
    yield from (number * 3600.0 for number in _HOURS)
    days = 1.0
    while True:
        yield from (days * digit * 86400.0 for digit in (1, 2, 5))
        days *= 10


def _written(seconds: float, step: float) -> str:
    """A tick, in the unit of the steps: `1m30s`, `2h`, `20ms`."""
    if seconds == 0:
        return "0"
    if step < 1:
        return f"{seconds * 1000:.4g}ms" if seconds < 1 else f"{seconds:.4g}s"
    rest, words = round(seconds), []
    for unit, name in reversed(_SCALE):
        if rest >= unit:
            words.append(f"{rest // unit}{name}")
            rest %= unit
    return "".join(words)
