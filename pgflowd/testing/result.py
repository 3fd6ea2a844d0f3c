"""
The result of `run_flow`: the run with its steps and tasks, and its picture.

The runs of the current test are kept, so that our pytest plugin can print their pictures under a
failure.
"""

from __future__ import annotations

import textwrap
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgflowd.core.definition.shape import FlowPlan
from pgflowd.core.documents.runs import TypedOutputs
from pgflowd.core.failure import place_of
from pgflowd.core.graph import Graph, Node, draw
from pgflowd.core.json import deep_copy
from pgflowd.core.statuses import RunStatus, StepStatus
from pgflowd.core.undo import FAILURE_MARK
from pgflowd.core.waiting import RESERVED_PREFIXES
from pgflowd.testing.context import StartedChild
from pgflowd.testing.engine import EndedWait, Engine, EngineStep, TaskRow, json_null

# more pictures than these would bury the failure that they explain
runs_of_test: deque[FlowRun] = deque(maxlen=5)


@dataclass(frozen=True)
class TaskRun:
    """One task of a step."""

    index: int
    status: str
    attempts: int
    output: Any
    error: str | None  # of the last failed attempt
    traceback: str | None  # of the same
    saved: Mapping[str, Any]  # what its handler has kept by `memo` and `save`
    progress: Mapping[str, Any] | None = None  # what it has told last


@dataclass(frozen=True)
class StepRun:
    """One step; `attempts` is the most that any of its tasks took."""

    status: str
    attempts: int
    output: Any
    error: str | None
    traceback: str | None  # of the last task that failed
    skip_reason: str | None
    tasks: tuple[TaskRun, ...]

    @property
    def saved(self) -> Mapping[str, Any]:
        """What the handler of a step has kept; each task of a map has its own."""
        return self.tasks[0].saved if len(self.tasks) == 1 else {}

    @property
    def progress(self) -> Mapping[str, Any] | None:
        """What the handler of a step has told last by `progress`; likewise."""
        return self.tasks[0].progress if len(self.tasks) == 1 else None


@dataclass(frozen=True)
class FlowRun(TypedOutputs):
    """A run that has ended; `output` is None where there is none."""

    flow_slug: str
    status: str
    input: Any
    output: Any
    steps: dict[str, StepRun]
    took_s: float  # in virtual time
    waits: tuple[EndedWait, ...]  # that have ended, in the order of their ends
    children: tuple[StartedChild, ...]  # in the order of their starts
    _plan: FlowPlan
    undo: FlowRun | None = None  # the run that undid this one

    @property
    def _outputs(self) -> Mapping[str, Any]:
        done = StepStatus.COMPLETED
        return {slug: step.output for slug, step in self.steps.items() if step.status == done}

    def picture(self) -> str:
        """The run as boxes and arrows, with the errors and their tracebacks below."""
        nodes = []
        for slug, plan in self._plan.steps.items():
            step = self.steps[slug]
            attempts = f" {step.attempts}/{plan.options['max_attempts']}"
            tasks = f" {len(step.tasks)} tasks" if plan.is_map and step.tasks else ""
            detail = f"{step.status}{tasks}{attempts if step.attempts > 1 else ''}"
            status = StepStatus[step.status.upper()]
            nodes.append(Node(slug, plan.deps, plan.is_map, status, detail))
        errors = []
        for slug, step in self.steps.items():
            if step.error:
                errors.append(f"{slug}: {step.error}")
                calls = (step.traceback or "").rstrip()
                errors += [textwrap.indent(calls, "  ")] if "\n" in calls.strip() else []
        head = f"{self.flow_slug} {self.status}"
        undo = [self.undo.picture()] if self.undo else []
        return "\n".join([head, draw(Graph(tuple(nodes)), width=100), *errors, *undo])

    def __str__(self) -> str:
        return self.picture()

    def __repr__(self) -> str:
        failed = {slug: step for slug, step in self.steps.items() if step.error}
        if self.status == RunStatus.COMPLETED or not failed:
            return f"FlowRun({self.flow_slug!r}, {self.status!r}, output={self.output!r})"
        slug, step = failed.popitem()
        place = place_of(step.traceback)
        error = f"{slug}: {step.error}" + (f" at {place}" if place else "")
        return f"FlowRun({self.flow_slug!r}, {self.status!r}, error={error!r})"


def result_of(engine: Engine, children: tuple[StartedChild, ...] = ()) -> FlowRun:
    """The run as `run_flow` returns it."""
    return FlowRun(
        flow_slug=engine.flow_slug,
        status=str(engine.status),
        input=engine.input,
        output=json_null(engine.output),
        steps={slug: _step(state) for slug, state in engine.states.items()},
        took_s=engine.now,
        waits=tuple(engine.waits),
        children=children,
        _plan=engine.plan,
    )


def _step(state: EngineStep) -> StepRun:
    tasks = tuple(map(_task, state.tasks))
    failed = [task for task in tasks if task.error]
    settled = [  # undos that could not be done
        task for task in failed if isinstance(task.output, dict) and FAILURE_MARK in task.output
    ]
    error = settled[-1].error if settled else state.error
    return StepRun(
        status=str(state.status),
        attempts=max((task.attempts for task in tasks), default=0),
        output=json_null(state.output),
        error=error,
        traceback=failed[-1].traceback if error and failed else None,
        skip_reason=state.skip_reason,
        tasks=tasks,
    )


def _task(task: TaskRow) -> TaskRun:
    return TaskRun(
        index=task.index,
        status=str(task.status),
        attempts=task.claims,
        output=json_null(task.output),
        error=task.error,
        traceback=task.traceback,
        saved={
            each.name: deep_copy(each.data)
            for each in task.saved.values()
            if not each.name.startswith(RESERVED_PREFIXES)
        },
        progress=task.progress_told[-1] if task.progress_told else None,
    )
