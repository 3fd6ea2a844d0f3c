"""
How the code of a flow serves versions of it that have another shape. Pure.

A version is served if each of its steps has a handler whose parameters its deps cover: the retired
one with the step's slug that is for versions before the least later one, else the step's of today.
`handler_facts` is what is known of the handlers without their code; `unserved_steps` judges a
version by it, and `steps_of_version` makes the steps that runners execute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgflowd.core.definition.shape import Shape
from pgflowd.core.definition.spec import CTX, INPUT, ITEM, RUN, FlowSpec, StepSpec
from pgflowd.core.undo import PREFIX


@dataclass(frozen=True)
class HandlerFacts:
    """What is known of a handler without its code."""

    slug: str
    parameters: tuple[tuple[str, bool], ...]  # the name, and whether it has a default
    since: int | None = None  # retired: for versions before this one
    has_undo: bool = False  # its step

    def takes(self, *names: str) -> bool:
        return any(name in names for name, _ in self.parameters)


@dataclass(frozen=True)
class Code:
    """A flow as the code has it."""

    name: str
    shape: Shape
    handlers: Sequence[HandlerFacts] = ()


@dataclass(frozen=True)
class UnservedStep:
    """A step of a version that the code cannot execute, and why."""

    slug: str
    why: str
    remedy: str


def facts_of(flow: FlowSpec) -> list[HandlerFacts]:
    """
    What is known of the handlers of a flow, the retired ones included.

    Those that undo a step get what they take from its task, and not from deps.
    """
    undoable = {undo.step for undo in flow.undos}
    return [
        HandlerFacts(
            step.slug,
            tuple((p.name, p.has_default) for p in step.parameters if step.undoes is None),
            since,
            step.slug in undoable,
        )
        for since, step in [*((None, step) for step in flow.steps), *flow.retired]
    ]


def facts_from(found: Iterable[Mapping[str, Any]]) -> list[HandlerFacts]:
    """Read them from JSON."""
    return [
        HandlerFacts(**{**each, "parameters": tuple(map(tuple, each["parameters"]))})
        for each in found
    ]


def unserved_steps(
    shape: Shape, handlers: Iterable[HandlerFacts], version: int
) -> list[UnservedStep]:
    """The steps of a version that these handlers cannot execute."""
    chosen = _chosen([(each.since, each) for each in handlers], version)
    found = []
    for step in shape["steps"]:
        slug = step["slug"]
        deps, is_map = set(step.get("dependencies") or []), step.get("stepType") == "map"
        known = {ITEM, CTX} if is_map else {RUN, CTX, INPUT, *deps}
        decorator = f"retired(since={version + 1})"
        if step.get("options", {}).get("settle"):
            decorator = f"undo('{slug.removeprefix(PREFIX)}')"
        retire = f"write @….{decorator} over a handler for it"
        handler = chosen.get(slug)
        if handler is None:
            found.append(UnservedStep(slug, "has no handler any more", retire))
            continue
        for name, has_default in handler.parameters:
            if name not in known and not has_default:
                why = f"has a handler with parameter '{name}', which it does not have there"
                remedy = f"give it a default, such as {name}=None, or {retire}"
                found.append(UnservedStep(slug, why, remedy))
    return found


def steps_of_version(flow: FlowSpec, shape: Shape, version: int) -> dict[str, StepSpec]:
    """The steps of a version with their handlers of today."""
    chosen = _chosen([*((None, step) for step in flow.steps), *flow.retired], version)
    found = {}
    for step in shape["steps"]:
        if spec := chosen.get(step["slug"]):  # with the kind and the deps that it has in this shape
            deps, is_map = step.get("dependencies") or [], step.get("stepType") == "map"
            after = tuple(dep for dep in deps if dep in spec.after)
            others = tuple(dep for dep in deps if dep not in after)
            over, on = (others, ()) if is_map else ((), others)
            found[spec.slug] = replace(spec, is_map=is_map, over=over, depends_on=on, after=after)
    return found


def with_run(shape: Shape, handlers: Iterable[HandlerFacts], version: int) -> frozenset[str]:
    """The later steps of a version whose handlers take the run's input."""
    chosen = _chosen([(each.since, each) for each in handlers], version)
    return frozenset(
        step["slug"]
        for step in shape["steps"]
        if step.get("dependencies") and step.get("stepType") != "map" and step["slug"] in chosen
        if chosen[step["slug"]].takes(RUN, INPUT)
    )


def _chosen(handlers: Sequence[tuple[int | None, Any]], version: int) -> dict[str, Any]:
    """By slug the handler for this version: retired for the nearest later one, else today's."""
    usable = [(since, each) for since, each in handlers if since is None or version < since]
    usable.sort(key=lambda pair: (pair[0] is None, pair[0] or 0), reverse=True)
    return {each.slug: each for _, each in usable}
