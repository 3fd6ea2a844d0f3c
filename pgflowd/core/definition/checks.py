"""
Finds everything that is wrong with a flow, each problem with its place and remedy.

Nothing here raises. The findings are `Problem` values with the codes E2xx and W22x: `pgflowd check`
prints them all, and the first use of a wrong flow raises an error with all of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pgflowd.core.definition.options import OF_RUNS, Limit, Owner, option_names, option_problems
from pgflowd.core.definition.schedule import schedule_problems, start_problems
from pgflowd.core.definition.spec import (
    CTX,
    INPUT,
    ITEM,
    RESERVED,
    RUN,
    FlowSpec,
    LifespanSpec,
    StepSpec,
    UndoSpec,
    cycles,
)
from pgflowd.core.json import encode
from pgflowd.core.text import did_you_mean
from pgflowd.core.typed.annotations import contents, type_name
from pgflowd.core.typed.codec import OUTPUT, faults_of
from pgflowd.core.typed.comparison import misfit
from pgflowd.core.undo import LIST_PREFIX, PREFIX
from pgflowd.core.waiting import RAISE, seconds_of
from pgflowd.errors import Problem, RunError

# the SQL's limits; a flow's slug is also the name of its queue, which may have only 47 characters
MAX_FLOW_CHARS = 47
MAX_STEP_CHARS = 128
# with their prefixes, the slugs of the undo flow are legal, too
_MAX_FLOW_CHARS_WITH_UNDOS = 42
_MAX_STEP_CHARS_WITH_UNDO = 120

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
    yield from _too_long(kind, slug, longest, place)
    if not _LEGAL_FROM_0_17.fullmatch(slug):
        rule = "it should begin with a letter, not end with '_', and have no '__'"
        yield Problem("W221", f"pgflow 0.17 and later refuse {kind} slug {slug}", place, rule)


def _too_long(kind: str, slug: str, most: int, place: str, whose: str = "") -> Iterator[Problem]:
    if len(slug) > most:
        text = f"{kind} slug {slug} has {len(slug)} characters; at most {most} are allowed{whose}"
        yield Problem("E208", text, place)


def _not_named(name: str, parameter: str, place: str, hint: str = "") -> Problem:
    text = f"{name}: parameter '{parameter}' cannot be passed by name"
    return Problem("E206", text, place, f"a handler has named parameters only{hint}")


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
            hint = "; in a decorator, functools.wraps keeps them" if name.startswith("*") else ""
            yield _not_named(f"step {step.slug}", name, step.place, hint)
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
        unnamed = (each.name for each in step.parameters if not each.is_named)
        yield from (_not_named(name, parameter, step.place) for parameter in unnamed)
        same = known.setdefault((step.slug, since), step)
        if same is not step:
            text = f"{name} is defined twice for versions before {since}, first at {same.place}"
            yield Problem("E205", text, step.place, "leave one out")


def undo_problems(flow: FlowSpec) -> Iterator[Problem]:
    """What is wrong with the undos of a flow, and with the flow since it has undos."""
    if not flow.undos:
        for option in OF_RUNS:
            if option.name in flow.options:
                text = f"flow {flow.slug}: {option.name} has no effect, since no step has an undo"
                yield Problem("E225", text, flow.place, "add @flow.undo(…), or leave it out")
        return
    whose, most = " for a flow with undos", _MAX_FLOW_CHARS_WITH_UNDOS
    yield from _too_long("flow", flow.slug, most, flow.place, whose)
    for step in (*flow.steps, *(step for _, step in flow.retired)):
        if step.slug.lower().startswith((PREFIX, LIST_PREFIX)):
            text = f"step slug {step.slug} is reserved in a flow with undos"
            rule = f"no step may begin with '{PREFIX}' or '{LIST_PREFIX}'"
            yield Problem("E227", f"{text}: {rule}", step.place, "rename the step")
    steps = {step.slug: replace(step, is_map=True) for _, step in flow.retired}  # perhaps one
    steps |= {step.slug: step for step in flow.steps}
    known: dict[str, UndoSpec] = {}
    for undo in flow.undos:
        first = known.setdefault(undo.step, undo)
        if undo.step not in steps:
            text = f"undo of '{undo.step}', which is not a step of {flow.slug}"
            yield Problem("E225", text, undo.place, did_you_mean(undo.step, steps))
        elif first is not undo:
            text = f"step {undo.step} has two undos, the first at {first.place}"
            yield Problem("E225", text, undo.place, "remove one")
        else:
            yield from _undo_problems(undo, steps[undo.step])


def _undo_problems(undo: UndoSpec, step: StepSpec) -> Iterator[Problem]:
    name = f"undo of {step.slug}"
    if undo.handler is None:
        remedy = f"decorate a function: @flow.undo({step.slug})"
        yield Problem("E225", f"{name} has no handler", undo.place, remedy)
    whose, most = " for a step with an undo", _MAX_STEP_CHARS_WITH_UNDO
    yield from _too_long("step", step.slug, most, step.place, whose)
    options = {**undo.options}
    if isinstance(limit := options.get("limit"), Limit) and limit.key is not None:
        del options["limit"]
        text = f"{name}: its limit has a key, which would be sought in the input of the undo's run"
        yield Problem("E226", text, undo.place, "leave the key out; steps of one name= share it")
    yield from option_problems(options, Owner.UNDO, name, undo.place)
    allowed = {step.slug, RUN, CTX} | ({ITEM} if step.is_map else set())
    may_lack_output = undo.options["on"] == "attempted"
    for parameter in undo.parameters:
        if not parameter.is_named:
            yield _not_named(name, parameter.name, undo.place)
        elif parameter.name not in allowed:
            text = f"{name}: parameter '{parameter.name}' is not allowed here"
            rule = f"an undo of {step.slug} takes {', '.join(sorted(allowed))}"
            remedy = did_you_mean(parameter.name, allowed) or rule
            yield Problem("E206", text, undo.place, remedy)
        elif parameter.name == step.slug and may_lack_output and not parameter.has_default:
            text = f"{name}: a task that was only attempted has no output"
            yield Problem("E225", text, undo.place, f"write {step.slug}=None")


def type_problems(flow: FlowSpec) -> Iterator[Problem]:
    """What is wrong with the annotations of a flow, each by itself, and from step to step."""
    handlers: list[tuple[str, StepSpec | UndoSpec]] = [
        *((f"step {step.slug}", step) for step in flow.steps),
        *((f"undo of {undo.step}", undo) for undo in flow.undos),
        *((f"retired step {step.slug}", step) for _, step in flow.retired),
    ]
    for handler, spec in handlers if flow.decodes else ():
        for name, fault in faults_of(spec.annotations):
            what = "its output" if name == OUTPUT else f"parameter '{name}'"
            text = f"{handler}: {what} cannot be decoded: {fault.text}"
            yield Problem("E216", text, spec.place, fault.remedy)
    steps = {step.slug: step for step in flow.steps}
    # what takes an output as which parameter, that parameter's type, and whose output it is
    edges: list[tuple[StepSpec | UndoSpec, str, Any, StepSpec]] = []
    for step in flow.steps:
        deps = [name for name in step.annotations if name in steps and name in step.deps]
        edges += [(step, name, step.annotations[name], steps[name]) for name in deps]
        if step.is_map and len(step.over) == 1 and step.over[0] in steps:
            item = step.annotations.get(ITEM, Any)  # without one, any list will do
            items: Any = list[item]  # type: ignore[valid-type]
            edges.append((step, ITEM, items, steps[step.over[0]]))
    for undo in flow.undos:
        if undo.step in steps and undo.step in undo.annotations:
            edges.append((undo, undo.step, undo.annotations[undo.step], steps[undo.step]))
    for spec, name, taken, producer in edges:
        handler, given = f"undo of {producer.slug}", producer.annotations.get(OUTPUT)
        if isinstance(spec, StepSpec):
            handler = f"step {spec.slug}"
            if producer.is_map and OUTPUT in producer.annotations:  # dependents get all outputs
                given = list[given]  # type: ignore[valid-type]
        if given is not None and (why := misfit(taken, given)):
            wants = f"parameter '{name}' is {type_name(spec.annotations.get(name))}"
            if name == ITEM and ITEM not in spec.annotations:
                wants = "it maps over a list"
            returned = f"step {producer.slug} returns {type_name(given)}"
            is_decoded = flow.decodes and contents(taken).has_shape
            code = "E217" if is_decoded else "W217"
            yield Problem(code, f"{handler}: {wants}, but {returned}: {why}", spec.place)


def lifespan_problems(
    flow: str, function: Any, name: str, place: str, earlier: LifespanSpec | None
) -> Iterator[Problem]:
    """What is wrong with a function that is decorated as the lifespan of a flow."""
    what = f"flow {flow}: the lifespan {name}"
    if earlier is not None:
        text = f"{what} is the second one; {earlier.name} is at {earlier.place}"
        yield Problem("E209", text, place, "let one of them do both")
    if not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        text = f"{what} is not a generator function"
        remedy = "write a function, def or async def, that yields once what ctx.resources is to be"
        yield Problem("E209", text, place, remedy)
        return
    parameters = inspect.signature(function).parameters.values()
    if needed := [each.name for each in parameters if each.default is each.empty]:
        text = f"{what} has the parameter {needed[0]}, and is called without arguments"
        yield Problem("E209", text, place, "let it read what it needs by itself")


def wait_problems(slug: str, timeout: object, default: object, place: str) -> Iterator[Problem]:
    """What is wrong with the time and the default of a step that waits."""
    try:
        if timeout is not None:
            seconds_of(timeout, "timeout")
        if default is not RAISE:
            encode(default, what="default")
    except RunError as error:
        yield Problem("E209", f"step {slug}: {error.text}", place, error.next)
