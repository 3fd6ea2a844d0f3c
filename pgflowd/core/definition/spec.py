"""
A flow as its author wrote it, before any check, and the order of its steps.

`flow.py` collects decorated handlers; their specs are made when all steps are known, since a dep
may be given as the function of a step that is defined further down, or wrapped by a decorator.
`core.definition.checks` finds what is wrong with a spec, and `core.definition.shape` writes it as
JSON.

Steps may be written in any order. `in_order` keeps that order as far as deps allow: the next step
is always the first written step whose deps are all placed. So a flow written top down keeps its
order, which other runtimes compare by position.

The lifespan of a flow is a generator function without arguments, one for each flow. Steps that only
wait have handlers of ours, which wait for the signal with the name of the step; to the database and
to other runtimes such a step is like any other.

The arguments of a handler are made from the record that a claim returned. It has the task's
`input`: an element for a map, an object of dep outputs for a single step. The run's input comes
with it (`flow_input`) for root steps, and for later ones whose handlers take it; older cores put it
under the key `run` of every single step's input. Where it did not come, as a large one, it is
fetched. No step can be named `run`, so the key shows an older core.
"""

from __future__ import annotations

import heapq
import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from pgflowd.core.context import Context
from pgflowd.core.definition.options import NUMBERS, OptionKind, Owner, options_of
from pgflowd.core.failure import APPROVAL, is_answer, output_of
from pgflowd.core.json import SQL_NULL
from pgflowd.core.typed.annotations import annotations_of
from pgflowd.core.undo import LIST_PREFIX, PREFIX, Original, part_of
from pgflowd.core.waiting import Suspended, Time
from pgflowd.errors import RunError

if TYPE_CHECKING:
    from pgflowd.core.typed.codec import StepCodec

RUN, CTX, ITEM, INPUT = "run", "ctx", "item", "input"
RESERVED = frozenset({RUN, CTX, ITEM, INPUT})


@dataclass(frozen=True)
class Parameter:
    """One parameter of a handler; only a named one gets an argument."""

    name: str
    is_named: bool = True
    has_default: bool = False


@dataclass(frozen=True)
class StepSpec:
    """One step: its handler, its deps as they were named, and its place in the file."""

    slug: str
    place: str
    handler: Callable[..., Any]
    has_given_slug: bool = False  # by `slug=`, and not by the function's name
    parameters: tuple[Parameter, ...] = ()
    is_map: bool = False
    over: tuple[str, ...] = ()  # of a step as written these may be functions, too
    depends_on: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)  # without the unset ones
    annotations: Mapping[str, Any] = field(default_factory=dict)  # resolved; "return" is the output
    codec: StepCodec | None = None  # of a checked flow, for annotations that name shapes
    undoes: str | None = None  # the step whose tasks it undoes, in a flow made for that

    def takes(self, name: str) -> bool:
        return any(parameter.name == name for parameter in self.parameters)

    @property
    def data_deps(self) -> tuple[str, ...]:
        """Deps whose output the handler may see."""
        if self.undoes is not None:
            return self.over
        named = [p.name for p in self.parameters if p.is_named and p.name not in RESERVED]
        return tuple(dict.fromkeys((*self.over, *named, *self.depends_on)))

    @property
    def deps(self) -> tuple[str, ...]:
        """All deps, each once, in the order of writing."""
        return tuple(dict.fromkeys((*self.data_deps, *self.after)))

    @property
    def needs_run_input(self) -> bool:
        """Whether its handler takes the run's input, which only tasks of root steps have."""
        takes_run = self.takes(RUN) or self.takes(INPUT)
        return bool(self.deps) and takes_run and self.undoes is None

    @property
    def parts(self) -> list[str]:
        """What an undo handler takes of the task that it undoes."""
        return sorted({part_of(each.name) for each in self.parameters if each.name != CTX})

    @property
    def has_condition(self) -> bool:
        return "if_" in self.options or "if_not" in self.options

    @property
    def may_be_skipped(self) -> bool:
        """Whether its dependents may run without its output."""
        unmet_skips = self.has_condition and self.options.get("when_unmet", "skip") == "skip"
        return unmet_skips or self.options.get("when_exhausted") == "skip"


@dataclass(frozen=True)
class UndoSpec:
    """The undo handler of a step."""

    step: str
    place: str
    handler: Callable[..., Any] | None  # none if the decorator decorates nothing
    options: Mapping[str, Any]
    parameters: tuple[Parameter, ...] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict)
    codec: StepCodec | None = None


@dataclass(frozen=True)
class LifespanSpec:
    """The generator function of a flow that each runner enters before its first task."""

    name: str
    place: str
    function: Callable[[], Any]


@dataclass(frozen=True)
class FlowSpec:
    """A flow: its steps in the order of writing."""

    slug: str
    place: str
    options: Mapping[str, Any]
    steps: tuple[StepSpec, ...]
    undos: tuple[UndoSpec, ...] = ()
    retired: tuple[tuple[int, StepSpec], ...] = ()  # for versions before this one, a handler
    is_job: bool = False
    lifespan: LifespanSpec | None = None

    @property
    def decodes(self) -> bool:
        """Whether annotations that name a shape are decoded."""
        return self.options.get("decode") is not False


def as_written(
    handler: Callable[..., Any], options: dict[str, Any], place: str, *, is_map: bool = False
) -> StepSpec:
    """The step of a decorated function, with its options and deps as given."""
    has_given_slug = "slug" in options
    slug = options.pop("slug", getattr(handler, "__name__", "<no name>"))
    deps: dict[str, Any] = {
        option.name: _listed(options.pop(option.name, ()))
        for option in options_of(Owner.MAP if is_map else Owner.STEP)
        if option.kind is OptionKind.DEPS
    }
    slug = slug if isinstance(slug, str) else f"<{slug!r}>"
    return StepSpec(slug, place, handler, has_given_slug, (), is_map, options=options, **deps)


def resolved_step(step: StepSpec, slugs: Mapping[int, str]) -> StepSpec:
    """A step as written with the slugs of its deps, given that of each handler by its id."""
    named: dict[str, Any] = {
        option: tuple(_slug_of(each, slugs) for each in getattr(step, option))
        for option in ("over", "depends_on", "after")
    }
    parameters, annotations = _parameters(step.handler), annotations_of(step.handler)
    return replace(step, parameters=parameters, annotations=annotations, **named)


def resolved_undo(undo: UndoSpec, slugs: Mapping[int, str]) -> UndoSpec:
    """Likewise an undo."""
    named = replace(undo, step=_slug_of(undo.step, slugs))
    if (handler := undo.handler) is None:
        return named
    return replace(named, parameters=_parameters(handler), annotations=annotations_of(handler))


def _listed(steps: Any) -> tuple[Any, ...]:
    if isinstance(steps, str) or not isinstance(steps, Sequence | set | frozenset):
        return (steps,)
    return tuple(steps)


def _slug_of(step: Any, slugs: Mapping[int, str]) -> str:
    """The slug of a step that is named by its slug or by its function, wrapped or not."""
    while not isinstance(step, str):
        if id(step) in slugs:
            return slugs[id(step)]
        step = getattr(step, "__wrapped__", getattr(step, "__name__", repr(step)))
    return step


def _parameters(handler: Callable[..., Any]) -> tuple[Parameter, ...]:
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return (Parameter("(unknown)", is_named=False),)
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return tuple(
        Parameter(
            name=str(parameter).split(":")[0] if parameter.kind in stars else parameter.name,
            is_named=parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY),
            has_default=parameter.default is not parameter.empty,
        )
        for parameter in parameters
    )


def in_order(deps: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the names in a topological, stable order, without those on or after a cycle.

    `deps` maps each name to the names it depends on, in the order of writing. Deps that are not
    keys of it are ignored.
    """
    written = {name: index for index, name in enumerate(deps)}
    missing = {name: {dep for dep in its if dep in written} for name, its in deps.items()}
    dependents: dict[str, list[str]] = {name: [] for name in written}
    for name, its in missing.items():
        for dep in its:
            dependents[dep].append(name)
    ready = [(index, name) for name, index in written.items() if not missing[name]]
    order = []
    while ready:
        _, name = heapq.heappop(ready)
        order.append(name)
        for other in dependents[name]:
            missing[other].discard(name)
            if not missing[other]:
                heapq.heappush(ready, (written[other], other))
    return order


def cycles(deps: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return one cycle for each group of steps that depend on each other.

    A cycle begins with the name written first; `[a, b]` reads: a depends on b, and b on a.
    """
    left, found, written = dict(deps), [], list(deps)
    while unplaced := left.keys() - set(in_order(left)):
        path = [next(name for name in written if name in unplaced)]
        # each unplaced name depends on another, so the path comes back to itself
        while (dep := min(set(left[path[-1]]) & unplaced)) not in path:
            path.append(dep)
        cycle = path[path.index(dep) :]
        first = cycle.index(min(cycle, key=written.index))
        found.append(cycle[first:] + cycle[:first])
        left = {name: its for name, its in left.items() if name not in cycle}
    return found


class Claimed(Protocol):
    """The part of a claim's record that arguments are made of; SQL null is SQL_NULL."""

    @property
    def input(self) -> Any: ...
    @property
    def flow_input(self) -> Any: ...


def arguments_for(
    step: StepSpec, record: Claimed, fetch_run_input: Callable[[], Any], ctx: object
) -> dict[str, Any]:
    """Return the handler's arguments by name, or raise E405 for a skipped dep without a default.

    `fetch_run_input` is called only if the handler asks for the run's input and the record does
    not have it.
    """
    arguments: dict[str, Any] = {}
    for parameter in step.parameters:
        if parameter.name == CTX:
            arguments[CTX] = ctx
        elif step.is_map != (parameter.name == ITEM):
            # it is of versions in which the step was, or was not, a map: here it has its default
            if not parameter.has_default:
                raise RunError(f"step {step.slug}: there is no '{parameter.name}'", code="E405")
        elif parameter.name == ITEM:
            arguments[ITEM] = record.input
        elif parameter.name == RUN:
            arguments[RUN] = run_input(step, record, fetch_run_input)
        elif parameter.name == INPUT:
            outputs = {dep: record.input[dep] for dep in step.data_deps if dep in record.input}
            arguments[INPUT] = {RUN: run_input(step, record, fetch_run_input), **outputs}
        elif parameter.name in record.input:
            arguments[parameter.name] = record.input[parameter.name]
        elif not parameter.has_default:
            text = f"dep '{parameter.name}' was skipped and has no default"
            raise _no_argument(step, parameter, text)
    return arguments


def undo_arguments(step: StepSpec, original: Original | None, ctx: object) -> dict[str, Any] | None:
    """
    Return the arguments of an undo handler, or None if there is nothing to undo.

    Its task may have been attempted only: then it has no output, and the parameter its default.
    """
    if original is None:
        return None
    arguments: dict[str, Any] = {}
    for parameter in step.parameters:
        part = part_of(parameter.name)
        if parameter.name == CTX:
            arguments[CTX] = ctx
        elif part in original.parts:
            arguments[parameter.name] = original.parts[part]
        elif not parameter.has_default:
            text = f"the task has no {part}, and '{parameter.name}' no default"
            raise _no_argument(step, parameter, text)
    return arguments


def _no_argument(step: StepSpec, parameter: Parameter, text: str) -> RunError:
    remedy = f"give it one, such as {parameter.name}=None"
    return RunError(f"step {step.slug}: {text}", code="E405", next=remedy)


def run_input(step: StepSpec, record: Claimed, fetch_run_input: Callable[[], Any]) -> Any:
    """The run's input: from the record if it is there, else fetched."""
    if not step.is_map and RUN in record.input:
        return record.input[RUN]
    if record.flow_input is not SQL_NULL:
        return record.flow_input
    return fetch_run_input()


_NO_ANSWER = (
    "signal %s is no answer, and is passed over; `pgflowd runs approve RUN %s` sends one, and so"
    " does reject"
)


def wait_handler(slug: str, timeout: Time | None, default: Any) -> Callable[[Context], Any]:
    """A handler whose output is the payload of the signal."""

    def wait(ctx: Context) -> Any:
        return ctx.wait_signal(slug, timeout=timeout, default=default)

    wait.__name__ = wait.__qualname__ = str(slug)
    return wait


def approval_handler(slug: str, timeout: Time | None) -> Callable[[Context], dict[str, Any]]:
    """
    A handler whose output says who approved; a rejection fails the task for good.

    A signal that is no answer is passed over: what was received once would fail each retry.
    """

    def approve(ctx: Context) -> dict[str, Any]:
        try:
            while not is_answer(payload := ctx.wait_signal(slug, timeout=timeout)):
                ctx.log.warning(_NO_ANSWER, slug, slug)
        except Suspended as suspended:
            suspended.wait = replace(suspended.wait, why=APPROVAL)
            raise
        return output_of(payload)

    approve.__name__ = approve.__qualname__ = str(slug)
    return approve


# The flow that undoes runs of another one.
#
# That of `orders` is `undo_orders`, an ordinary flow. For a step `charge` it has `undo_charge`; for
# a map `ship` it has `list_ship`, which returns the indexes to undo, and `undo_ship`, a map over
# them. Each waits for the undo steps of its nearest undoable descendants, so the order is reversed,
# and independent branches are undone side by side.
#
# It is served in older versions, too: for those it keeps the undos of retired steps, and `list_`
# for steps that are maps no more.
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
