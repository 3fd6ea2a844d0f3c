"""
Result: what `run_flow` tells about a run, and its picture.

The runs of the current test are remembered, so that our pytest plugin can show their pictures
beside a failure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from pgflowd.core.definition.plan import FlowPlan
from pgflowd.core.graph.graph import Graph, Node, draw
from pgflowd.testing.engine import Engine
from pgflowd.testing.rows import EngineRun, EngineStep, TaskRow, json_null

MOST_REMEMBERED = 5

_remembered: deque[FlowRun] = deque(maxlen=MOST_REMEMBERED)


@dataclass(frozen=True)
class TaskRun:
    """One task of a step."""

    index: int
    status: str
    attempts: int
    output: Any
    error: str | None  # of the last failed attempt


@dataclass(frozen=True)
class StepRun:
    """One step; `attempts` is the most that any of its tasks took."""

    status: str
    attempts: int
    output: Any
    error: str | None
    skip_reason: str | None
    tasks: tuple[TaskRun, ...]


@dataclass(frozen=True)
class FlowRun:
    """A run that has ended. No output is None."""

    flow_slug: str
    status: str
    input: Any
    output: Any
    steps: dict[str, StepRun]
    took_s: float  # in virtual time
    _plan: FlowPlan

    def picture(self) -> str:
        """The run as boxes and arrows, with the errors below."""
        nodes = [self._node(slug) for slug in self._plan.steps]
        errors = [f"{slug}: {step.error}" for slug, step in self.steps.items() if step.error]
        head = f"{self.flow_slug} {self.status}"
        return "\n".join([head, draw(Graph(tuple(nodes)), width=100), *errors])

    def _node(self, slug: str) -> Node:
        step, plan = self.steps[slug], self._plan.steps[slug]
        counted = f" {step.attempts}/{plan.max_attempts}" if step.attempts > 1 else ""
        tasks = f" {len(step.tasks)} tasks" if plan.is_map and step.tasks else ""
        detail = f"{step.status}{tasks}{counted}"
        return Node(slug, plan.deps, plan.is_map, step.status, detail)

    def __str__(self) -> str:
        return self.picture()

    def __repr__(self) -> str:
        return f"FlowRun({self.flow_slug!r}, {self.status!r}, output={self.output!r})"


def result_of(flow_slug: str, engine: Engine, row: EngineRun) -> FlowRun:
    """Read a run off the engine."""
    return FlowRun(
        flow_slug=flow_slug,
        status=str(row.status),
        input=row.input,
        output=json_null(row.output),
        steps={slug: _step(state) for slug, state in row.states.items()},
        took_s=engine.now,
        _plan=engine.plan,
    )


def remember(run: FlowRun) -> FlowRun:
    """Keep the run for the report of the current test."""
    _remembered.append(run)
    return run


def forget() -> list[FlowRun]:
    """Return the runs of the test that ends, and forget them."""
    runs = list(_remembered)
    _remembered.clear()
    return runs


def _step(state: EngineStep) -> StepRun:
    return StepRun(
        status=str(state.status),
        attempts=max((task.claims for task in state.tasks), default=0),
        output=json_null(state.output),
        error=state.error,
        skip_reason=state.skip_reason,
        tasks=tuple(_task(task) for task in state.tasks),
    )


def _task(task: TaskRow) -> TaskRun:
    return TaskRun(task.index, str(task.status), task.claims, json_null(task.output), task.error)
