"""
Reads a flow's shape into values that are easy to use, and evaluates the conditions of its steps.

A shape is JSON and may leave things out. A plan has the steps in their order, each with its deps
and dependents and with all options in force. The engine of `testing` and the screens read it.

A condition asks whether a JSON document contains a pattern, as PostgreSQL's `jsonb @>` does. An
object contains another if it has each key of the other, with a value that contains the other's
value. An array contains another if each element of the other is contained in one of its elements;
order and repetition do not count. Numbers are equal by value, and true is not 1.
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


def contains(document: Any, pattern: Any) -> bool:
    """Return what `document @> pattern` gives for two containers or two scalars."""
    if isinstance(pattern, dict):
        return isinstance(document, dict) and all(
            key in document and contains(document[key], value) for key, value in pattern.items()
        )
    if isinstance(pattern, list):
        return isinstance(document, list) and all(
            any(contains(element, wanted) for element in document) for wanted in pattern
        )
    return _same_scalar(document, pattern)


def _same_scalar(one: Any, other: Any) -> bool:
    if isinstance(one, dict | list):
        return False
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)
