"""
A run as a graph: its steps with their states, what happens next to each, and the last error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from pgflowd.core.documents.runs import FailedAttempt, RunWithStates, StepState, StepTasks
from pgflowd.core.documents.undos import StepUndo
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
