"""
Plan: a flow's shape, read once into values that are easy to ask.

A shape (section 7.3 of the SQL contract) is JSON and may leave things out. A plan has every
default filled in as the SQL would, the steps in their order, and for each step its deps and
dependents. The engine of `testing` and the graph read flows from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_ATTEMPTS = 3
BASE_DELAY_S = 5
TIMEOUT_S = 60


@dataclass(frozen=True)
class StepPlan:
    """One step with its options in force: its own, else the flow's, else the SQL's."""

    slug: str
    index: int
    is_map: bool
    deps: tuple[str, ...]
    dependents: tuple[str, ...]
    max_attempts: int
    base_delay_s: int
    timeout_s: int
    start_delay_s: int
    if_: dict[str, Any] | None
    if_not: dict[str, Any] | None
    when_unmet: str
    when_exhausted: str

    @property
    def is_root_map(self) -> bool:
        return self.is_map and not self.deps


@dataclass(frozen=True)
class FlowPlan:
    """All steps, in the order of the shape, which is topological."""

    steps: dict[str, StepPlan]

    @property
    def leaves(self) -> list[str]:
        return [slug for slug, step in self.steps.items() if not step.dependents]

    @property
    def has_root_map(self) -> bool:
        return any(step.is_root_map for step in self.steps.values())

    def downstream(self, slug: str) -> set[str]:
        """The step and all that depends on it, however far."""
        found, pending = {slug}, [slug]
        while pending:
            new = set(self.steps[pending.pop()].dependents) - found
            found |= new
            pending.extend(new)
        return found


def plan_of(shape: Mapping[str, Any]) -> FlowPlan:
    """Read a shape whose steps stand in topological order."""
    steps = shape["steps"]
    deps = {step["slug"]: tuple(sorted(set(step.get("dependencies") or ()))) for step in steps}
    options = shape.get("options") or {}
    return FlowPlan(
        {step["slug"]: _step_plan(index, step, deps, options) for index, step in enumerate(steps)}
    )


def _step_plan(
    index: int,
    step: Mapping[str, Any],
    deps: Mapping[str, tuple[str, ...]],
    flow_options: Mapping[str, Any],
) -> StepPlan:
    slug, options = step["slug"], step.get("options") or {}

    def option(name: str, default: int) -> int:
        own, flows = options.get(name), flow_options.get(name)
        return int(own if own is not None else flows if flows is not None else default)

    return StepPlan(
        slug=slug,
        index=index,
        is_map=step.get("stepType") == "map",
        deps=deps[slug],
        dependents=tuple(other for other, theirs in deps.items() if slug in theirs),
        max_attempts=option("maxAttempts", MAX_ATTEMPTS),
        base_delay_s=option("baseDelay", BASE_DELAY_S),
        timeout_s=option("timeout", TIMEOUT_S),
        start_delay_s=int(options.get("startDelay") or 0),
        if_=_pattern(step.get("requiredInputPattern")),
        if_not=_pattern(step.get("forbiddenInputPattern")),
        when_unmet=step.get("whenUnmet") or "skip",
        when_exhausted=step.get("whenExhausted") or "fail",
    )


def _pattern(part: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not part or not part.get("defined"):
        return None
    return dict(part["value"])
