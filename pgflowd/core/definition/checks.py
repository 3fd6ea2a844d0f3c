"""
Finds everything that is wrong with a flow, each problem with its place and remedy.

Nothing here raises. The findings are `Problem` values with the codes E2xx and W22x: `pgflowd check`
prints them all, and the first use of a wrong flow raises an error with all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pgflowd.core.definition.options import Owner, option_names, option_problems
from pgflowd.core.definition.schedule import schedule_problems, start_problems
from pgflowd.core.definition.spec import CTX, INPUT, ITEM, RESERVED, RUN, FlowSpec, StepSpec, cycles
from pgflowd.core.definition.typed_flow import type_problems
from pgflowd.core.definition.undo import undo_problems
from pgflowd.core.text import did_you_mean
from pgflowd.errors import Problem

# the SQL's limits; a flow's slug is also the name of its queue, which may have only 47 characters
MAX_FLOW_CHARS = 47
MAX_STEP_CHARS = 128

_LEGAL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NOT_LEGAL = re.compile(r"[^a-zA-Z0-9]+")
_LEGAL_FROM_0_17 = re.compile(r"[a-zA-Z]([a-zA-Z0-9]|_(?=[a-zA-Z0-9]))*")


def flow_problems(flow: FlowSpec) -> list[Problem]:
    """All problems of one flow, in the order of the file, those of the whole flow first."""
    slugs = {step.slug for step in flow.steps}
    skippable = {step.slug for step in flow.steps if step.may_be_skipped}
    return [
        *_slug_problems(flow.slug, flow.place, of_flow=True),
        *option_problems(flow.options, Owner.FLOW, f"flow {flow.slug}", flow.place),
        *schedule_problems(flow.slug, flow.options, flow.place),
        *start_problems(flow.options, f"flow {flow.slug}", flow.place),
        *_cycle_problems(flow),
        *(each for step in flow.steps for each in _step_problems(step, flow, slugs, skippable)),
        *_repeated_steps(flow),
        *undo_problems(flow),
        *type_problems(flow),
        *_retired_problems(flow),
    ]


def _step_problems(
    step: StepSpec, flow: FlowSpec, slugs: set[str], skippable: set[str]
) -> Iterator[Problem]:
    yield from _slug_problems(step.slug, step.place, of_flow=False)
    if step.slug in RESERVED - {RUN} and not step.has_given_slug:
        text = f"step slug '{step.slug}' is the name of a parameter"
        yield Problem("E203", text, step.place, f"rename the step, or write slug='{step.slug}'")
    yield from _parameter_problems(step, flow.slug, slugs)
    yield from _dep_problems(step, flow.slug, slugs)
    for parameter in step.parameters if not step.is_map else ():
        if parameter.name in skippable and not parameter.has_default:
            text = f"step {step.slug}: dep '{parameter.name}' may be skipped and has no default"
            remedy = f"a skip would fail this step: write {parameter.name}=None"
            yield Problem("W220", text, step.place, remedy)
    owner, other = (Owner.MAP, Owner.STEP) if step.is_map else (Owner.STEP, Owner.MAP)
    misplaced = option_names(other) - option_names(owner)
    options = {name: v for name, v in step.options.items() if name not in misplaced}
    yield from option_problems(options, owner, f"step {step.slug}", step.place)
    for name in sorted(misplaced & step.options.keys()):
        if step.is_map:
            text = f"map step {step.slug} has {name}; the dep of a map is named by over="
            yield Problem("E204", text, step.place)
        else:
            text = f"step {step.slug}: over is for maps"
            yield Problem("E209", text, step.place, "write @flow.map(over=…)")
    yield from _condition_problems(step)


def _slug_problems(slug: str, place: str, *, of_flow: bool) -> Iterator[Problem]:
    """Everything that is wrong with the slug of a flow or a step."""
    kind, longest = ("flow", MAX_FLOW_CHARS) if of_flow else ("step", MAX_STEP_CHARS)
    if not _LEGAL.fullmatch(slug):
        rule = "a slug has letters, digits and '_' only, and does not begin with a digit"
        legal = _NOT_LEGAL.sub("_", slug).strip("_")
        if not _LEGAL.fullmatch(legal) or not slug.isascii() or "<" in slug:
            legal = f"my_{kind}"
        remedy = f"give it one, such as '{legal}'" if of_flow else f"write slug='{legal}'"
        yield Problem("E203", f"{kind} slug {slug!r} is illegal: {rule}", place, remedy)
        return
    if slug == RUN:
        yield Problem("E203", f"{kind} slug '{slug}' is reserved", place, "choose another")
    if len(slug) > longest:
        text = f"{kind} slug {slug} has {len(slug)} characters; at most {longest} are allowed"
        yield Problem("E208", text, place)
    if not _LEGAL_FROM_0_17.fullmatch(slug):
        rule = "it should begin with a letter, not end with '_', and have no '__'"
        yield Problem("W221", f"pgflow 0.17 and later refuse {kind} slug {slug}", place, rule)


def _condition_problems(step: StepSpec) -> Iterator[Problem]:
    """Patterns that no input of the step contains, since that has the outputs of its deps only."""
    for option, met in (("if_", "never"), ("if_not", "always")):
        pattern = step.options.get(option)
        if not step.deps or not isinstance(pattern, dict):
            continue
        if others := [key for key in pattern if key not in step.deps]:
            named = ", ".join(f"'{key}'" for key in others)
            text = (
                f"step {step.slug}: {option} is {met} met: it asks for {named}, and the input of "
            )
            text += f"a step with deps has their outputs only: {', '.join(step.deps)}"
            remedy = f"write {option}={{'{step.deps[0]}': …}}, with what that output must contain"
            yield Problem("E228", text, step.place, remedy)


def _parameter_problems(step: StepSpec, flow_slug: str, slugs: set[str]) -> Iterator[Problem]:
    for parameter in step.parameters:
        name = parameter.name
        if not parameter.is_named:
            text = f"step {step.slug}: parameter '{name}' cannot be passed by name"
            hint = "; in a decorator, functools.wraps keeps them" if name.startswith("*") else ""
            yield Problem("E206", text, step.place, f"a handler has named parameters only{hint}")
        elif name not in slugs and name not in RESERVED:
            text = f"step {step.slug}: parameter '{name}' is not a step of {flow_slug}"
            others = {ITEM, CTX} if step.is_map else {*slugs - {step.slug}, RUN, CTX, INPUT}
            takes = "a map takes item and ctx"
            if not step.is_map:
                takes = "a step takes run, ctx, input and deps"
            remedy = did_you_mean(name, others) or takes
            if name in ("self", "cls"):
                remedy = "a handler must be a plain function, not a method"
            yield Problem("E201", text, step.place, remedy)
        elif misplaced := _remedy_for_misplaced(step, name):
            text = f"step {step.slug}: parameter '{name}' is not allowed here"
            yield Problem("E206", text, step.place, misplaced)


def _remedy_for_misplaced(step: StepSpec, name: str) -> str | None:
    """What to write instead of a known name that this step may not have as a parameter."""
    if step.is_map:
        if name in (RUN, INPUT):
            return "a map takes item and ctx; ctx.flow_input() has the run's input"
        if name in RESERVED or len(step.deps) > 1:  # several deps of a map are E204
            return None
        return f"a map takes item and ctx; to map over {name} write @flow.map(over='{name}')"
    if name == ITEM:
        return "only a map has items: write @flow.map(over=…)"
    if step.takes(INPUT) and name not in (INPUT, CTX):
        return "'input' has the run's input and all outputs; besides it only ctx is allowed"
    return None


def _dep_problems(step: StepSpec, flow_slug: str, slugs: set[str]) -> Iterator[Problem]:
    named = {"over": step.over, "depends_on": step.depends_on, "after": step.after}
    for option, deps in named.items():
        for dep in deps:
            if dep not in slugs:
                text = (
                    f"step {step.slug}: {option} names '{dep}', which is not a step of {flow_slug}"
                )
                yield Problem("E201", text, step.place, did_you_mean(dep, slugs - {step.slug}))
    known = [dep for dep in step.deps if dep in slugs]
    if step.is_map and len(known) > 1:
        listed = f"{len(known)} deps ({', '.join(known)})"
        text = f"map step {step.slug} has {listed}; a map has at most one"
        yield Problem("E204", text, step.place)


def _cycle_problems(flow: FlowSpec) -> Iterator[Problem]:
    deps = {step.slug: step.deps for step in flow.steps}
    places = {step.slug: step.place for step in flow.steps}
    for cycle in cycles(deps):
        pairs = zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        chain = ", ".join(f"{one} needs {other}" for one, other in pairs)
        yield Problem("E202", f"steps of {flow.slug} form a cycle: {chain}", places[cycle[0]])


def _repeated_steps(flow: FlowSpec) -> Iterator[Problem]:
    by_slug: dict[str, StepSpec] = {}
    by_folded: dict[str, StepSpec] = {}
    for step in flow.steps:
        same = by_slug.setdefault(step.slug, step)
        alike = by_folded.setdefault(step.slug.casefold(), step)
        if same is not step:
            text = f"step {step.slug} is defined twice, first at {same.place}"
            yield Problem("E205", text, step.place, "rename one")
        elif alike is not step:
            text = f"steps {alike.slug} and {step.slug} differ only in case"
            yield Problem("E207", text, step.place, "rename one")


def _retired_problems(flow: FlowSpec) -> Iterator[Problem]:
    """What is wrong with handlers that are kept for runs of older versions."""
    known: dict[tuple[str, int], StepSpec] = {}
    for since, step in flow.retired:
        name = f"retired step {step.slug}"
        if not isinstance(since, int) or isinstance(since, bool) or since < 2:
            text = f"{name}: since is {since!r}; it is the number of a version, 2 or more"
            yield Problem("E209", text, step.place)
            continue
        yield from _slug_problems(step.slug, step.place, of_flow=False)
        yield from option_problems(step.options, Owner.STEP, name, step.place)
        for parameter in step.parameters:
            if not parameter.is_named:
                text = f"{name}: parameter '{parameter.name}' cannot be passed by name"
                yield Problem("E206", text, step.place, "a handler has named parameters only")
        same = known.setdefault((step.slug, since), step)
        if same is not step:
            text = f"{name} is defined twice for versions before {since}, first at {same.place}"
            yield Problem("E205", text, step.place, "leave one out")
