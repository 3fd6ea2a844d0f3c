"""
Reads a flow's shape into values that are easy to use.

A shape is JSON and may leave things out. A plan has the steps in their order, each with its deps
and dependents and with all options in force. The engine of `testing` and the screens read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgflowd.core.definition.options import OPTIONS


@dataclass(frozen=True)
class StepPlan:
    """One step; `options` has all options by their Python names, as they are in force."""

    slug: str
    index: int
    is_map: bool
    deps: tuple[str, ...]
    dependents: tuple[str, ...]
    options: Mapping[str, Any]

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
        """The step and all that depends on it, directly or not."""
        found, pending = {slug}, [slug]
        while pending:
            new = set(self.steps[pending.pop()].dependents) - found
            found |= new
            pending.extend(new)
        return found


def plan_of(shape: Mapping[str, Any]) -> FlowPlan:
    """Read a shape whose steps are in topological order."""
    deps = {
        step["slug"]: tuple(sorted(set(step.get("dependencies") or ()))) for step in shape["steps"]
    }
    flow_options = shape.get("options") or {}
    return FlowPlan(
        {
            slug: StepPlan(
                slug=slug,
                index=index,
                is_map=step.get("stepType") == "map",
                deps=deps[slug],
                dependents=tuple(other for other, its in deps.items() if slug in its),
                options={
                    o.name: o.in_force(step, flow_options)
                    for o in OPTIONS
                    if o.json_name and not o.is_of_runs
                },
            )
            for index, (slug, step) in enumerate(zip(deps, shape["steps"], strict=True))
        }
    )
