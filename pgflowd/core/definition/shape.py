"""
The shape of a flow: its JSON, by which runtimes and the database compare flows.

It has the form that the SQL's `_get_flow_shape` writes and `_create_flow_from_shape` reads. Steps
are in topological order and deps sorted; unset options are absent, so that the SQL's defaults hold.
`changes_between` finds a change where the SQL's `_compare_flow_shapes` does. Options that differ
are no difference of shapes: `core.definition.options` has them.

A shape may leave things out. A plan has its steps in their order, each with its deps and dependents
and with all options in force. The engine of `testing` and the screens read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgflowd.core.definition.options import (
    FOLLOWING,
    GATES,
    MODE_OPTIONS,
    NUMBERS,
    OF_RUNS,
    OPTIONS,
    PATTERNS,
    limit_json,
)
from pgflowd.core.definition.schedule import schedules_json, start_options_json
from pgflowd.core.definition.spec import CTX, INPUT, ITEM, RUN, FlowSpec, StepSpec
from pgflowd.core.json import as_stored, jsonb_text
from pgflowd.core.settings.values import sorted_needs
from pgflowd.core.typed.codec import Codec, codec_of
from pgflowd.core.undo import PREFIX
from pgflowd.errors import OutputError

Shape = dict[str, Any]
_DEFS = "#/$defs/"  # of a JSON Schema


def shape_of(flow: FlowSpec) -> Shape:
    """The shape of a flow without problems whose steps are in topological order."""
    steps = {step.slug for step in flow.steps}  # undos of retired steps are for older versions
    undoable = {u.step: {"on": u.options["on"]} for u in flow.undos if u.step in steps}
    of_runs = {o.json_name: flow.options.get(o.name, o.default) for o in OF_RUNS if undoable}
    schedules, schema = schedules_json(flow.slug, flow.options), input_schema(flow)
    return {
        "steps": [_step_shape(step, undoable.get(step.slug, {})) for step in flow.steps],
        "options": _numbers(flow.options) | of_runs | start_options_json(flow.options),
        **({"flowType": "job"} if flow.is_job else {}),
        **({"schedules": schedules} if schedules else {}),
        **({"inputSchema": schema} if schema is not None else {}),
    }


def _step_shape(step: StepSpec, undo: Mapping[str, Any]) -> Shape:
    set_, whole = step.options, {**step.options, **undo}
    # what the database takes from each definition
    following = {each.json_name: whole[each.name] for each in FOLLOWING if each.name in whole}
    if "needs" in following:
        following["needs"] = list(sorted_needs(following["needs"]))
    if "limit" in following:
        following["limit"] = limit_json(following["limit"])
    return {
        "slug": step.slug,
        "stepType": "map" if step.is_map else "single",
        "dependencies": sorted(step.deps),
        **{option.json_name: set_.get(option.name, option.default) for option in MODE_OPTIONS},
        **{
            option.json_name: {"defined": True, "value": as_stored(set_[option.name])}
            if option.name in set_
            else {"defined": False}
            for option in PATTERNS
        },
        "options": _numbers(set_) | following,
    }


def _numbers(options: Mapping[str, Any]) -> dict[str, int]:
    return {option.json_name: options[option.name] for option in NUMBERS if option.name in options}


def input_schema(flow: FlowSpec) -> Shape | None:
    """What a run takes, by all handlers that take it; None if none of them says so by a shape."""
    found: list[Codec] = []
    for step in flow.steps:
        if step.codec is None or step.undoes is not None:  # which takes the input of another run
            continue
        of_run = step.codec.parameters.get(RUN)
        of_item = step.codec.parameters.get(ITEM) if step.is_map and not step.deps else None
        if of_item is not None:
            of_item = codec_of(list[of_item.annotation])  # type: ignore[name-defined]
        found += [each for each in (of_run, of_item) if each and each not in found]
    return _all_of(found) if found else None


def step_schemas(step: StepSpec) -> dict[str, Any]:
    """What a step takes, by parameters, and what it returns; none for a note."""
    if step.codec is None:
        return {"parameters": {}, "output": None}
    parameters = {name: _all_of([codec]) for name, codec in step.codec.parameters.items()}
    output = step.codec.output
    return {"parameters": parameters, "output": output and _all_of([output], of_output=True)}


def _all_of(codecs: Iterable[Codec], *, of_output: bool = False) -> Shape | None:
    """One schema for what fits all of these; None if one of them has none."""
    schemas: list[Shape] = []
    defs: Shape = {}
    for number, codec in enumerate(codecs):
        prefix = f"{number}_" if number else ""
        schema = codec.schema(f"{_DEFS}{prefix}", of_output=of_output)
        if schema is None:
            return None
        defs |= {f"{prefix}{name}": each for name, each in schema.pop("$defs", {}).items()}
        schemas.append(schema)
    whole = schemas[0] if len(schemas) == 1 else {"allOf": schemas}
    try:
        return dict(as_stored(whole | ({"$defs": defs} if defs else {})))
    except OutputError:  # a default that JSON does not have
        return None


def changes_between(before: Shape, after: Shape) -> list[str]:
    """What changed from one shape to the next, in words for people; none if they are equal."""
    old = {step["slug"]: step for step in before.get("steps") or []}
    new = {step["slug"]: step for step in after.get("steps") or []}
    added = [slug for slug in new if slug not in old]
    found = [f"+ step {slug}, {_after(new[slug]) or 'first'}" for slug in added]
    found += [f"- step {slug}" for slug in old if slug not in new]
    for slug in [slug for slug in new if slug in old]:
        was, now = _after(old[slug]), _after(new[slug])
        if was != now:
            found.append(f"step {slug}: {now or 'first'}, not {was or 'first'}")
        named = [("type", "stepType"), *((each.name, each.json_name) for each in MODE_OPTIONS)]
        for name, key in named:
            was, now = old[slug].get(key), new[slug].get(key)
            if None not in (was, now) and was != now:
                found.append(f"step {slug}: {name} is {now}, not {was}")
        for each in PATTERNS:
            was, now = old[slug].get(each.json_name), new[slug].get(each.json_name)
            if was != now:
                text = f"{each.name} is {_pattern(now)}, not {_pattern(was)}"
                found.append(f"step {slug}: {text}")
    return found or (["another order of steps"] if list(old) != list(new) else [])


def _pattern(value: Any) -> str:
    """A pattern as the code has it."""
    return jsonb_text(value.get("value")) if value and value.get("defined") else "unset"


def _after(step: Shape) -> str:
    *others, last = sorted(step.get("dependencies") or []) or [""]
    return f"after {', '.join(others)}{' and ' * bool(others)}{last}" if last else ""


def undoable(shape: Shape) -> list[str]:
    """The steps that have an undo."""
    steps = shape.get("steps") or []
    return [step["slug"] for step in steps if "undo" in (step.get("options") or {})]


def has_gates(shape: Shape) -> bool:
    """Whether a step has a gate: not every worker may begin its tasks at any time."""
    names = {option.json_name for option in GATES}
    return any(names & (step.get("options") or {}).keys() for step in shape.get("steps") or [])


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
    """
    Return what PostgreSQL's `document @> pattern` gives for two containers or two scalars.

    An object contains another if it has each key of the other, with a value that contains the
    other's value. An array contains another if each element of the other is contained in one of its
    elements; order and repetition do not count. Numbers are equal by value, and true is not 1.
    """
    if isinstance(pattern, dict):
        return isinstance(document, dict) and all(
            key in document and contains(document[key], value) for key, value in pattern.items()
        )
    if isinstance(pattern, list):
        return isinstance(document, list) and all(
            any(contains(element, wanted) for element in document) for wanted in pattern
        )
    if isinstance(document, bool) or isinstance(pattern, bool):
        return document is pattern
    return not isinstance(document, dict | list) and bool(document == pattern)


# How the code of a flow serves versions of it that have another shape.
#
# A version is served if each of its steps has a handler whose parameters its deps cover: the
# retired one with the step's slug that is for versions before the least later one, else the step's
# of today. `HandlerFacts` is what is known of the handlers without their code; `unserved_steps`
# judges a version by it, and `steps_of_version` makes the steps that runners execute.
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
