"""
Derives the flow that undoes runs of another one, and finds what is wrong with undo handlers.

The undo flow of `orders` is `undo_orders`, an ordinary flow. For a step `charge` it has
`undo_charge`; for a map `ship` it has `list_ship`, which returns the indexes to undo, and
`undo_ship`, a map over them. Each waits for the undo steps of its nearest undoable descendants, so
the order is reversed, and independent branches are undone side by side.

It is served in older versions, too: for those it keeps the undos of retired steps, and `list_` for
steps that are maps no more.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pgflowd.core.definition.options import NUMBERS, OF_RUNS, Limit, Owner, option_problems
from pgflowd.core.definition.spec import (
    CTX,
    ITEM,
    RUN,
    FlowSpec,
    Parameter,
    StepSpec,
    UndoSpec,
    in_order,
)
from pgflowd.core.text import did_you_mean
from pgflowd.core.undo import LIST_PREFIX, PREFIX
from pgflowd.errors import Problem

# with their prefixes, the slugs of the undo flow are legal, too
MAX_FLOW_CHARS = 42
MAX_STEP_CHARS = 120

_OLDER = 2**31 - 1  # any version that is not as the code has it: no number is that high

# a step of ours must not be why a run is not undone, whatever the flow says
_LIST_OPTIONS = {"max_attempts": 10, "on_crash_limit": "quarantine"}


def undo_flow_of(flow: FlowSpec) -> FlowSpec:
    """The undo flow of a checked flow with undos, its steps in topological order."""
    undos = {undo.step: undo for undo in flow.undos}
    after = nearest_undoable({step.slug: step.deps for step in flow.steps}, undos)
    made, older = {}, {}
    for step in flow.steps:
        if undo := undos.get(step.slug):
            later = tuple(f"{PREFIX}{slug}" for slug in after[step.slug])
            if step.is_map:
                made[f"{LIST_PREFIX}{step.slug}"] = _list_step(undo, later)
                later = ()
            made[f"{PREFIX}{step.slug}"] = _undo_step(undo, is_map=step.is_map, after=later)
    for undo in flow.undos:
        for each in (_list_step(undo, ()), _undo_step(undo, is_map=False, after=())):
            if each.slug not in made:
                older[each.slug] = each
    made = made or {slug: step for slug, step in older.items() if step.undoes}
    order = in_order({slug: step.deps for slug, step in made.items()})
    defaults = {option.name for option in NUMBERS}
    options = {name: value for name, value in flow.options.items() if name in defaults}
    steps = tuple(made[slug] for slug in order)
    retired = tuple((_OLDER, step) for step in older.values())
    slug, lifespan = f"{PREFIX}{flow.slug}", flow.lifespan
    return FlowSpec(slug, flow.place, options, steps, retired=retired, lifespan=lifespan)


def nearest_undoable(
    deps: dict[str, Sequence[str]], undoable: Container[str]
) -> dict[str, list[str]]:
    """
    For each undoable step its undoable descendants, without those that another of them precedes.

    `deps` is in topological order. Sets of steps are numbers here, one bit for each step, so that
    a wide flow with hundreds of steps takes no time.
    """
    bits = {slug: 1 << index for index, slug in enumerate(deps) if slug in undoable}
    nearest, below = dict.fromkeys(deps, 0), dict.fromkeys(deps, 0)
    found = {}
    for slug in reversed(deps):  # what comes after it has added itself to `nearest`
        candidates = [other for other in bits if nearest[slug] & bits[other]]
        for other in candidates:
            nearest[slug] &= ~below[other]
            below[slug] |= bits[other] | below[other]
        if slug in bits:
            found[slug] = [other for other in candidates if nearest[slug] & bits[other]]
        for dep in deps[slug]:
            nearest[dep] |= bits.get(slug, nearest[slug])
    return found


def _list_step(undo: UndoSpec, after: tuple[str, ...]) -> StepSpec:
    def list_indexes(run: dict[str, Any]) -> list[int]:
        """Return which elements of a map are to be undone."""
        indexes: list[int] = run["plan"].get(undo.step, [])
        return indexes

    return StepSpec(
        slug=f"{LIST_PREFIX}{undo.step}",
        place=undo.place,
        handler=list_indexes,
        parameters=(Parameter(RUN),),
        after=after,
        options=_LIST_OPTIONS,
    )


def _undo_step(undo: UndoSpec, *, is_map: bool, after: tuple[str, ...]) -> StepSpec:
    assert undo.handler is not None
    options = {name: value for name, value in undo.options.items() if name != "on"}
    return StepSpec(
        slug=f"{PREFIX}{undo.step}",
        place=undo.place,
        handler=undo.handler,
        parameters=undo.parameters,
        is_map=is_map,
        over=(f"{LIST_PREFIX}{undo.step}",) if is_map else (),
        after=after,
        options={**options, "settle": True, "on_crash_limit": "quarantine"},
        annotations=undo.annotations,
        codec=undo.codec,
        undoes=undo.step,
    )


def undo_problems(flow: FlowSpec) -> Iterator[Problem]:
    """What is wrong with the undos of a flow, and with the flow since it has undos."""
    if not flow.undos:
        for option in OF_RUNS:
            if option.name in flow.options:
                text = f"flow {flow.slug}: {option.name} has no effect, since no step has an undo"
                yield Problem("E225", text, flow.place, "add @flow.undo(…), or leave it out")
        return
    if len(flow.slug) > MAX_FLOW_CHARS:
        text = f"flow slug {flow.slug} has {len(flow.slug)} characters"
        rule = f"at most {MAX_FLOW_CHARS} are allowed for a flow with undos"
        yield Problem("E208", f"{text}; {rule}", flow.place)
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
            yield from _problems_of(undo, steps[undo.step])


def _problems_of(undo: UndoSpec, step: StepSpec) -> Iterator[Problem]:
    name = f"undo of {step.slug}"
    if undo.handler is None:
        remedy = f"decorate a function: @flow.undo({step.slug})"
        yield Problem("E225", f"{name} has no handler", undo.place, remedy)
    if len(step.slug) > MAX_STEP_CHARS:
        text = f"step slug {step.slug} has {len(step.slug)} characters"
        rule = f"at most {MAX_STEP_CHARS} are allowed for a step with an undo"
        yield Problem("E208", f"{text}; {rule}", step.place)
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
            text = f"{name}: parameter '{parameter.name}' cannot be passed by name"
            yield Problem("E206", text, undo.place, "a handler has named parameters only")
        elif parameter.name not in allowed:
            text = f"{name}: parameter '{parameter.name}' is not allowed here"
            rule = f"an undo of {step.slug} takes {', '.join(sorted(allowed))}"
            remedy = did_you_mean(parameter.name, allowed) or rule
            yield Problem("E206", text, undo.place, remedy)
        elif parameter.name == step.slug and may_lack_output and not parameter.has_default:
            text = f"{name}: a task that was only attempted has no output"
            yield Problem("E225", text, undo.place, f"write {step.slug}=None")
